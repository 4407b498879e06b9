"""A refusal of the engine that was read out of its own validation."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.plan.refusals.rows import refusals
from speclaunch.rules.interface import Severity, Verdict, rule


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for each refusal whose condition holds, whatever is not known."""
    if plan.request.unseen:
        raise UnknownValueError(plan.request.unseen)
    told: set[tuple[str, ...]] = set()
    for refusal in refusals(plan):
        if refusal.names in told:
            continue
        told.add(refusal.names)
        yield Verdict(
            f"SGLang {plan.request.version} refuses this: {refusal.message or refusal.exception}",
            at=refusal.names,
            why=f"{refusal.exception}, {refusal.source}",
        )


RULE = rule("SPL017", "engine-refuses-when", Severity.ERROR, check)
