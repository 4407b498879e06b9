"""Determine whether a release accepts a deployment, and what causes a refusal."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from speclaunch.checks.engine_check.command import QueryCommand, Unit
from speclaunch.checks.engine_check.interface import EngineAnswer, EngineQuestion
from speclaunch.core import Place

Inquiry = Generator[list[EngineQuestion], list[EngineAnswer], "Opinion"]
"""Generator that yields batches of questions and receives their answers."""
Batch = Callable[[Sequence[EngineQuestion]], list[EngineAnswer]]

_PARSER = "SystemExit"
_LONGEST = 400
"""Maximum characters of the engine's message in a report."""


class ReleaseRefusal(Struct, frozen=True):
    """Refusal by a release, with its cause."""

    words: str
    """The engine's message, on one line."""
    kind: str
    """Class name of the exception; `SystemExit` for a parser error."""
    place: str
    """`srt/server_args.py:1234`; empty if unknown."""
    line: str
    """Source line of the refusal, or None if it cannot be read."""
    units: tuple[Unit, ...]
    """Arguments and variables that together cause the refusal; those that the engine names come
    first. Empty: the model alone is refused on this hardware. Units that speclaunch's own errors
    blame are preferred, if the refusal disappears without them."""
    machines: tuple[str, ...]
    named: tuple[Unit, ...] = ()
    """Other arguments that the engine names in its message or on that line. Removing them does not
    end the refusal: `tp_size % dp_size` fails for any number of ranks that is too small."""
    doubts: tuple[str, ...] = ()
    """Doubtful facts about the models. If they are wrong, there may be no refusal."""


class Opinion(Struct, frozen=True):
    """A release's opinion on a deployment. `why`: the reason if there is neither `refusal` nor
    `accepted`."""

    release: str
    accepted: bool = False
    refusal: ReleaseRefusal | None = None
    resolved: Mapping[str, Any] = {}
    """Resolved values; empty if the hardware is unknown."""
    why: str = ""
    is_lasting: bool = True
    """True if repeating the query gives the same result: nothing hung, crashed or was missing."""


def inquire(command: QueryCommand, release: str, blamed: Collection[Place] = ()) -> Inquiry:
    """Query a command and the cause of a refusal. `blamed`: places of speclaunch's own errors."""
    answers = yield [command.question(machine) for machine in command.machines]
    open_ = next((answer for answer in answers if answer.accepted is None), None)
    taken = next((answer for answer in answers if answer.accepted), None)
    if taken is not None:
        known = len(command.machines) == 1
        return Opinion(release, accepted=True, resolved=taken.resolved if known else {})
    if open_ is not None:
        why = _single_line(open_.why) or "it gave no answer"
        return Opinion(release, why=why, is_lasting=False)
    first = answers[0]
    units = (yield from _explained(command, first, blamed)) or (yield from _needed(command, first))
    return Opinion(
        release,
        refusal=ReleaseRefusal(
            _single_line(first.why),
            first.kind,
            first.place,
            first.line.strip(),
            _in_order(units, first.why),
            command.machines,
            _named(command.units, units, f"{first.why} {first.line}"),
            command.doubts,
        ),
    )


def converse(inquiry: Inquiry, ask: Batch) -> Opinion:
    """Run an inquiry and return its opinion."""
    try:
        questions = next(inquiry)
        while True:
            questions = inquiry.send(ask(questions))
    except StopIteration as end:
        found: Opinion = end.value
    return found


def _explained(
    command: QueryCommand, refused: EngineAnswer, blamed: Collection[Place]
) -> Generator[list[EngineQuestion], list[EngineAnswer], tuple[Unit, ...]]:
    """Return the units at `blamed` if the refusal disappears without them. This takes one query; a
    search for the cause takes about twenty."""
    suspected = frozenset(n for n, unit in enumerate(command.units) if unit.place in blamed)
    if not suspected:
        return ()
    (without,) = yield [command.question(command.machines[0], suspected)]
    if without.accepted is None or _is_same(refused, without):
        return ()
    return tuple(command.units[number] for number in sorted(suspected))


def _needed(
    command: QueryCommand, refused: EngineAnswer
) -> Generator[list[EngineQuestion], list[EngineAnswer], tuple[Unit, ...]]:
    """Return a minimal set of units that causes the refusal."""
    search = smallest(len(command.units))
    everything = frozenset(range(len(command.units)))
    machine = command.machines[0]
    try:
        sets: list[UnitSet] = next(search)
        while True:
            questions = [command.question(machine, everything - units) for units in sets]
            answers = yield questions
            sets = search.send([_is_same(refused, answer) for answer in answers])
    except StopIteration as end:
        found: UnitSet = end.value
    return tuple(command.units[number] for number in sorted(found))


def _is_same(refused: EngineAnswer, other: EngineAnswer) -> bool:
    """True if two refusals are the same: at the same line, or with the same parser message."""
    if other.accepted is not False or other.kind != refused.kind:
        return False
    if refused.kind == _PARSER or not refused.place:
        return other.why == refused.why
    return other.place == refused.place


def _single_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}\N{HORIZONTAL ELLIPSIS}"


def is_named_in(name: str, words: str) -> bool:
    """True if the engine names an argument; a name of one word may be prose."""
    if "_" not in name:
        return False
    text = words.lower().replace("--", " ").replace("-", "_")
    return re.search(rf"(?<![a-z0-9_]){re.escape(name.lower())}(?![a-z0-9_])", text) is not None


def _named(units: Sequence[Unit], refused: Sequence[Unit], words: str) -> tuple[Unit, ...]:
    """Return the units other than `refused` that the message names."""
    return tuple(
        unit
        for unit in units
        if unit not in refused
        if is_named_in(unit.name, words)
        or is_named_in(unit.written.lstrip("-").replace("-", "_"), words)
    )


def _in_order(units: Sequence[Unit], words: str) -> tuple[Unit, ...]:
    """Return the units that the engine names, in its order; then the others as written."""
    text = words.lower().replace("-", "_")

    def position(unit: Unit) -> int:
        names = {unit.name.lower(), unit.written.lstrip("-").lower().replace("-", "_")}
        found = [at for name in names if (at := text.find(name)) >= 0]
        return min(found, default=len(text) + 1)

    return tuple(sorted(units, key=position))


UnitSet = frozenset[int]
"""Units that remain in a command."""
Search = Generator[list[UnitSet], list[bool], UnitSet]
"""Generator that yields lists of sets and receives, for each, True if its refusal is the same."""
_MOST_ROUNDS = 12
"""Maximum number of batches, after which the current set is the result."""


def smallest(units: int) -> Search:
    """Search `units`, which are refused together, for a minimal set that is still refused.

    Empty if the command is refused without any of them. Two rounds are usually enough. The first
    tries each unit alone and each set without one unit; the second tries only the units that cannot
    be removed.
    """
    everything = frozenset(range(units))
    without = [everything - {unit} for unit in range(units)]
    alone = [frozenset({unit}) for unit in range(units)]
    answers = yield [frozenset(), *without, *alone]
    if answers[0]:
        return frozenset()
    needed = frozenset(unit for unit in range(units) if not answers[1 + unit])
    sufficient = [
        unit_set for unit_set, same in zip(alone, answers[1 + units :], strict=True) if same
    ]
    if sufficient:
        return next((unit_set for unit_set in sufficient if unit_set <= needed), sufficient[0])
    if needed != everything:
        (is_enough,) = yield [needed]
        return (yield from _smaller(needed if is_enough else everything))
    return (yield from _smaller(everything))


def _smaller(units: UnitSet) -> Search:
    """Search with ddmin (Zeller, Hildebrandt 2002), all complements of a round in one batch."""
    left, parts = sorted(units), 2
    for _ in range(_MOST_ROUNDS):
        if len(left) < 3:  # a single unit needs no search; of two, each was already tried alone
            break
        parts = min(parts, len(left))
        complements = [frozenset(left).difference(part) for part in _divided(left, parts)]
        answers = yield complements
        found = next(
            (complement for complement, same in zip(complements, answers, strict=True) if same),
            None,
        )
        if found is not None:
            left, parts = sorted(found), max(parts - 1, 2)
        elif parts == len(left):
            break
        else:
            parts *= 2
    return frozenset(left)


def _divided(units: Sequence[int], parts: int) -> Iterable[Sequence[int]]:
    size, more = divmod(len(units), parts)
    start = 0
    for number in range(parts):
        end = start + size + (number < more)
        yield units[start:end]
        start = end
