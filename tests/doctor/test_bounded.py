"""Several things at once, none of which is waited for for long."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from speclaunch.doctor.bounded import NoAnswer, at_once, unknown
from speclaunch.errors import LaunchError
from speclaunch.facts.facts import UnknownFact


def test_results_by_name() -> None:
    assert at_once({"a": lambda: 1, "b": lambda: None}) == {"a": 1, "b": None}


def test_what_raises_is_unknown_and_the_others_are_told() -> None:
    def refuse() -> None:
        raise LaunchError("no Python with sglang", help="name it")

    def closed() -> None:
        Path("/proc/1/mem/none").stat()

    found = at_once({"a": refuse, "b": closed, "c": lambda: 1 / 0, "d": lambda: 4})
    assert found["a"] == UnknownFact("a", "no Python with sglang", "name it")
    assert found["b"].why == "Not a directory: /proc/1/mem/none"
    assert found["c"].why == "ZeroDivisionError: division by zero"
    assert found["d"] == 4


def test_what_hangs_is_not_waited_for() -> None:
    release = threading.Event()
    begun = time.monotonic()
    found = at_once({"a": release.wait, "b": release.wait, "c": lambda: 3}, seconds=0.3)
    release.set()
    assert time.monotonic() - begun < 20
    assert isinstance(found["a"], NoAnswer)
    assert found["b"].why == "no answer within 0.3 s"
    assert found["c"] == 3


def test_an_error_without_words_is_its_name() -> None:
    assert unknown("x", KeyError()).why == "KeyError"
