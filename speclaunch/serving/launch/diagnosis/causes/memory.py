"""Memory causes: allocators' messages, the KV pool, weights that do not fit, CUDA graphs.

SGLang passes on the messages of torch, triton, cuBLAS and numpy, which are the same in every phase
of a start. Only the circumstances show in which direction to change a setting.
"""

from __future__ import annotations

import re
from enum import Enum, auto

from speclaunch.engine import FIRST_IN_POOL, IN_POOL, NEEDS_A_STATE, PREFILL_BY_DEFAULT
from speclaunch.serving.launch.diagnosis.interface import (
    Condition,
    Direction,
    KnownCause,
    LogFailure,
    known,
    lower,
    raised,
)
from speclaunch.serving.launch.engine_log import LogMark, Phase

_OUT_OF_MEMORY = re.compile(
    r"(?:CUDA|HIP|XPU|NPU|MUSA|MPS) out of memory\b"
    r"|NPU error.{0,80}out of memory\b"
    r"|(?:CUDA|HIP) (?:driver )?error: out of memory\b"
    r"|Triton Error \[(?:CUDA|HIP)\]: out of memory\b"
    r"|CUDA error: CUBLAS_STATUS_ALLOC_FAILED\b"
    r"|cudaErrorMemoryAllocation\b"
    r"|(?:\[enforce fail at [\w./]{1,80}:\d{1,6}\] .{0,80})?DefaultCPUAllocator: "
    r"(?:can't allocate|not enough) memory"
    r"|Unable to allocate [\d.]{1,12} [KMGTP]?i?B for an array\b"
)
_ALLOCATION = re.compile(
    r"Tried to allocate (?P<asked>\d{1,9}(?:\.\d{1,3})?) (?P<asked_unit>bytes|KiB|MiB|GiB)\."
    r".{0,120}? of which (?P<free>\d{1,9}(?:\.\d{1,3})?) (?P<free_unit>bytes|KiB|MiB|GiB) is free",
    re.DOTALL,
)
_UNITS = {"bytes": 2**-30, "KiB": 2**-20, "MiB": 2**-10, "GiB": 1.0}
CAPTURE = (
    r"Capture (?:cuda graph|CUDA graph|CPU graph|prefill CUDA graph|single-CG draft extend"
    r"|frozen-KV MTP cuda graph)[\w ()-]{0,40} failed"
)
"""Pattern for the beginning of the engine's message about a failed capture. 0.4.6 writes "CUDA",
later releases "cuda" (cuda_graph_runner.py, runner/decode_cuda_graph_runner.py). The prefill
message exists from 0.5.14."""
AFTER_CAPTURE = rf"(?:{CAPTURE}: ?)?"
"""Pattern for the engine's text before an error, which it adds if a capture failed."""
_CAPTURE_PREFIX = re.compile(CAPTURE + r":? *")
_CAPTURE_FILES = re.compile(r"graph_runner\.py$|^cuda_graph_setup\.py$|^cpu_graph_runner\.py$")
_POOL_FILES = {"memory_pool.py", "kv_cache_configurator.py", "model_runner_kv_cache_mixin.py"}
_POOL_FUNCTIONS = {"init_memory_pool", "_init_pools", "alloc_memory_pool", "init_memory_pools"}
_DEVICE_FILES = {"dp_attention.py", "parallel_state.py", "bootstrap.py"}
"""Files that set up the device before `load_model`, which is absent from their tracebacks (0.5.23
srt/distributed/, srt/layers/dp_attention.py)."""
_LOAD_FUNCTIONS = {"load_model", "load_weights", "process_weights_after_loading"}
_FORWARD_FUNCTIONS = {
    "event_loop_normal",
    "event_loop_overlap",
    "run_batch",
    "forward_batch_generation",
    "event_loop_pp",
}


class StartStage(Enum):
    """Stage in which an engine ran out of memory."""

    DEVICE = auto()
    WEIGHTS = auto()
    DRAFT_IN_SLACK = auto()
    """The draft's weights, after the target's pool was allocated (releases up to 0.5.13)."""
    POOL = auto()
    CAPTURE = auto()
    PREFILL_CAPTURE = auto()
    FORWARD = auto()
    UNKNOWN = auto()


def unwrapped(failure: LogFailure) -> str:
    """Return the allocator's message without the engine's text before it."""
    found = _CAPTURE_PREFIX.match(failure.message)
    return failure.message[found.end() :] if found else failure.message


def out_of_memory(failure: LogFailure) -> bool:
    """True if an allocation failed for lack of memory."""
    if failure.kind in ("OutOfMemoryError", "_ArrayMemoryError", "MemoryError"):
        return True
    text = unwrapped(failure)
    if _OUT_OF_MEMORY.match(text):
        return True
    return text.startswith("NCCL") and bool(
        re.search(r"(?:Cuda|CUDA|Hip|HIP) failure \d{0,4} ?'out of memory'", text[:4000])
    )


def allocation(message: str) -> dict[str, float]:
    """Return the requested and the free memory in torch's message, in GiB; empty unless the message
    states both.

    Source: torch 2.x c10/cuda/CUDACachingAllocator.cpp.
    """
    found = _ALLOCATION.search(message[:4000])
    if found is None:
        return {}
    requested, free = (
        float(found[name]) * _UNITS[found[f"{name}_unit"]] for name in ("asked", "free")
    )
    return {"asked_gib": round(requested, 4), "free_gib": round(free, 4)}


def stage(failure: LogFailure) -> StartStage:  # noqa: PLR0911 - one line per stage
    """Return the stage of the failure, from the traceback if possible, otherwise from the
    milestones."""
    if failure.message.startswith("Capture prefill CUDA graph failed"):
        return StartStage.PREFILL_CAPTURE
    if _CAPTURE_PREFIX.match(failure.message):
        return StartStage.CAPTURE
    files = [frame.file for frame in failure.frames]
    functions = {frame.function for frame in failure.frames}
    capturing = functions & {"capture", "capture_one_batch_size", "_capture_graph", "capture_one"}
    if capturing and any(_CAPTURE_FILES.search(file) for file in files):
        prefill = any("prefill" in file or "piecewise" in file for file in files)
        return StartStage.PREFILL_CAPTURE if prefill else StartStage.CAPTURE
    if functions & _FORWARD_FUNCTIONS:
        return StartStage.FORWARD
    if functions & _LOAD_FUNCTIONS:
        return _loading(failure)
    if functions & _POOL_FUNCTIONS or set(files) & _POOL_FILES:
        return StartStage.POOL
    return _by_milestones(failure)


def _loading(failure: LogFailure) -> StartStage:
    if failure.pooled_before_load:
        return StartStage.DRAFT_IN_SLACK
    draft = any("eagle_worker" in f.file or "standalone_worker" in f.file for f in failure.frames)
    if draft and failure.draft_in_pool is False:
        return StartStage.DRAFT_IN_SLACK
    return StartStage.WEIGHTS


def _by_milestones(failure: LogFailure) -> StartStage:  # noqa: PLR0911 - one line per stage
    if failure.served or failure.phase in (Phase.WARM_UP, Phase.READY):
        return StartStage.FORWARD
    match failure.last:
        case LogMark.LOAD_BEGIN:
            early = any(frame.file in _DEVICE_FILES for frame in failure.frames)
            return StartStage.DEVICE if early else _loading(failure)
        case LogMark.LOAD_END | LogMark.POOL | LogMark.POOL_END:
            return StartStage.POOL
        case LogMark.CAPTURE_BEGIN | LogMark.CAPTURE_END:
            return StartStage.CAPTURE
        case LogMark.BASELINE | LogMark.ARGUMENTS:
            return StartStage.DEVICE
        case LogMark.BATCH | LogMark.SUMMARY | LogMark.SERVING | LogMark.READY:
            return StartStage.FORWARD
        case _:
            return StartStage.UNKNOWN


def during(*stages: StartStage, cpu: bool | None = None) -> Condition:
    """Return a condition that is true if memory ran out in one of these stages. `cpu`: True limits
    it to CPU engines, False to GPUs."""
    return lambda failure: (
        cpu in (None, failure.cpu) and out_of_memory(failure) and stage(failure) in stages
    )


def not_memory(failure: LogFailure) -> bool:
    """True if the cause was not a lack of memory."""
    return not out_of_memory(failure)


_RAISE = {"mem_fraction_static": Direction.RAISE}


POOL: tuple[KnownCause, ...] = (
    known(
        name="weights-exceed-fraction",
        title="mem_fraction_static is too low: the weights use all of it",
        meaning="The fraction covers weights and KV pool, but leaves nothing for the pool. From "
        f"{FIRST_IN_POOL} on, it also covers the draft's weights.",
        remedy="Raise {mem_fraction_static} above the value that the line names.\n"
        "Or make the weights smaller: {tp_size}, {quantization}, a smaller draft.",
        directions=_RAISE,
        versions=IN_POOL,
        sources=(
            "mem_cache/kv_cache_configurator.py _profile_available_bytes",
            "model_executor/model_runner_kv_cache_mixin.py of 0.5.14",
        ),
        signatures=(
            raised(
                r"Loaded weights leave no GPU memory for the KV cache under "
                r"--mem-fraction-static=(?P<mem_fraction_static>[\d.e-]{1,20}?)\. "
                r"Raise --mem-fraction-static above "
                r"(?P<mem_fraction_static_above>\d(?:\.\d{1,9})?)"
            ),
            raised(r"Loaded weights leave no GPU memory for the KV cache"),
        ),
    ),
    known(
        name="kv-pool-too-small",
        title="mem_fraction_static is too low: the KV pool cannot hold one page",
        meaning="The memory left after the weights is less than one page of tokens.",
        remedy="Raise {mem_fraction_static}.\n"
        "Or make the weights smaller: {tp_size}, {quantization}, a smaller draft.",
        directions=_RAISE,
        sources=(
            "model_executor/pool_configurator.py __post_init__",
            "model_executor/model_runner.py init_memory_pool up to 0.5.9",
        ),
        signatures=(
            raised(
                r"Not enough memory\. Please try to increase --mem-fraction-static\."
                r"(?: Current value: (?:self\.server_args\.)?mem_fraction_static="
                r"(?P<mem_fraction_static>\d(?:\.\d{1,9})?))?"
            ),
        ),
    ),
    known(
        name="state-cache-too-small",
        title="no memory is left for the state of a hybrid model",
        meaning="Models with Mamba or linear attention keep a state per request outside the KV "
        "pool; mem_fraction_static leaves too little for one.",
        remedy="Raise {mem_fraction_static}.\nOr serve fewer concurrent requests: "
        "{max_running_requests}.\nOr draft fewer tokens: {speculative_num_draft_tokens}.",
        directions={
            "mem_fraction_static": Direction.RAISE,
            "max_running_requests": Direction.LOWER,
            "speculative_num_draft_tokens": Direction.LOWER,
        },
        versions=NEEDS_A_STATE,
        sources=("mem_cache/kv_cache_configurator.py _handle_max_mamba_cache",),
        signatures=(
            raised(r"Not enough GPU memory for hybrid \(mamba/linear-attention\) state cache"),
            raised(r"Hybrid \(mamba/linear-attention\) state cache is too small to serve"),
        ),
    ),
    known(
        name="warm-up-does-not-fit-pool",
        title="the KV pool is smaller than the engine's own warm-up request",
        meaning="The pool holds too few tokens for the short warm-up prompt.",
        remedy="Raise {max_total_tokens}, if it is set.\nRaise {mem_fraction_static}.",
        directions={"max_total_tokens": Direction.RAISE, "mem_fraction_static": Direction.RAISE},
        sources=("entrypoints/http_server.py _execute_server_warmup", "managers/utils.py"),
        signatures=(
            raised(
                r"\{\"error\":\{\"message\":\"Input length \((?P<input_tokens>\d{1,12}) tokens\) "
                r"exceeds the maximum allowed length \((?P<allowed_tokens>-?\d{1,12}) tokens\)",
                lambda failure: failure.phase is Phase.WARM_UP or "warmup" in failure.head,
            ),
        ),
    ),
    known(
        name="pool-exceeds-gpu",
        title="the KV pool is larger than the free GPU memory",
        meaning="Memory ran out while the pool or the buffers right after it were allocated. "
        "Possible causes: other processes, fragmentation, or a mem_fraction_static that is too "
        "high.",
        remedy="Lower {mem_fraction_static}.\nCheck for other processes on the GPU.",
        directions=lower("mem_fraction_static"),
        sources=("torch's wording, after `Load weight end`",),
        signatures=(raised(r"", during(StartStage.POOL, cpu=False)),),
    ),
    known(
        name="pool-exceeds-machine",
        title="the KV pool is larger than the machine's free memory",
        meaning="On a CPU the pool is in the machine's memory, which other processes share.",
        remedy="Lower {mem_fraction_static}.\nOr set {max_total_tokens} lower.\nOr serve fewer "
        "concurrent requests: {max_running_requests}.",
        directions=lower("mem_fraction_static", "max_total_tokens", "max_running_requests"),
        sources=("torch's wording, after `Load weight end`, device=cpu",),
        signatures=(raised(r"", during(StartStage.POOL, cpu=True)),),
    ),
    known(
        name="host-cache-too-large",
        title="the machine has too little memory for the hierarchical cache",
        meaning="The host cache is sized relative to the KV pool, and exceeds the free memory.",
        remedy="Lower {hicache_ratio} or {hicache_size}.\nOr omit {enable_hierarchical_cache}.",
        directions=lower("hicache_ratio", "hicache_size"),
        sources=("mem_cache/memory_pool_host.py", "mem_cache/pool_host/*.py"),
        signatures=(raised(r"Not enough host memory (?:available|for)"),),
    ),
    known(
        name="cache-type-refused",
        title="this device does not support a KV cache of that type",
        meaning="The type of the KV cache needs instructions that the device lacks.",
        remedy="Set {kv_cache_dtype} to another type, or omit it.",
        sources=(
            "mem_cache/kv_cache_dtype.py configure_kv_cache_dtype",
            "mem_cache/kv_cache_configurator.py configure",
        ),
        signatures=(
            raised(r"CPU FP8 KV cache requires "),
            raised(r"--kv-cache-dtype \S{1,40} is not supported"),
        ),
    ),
)


WEIGHTS: tuple[KnownCause, ...] = (
    known(
        name="gpus-unbalanced",
        title="one GPU has less free memory than the others",
        meaning="One rank has less than nine tenths of the free memory of the others: another "
        "process holds memory on its GPU.",
        remedy="Stop the other process, or exclude that GPU with CUDA_VISIBLE_DEVICES.\nIf the "
        "imbalance is intended: SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK=0 (0.5.7 and "
        "later).",
        sources=("distributed/bootstrap.py", "model_executor/model_runner.py up to 0.5.20"),
        signatures=(raised(r"The memory capacity is unbalanced\. Some GPUs may be occupied"),),
    ),
    known(
        name="gpu-taken",
        title="the GPU had no memory left before anything was loaded",
        meaning="Other processes hold the memory: the engine cannot even start.",
        remedy="Stop them (`nvidia-smi` lists them), or choose another GPU with "
        "CUDA_VISIBLE_DEVICES.",
        sources=("torch's wording, before `Load weight begin`",),
        signatures=(raised(r"", during(StartStage.DEVICE)),),
    ),
    known(
        name="weights-exceed-machine",
        title="the weights do not fit in the machine's memory",
        meaning="On a CPU the weights are in the machine's memory, which other processes share.",
        remedy="Give the machine or the container more memory.\nOr use a smaller model, a "
        "smaller draft, or a quantized checkpoint.",
        sources=("torch's wording, after `Load weight begin`, device=cpu",),
        signatures=(raised(r"", during(StartStage.WEIGHTS, cpu=True)),),
    ),
    known(
        name="weights-do-not-fit",
        title="the weights do not fit in GPU memory",
        meaning="Memory ran out while weights were loaded, before the pool was allocated, so no "
        f"value of mem_fraction_static helps. From {FIRST_IN_POOL} on, the draft's weights are "
        "also loaded before the pool.",
        remedy="Spread the model over more GPUs: {tp_size}.\nOr load it in fewer bits: "
        "{quantization}, or a quantized checkpoint.\nOr use a smaller draft, or a "
        "smaller model.\nCheck for other processes on the GPU first: `nvidia-smi`.",
        sources=("torch's wording, after `Load weight begin`",),
        signatures=(raised(r"", during(StartStage.WEIGHTS)),),
    ),
    known(
        name="draft-weights-do-not-fit",
        title="the memory outside the pool is too small for the draft",
        meaning="Up to 0.5.13 the target's KV pool is allocated first, and the draft's weights "
        "and KV cache use what mem_fraction_static leaves.",
        remedy="Lower {mem_fraction_static}.\n"
        f"Or use {FIRST_IN_POOL} or later, which includes the draft in the fraction.",
        directions=lower("mem_fraction_static"),
        versions=f"<{FIRST_IN_POOL}",
        sources=("speculative/eagle_worker.py up to 0.5.13: the second `Load weight begin`",),
        signatures=(raised(r"", during(StartStage.DRAFT_IN_SLACK)),),
    ),
)


# CUDA graphs: the text after the colon of `Capture cuda graph failed:` decides.
#
# The engine wraps every RuntimeError of a capture with the same advice about memory
# (cuda_graph_runner.py, runner/decode_cuda_graph_runner.py).

GRAPHS: tuple[KnownCause, ...] = (
    known(
        name="capture-out-of-memory",
        title="memory ran out while CUDA graphs were captured",
        meaning="Graphs use the memory outside mem_fraction_static: it leaves too little, or "
        "there are too many graphs. With speculation the draft's graphs are captured too.",
        remedy="Lower {mem_fraction_static}.\nOr capture fewer sizes: "
        "{cuda_graph_max_bs_decode}.\nOr serve fewer concurrent requests: "
        "{max_running_requests} limits the sizes too.\nOr draft fewer tokens: "
        "{speculative_num_draft_tokens}.",
        directions=lower(
            "mem_fraction_static",
            "cuda_graph_max_bs_decode",
            "max_running_requests",
            "speculative_num_draft_tokens",
        ),
        sources=(
            "model_executor/cuda_graph_runner.py CUDA_GRAPH_CAPTURE_FAILED_MSG",
            "model_executor/runner_backend_utils/__init__.py",
        ),
        signatures=(raised(r"", during(StartStage.CAPTURE)),),
    ),
    known(
        name="prefill-capture-out-of-memory",
        title="memory ran out while prefill CUDA graphs were captured",
        meaning="From 0.5.10 the engine captures prefill graphs too, up to a token limit; "
        "they use the memory outside mem_fraction_static.",
        remedy="Disable them: {cuda_graph_backend_prefill=disabled}.\nOr capture fewer sizes: "
        "{cuda_graph_max_bs_prefill}.\nOr lower {mem_fraction_static}.",
        directions=lower("cuda_graph_max_bs_prefill", "mem_fraction_static"),
        versions=PREFILL_BY_DEFAULT,
        sources=("model_executor/runner/prefill_cuda_graph_runner.py",),
        signatures=(raised(r"", during(StartStage.PREFILL_CAPTURE)),),
    ),
    known(
        name="capture-failed",
        title="CUDA graph capture failed, but not for lack of memory",
        meaning="The engine prints its advice about memory after every failed capture. The "
        "cause here is different: see the text after the colon.",
        remedy="Leave the memory settings unchanged.\nStart once with {disable_cuda_graph}: "
        "the error then shows its origin.\nTry another {attention_backend}.",
        sources=("model_executor/runner/decode_cuda_graph_runner.py",),
        signatures=(raised(CAPTURE, not_memory),),
    ),
)
