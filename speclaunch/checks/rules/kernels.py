"""Rules about layer kernels: MoE runners, all-to-all backends, quantization, hidden states."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from speclaunch.checks.rules.interface import Fix, Verdict, refused, rule
from speclaunch.checks.rules.values import architecture, generation, number
from speclaunch.engine import (
    DRAFT_PATH,
    NAME,
    Absence,
    Plan,
    absence,
    attention_ranks,
    method_of,
    target_of,
)

_RUNNER = "moe_runner_backend"
_METHOD = "quantization"
_CHOSEN = Fix(f"remove {_RUNNER}: the engine chooses one", set={_RUNNER: None})
_INTEGER = (
    "awq",
    "awq_marlin",
    "gptq",
    "gptq_marlin",
    "moe_wna16",
    "w8a8_int8",
    "bitsandbytes",
    "petit_nvfp4",
)
"""Quantization methods that no FlashInfer runner supports in any release."""


class _Runner(Struct, frozen=True):
    """An MoE runner, the quantization methods that it refuses, and the engine's message."""

    name: str
    refused: tuple[str, ...]
    engine_message: str
    versions: str = ""
    equal: bool = False
    """True if the engine requires `ep_size` to be 1 or equal to `tp_size`."""


_MOE_RUNNER_RUNNERS = (
    _Runner(
        "flashinfer_cutlass",
        (*_INTEGER, "w8a8_fp8", "fp8", "compressed-tensors"),
        "FlashInfer Cutlass MOE supports only: 'modelopt_fp4', 'modelopt_fp8', 'modelopt_mixed', "
        "or bfloat16 (None).",
        equal=True,
    ),
    _Runner(
        "flashinfer_trtllm",
        (*_INTEGER, "w8a8_fp8"),
        "FlashInfer TRTLLM MOE supports only: 'modelopt_fp4', 'fp8', 'modelopt_fp8', "
        "'compressed-tensors', or bfloat16 (None).",
        ">=0.5.2",
    ),
    _Runner(
        "flashinfer_trtllm_routed",
        (*_INTEGER, "w8a8_fp8", "compressed-tensors", "modelopt_fp8"),
        "FlashInfer TRTLLM routed MOE supports only: 'fp8', 'mxfp8', 'modelopt_fp4', or bfloat16 "
        "(None).",
    ),
    _Runner(
        "flashinfer_cutedsl",
        (*_INTEGER, "w8a8_fp8", "fp8", "compressed-tensors", "modelopt_fp8"),
        "FlashInfer CuteDSL MOE currently supports only: 'modelopt_fp4'.",
        ">=0.5.11",
        equal=True,
    ),
)
_EQUAL = "The expert parallel size must be 1 or the same as the tensor parallel size"
_MOE_RUNNER_CUTLASS = ("fp8", "mxfp8")


@rule("SPL267")
def moe_runner(plan: Plan) -> Iterator[Verdict]:
    """Report an MoE runner that does not support the quantization or the expert group count."""
    runner, method = plan.user_value(_RUNNER), plan.user_value(_METHOD)
    for row in _MOE_RUNNER_RUNNERS:
        if runner != row.name or not plan.in_versions(row.versions):
            continue
        if str(method).lower() in row.refused:
            yield refused(
                f"{row.name} does not run experts with quantization {method}",
                row.engine_message,
                (_METHOD, _RUNNER),
                _CHOSEN,
            )
        tensor = number(plan, "tp_size")
        if row.equal and _groups(plan) not in (1, tensor):
            yield refused(
                f"{runner} needs ep_size 1 or {tensor}, not {_groups(plan)}",
                _EQUAL,
                ("ep_size",),
                _CHOSEN,
            )
    fp8 = method in _MOE_RUNNER_CUTLASS and plan.in_versions(">=0.5.4")
    if runner == "cutlass" and fp8 and _groups(plan) != 1:
        reason = "FP8/MXFP8 Cutlass MoE is only supported with ep_size == 1"
        message = f"cutlass supports FP8 experts only with ep_size 1, not {_groups(plan)}"
        yield refused(message, reason, ("ep_size",), _CHOSEN)


def _groups(plan: Plan) -> int | None:
    """Return `ep_size` (None: unset), or 1 with an all-to-all backend, so that no check applies."""
    return number(plan, "ep_size") if plan.value("moe_a2a_backend") == "none" else 1


_CAPTURE = "enable_return_aux_hidden_states"
_LAYERS = "return_aux_hidden_state_layer_ids"
_ALGORITHM = "speculative_algorithm"
_METHODS = ("EAGLE3", "DFLASH", "DSPARK")


@rule("SPL269")
def aux_hidden_states(plan: Plan) -> Iterator[Verdict]:
    """Report auxiliary hidden states if a requirement is missing."""
    layers = plan.user_value(_LAYERS)
    if not plan.user_value(_CAPTURE):
        if layers is not None:
            yield refused(
                f"{_LAYERS} needs {_CAPTURE}",
                "--return-aux-hidden-state-layer-ids requires --enable-return-aux-hidden-states.",
                (_LAYERS, _CAPTURE),
                Fix(f"remove it, or set {_CAPTURE}", set={_LAYERS: None}),
            )
        return
    chosen = plan.user_value(_ALGORITHM)
    method = str(chosen).upper()
    if method not in _METHODS:
        yield refused(
            f"{_CAPTURE} needs {_ALGORITHM} EAGLE3, DFLASH or DSPARK, not {chosen}",
            "--enable-return-aux-hidden-states needs --speculative-algorithm EAGLE3, DFLASH or "
            "DSPARK to name the capture convention",
            (_ALGORITHM, _CAPTURE),
            Fix(f"remove {_CAPTURE}", set={_CAPTURE: None}),
        )
    elif method != "EAGLE3" and not layers:
        yield refused(
            f"{_CAPTURE} with {chosen} needs {_LAYERS}",
            f"--enable-return-aux-hidden-states with {method} requires "
            "--return-aux-hidden-state-layer-ids.",
            (_CAPTURE,),
            Fix(f"list the layers in {_LAYERS}"),
        )
    if plan.user_value(DRAFT_PATH) is not None:
        yield refused(
            f"{_CAPTURE} does not work with {DRAFT_PATH}",
            "--enable-return-aux-hidden-states captures without a draft; drop "
            "--speculative-draft-model-path.",
            (DRAFT_PATH, _CAPTURE),
            Fix(
                f"remove {DRAFT_PATH} or {_CAPTURE}",
                set={_CAPTURE: None, _LAYERS: None},
            ),
        )
    stages = number(plan, "pp_size")
    if stages != 1:
        yield refused(
            f"{_CAPTURE} does not work with pp_size {stages}",
            "--enable-return-aux-hidden-states only supports pp_size == 1",
            ("pp_size", _CAPTURE),
            Fix("set pp_size to 1", set={"pp_size": 1}),
        )


_ONLINE = "nvfp4_online"
_BLACKWELL = 10
_ANOTHER = Fix("remove it, or choose another method", set={NAME: None})


@rule("SPL270")
def quantization_platform(plan: Plan) -> Iterator[Verdict]:
    """Report a `quantization` that this platform has no method for.

    Yields at most one verdict for a missing method. A checkpoint that is already quantized may
    replace the method, or refuse it (SPL427).
    """
    explicit = plan.user_value(NAME)
    if explicit is None and plan.facts.target is None:
        return
    if explicit == _ONLINE:
        yield from _online(plan)
        return
    used = method_of(plan).used
    if used is None:
        return
    missing = absence(plan, used)
    if missing is Absence.UNKNOWN:
        message = f"SGLang {plan.version} has no quantization {used} on this platform"
        engine_message = f"Unknown quantization method: {used}."
    elif missing is Absence.ROCM:
        message = f"quantization {used} does not run on AMD GPUs"
        engine_message = f"{used} quantization is currently not supported in ROCm."
    else:
        return
    if used == explicit:
        yield refused(message, engine_message, (NAME,), _ANOTHER)
    else:
        fix = Fix("use an unquantized checkpoint, or one with another quantization method")
        message = f"{target_of(plan).name}: {message}"
        yield refused(message, engine_message, ("model_path",), fix)


def _online(plan: Plan) -> Iterator[Verdict]:
    if plan.device != "cuda" or generation(plan) == _BLACKWELL:
        return
    if target_of(plan).quantization in (None, "fp8"):
        yield refused(
            f"quantization {_ONLINE} needs a GPU of NVIDIA's SM100 family",
            f"--quantization {_ONLINE} is supported only on NVIDIA Blackwell SM100/SM103 GPUs.",
            (NAME,),
            _ANOTHER,
        )


_BACKEND = "moe_a2a_backend"
_CHUNK = "chunked_prefill_size"
_MUSE_SPARK = "MuseSparkForConditionalGeneration"


class _Runners(Struct, frozen=True):
    """MoE runners that a backend accepts; the engine resolves `auto`.

    The first matching row applies. Sources: 0.5.12.post1 server_args.py:3278, 0.5.14 :5351,
    0.5.15.post1 :5161; 0.5.23 arg_groups/moe_hook.py:333, 415, 538 and 600.
    """

    backend: str
    versions: str
    taken: tuple[str, ...]
    engine_message: str


_A2A_CUTLASS, _CUTEDSL, _ROUTED = (
    "flashinfer_cutlass",
    "flashinfer_cutedsl",
    "flashinfer_trtllm_routed",
)
_ONLY = "Flashinfer MoE A2A is only supported with"
_ALL_TO_ALL_RUNNERS = (
    _Runners(
        "flashinfer", "<0.5.13", (_A2A_CUTLASS,), f"{_ONLY} {_A2A_CUTLASS} moe runner backend"
    ),
    _Runners(
        "flashinfer",
        "<0.5.15",
        (_A2A_CUTLASS, _CUTEDSL),
        f"{_ONLY} {_A2A_CUTLASS} or {_CUTEDSL} moe runner backend",
    ),
    _Runners(
        "flashinfer",
        "<0.5.19",
        (_A2A_CUTLASS, _CUTEDSL, _ROUTED, "flashinfer_trtllm"),
        f"{_ONLY} {_A2A_CUTLASS}, {_CUTEDSL} or {_ROUTED} moe runner",
    ),
    _Runners(
        "flashinfer",
        "",
        (_A2A_CUTLASS, _CUTEDSL, _ROUTED, "flashinfer_trtllm", "deep_gemm"),
        f"FlashInfer MoE A2A is supported with {_A2A_CUTLASS}, {_CUTEDSL}, flashinfer_trtllm, "
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
"""For each backend, the variable that limits how many tokens a rank may send at once, and its
default (0.5.18 server_args.py:6966 and 7006)."""


@rule("SPL271")
def all_to_all(plan: Plan) -> Iterator[Verdict]:
    """Report an all-to-all backend for experts if a requirement is missing."""
    backend, runner = str(plan.user_value(_BACKEND)), plan.user_value(_RUNNER)
    rows = (r for r in _ALL_TO_ALL_RUNNERS if r.backend == backend and plan.in_versions(r.versions))
    if (row := next(rows, None)) and runner not in (None, "auto", *row.taken):
        yield refused(
            f"the all-to-all backend {backend} does not work with {runner}",
            row.engine_message,
            (_BACKEND, _RUNNER),
            _CHOSEN,
        )
    yield from _attention(plan, backend)
    yield from _room(plan, backend)
    if backend == "pplx" and plan.value("deepep_mode") == "normal":
        yield refused(
            "the all-to-all backend pplx does not work with deepep_mode normal",
            "moe_a2a_backend='pplx' only supports low-latency mode",
            (_BACKEND, "deepep_mode"),
            Fix("remove deepep_mode", set={"deepep_mode": None}),
        )


def _attention(plan: Plan, backend: str) -> Iterator[Verdict]:
    """Report a DP attention rank count that a backend does not support."""
    ranks, tensor = attention_ranks(plan), plan.value("tp_size")
    needs_all = backend == "flashinfer_megamoe" or (
        backend == "flashinfer"
        and plan.in_versions(">=0.5.13")
        and architecture(plan.facts.target) != _MUSE_SPARK
    )
    if needs_all and (ranks != tensor or ranks < 2):
        yield refused(
            f"the all-to-all backend {backend} needs data-parallel attention on all {tensor} "
            f"ranks, not {ranks}",
            f"{backend} MoE A2A is only supported with --attn-dp-size equal to --tp-size",
            (_BACKEND,),
            Fix("set moe_a2a_backend to deepep, or run DP attention on all ranks"),
        )
    if backend == "pplx" and ranks < 2:
        yield refused(
            "the all-to-all backend pplx needs data-parallel attention",
            "moe_a2a_backend='pplx' requires attention DP with at least 2 groups "
            "(--attn-dp-size >= 2).",
            (_BACKEND,),
            Fix("set moe_a2a_backend to deepep, or enable DP attention"),
        )


def _room(plan: Plan, backend: str) -> Iterator[Verdict]:
    """Report prefill chunks that a rank cannot send at once."""
    if backend not in _ROOM or plan.value("disaggregation_mode") == "decode":
        return
    variable, usual = _ROOM[backend]
    text = (plan.env(variable) or str(usual)).strip()
    chunk = plan.value(_CHUNK)
    if not text.isdigit() or chunk <= int(text):
        return
    yield refused(
        f"the all-to-all backend {backend} sends at most {text} tokens per rank, but a chunk has "
        f"{chunk}",
        f"{variable} (default {usual}) must be larger or equal to chunked_prefill_size",
        (_BACKEND, _CHUNK),
        Fix(f"set {variable} to {chunk}", env={variable: str(chunk)}),
    )
