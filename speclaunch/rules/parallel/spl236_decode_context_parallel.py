"""Decode context parallelism with speculation, or on a device that lacks it."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.facts.hardware import Vendor
from speclaunch.facts.unknown import UNKNOWN_HARDWARE
from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import number


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where a sequence over several ranks does not go with what is asked."""
    ranks = number(plan, "dcp_size") or 1
    if ranks <= 1:
        return
    hardware = plan.facts.hardware
    if hardware is None:
        raise UnknownValueError(UNKNOWN_HARDWARE)
    if hardware.vendor is Vendor.AMD:
        return
    if plan.device != "cuda":
        yield Verdict(
            f"dcp_size {ranks} needs an AMD or NVIDIA GPU, not {plan.device}",
            at=("dcp_size",),
            why="the engine refuses: Decode context parallel is currently only supported on the "
            "AMD HIP platform",
            fix=Fix("remove it", set={"dcp_size": None}),
        )
    elif plan.algorithm is not None:
        yield Verdict(
            f"dcp_size {ranks} does not work with speculation on NVIDIA GPUs in SGLang "
            f"{plan.request.version}",
            at=("dcp_size", "speculative_algorithm"),
            why="the engine refuses: Decode context parallel on CUDA platform does not support "
            "any speculative algorithm",
            fix=Fix("remove dcp_size, or use SGLang 0.5.17", set={"dcp_size": None}),
        )


RULE = rule(
    "SPL236",
    "decode-context-parallel",
    Severity.ERROR,
    check,
    versions=">=0.5.15,<0.5.17",
    says=("Decode context parallel (",),
)
