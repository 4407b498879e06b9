"""Lines about the progress of a lint, one every few seconds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from speclaunch.core import beating, duration

EVERY_SECONDS = 5.0
"""Between two lines about the progress."""

_awaited: list[str] = []


@contextlib.contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Report that the lint waits for something while the block lasts."""
    _awaited.append(what)
    try:
        yield
    finally:
        _awaited.pop()


@contextlib.contextmanager
def progress(
    say: Callable[[str], None], *, every: float = EVERY_SECONDS
) -> Iterator[Callable[[str], None]]:
    """Yield a function to call with each file; while the block lasts, report now and then."""
    done, now = 0, ""

    def follow(path: str) -> None:
        nonlocal done, now
        done += bool(now)
        now = path

    def text(seconds: float) -> str:
        files = f"{done} file{'' if done == 1 else 's'} checked in {duration(seconds)}"
        if _awaited:
            return f"{files}, waiting for {_awaited[-1]}"
        return f"{files}, at {now}" if now else f"{files}, checking others"

    with beating(say, text, every=every):
        yield follow
