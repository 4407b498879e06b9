"""How long a start takes until the server answers: at the least, as is to be expected, and at the
slowest.

What no start beats and what is to be expected judge the probes that somebody wrote; the slowest is
the budget of a startup probe that we write: one that gives up too early kills a server that loads,
which then loads again, for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum

from msgspec import Struct

from speclaunch.engine.plan.memory.weights import counted
from speclaunch.engine.plan.plan import Plan, UnknownValueError
from speclaunch.engine.plan.resolution.graphs import captured_sizes
from speclaunch.engine.plan.topics.graphs import decode_is_captured, prefill_is_captured

_GB = 10**9
SLOW_BYTES_PER_SECOND = 200_000_000
"""What a shared file system, a cloud's plain disk and a download from the hub give at their worst:
AWS gp3 volumes have 125 MB/s without provisioning, EFS and hub downloads some 200 to 500."""
_FASTEST, _USUAL = 16e9, 1e9
"""Bytes a second that one host reads of the weights: the page cache or eight NVMe drives, and a
network disk or one drive (a checkpoint of 140 GB in two minutes is what people report)."""


class Range(Struct, frozen=True):
    """Seconds that something takes."""

    least: int
    likely: int
    slowest: int


_IMPORTS = Range(8, 40, 120)
"""Until weights begin to load. The CPU engine's whole start with a model of 1 MB is 11 to 19
(0.5.23, two cores, twelve starts); on a GPU CUDA and NCCL come on top; the slowest is a cold
disk's."""
_CAPTURE = Range(3, 30, 0)
"""Capture (`Capture cuda graph end. Time elapsed: …`), for target and draft each; the slowest is
counted by graphs."""
_GRAPH = 3
"""Seconds a CUDA graph of decode at the slowest; 1 to 2 on H100 for the largest models."""
_MANY_SIZES = 52
"""Sizes of batches that are captured where the memory of the GPU is not known: those of the largest
(0.5.23, `cuda_graph_max_bs_decode` 512)."""
_PREFILL_GRAPHS = 600
"""Seconds for the graphs of prefill, which are compiled."""
_DEEP_GEMM = 1200
"""Seconds: the engine says "typically 10-20 mins" of it (0.5.23
layers/deep_gemm_wrapper/compile_utils.py:171)."""
_KERNELS = 300
"""Seconds for kernels that are compiled or tuned at the first start (Triton, FlashInfer)."""
_TORCH_COMPILE = Range(20, 240, 900)
"""`enable_torch_compile`."""
_WARM_UP = Range(1, 10, 60)
"""The requests of the warm-up."""
_CPU = 120
"""Seconds for all that follows the weights on a CPU."""


class StartPart(StrEnum):
    """A part of a start. The value is what the user sees."""

    IMPORTS = "imports and process groups"
    WEIGHTS = "weights"
    KERNELS = "kernels"
    GRAPHS = "CUDA graphs"
    WARM_UP = "warm-up"


class PartTime(Struct, frozen=True):
    """What a part takes at the slowest, in seconds, and why."""

    part: StartPart
    seconds: int
    why: str


class StartTime(Struct, frozen=True):
    """A start from the first process to the first answer."""

    parts: tuple[PartTime, ...]

    @property
    def seconds(self) -> int:
        """All parts together."""
        return sum(one.seconds for one in self.parts)

    @property
    def why(self) -> str:
        """In one line: `weights 3450 s (690.0 GB at 200 MB/s), …`."""
        return ", ".join(f"{one.part} {one.seconds} s ({one.why})" for one in self.parts)


def start_time(plan: Plan) -> StartTime:
    """The slowest start that is no failure. Raises UnknownValueError where the size of the weights
    is not known; all else that is not known is taken at its most."""
    return StartTime(tuple(_parts(plan)))


def weight_files(plan: Plan) -> int:
    """Bytes of the files of target and draft. Raises UnknownValueError."""
    found = [_bytes(plan, draft=False)]
    named = plan.value("speculative_draft_model_path")
    if named is not None and named != plan.value("model_path"):
        found.append(_bytes(plan, draft=True))
    return sum(found)


def _bytes(plan: Plan, *, draft: bool) -> int:
    checkpoint = plan.facts.draft if draft else plan.facts.target
    if checkpoint is None:
        name = plan.value("speculative_draft_model_path" if draft else "model_path")
        raise UnknownValueError(f"the size of the weights of {name} is not known")
    size = checkpoint.weight_bytes
    return counted(checkpoint).bytes() if size is None else size


def _parts(plan: Plan) -> Iterator[PartTime]:
    yield PartTime(StartPart.IMPORTS, _IMPORTS.slowest, "from a cold disk")
    size = weight_files(plan)
    seconds = -(-size // SLOW_BYTES_PER_SECOND)
    rate = f"{SLOW_BYTES_PER_SECOND // 10**6} MB/s"
    yield PartTime(StartPart.WEIGHTS, seconds, f"{size / 1e9:.1f} GB at {rate}")
    if _is_cpu(plan):
        yield PartTime(StartPart.KERNELS, _CPU, "a CPU has no graphs")
    else:
        yield _kernels(plan)
        yield from _graphs(plan)
    yield PartTime(StartPart.WARM_UP, _WARM_UP.slowest, "its requests")


def _kernels(plan: Plan) -> PartTime:
    seconds, why = _KERNELS, ["first compiled or tuned here"]
    if _may_be(lambda: bool(plan.value("enable_torch_compile"))):
        seconds += _TORCH_COMPILE.slowest
        why.append("torch.compile")
    if _has_fp8_blocks(plan):
        seconds += _DEEP_GEMM
        why.append("DeepGEMM for FP8 blocks")
    return PartTime(StartPart.KERNELS, seconds, "; ".join(why))


def _has_fp8_blocks(plan: Plan) -> bool:
    """Whether DeepGEMM's kernels may be compiled for the weights: for blocks of FP8."""
    return any(
        one.quantization == "fp8" and bool(one.quantization_config.get("weight_block_size"))
        for one in plan.facts.checkpoints
    )


def _graphs(plan: Plan) -> Iterator[PartTime]:
    count, why = _decode_graphs(plan)
    if count:
        yield PartTime(StartPart.GRAPHS, count * _GRAPH, why)
    if _may_be(lambda: prefill_is_captured(plan)):
        yield PartTime(StartPart.GRAPHS, _PREFILL_GRAPHS, "those of prefill, compiled")


def _decode_graphs(plan: Plan) -> tuple[int, str]:
    """How many graphs of decode there may be, and which."""
    if not _may_be(lambda: decode_is_captured(plan)):
        return 0, ""
    try:
        sizes, about = len(captured_sizes(plan)), ""
    except UnknownValueError:
        sizes, about = _MANY_SIZES, "at most "
    if _may_be(lambda: plan.algorithm is not None):
        return 2 * sizes, f"{about}{2 * sizes} of decode, target and draft"
    return sizes, f"{about}{sizes} of decode"


def _may_be(ask: Callable[[], bool]) -> bool:
    """Whether something is so, or nobody can tell."""
    try:
        return ask()
    except UnknownValueError:
        return True


def _is_cpu(plan: Plan) -> bool:
    try:
        return plan.device == "cpu"
    except UnknownValueError:
        return False


class ExpectedStart(Struct, frozen=True):
    """Seconds from the start of the process until it is ready: `least`, which no start beats, and
    `likely`. `known`: whether the size of the weights is."""

    least: float
    likely: float
    known: bool
    weights: float
    """GB that the target and its draft have, as far as they are known."""


def expected_start(plan: Plan) -> ExpectedStart:
    """What a start of a plan takes on one host, at the least and as is to be expected. What is not
    known is taken to cost nothing."""
    parts = [_IMPORTS]
    weights, known = _weights(plan)
    if not _is_true(plan, "skip_server_warmup"):
        parts.append(_WARM_UP)
    if _captures(plan):
        parts += [_CAPTURE, _CAPTURE] if _speculates(plan) else [_CAPTURE]
    if _is_true(plan, "enable_torch_compile"):
        parts.append(_TORCH_COMPILE)
    return ExpectedStart(
        sum(part.least for part in parts) + weights * _GB / _FASTEST,
        sum(part.likely for part in parts) + weights * _GB / _USUAL,
        known,
        weights,
    )


def _weights(plan: Plan) -> tuple[float, bool]:
    """GB of all checkpoints, and whether that is all."""
    if _text(plan, "load_format") == "dummy":
        return 0.0, True
    found, known = 0.0, plan.facts.target is not None
    for checkpoint in (plan.facts.target, plan.facts.draft):
        if checkpoint is None:
            continue
        size = checkpoint.weight_bytes
        try:
            found += (counted(checkpoint).bytes() if size is None else size) / _GB
        except UnknownValueError:
            known = False
    return found, known


def _captures(plan: Plan) -> bool:
    try:
        return decode_is_captured(plan)
    except UnknownValueError:
        return False


def _speculates(plan: Plan) -> bool:
    try:
        return plan.algorithm not in (None, "NGRAM")
    except UnknownValueError:
        return False


def _is_true(plan: Plan, name: str) -> bool:
    try:
        return bool(plan.value(name))
    except UnknownValueError:
        return False


def _text(plan: Plan, name: str) -> str | None:
    try:
        return str(plan.value(name))
    except UnknownValueError:
        return None
