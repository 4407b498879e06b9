"""Prefill and decode of one model do not speculate alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.serving.across import is_role, pairs


def check(_plan: Plan) -> Iterator[Verdict]:
    """Nothing can be said of one deployment by itself."""
    return iter(())


def check_across(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """One verdict a decode server whose prefill servers all speculate otherwise."""
    for decode, partners in pairs(plans):
        ours = decode.algorithm, decode.draft
        if any((partner.algorithm, partner.draft) == ours for partner in partners):
            continue
        other = partners[0]
        same = other.algorithm == decode.algorithm
        subject = "draft" if same else "algorithm"
        theirs = other.draft if same else other.algorithm
        mine = decode.draft if same else decode.algorithm
        yield (
            decode.plan,
            Verdict(
                f"decode and prefill of {decode.model} differ in the speculative {subject}: "
                f"{mine or 'none'} here, {theirs or 'none'} in {other.plan.request.place}",
                at=("speculative_algorithm", "speculative_draft_model_path", "disaggregation_mode"),
                why="the prefill server hands over what the draft continues from; a pair that "
                "differs loses accuracy, fails, or hangs (sglang issue #32527)",
                fix=Fix("give both roles the same speculative arguments"),
            ),
        )


RULE = rule(
    "SPL806",
    "different-roles",
    Severity.WARNING,
    check,
    check_across=check_across,
    compares=is_role,
)
