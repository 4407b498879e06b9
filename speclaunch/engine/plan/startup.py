"""Start-up of a server: the time until it answers, and the endpoints that a probe may request.

The minimum and the expected time are used to check a user's probes. The worst case is the
budget of a generated startup probe. A probe that fails too early kills a server while it loads, and
the next attempt fails the same way.

Sources: `entrypoints/http_server.py` of the releases (0.5.23: lines 715 to 800 and 2191), and
measurements on the CPU engine (0.5.23):

- `/health` responds after 1.0 s when the server is idle or saturated.
- `/health` returns 503 after 20 s when the scheduler hangs.
- Before the warm-up ends, the port is open, `/v1/models` returns 200 and `/health` returns 503.

After SIGTERM a server finishes every running request, without a time limit (`sigterm_watchdog`,
0.4.6 managers/tokenizer_manager.py:1084, 0.5.23 managers/tokenizer_manager.py:3508). Measured on
the CPU engine (0.5.23): 8 requests of 1,000 tokens take 132 s, while `/health` returns 503.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum

from msgspec import Struct

from speclaunch.core import lazy
from speclaunch.engine.plan.memory.weights import counted
from speclaunch.engine.plan.plan import Plan, UnknownValueError
from speclaunch.engine.plan.resolution.graphs import captured_sizes
from speclaunch.engine.plan.settings import Settings
from speclaunch.engine.plan.topics.gpu import decode_is_captured, prefill_is_captured

GENERATES = ">=0.5.1"
"""Releases in which `/health` generates a token, as `/health_generate` does. Earlier releases
return 200 immediately (0.4.10 entrypoints/http_server.py)."""
_SWITCH = "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"
_SWITCHED = ">=0.5.6"
_BYPASS = "SGLANG_DIAG_BYPASS_HEALTH_GENERATE"
PATIENCE = "SGLANG_HEALTH_CHECK_TIMEOUT"
USUAL_PATIENCE = 20
"""Seconds that `/health` waits for a token before it returns 503 (`HEALTH_CHECK_TIMEOUT`, 0.4.6 to
0.5.23)."""
LEAST_SECONDS = 1
"""Seconds that a generating endpoint sleeps before it first checks for an answer."""
_GENERATE = "/health_generate"
_HEALTH = "/health"

_READY = ">=0.5.20"
"""Releases with `/ready`, which needs no API key, and with a `/ping` that checks the server's
status."""
_ALWAYS = ">=0.4.6"
_SINCE: Mapping[str, str] = {
    "/health": _ALWAYS,
    "/health_generate": _ALWAYS,
    "/ping": _ALWAYS,
    "/v1/models": _ALWAYS,
    "/get_model_info": _ALWAYS,
    "/get_server_info": _ALWAYS,
    "/flush_cache": _ALWAYS,
    "/get_load": ">=0.4.7,<0.5.21",
    "/v1/loads": ">=0.5.8",
    "/get_weight_version": ">=0.5.1,<0.5.21",
    "/model_info": ">=0.5.6",
    "/server_info": ">=0.5.6",
    "/weight_version": ">=0.5.6,<0.5.21",
    "/": ">=0.5.10",
    "/ready": _READY,
    "/metrics": _ALWAYS,
    "/docs": _ALWAYS,
    "/redoc": _ALWAYS,
    "/openapi.json": _ALWAYS,
}
"""Paths that respond to GET and may be probed, with the releases that have them (`@app.get`)."""
_ELSEWHERE = lazy(r"/(?:healthz|livez|readyz|live|readiness|liveness|startup|v1/health|v1/ready)/?")
"""Health paths of other servers, which no release of the engine has."""
_NO_KEY = lazy(r"/(?:health|metrics)")
"""Path prefixes that the middleware accepts without an API key (0.4.6 utils.py
`add_api_key_middleware`, 0.5.23 utils/auth.py:99)."""
_WORKER = {"/health": _ALWAYS, "/health_generate": _ALWAYS, "/ping": ">=0.5.4"}
"""Paths served by ranks other than the first, with the releases that serve them
(`launch_dummy_health_check_server`, 0.5.23 utils/common.py:3624)."""


def patience(settings: Settings) -> int:
    """Return the seconds that the engine waits for its scheduler before it returns 503. Raises
    UnknownValueError."""
    text = settings.env(PATIENCE)
    return int(text) if text is not None and text.strip().isdecimal() else USUAL_PATIENCE


def generates(settings: Settings, path: str | None) -> bool:
    """True if a GET of `path` generates a token. Raises UnknownValueError."""
    if path not in (_HEALTH, _GENERATE):
        return False
    if settings.env_flag(_BYPASS):
        return False
    if path == _GENERATE:
        return True
    if not settings.in_versions(GENERATES):
        return False
    return not settings.in_versions(_SWITCHED) or settings.env_flag(_SWITCH, default=True)


def waits_for_warmup(settings: Settings, path: str | None) -> bool:
    """True if `path` returns 200 only after the server has generated a token.

    Raises UnknownValueError.
    """
    if path == "/ready":
        return True
    if path == "/ping":
        return settings.in_versions(_READY)
    if path == _HEALTH:
        return settings.in_versions(GENERATES)
    return path == _GENERATE


def exists(settings: Settings, path: str) -> bool | None:
    """True if the server has a GET endpoint at the path; None if this is unknown."""
    if _ELSEWHERE.fullmatch(path):
        return False
    since = _SINCE.get(path)
    if since is None:
        return None
    return settings.in_versions(since) and (path != "/metrics" or _has_metrics(settings))


def exists_on_worker(settings: Settings, path: str) -> bool:
    """True if ranks other than the first respond to the path. Raises UnknownValueError."""
    since = _WORKER.get(path)
    if since is None:
        return path == "/metrics" and _has_metrics(settings)
    return settings.in_versions(since)


def needs_key(settings: Settings, path: str) -> bool:
    """True if the path returns 401 when the server has an `api_key` and the request has none.
    Raises UnknownValueError."""
    if not settings.is_set("api_key") or _NO_KEY.match(path):
        return False
    return path != "/ready" or not settings.in_versions(_READY)


def _has_metrics(settings: Settings) -> bool:
    return bool(settings.value("enable_metrics"))


_LOOKS = 5
"""Seconds between two checks for SIGTERM."""
_SCHEDULERS = 15
"""Seconds that the schedulers have to release their resources (`_SCHEDULER_EXIT_TIMEOUT_SECS`,
0.5.23 managers/tokenizer_manager.py:456)."""
_WAITS = ">=0.5.20"


def least_seconds(settings: Settings) -> int:
    """Return the seconds that a shutdown may take even without requests."""
    return _LOOKS + (_SCHEDULERS if settings.in_versions(_WAITS) else 0)


_GB = 10**9
SLOW_BYTES_PER_SECOND = 200_000_000
"""Assumed low read rate of a shared file system, a cloud disk or a hub download. AWS gp3 volumes
are slower by default (125 MB/s). EFS and hub downloads reach 200 to 500 MB/s."""
_FASTEST, _USUAL = 16e9, 1e9
"""Maximum and likely rates at which one host reads weights, in bytes per second. The page cache or
eight NVMe drives reach the maximum. The likely rate is that of a network disk or one drive (users
report two minutes for 140 GB)."""


class Range(Struct, frozen=True):
    """A duration in seconds: minimum, likely and worst case."""

    least: int
    likely: int
    slowest: int


_IMPORTS = Range(8, 40, 120)
"""Seconds until weights begin to load. The CPU engine's complete start with a 1 MB model takes 11
to 19 s (0.5.23, two cores, twelve starts). On a GPU, CUDA and NCCL add to that time. The worst case
is a cold disk."""
_CAPTURE = Range(3, 30, 0)
"""Seconds to capture the graphs of one model, target or draft (`Capture cuda graph end. Time
elapsed: …`). The worst case is computed per graph (`_GRAPH`)."""
_GRAPH = 3
"""Worst-case seconds to capture one decode graph. The largest models take 1 to 2 s on H100."""
_MANY_SIZES = 52
"""Assumed number of captured batch sizes if the GPU's memory is unknown: that of the largest GPUs
(0.5.23, `cuda_graph_max_bs_decode` 512)."""
_PREFILL_GRAPHS = 600
"""Worst-case seconds to compile prefill graphs."""
_DEEP_GEMM = 1200
"""Worst-case seconds to compile DeepGEMM kernels. The engine logs "typically 10-20 mins" (0.5.23
layers/deep_gemm_wrapper/compile_utils.py:171)."""
_KERNELS = 300
"""Worst-case seconds to compile or tune kernels at the first start (Triton, FlashInfer)."""
_TORCH_COMPILE = Range(20, 240, 900)
_WARM_UP = Range(1, 10, 60)
_CPU = 120
"""Worst-case seconds for all steps after loading on a CPU, except the warm-up."""


class StartPart(StrEnum):
    """A phase of a start. The values are shown to users."""

    IMPORTS = "imports and process groups"
    WEIGHTS = "weights"
    KERNELS = "kernels"
    GRAPHS = "CUDA graphs"
    WARM_UP = "warm-up"


class PartTime(Struct, frozen=True):
    """Worst-case duration of a start phase, and its explanation."""

    part: StartPart
    seconds: int
    why: str


class StartTime(Struct, frozen=True):
    """Worst-case time of a start, from the first process to the first answer."""

    parts: tuple[PartTime, ...]

    @property
    def seconds(self) -> int:
        return sum(part.seconds for part in self.parts)

    @property
    def why(self) -> str:
        """One-line explanation: `weights 3450 s (690.0 GB at 200 MB/s), …`."""
        return ", ".join(f"{part.part} {part.seconds} s ({part.why})" for part in self.parts)


def start_time(plan: Plan) -> StartTime:
    """Return the worst-case time of a successful start.

    Assumes the worst case for unknown values. Raises UnknownValueError if the size of the weights
    is unknown.
    """
    return StartTime(tuple(_parts(plan)))


def weight_files(plan: Plan) -> int:
    """Return the total bytes of the target's and draft's weight files. Raises UnknownValueError."""
    found = [_bytes(plan, draft=False)]
    named = plan.value("speculative_draft_model_path")
    if named is not None and named != plan.value("model_path"):
        found.append(_bytes(plan, draft=True))
    return sum(found)


def _bytes(plan: Plan, *, draft: bool) -> int:
    checkpoint = plan.facts.draft if draft else plan.facts.target
    if checkpoint is None:
        name = plan.value("speculative_draft_model_path" if draft else "model_path")
        raise UnknownValueError(f"the size of the weights of {name} is unknown")
    size = checkpoint.weight_bytes
    return counted(checkpoint).bytes() if size is None else size


def _parts(plan: Plan) -> Iterator[PartTime]:
    yield PartTime(StartPart.IMPORTS, _IMPORTS.slowest, "from a cold disk")
    size = weight_files(plan)
    seconds = -(-size // SLOW_BYTES_PER_SECOND)
    rate = f"{SLOW_BYTES_PER_SECOND // 10**6} MB/s"
    yield PartTime(StartPart.WEIGHTS, seconds, f"{size / 1e9:.1f} GB at {rate}")
    if _is_cpu(plan):
        yield PartTime(StartPart.KERNELS, _CPU, "all steps after loading on a CPU")
    else:
        yield _kernels(plan)
        yield from _graphs(plan)
    yield PartTime(StartPart.WARM_UP, _WARM_UP.slowest, "warm-up requests")


def _kernels(plan: Plan) -> PartTime:
    seconds, why = _KERNELS, ["compiled or tuned on the first start"]
    if _may_be(lambda: bool(plan.value("enable_torch_compile"))):
        seconds += _TORCH_COMPILE.slowest
        why.append("torch.compile")
    if _has_fp8_blocks(plan):
        seconds += _DEEP_GEMM
        why.append("DeepGEMM for FP8 blocks")
    return PartTime(StartPart.KERNELS, seconds, "; ".join(why))


def _has_fp8_blocks(plan: Plan) -> bool:
    return any(
        checkpoint.quantization == "fp8"
        and bool(checkpoint.quantization_config.get("weight_block_size"))
        for checkpoint in plan.facts.checkpoints
    )


def _graphs(plan: Plan) -> Iterator[PartTime]:
    count, why = _decode_graphs(plan)
    if count:
        yield PartTime(StartPart.GRAPHS, count * _GRAPH, why)
    if _may_be(lambda: prefill_is_captured(plan)):
        yield PartTime(StartPart.GRAPHS, _PREFILL_GRAPHS, "compiled prefill graphs")


def _decode_graphs(plan: Plan) -> tuple[int, str]:
    if not _may_be(lambda: decode_is_captured(plan)):
        return 0, ""
    try:
        sizes, about = len(captured_sizes(plan)), ""
    except UnknownValueError:
        sizes, about = _MANY_SIZES, "at most "
    if _may_be(lambda: plan.algorithm is not None):
        return 2 * sizes, f"{about}{2 * sizes} decode graphs for target and draft"
    return sizes, f"{about}{sizes} decode graphs"


def _may_be(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except UnknownValueError:
        return True


def _is_cpu(plan: Plan) -> bool:
    try:
        return plan.device == "cpu"
    except UnknownValueError:
        return False


class ExpectedStart(Struct, frozen=True):
    """Minimum (`least`) and `likely` seconds from process start until the server is ready.

    `known`: True if the size of the weights is known.
    """

    least: float
    likely: float
    known: bool
    weights: float
    """Known size of the weights of target and draft, in GB."""


def expected_start(plan: Plan) -> ExpectedStart:
    """Return the minimum and the likely start time of a plan on one host. Unknown durations count
    as zero."""
    parts = [_IMPORTS]
    weights, known = _weights(plan)
    if not plan.value_or_none("skip_server_warmup"):
        parts.append(_WARM_UP)
    if _captures(plan):
        parts += [_CAPTURE, _CAPTURE] if _speculates(plan) else [_CAPTURE]
    if plan.value_or_none("enable_torch_compile"):
        parts.append(_TORCH_COMPILE)
    return ExpectedStart(
        sum(part.least for part in parts) + weights * _GB / _FASTEST,
        sum(part.likely for part in parts) + weights * _GB / _USUAL,
        known,
        weights,
    )


def _weights(plan: Plan) -> tuple[float, bool]:
    """Return the known weight size of target and draft in GB, and True if both sizes are known."""
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


def _text(plan: Plan, name: str) -> str | None:
    try:
        return str(plan.value(name))
    except UnknownValueError:
        return None
