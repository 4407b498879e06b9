"""Progress lines of a lint, every few seconds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from speclaunch.core import beating, duration

EVERY_SECONDS = 5.0
"""Seconds between two progress lines."""

_awaited: list[str] = []


@contextlib.contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Report what the lint is waiting for while the block runs."""
    _awaited.append(what)
    try:
        yield
    finally:
        _awaited.pop()


@contextlib.contextmanager
def progress(
    log: Callable[[str], None], *, every: float = EVERY_SECONDS
) -> Iterator[Callable[[str], None]]:
    """Yield a function to call with each file; report progress regularly while the block runs."""
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

    with beating(log, text, every=every):
        yield follow
