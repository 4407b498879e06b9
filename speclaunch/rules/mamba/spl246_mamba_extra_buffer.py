"""The cache strategy extra_buffer where it cannot be."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.facts.hardware import Vendor
from speclaunch.facts.unknown import UNKNOWN_HARDWARE
from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.plan.topics.hybrid import CHOSEN, STRATEGY
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.mamba.hybrid import (
    UNCHECKED,
    has_extra_buffer,
    is_hybrid,
    takes_extra_buffer,
)

_OWN_PLATFORMS = ("cuda", "npu", "musa", "xpu")


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the strategy cannot be."""
    target = plan.facts.target
    if target is None or not target.architectures:
        return
    asked = str(plan.given(STRATEGY)).startswith("extra_buffer")
    if asked and plan.given("disable_radix_cache"):
        if plan.in_versions("<0.5.14") and is_hybrid(plan):
            yield from _without_cache(plan, target.architecture)
        return
    if not takes_extra_buffer(plan):
        return
    if not has_extra_buffer(plan):
        if is_hybrid(plan) or plan.in_versions(">=0.5.21"):
            yield _unsupported(plan, target.architecture)
    elif not plan.in_versions(UNCHECKED) and not _has_platform(plan):
        yield _verdict(
            f"extra_buffer does not run on this platform in SGLang {plan.request.version}",
            "extra_buffer needs CUDA/MUSA/NPU/ROCm/XPU (FLA)",
        )


def _without_cache(plan: Plan, architecture: str | None) -> Iterator[Verdict]:
    """0.5.7 to 0.5.9 look at the target alone (0.5.9 server_args.py:1723)."""
    if plan.in_versions(">=0.5.10"):
        yield _verdict(
            "extra_buffer is a strategy of the radix cache, which disable_radix_cache disables",
            "mamba extra_buffer is not compatible with --disable-radix-cache",
        )
    elif not has_extra_buffer(plan):
        yield _unsupported(plan, architecture)


def _unsupported(plan: Plan, architecture: str | None) -> Verdict:
    return _verdict(
        f"{architecture} has no extra_buffer {_where(plan)}",
        "extra_buffer is not supported for this model; use no_buffer",
    )


def _where(plan: Plan) -> str:
    backend = plan.value("linear_attn_backend")
    if plan.in_versions(CHOSEN) and backend != "triton":
        return f"with linear_attn_backend {backend}"
    return f"in SGLang {plan.request.version}"


def _has_platform(plan: Plan) -> bool:
    """Whether the platform keeps snapshots of Mamba state; AMD GPUs from 0.5.16 on."""
    if plan.device not in _OWN_PLATFORMS:
        return False
    if plan.facts.hardware is None:
        raise UnknownValueError(UNKNOWN_HARDWARE)
    return plan.facts.hardware.vendor is not Vendor.AMD or plan.in_versions(">=0.5.16")


def _verdict(message: str, said: str) -> Verdict:
    return Verdict(
        message,
        at=(STRATEGY, "disable_radix_cache"),
        why=f"the engine refuses: {said}",
        fix=Fix(
            "remove the strategy, and disable the radix cache",
            set={STRATEGY: None, "disable_radix_cache": True},
        ),
    )


RULE = rule(
    "SPL246",
    "mamba-extra-buffer",
    Severity.ERROR,
    check,
    versions=">=0.5.7",  # same either way: the argument exists from 0.5.7
    says=(
        "Mamba extra_buffer is only supported",
        "Mamba extra_buffer is not supported",
    ),
)
