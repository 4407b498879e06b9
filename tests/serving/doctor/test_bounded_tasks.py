"""Several things at once, none of which is waited for for long."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from speclaunch.core.errors import LaunchError
from speclaunch.engine.facts.facts import UnknownFact
from speclaunch.serving.doctor.facts import BoundedTasks, NoAnswer, unknown


def test_each_task_has_its_answer() -> None:
    start = BoundedTasks().start
    one, none = start("a", lambda: 1), start("b", lambda: None)
    assert (none.get(), one.get()) == (None, 1)
    assert one.get() == 1


def test_what_raises_is_unknown_and_the_others_are_told() -> None:
    def refuse() -> None:
        raise LaunchError("no Python with sglang", help="name it")

    def closed() -> None:
        Path("/proc/1/mem/none").stat()

    start = BoundedTasks().start
    a, b, c, d = (
        start("a", refuse),
        start("b", closed),
        start("c", lambda: 1 / 0),
        start("d", lambda: 4),
    )
    assert a.get() == UnknownFact("a", "no Python with sglang", "name it")
    assert _why(b.get()) == "Not a directory: /proc/1/mem/none"
    assert _why(c.get()) == "ZeroDivisionError: division by zero"
    assert d.get() == 4


@pytest.mark.thorough
def test_what_hangs_is_not_waited_for() -> None:
    release = threading.Event()
    start = BoundedTasks(seconds=0.3).start
    a, b, c = start("a", release.wait), start("b", release.wait), start("c", lambda: 3)
    first, second = a.get(), b.get()
    release.set()
    assert isinstance(first, NoAnswer)
    assert _why(second) == "no answer within 0.3 s"
    assert c.get() == 3


def test_an_error_without_words_is_its_name() -> None:
    assert unknown("x", KeyError()).why == "KeyError"


def _why(found: object) -> str:
    assert isinstance(found, UnknownFact)
    return found.why
