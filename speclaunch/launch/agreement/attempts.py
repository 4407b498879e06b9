"""An attempt as other ranks are told of it, and back: what the ladder has to know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speclaunch.launch.diagnosis.interface import Cause, Diagnosis, Direction, Milestone
from speclaunch.launch.journal import plain
from speclaunch.launch.log.marks import Phase
from speclaunch.launch.start import Attempt


def document(attempt: Attempt) -> dict[str, Any]:
    """As JSON takes it. The settings stand in the decision, the text of the log stays here."""
    found = attempt.diagnosis
    if found is None or found.cause is None:
        return {}
    cause = found.cause
    return {
        "changes": plain(dict(attempt.changes)),
        "served": attempt.served,
        "tokens": attempt.tokens,
        "phase": found.phase.value,
        "line": found.line,
        "numbers": plain(dict(found.numbers)),
        "settings": plain(dict(found.settings)),
        "milestones": plain(found.milestones),
        "cause": {
            "name": cause.name,
            "title": cause.title,
            "remedy": cause.remedy,
            "directions": {name: way.value for name, way in cause.directions.items()},
        },
    }


def attempt_of(number: int, said: Mapping[str, Any]) -> Attempt | None:
    """The attempt that a document tells of; None where it is not valid."""
    try:
        cause = said["cause"]
        diagnosis = Diagnosis(
            phase=Phase(said["phase"]),
            served=bool(said["served"]),
            cause=Cause(
                name=str(cause["name"]),
                title=str(cause["title"]),
                meaning="",
                remedy=str(cause["remedy"]),
                memory=True,
                directions={n: Direction(way) for n, way in cause["directions"].items()},
            ),
            line=None if said["line"] is None else str(said["line"]),
            numbers={str(n): float(v) for n, v in said["numbers"].items()},
            settings={str(n): float(v) for n, v in said["settings"].items()},
            milestones=tuple(map(_milestone, said["milestones"])),
        )
        tokens = said["tokens"]
        return Attempt(
            number,
            dict(said["changes"]),
            served=diagnosis.served,
            diagnosis=diagnosis,
            tokens=tokens if isinstance(tokens, int) else None,
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _milestone(said: Mapping[str, Any]) -> Milestone:
    numbers = {str(n): float(v) for n, v in said["numbers"].items()}
    return Milestone(Phase(said["phase"]), str(said["text"]), int(said["line_number"]), numbers)
