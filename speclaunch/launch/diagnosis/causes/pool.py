"""The KV pool: its size comes from the memory fraction, and it must fit what is really free."""

from __future__ import annotations

from packaging.specifiers import SpecifierSet

from speclaunch.launch.diagnosis.causes.oom import Stage, during
from speclaunch.launch.diagnosis.interface import Cause, Direction
from speclaunch.launch.diagnosis.signature import Known, LogFailure, raised
from speclaunch.launch.log.marks import Phase
from speclaunch.plan.topics.hybrid import NEEDS_A_STATE
from speclaunch.plan.topics.memory import FIRST_IN_POOL, IN_POOL

_RAISE = {"mem_fraction_static": Direction.RAISE}


def _on_gpu(failure: LogFailure) -> bool:
    return during(Stage.POOL)(failure) and not failure.cpu


def _on_cpu(failure: LogFailure) -> bool:
    return during(Stage.POOL)(failure) and failure.cpu


def _warming_up(failure: LogFailure) -> bool:
    return failure.phase is Phase.WARM_UP or "warmup" in failure.head


CAUSES: tuple[Known, ...] = (
    Known(
        Cause(
            name="weights-exceed-fraction",
            title="mem_fraction_static is too low: the weights use all of it",
            meaning="It covers weights and KV pool, and leaves nothing for the pool. From "
            f"{FIRST_IN_POOL} the draft's weights count too.",
            remedy="Raise {mem_fraction_static} above the value that the line names.\n"
            "Or make the weights smaller: {tp_size}, {quantization}, a smaller draft.",
            memory=True,
            directions=_RAISE,
            versions=SpecifierSet(IN_POOL),
            sources=(
                "mem_cache/kv_cache_configurator.py _profile_available_bytes",
                "model_executor/model_runner_kv_cache_mixin.py of 0.5.14",
            ),
        ),
        (
            raised(
                r"Loaded weights leave no GPU memory for the KV cache under "
                r"--mem-fraction-static=(?P<mem_fraction_static>[\d.e-]{1,20}?)\. "
                r"Raise --mem-fraction-static above "
                r"(?P<mem_fraction_static_above>\d(?:\.\d{1,9})?)"
            ),
            raised(r"Loaded weights leave no GPU memory for the KV cache"),
        ),
    ),
    Known(
        Cause(
            name="kv-pool-too-small",
            title="mem_fraction_static is too low: the KV pool cannot hold one page",
            meaning="The memory left after the weights is less than one page of tokens.",
            remedy="Raise {mem_fraction_static}.\n"
            "Or make the weights smaller: {tp_size}, {quantization}, a smaller draft.",
            memory=True,
            directions=_RAISE,
            sources=(
                "model_executor/pool_configurator.py __post_init__",
                "model_executor/model_runner.py init_memory_pool up to 0.5.9",
            ),
        ),
        (
            raised(
                r"Not enough memory\. Please try to increase --mem-fraction-static\."
                r"(?: Current value: (?:self\.server_args\.)?mem_fraction_static="
                r"(?P<mem_fraction_static>\d(?:\.\d{1,9})?))?"
            ),
        ),
    ),
    Known(
        Cause(
            name="state-cache-too-small",
            title="no memory is left for the state of a hybrid model",
            meaning="Models with Mamba or linear attention keep a state per request outside the KV "
            "pool; mem_fraction_static leaves too little for one.",
            remedy="Raise {mem_fraction_static}.\nOr serve fewer concurrent requests: "
            "{max_running_requests}.\nOr draft fewer tokens: {speculative_num_draft_tokens}.",
            memory=True,
            directions={
                "mem_fraction_static": Direction.RAISE,
                "max_running_requests": Direction.LOWER,
                "speculative_num_draft_tokens": Direction.LOWER,
            },
            versions=SpecifierSet(NEEDS_A_STATE),
            sources=("mem_cache/kv_cache_configurator.py _handle_max_mamba_cache",),
        ),
        (
            raised(r"Not enough GPU memory for hybrid \(mamba/linear-attention\) state cache"),
            raised(r"Hybrid \(mamba/linear-attention\) state cache is too small to serve"),
        ),
    ),
    Known(
        Cause(
            name="warm-up-does-not-fit-pool",
            title="the KV pool is smaller than the engine's own warm-up request",
            meaning="The pool holds too few tokens for the short warm-up prompt.",
            remedy="Raise {max_total_tokens}, if it is set.\nRaise {mem_fraction_static}.",
            memory=True,
            directions={
                "max_total_tokens": Direction.RAISE,
                "mem_fraction_static": Direction.RAISE,
            },
            sources=("entrypoints/http_server.py _execute_server_warmup", "managers/utils.py"),
        ),
        (
            raised(
                r"\{\"error\":\{\"message\":\"Input length \((?P<input_tokens>\d{1,12}) tokens\) "
                r"exceeds the maximum allowed length \((?P<allowed_tokens>-?\d{1,12}) tokens\)",
                _warming_up,
            ),
        ),
    ),
    Known(
        Cause(
            name="pool-exceeds-gpu",
            title="the KV pool is larger than the free GPU memory",
            meaning="Memory ran out while the pool or the buffers right after it were allocated: "
            "other processes, fragmentation, or a mem_fraction_static that leaves too little.",
            remedy="Lower {mem_fraction_static}.\nCheck for other processes on the GPU.",
            memory=True,
            directions={"mem_fraction_static": Direction.LOWER},
            sources=("torch's wording, after `Load weight end`",),
        ),
        (raised(r"", _on_gpu),),
    ),
    Known(
        Cause(
            name="pool-exceeds-machine",
            title="the KV pool is larger than the machine's free memory",
            meaning="On a CPU the pool lies in the machine's memory, which other processes share.",
            remedy="Lower {mem_fraction_static}.\nOr set {max_total_tokens} lower.\nOr serve fewer "
            "concurrent requests: {max_running_requests}.",
            memory=True,
            directions={
                "mem_fraction_static": Direction.LOWER,
                "max_total_tokens": Direction.LOWER,
                "max_running_requests": Direction.LOWER,
            },
            sources=("torch's wording, after `Load weight end`, device=cpu",),
        ),
        (raised(r"", _on_cpu),),
    ),
    Known(
        Cause(
            name="host-cache-too-large",
            title="the machine has too little memory for the hierarchical cache",
            meaning="The host cache is sized by the KV pool, and exceeds the free memory.",
            remedy="Lower {hicache_ratio} or {hicache_size}.\nOr omit {enable_hierarchical_cache}.",
            memory=True,
            directions={"hicache_ratio": Direction.LOWER, "hicache_size": Direction.LOWER},
            sources=("mem_cache/memory_pool_host.py", "mem_cache/pool_host/*.py"),
        ),
        (raised(r"Not enough host memory (?:available|for)"),),
    ),
    Known(
        Cause(
            name="cache-type-refused",
            title="this device does not support a KV cache of that type",
            meaning="The type of the KV cache needs instructions that the device lacks.",
            remedy="Set {kv_cache_dtype} to another type, or omit it.",
            memory=False,
            sources=(
                "mem_cache/kv_cache_dtype.py configure_kv_cache_dtype",
                "mem_cache/kv_cache_configurator.py configure",
            ),
        ),
        (
            raised(r"CPU FP8 KV cache requires "),
            raised(r"--kv-cache-dtype \S{1,40} is not supported"),
        ),
    ),
)
