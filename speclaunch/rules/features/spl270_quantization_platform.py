"""A `quantization` that this platform has no method for."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.plan.topics.quantization import NAME, Absence, absence, method_of
from speclaunch.plan.topics.target import target_of
from speclaunch.rules.attention.gpu import generation
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_ONLINE = "nvfp4_online"
_BLACKWELL = 10


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for a method that is not there.

    A checkpoint that is quantised already may replace it, or refuse it itself (SPL427).
    """
    given = plan.given(NAME)
    if given is None and plan.facts.target is None:
        return
    if given == _ONLINE:
        yield from _online(plan)
        return
    used = method_of(plan).used
    if used is None:
        return
    missing = absence(plan, used)
    if missing is Absence.UNKNOWN:
        yield _verdict(
            plan,
            used,
            f"SGLang {plan.version} has no quantization {used} on this platform",
            f"Unknown quantization method: {used}.",
        )
    elif missing is Absence.ROCM:
        yield _verdict(
            plan,
            used,
            f"quantization {used} does not run on AMD GPUs",
            f"{used} quantization is currently not supported in ROCm.",
        )


def _online(plan: Plan) -> Iterator[Verdict]:
    """The method that quantises on the way in, on other hardware than it is for."""
    if plan.device != "cuda" or generation(plan) == _BLACKWELL:
        return
    if target_of(plan).quantization in (None, "fp8"):
        yield Verdict(
            f"quantization {_ONLINE} needs a GPU of NVIDIA's SM100 family",
            at=(NAME,),
            why=f"the engine refuses: --quantization {_ONLINE} is supported only on NVIDIA "
            "Blackwell SM100/SM103 GPUs.",
            fix=Fix("leave it out, or choose another one", set={NAME: None}),
        )


def _verdict(plan: Plan, used: str, message: str, said: str) -> Verdict:
    why = f"the engine refuses: {said}"
    if used == plan.given(NAME):
        fix = Fix("leave it out, or choose another one", set={NAME: None})
        return Verdict(message, at=(NAME,), why=why, fix=fix)
    return Verdict(
        f"{target_of(plan).name}: {message}",
        at=("model_path",),
        why=why,
        fix=Fix("use a checkpoint that is quantised otherwise, or not at all"),
    )


RULE = rule(
    "SPL270",
    "quantization-platform",
    Severity.ERROR,
    check,
    says=(
        "--quantization nvfp4_online is supported only on",
        "Unknown quantization method: ",
        "{} quantization is currently not supported in ROCm.",
    ),
)
