"""The prefix cache of a hybrid model (Mamba, gated delta net) and its strategies."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.facts.hardware import Vendor
from speclaunch.facts.unknown import UNKNOWN_HARDWARE
from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.plan.topics.hybrid import CHOSEN, STRATEGY
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.mamba.hybrid import has_extra_buffer, is_hybrid

_EXTRA = ("extra_buffer", "extra_buffer_lazy")


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the strategy does not go with the rest."""
    if not is_hybrid(plan) or _cache_is_off(plan):
        return
    asked = plan.given(STRATEGY)
    if plan.in_versions(CHOSEN):
        if asked == "no_buffer":
            yield from _asked_for(plan)
    elif asked not in _EXTRA and plan.algorithm is not None and not _switched_off(plan):
        yield _refused(plan)


def _cache_is_off(plan: Plan) -> bool:
    """Decode servers have none from 0.5.11 on; 0.5.10 switches it off only after it has looked."""
    decode = plan.value("disaggregation_mode") == "decode"
    return bool(plan.given("disable_radix_cache")) or (decode and plan.in_versions(">=0.5.11"))


def _switched_off(plan: Plan) -> bool:
    """Whether an AMD GPU makes the engine switch the cache off."""
    if plan.in_versions("<0.5.11"):
        return False
    if plan.facts.hardware is None:
        raise UnknownValueError(UNKNOWN_HARDWARE)
    return plan.facts.hardware.vendor is Vendor.AMD


def _refused(plan: Plan) -> Verdict:
    fix = Fix("set disable_radix_cache: true", set={"disable_radix_cache": True}, safe=True)
    if has_extra_buffer(plan):
        fix = Fix(
            "set mamba_scheduler_strategy: extra_buffer (0.5.10: with SGLANG_ENABLE_SPEC_V2=1), "
            "or disable_radix_cache: true",
            set={STRATEGY: "extra_buffer"},
            safe=True,
        )
    architecture = getattr(plan.facts.target, "architecture", None)
    return Verdict(
        f"the radix cache of {architecture} does not work with speculation "
        "under the strategy no_buffer",
        at=(STRATEGY, "speculative_algorithm"),
        why="the engine refuses: Speculative decoding is not compatible with radix cache when "
        "using --mamba-scheduler-strategy no_buffer, which is the default",
        fix=fix,
    )


def _asked_for(plan: Plan) -> Iterator[Verdict]:
    if not plan.given("disable_overlap_schedule"):  # stages switch it off later
        yield Verdict(
            f"{plan.spelling(STRATEGY)} no_buffer needs disable_overlap_schedule",
            at=(STRATEGY,),
            why="the engine stops: AssertionError: no_buffer do not support overlap schedule. Try "
            "to set disable_overlap_schedule=True.",
            fix=Fix("remove the strategy: the engine chooses one that fits", set={STRATEGY: None}),
        )
    page = plan.given("page_size")
    if page is not None and page != 1:
        yield Verdict(
            f"{plan.spelling(STRATEGY)} no_buffer needs page_size 1, not {page}",
            at=("page_size", STRATEGY),
            why="the engine stops: AssertionError: no_buffer only supports page_size=1.",
            fix=Fix("remove page_size", set={"page_size": None}),
        )


RULE = rule(
    "SPL241",
    "mamba-cache",
    Severity.ERROR,
    check,
    versions=">=0.5.10",
    says=("Speculative decoding for {} is not compatible with radix cache",),
)
