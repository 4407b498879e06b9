"""From an engine that ended to what the other ranks are told, and to the next settings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from speclaunch.launch.agreement.attempts import attempt_of, document
from speclaunch.launch.agreement.protocol import AskLadder, Mine, ended, merged
from speclaunch.launch.agreement.records import Decision, DecisionKind, Failure, Name
from speclaunch.launch.attempts import why_it_failed
from speclaunch.launch.start import Attempt, Rung

if TYPE_CHECKING:
    from speclaunch.launch.attempts import Ladder
    from speclaunch.launch.supervisor import EngineOutcome


def failure_of(name: Name, since: int, attempt: Attempt, outcome: EngineOutcome) -> Failure:
    """What the other ranks are told of an engine that ended; `since`: its decision."""
    cause = attempt.diagnosis.cause if attempt.diagnosis is not None else None
    unfit = outcome.verification is not None and not outcome.verification.ok
    memory = cause is not None and cause.memory and not unfit
    return Failure(
        name,
        since,
        memory,
        why_it_failed(outcome, attempt.diagnosis),
        cause.name if cause is not None else "",
        document(attempt) if memory else {},
    )


def next_decision(mine: Mine, action: AskLadder, ladder: Ladder | None) -> Decision:
    """The decision that follows from a failure for memory: the next rung, or the end."""
    newest, last = action.after, action.failures[-1]
    where = f"{last.name.member}: {last.why}"

    def no_more(why: str, advice: str | None = None) -> Decision:
        return replace(ended(mine, newest, where, advice=advice or ""), explanation=why)

    if ladder is None:
        return no_more("recovery is off: no other settings are tried")
    found = (attempt_of(number, one.attempt) for number, one in enumerate(action.failures, 1))
    attempts = [one for one in found if one is not None]
    if not attempts:
        return no_more("what that rank wrote of it is not valid")
    rung = ladder(attempts)
    if not isinstance(rung, Rung):
        return no_more(rung.why, rung.help)
    changes = {**newest.parts[mine.name.part].changes, **rung.changes}
    if any(changes == one.changes for one in attempts):
        return no_more(f"{rung.name} was tried before")
    return Decision(
        newest.epoch + 1,
        DecisionKind.MEMORY,
        str(mine.name),
        merged(newest, mine.name.part, changes),
        where,
        {"name": rung.name, "changes": rung.changes, "why": rung.why, "cost": rung.cost},
    )


def rung_of(decision: Decision) -> Rung | None:
    """The rung that led to a decision, for who is told of the attempt."""
    said = decision.rung
    if said is None:
        return None
    changes = said.get("changes")
    return Rung(
        str(said.get("name", "")),
        changes if isinstance(changes, dict) else {},
        f"{decision.why}; {said.get('why', '')}",
        str(said.get("cost", "")),
    )
