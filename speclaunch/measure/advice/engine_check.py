"""Engine check of a plan: the engine's values, its refusal, and mismatches with our values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from speclaunch.checks import (
    CheckedRequest,
    Contradiction,
    Rule,
    RuleResults,
    check_plan,
    engine_findings,
    in_order,
    interpreter,
    with_engine_values,
)

if TYPE_CHECKING:
    from speclaunch.checks import EngineQuerier, Opinion


class EngineCheck(Struct, frozen=True):
    """A release's response to a plan."""

    release: str
    accepted: bool | None
    """True if accepted; None if it could not be queried (`why` has the reason)."""
    why: str = ""
    filled: tuple[str, ...] = ()
    """Arguments with unknown values that the engine filled in."""
    contradictions: tuple[Contradiction, ...] = ()


def examined_with(
    examined: CheckedRequest, asker: EngineQuerier, rules: Iterable[Rule], python: str | None = None
) -> tuple[CheckedRequest, EngineCheck | None]:
    """Return the checked plan, and the engine's response or None if it was not queried.

    Rules that lacked a value run again with the engine's value. Raises NoJudgeError.
    """
    opinion = asker.opinion(examined.plan, interpreter(python), examined.results.blamed)
    if opinion is None:
        return examined, None
    return _with_opinion(examined, opinion, rules)


def _with_opinion(
    examined: CheckedRequest, opinion: Opinion, rules: Iterable[Rule]
) -> tuple[CheckedRequest, EngineCheck]:
    merged = with_engine_values(examined.plan, opinion)
    results = examined.results
    if merged.plan is not examined.plan:
        results = check_plan(merged.plan, rules).results
    more = engine_findings(opinion, merged.plan, results.findings)
    has_answer = opinion.accepted or opinion.refusal is not None
    return (
        CheckedRequest(
            merged.plan,
            RuleResults(
                tuple(sorted((*results.findings, *more.findings), key=in_order)),
                (*results.skipped, *more.skipped),
            ),
        ),
        EngineCheck(
            opinion.release,
            opinion.accepted if has_answer else None,
            opinion.why if opinion.refusal is None else opinion.refusal.words,
            merged.filled,
            merged.contradictions,
        ),
    )
