"""A MoE runner that does not take the quantisation, or the number of expert groups."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.record import record
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import number

_NAME = "moe_runner_backend"
_METHOD = "quantization"
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
"""What no runner of FlashInfer takes in any release."""


@record
class _Runner:
    """A runner: the methods that no release takes with it, from when on, and the engine's words."""

    name: str
    refused: tuple[str, ...]
    said: str
    versions: str = ""
    equal: bool = False
    """Whether `ep_size` is 1 or `tp_size`."""


_RUNNERS = (
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
_CUTLASS = ("fp8", "mxfp8")


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict a thing that the runner does not take."""
    asked, method = plan.given(_NAME), plan.given(_METHOD)
    for row in _RUNNERS:
        if asked != row.name or not plan.in_versions(row.versions):
            continue
        if str(method).lower() in row.refused:
            yield _verdict(
                f"{row.name} does not run experts with quantization {method}",
                row.said,
                (_METHOD, _NAME),
            )
        tensor = number(plan, "tp_size")
        if row.equal and _groups(plan) not in (1, tensor):
            yield _verdict(
                f"{asked} needs ep_size 1 or {tensor}, not {_groups(plan)}", _EQUAL, ("ep_size",)
            )
    fp8 = method in _CUTLASS and plan.in_versions(">=0.5.4")
    if asked == "cutlass" and fp8 and _groups(plan) != 1:
        said = "FP8/MXFP8 Cutlass MoE is only supported with ep_size == 1"
        message = f"cutlass runs FP8 experts with ep_size 1, not {_groups(plan)}"
        yield _verdict(message, said, ("ep_size",))


def _groups(plan: Plan) -> int | None:
    """`ep_size`; 1 where an all-to-all backend sets it to `tp_size` at another time."""
    return number(plan, "ep_size") if plan.value("moe_a2a_backend") == "none" else 1


def _verdict(message: str, said: str, at: tuple[str, ...]) -> Verdict:
    return Verdict(
        message,
        at=at,
        why=f"the engine refuses: {said}",
        fix=Fix("let the engine choose the runner", set={_NAME: None}),
    )


RULE = rule(
    "SPL267",
    "moe-runner",
    Severity.ERROR,
    check,
    says=(
        "Invalid quantization '{}'.",
        "The expert parallel size must be 1 or the same as the tensor parallel size",
        "FP8/MXFP8 Cutlass MoE is only supported with ep_size == 1",
    ),
)
