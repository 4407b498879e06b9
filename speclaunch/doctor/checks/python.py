"""speclaunch itself and the Python that runs it."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.doctor.line import Line, State
from speclaunch.doctor.surroundings import Surroundings


def check(found: Surroundings) -> Iterator[Line]:
    """One line: which speclaunch, on which Python, with which home."""
    own = found.own
    yield Line(
        "speclaunch",
        State.OK,
        f"{own.version} on Python {own.python} ({own.executable}), home {own.home}",
    )
