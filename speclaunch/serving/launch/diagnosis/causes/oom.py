"""Out-of-memory messages of allocators, and the stages in which they appear.

The texts come from torch, triton, cuBLAS and numpy; SGLang wraps them unchanged. They are the same
in every phase of a start. Only the circumstances show in which direction to change a setting.
"""

from __future__ import annotations

import re
from enum import Enum, auto

from speclaunch.serving.launch.diagnosis.interface import Condition, LogFailure
from speclaunch.serving.launch.log.marks import LogMark, Phase

TEXT = (
    r"(?:(?:CUDA|HIP|XPU|NPU|MUSA|MPS) out of memory\b"
    r"|NPU error.{0,80}out of memory\b"
    r"|(?:CUDA|HIP) error: out of memory\b"
    r"|Triton Error \[(?:CUDA|HIP)\]: out of memory\b"
    r"|(?:CUDA|HIP) driver error: out of memory\b"
    r"|CUDA error: CUBLAS_STATUS_ALLOC_FAILED\b"
    r"|cudaErrorMemoryAllocation\b"
    r"|\[enforce fail at [\w./]{1,80}:\d{1,6}\] .{0,80}DefaultCPUAllocator: "
    r"(?:can't allocate|not enough) memory"
    r"|DefaultCPUAllocator: (?:can't allocate|not enough) memory"
    r"|Unable to allocate [\d.]{1,12} [KMGTP]?i?B for an array\b)"
)
_ALLOCATION = re.compile(
    r"Tried to allocate (?P<asked>\d{1,9}(?:\.\d{1,3})?) (?P<asked_unit>bytes|KiB|MiB|GiB)\."
    r".{0,120}? of which (?P<free>\d{1,9}(?:\.\d{1,3})?) (?P<free_unit>bytes|KiB|MiB|GiB) is free",
    re.DOTALL,
)
_UNITS = {"bytes": 2**-30, "KiB": 2**-20, "MiB": 2**-10, "GiB": 1.0}
_OUT_OF_MEMORY = re.compile(TEXT)
CAPTURE = (
    r"Capture (?:cuda graph|CUDA graph|CPU graph|prefill CUDA graph|single-CG draft extend"
    r"|frozen-KV MTP cuda graph)[\w ()-]{0,40} failed"
)
"""Beginnings of the engine's message about a failed capture. "CUDA" in 0.4.6, "cuda" later
(cuda_graph_runner.py, runner/decode_cuda_graph_runner.py); prefill from 0.5.14.
"""
_CAPTURE_PREFIX = re.compile(
    r"Capture (?:cuda graph|CUDA graph|CPU graph|prefill CUDA graph|single-CG draft extend"
    r"|frozen-KV MTP cuda graph)[\w ()-]{0,40}failed:? *"
)
_CAPTURE_FILES = re.compile(r"graph_runner\.py$|^cuda_graph_setup\.py$|^cpu_graph_runner\.py$")
_POOL_FILES = {"memory_pool.py", "kv_cache_configurator.py", "model_runner_kv_cache_mixin.py"}
_POOL_FUNCTIONS = {"init_memory_pool", "_init_pools", "alloc_memory_pool", "init_memory_pools"}
_DEVICE_FILES = {"dp_attention.py", "parallel_state.py", "bootstrap.py"}
"""Files that set up the device before `load_model`, which is absent from their tracebacks (0.5.23
srt/distributed/, srt/layers/dp_attention.py).
"""
_LOAD_FUNCTIONS = {"load_model", "load_weights", "process_weights_after_loading"}
_FORWARD_FUNCTIONS = {
    "event_loop_normal",
    "event_loop_overlap",
    "run_batch",
    "forward_batch_generation",
    "event_loop_pp",
}


class StartStage(Enum):
    """Activity of the engine at the failure."""

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
    """True if an allocator was out of memory."""
    if failure.kind in ("OutOfMemoryError", "_ArrayMemoryError"):
        return True
    text = unwrapped(failure)
    if failure.kind == "MemoryError":
        return True
    if _OUT_OF_MEMORY.match(text):
        return True
    return text.startswith("NCCL") and bool(
        re.search(r"(?:Cuda|CUDA|Hip|HIP) failure \d{0,4} ?'out of memory'", text[:4000])
    )


def allocation(message: str) -> dict[str, float]:
    """Return the requested and the free memory in torch's message, in GiB; empty if it states
    neither.

    Source: torch 2.x c10/cuda/CUDACachingAllocator.cpp.
    """
    found = _ALLOCATION.search(message[:4000])
    if found is None:
        return {}
    requested, free = (
        float(found[name]) * _UNITS[found[f"{name}_unit"]] for name in ("asked", "free")
    )
    return {"asked_gib": round(requested, 4), "free_gib": round(free, 4)}


def stage(failure: LogFailure) -> StartStage:  # noqa: PLR0911 - one line a stage
    """Return the stage of the failure, from the traceback if possible, otherwise from the
    milestones.
    """
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


def _by_milestones(failure: LogFailure) -> StartStage:  # noqa: PLR0911 - one line a stage
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
    """Return a condition that is true if memory ran out in one of these stages. `cpu`: only on a
    CPU engine (True) or only on a GPU (False).
    """
    return lambda failure: (
        cpu in (None, failure.cpu) and out_of_memory(failure) and stage(failure) in stages
    )


def not_memory(failure: LogFailure) -> bool:
    """True if the failure was not a memory allocation."""
    return not out_of_memory(failure)
