"""An all-to-all backend of experts without what it needs."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.plan.topics.parallel import attention_ranks
from speclaunch.record import record
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_NAME = "moe_a2a_backend"
_RUNNER = "moe_runner_backend"
_CHUNK = "chunked_prefill_size"
_MUSE_SPARK = "MuseSparkForConditionalGeneration"


@record
class _Runners:
    """The runners that a backend takes; `auto` is the engine's to choose. The first row counts.

    0.5.12.post1 server_args.py:3278, 0.5.14 :5351, 0.5.15.post1 :5161; 0.5.23
    arg_groups/moe_hook.py:333, 415, 538 and 600.
    """

    backend: str
    versions: str
    taken: tuple[str, ...]
    said: str


_CUTLASS, _CUTEDSL, _ROUTED = "flashinfer_cutlass", "flashinfer_cutedsl", "flashinfer_trtllm_routed"
_ONLY = "Flashinfer MoE A2A is only supported with"
_RUNNERS = (
    _Runners("flashinfer", "<0.5.13", (_CUTLASS,), f"{_ONLY} {_CUTLASS} moe runner backend"),
    _Runners(
        "flashinfer",
        "<0.5.15",
        (_CUTLASS, _CUTEDSL),
        f"{_ONLY} {_CUTLASS} or {_CUTEDSL} moe runner backend",
    ),
    _Runners(
        "flashinfer",
        "<0.5.19",
        (_CUTLASS, _CUTEDSL, _ROUTED, "flashinfer_trtllm"),
        f"{_ONLY} {_CUTLASS}, {_CUTEDSL} or {_ROUTED} moe runner",
    ),
    _Runners(
        "flashinfer",
        "",
        (_CUTLASS, _CUTEDSL, _ROUTED, "flashinfer_trtllm", "deep_gemm"),
        f"FlashInfer MoE A2A is supported with {_CUTLASS}, {_CUTEDSL}, flashinfer_trtllm, "
        f"{_ROUTED}, or deep_gemm.",
    ),
    _Runners(
        "flashinfer_megamoe",
        "",
        ("flashinfer_megamoe",),
        "FlashInfer MegaMOE a2a backend requires --moe-runner-backend flashinfer_megamoe",
    ),
    _Runners(
        "deepep_v2",
        "",
        ("deep_gemm",),
        "DeepEP v2 MoE currently supports only --moe-runner-backend deep_gemm.",
    ),
    _Runners(
        "pplx",
        "",
        ("deep_gemm",),
        "moe_a2a_backend='pplx' is only supported with --moe-runner-backend deep_gemm (or auto).",
    ),
)
_ROOM = {
    "mori": ("SGLANG_MORI_NUM_MAX_DISPATCH_TOKENS_PER_RANK", 4096),
    "pplx": ("SGLANG_PPLX_NUM_MAX_DISPATCH_TOKENS_PER_RANK", 128),
}
"""The variable that says how many tokens a rank may send, and its default (0.5.18
server_args.py:6966 and 7006)."""


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict a thing that the backend does not take."""
    backend, runner = str(plan.given(_NAME)), plan.given(_RUNNER)
    rows = (row for row in _RUNNERS if row.backend == backend and plan.in_versions(row.versions))
    row = next(rows, None)
    if row is not None and runner not in (None, "auto", *row.taken):
        yield _verdict(
            f"the all-to-all backend {backend} does not run with {runner}",
            row.said,
            (_NAME, _RUNNER),
            Fix("let the engine choose the runner", set={_RUNNER: None}),
        )
    yield from _attention(plan, backend)
    yield from _room(plan, backend)
    if backend == "pplx" and plan.value("deepep_mode") == "normal":
        yield _verdict(
            "the all-to-all backend pplx does not run with deepep_mode normal",
            "moe_a2a_backend='pplx' only supports low-latency mode",
            (_NAME, "deepep_mode"),
            Fix("leave it out", set={"deepep_mode": None}),
        )


def _attention(plan: Plan, backend: str) -> Iterator[Verdict]:
    """The data-parallel ranks of attention that a backend wants."""
    ranks, tensor = attention_ranks(plan), plan.value("tp_size")
    whole = backend == "flashinfer_megamoe" or (
        backend == "flashinfer" and plan.in_versions(">=0.5.13") and not _is_muse_spark(plan)
    )
    if whole and (ranks != tensor or ranks < 2):
        yield _verdict(
            f"the all-to-all backend {backend} needs data-parallel attention on all {tensor} "
            f"ranks, not {ranks}",
            f"{backend} MoE A2A is only supported with --attn-dp-size equal to --tp-size",
            (_NAME,),
            Fix("set it to deepep, or make attention data-parallel on all ranks"),
        )
    if backend == "pplx" and ranks < 2:
        yield _verdict(
            "the all-to-all backend pplx needs data-parallel attention",
            "moe_a2a_backend='pplx' requires attention DP with at least 2 groups "
            "(--attn-dp-size >= 2).",
            (_NAME,),
            Fix("set it to deepep, or make attention data-parallel"),
        )


def _is_muse_spark(plan: Plan) -> bool:
    target = plan.facts.target
    return target is not None and target.architecture == _MUSE_SPARK


def _room(plan: Plan, backend: str) -> Iterator[Verdict]:
    """Chunks of prefill that a rank cannot send at once."""
    if backend not in _ROOM or plan.value("disaggregation_mode") == "decode":
        return
    variable, usual = _ROOM[backend]
    text = (plan.env(variable) or str(usual)).strip()
    chunk = plan.value(_CHUNK)
    if not text.isdigit() or chunk <= int(text):
        return
    yield _verdict(
        f"the all-to-all backend {backend} sends {text} tokens a rank, fewer than a chunk of "
        f"{chunk}",
        f"{variable} (default {usual}) must be larger or equal to chunked_prefill_size",
        (_NAME, _CHUNK),
        Fix(f"set {variable} to {chunk}", env={variable: str(chunk)}),
    )


def _verdict(message: str, said: str, at: tuple[str, ...], fix: Fix) -> Verdict:
    return Verdict(message, at=at, why=f"the engine refuses: {said}", fix=fix)


RULE = rule(
    "SPL271",
    "all-to-all",
    Severity.ERROR,
    check,
    says=(
        "Flashinfer MoE A2A ",
        "FlashInfer MoE A2A is supported with",
        "FlashInfer MegaMOE is only supported with",
        "FlashInfer MegaMOE a2a backend requires",
        "DeepEP v2 MoE currently supports only",
        "moe_a2a_backend='pplx' ",
        "SGLANG_MORI_NUM_MAX_DISPATCH_TOKENS_PER_RANK (default",
        "SGLANG_PPLX_NUM_MAX_DISPATCH_TOKENS_PER_RANK (default",
    ),
)
