"""Records as JSON: what is stored is read back exactly, and nothing else is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any

import pytest

from speclaunch.checks.rules.finding import Severity
from speclaunch.core.reads.record_json import decode, encode
from speclaunch.core.records import record


@record
class Spot:
    """A part of another record."""

    path: str
    line: int = 1
    hidden: bool = False


@record
class Note:
    """One of everything that a record may hold."""

    text: str
    severity: Severity
    spots: tuple[Spot, ...] = ()
    pair: tuple[str, int] | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    own: Spot | None = None


NOTES = (
    Note("a", Severity.ERROR),
    Note("b", Severity.INFO, (Spot("x"), Spot("y", 3, hidden=True)), ("n", 1)),
    Note("c", Severity.WARNING, values={"k": [1, None]}, own=Spot("z", 2)),
)


@pytest.mark.parametrize("note", NOTES)
def test_what_is_stored_is_read_back(note: Note) -> None:
    assert decode(Note, json.loads(json.dumps(encode(note)))) == note
    assert decode(tuple[Note, ...], json.loads(json.dumps(encode((note, note))))) == (note, note)


def test_defaults_at_the_end_are_left_out() -> None:
    assert encode(NOTES[0]) == ["a", "error"]
    assert encode(Spot("x", 1, hidden=True)) == ["x", 1, True]
    assert encode(Spot("x")) == ["x"]


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        "a",
        ["a"],
        [1, "error"],
        ["a", "fatal"],
        ["a", "error", {}],
        ["a", "error", [["x", "1"]]],
        ["a", "error", [["x", True]]],
        ["a", "error", [["x", 1, 0]]],
        ["a", "error", [], ["n"]],
        ["a", "error", [], ["n", 1, 2]],
        ["a", "error", [], None, []],
        ["a", "error", [], None, {}, ["z", 2, False, None]],
        ["a", "error", [], None, {}, None, None],
    ],
)
def test_what_no_record_says_is_refused(value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        decode(Note, value)
