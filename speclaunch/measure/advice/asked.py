"""A plan with its engine's own opinion: its values, its refusal, and where it contradicts ours."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from speclaunch.checks import (
    Contradiction,
    Examined,
    Judgement,
    Rule,
    examine_plan,
    in_order,
    interpreter,
    second_opinion,
    with_asked_values,
)

if TYPE_CHECKING:
    from speclaunch.checks import Asker, Opinion


class EngineSays(Struct, frozen=True):
    """What a release said of a plan when it was asked."""

    release: str
    accepted: bool | None
    """None: it could not be asked, `why` says why."""
    why: str = ""
    filled: tuple[str, ...] = ()
    """The arguments whose values were not known, and are the engine's own now."""
    contradictions: tuple[Contradiction, ...] = ()


def examined_with(
    examined: Examined, asker: Asker, rules: Iterable[Rule], python: str | None = None
) -> tuple[Examined, EngineSays | None]:
    """What was examined, with what the engine itself says; None where nobody is asked.

    Rules that lacked a value are asked again with the engine's own. Raises NoJudgeError.
    """
    opinion = asker.opinion(examined.plan, interpreter(python), examined.judgement.blamed)
    if opinion is None:
        return examined, None
    return _with_opinion(examined, opinion, rules)


def _with_opinion(
    examined: Examined, opinion: Opinion, rules: Iterable[Rule]
) -> tuple[Examined, EngineSays]:
    asked = with_asked_values(examined.plan, opinion)
    judgement = examined.judgement
    if asked.plan is not examined.plan:
        judgement = examine_plan(asked.plan, rules).judgement
    more = second_opinion(opinion, asked.plan, judgement.findings)
    is_told = opinion.accepted or opinion.refusal is not None
    return (
        Examined(
            asked.plan,
            Judgement(
                tuple(sorted((*judgement.findings, *more.findings), key=in_order)),
                (*judgement.unjudged, *more.unjudged),
            ),
        ),
        EngineSays(
            opinion.release,
            opinion.accepted if is_told else None,
            opinion.why if opinion.refusal is None else opinion.refusal.words,
            asked.filled,
            asked.contradictions,
        ),
    )
