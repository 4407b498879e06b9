"""A lint that takes long says how far it is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from speclaunch.heartbeat import beating, duration

EVERY_SECONDS = 5.0


class Named(Protocol):
    """A file, or what is known of one."""

    @property
    def path(self) -> str:
        """How it is called."""


T = TypeVar("T", bound=Named)


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
def following(
    sources: Iterable[T], say: Callable[[str], None], *, every: float = EVERY_SECONDS
) -> Iterator[Iterator[T]]:
    """The same sources; while the block lasts, a line now and then about where it is."""
    done, now = 0, ""

    def counted() -> Iterator[T]:
        nonlocal done, now
        for source in sources:
            now = source.path
            yield source
            done += 1
        now = ""

    def text(seconds: float) -> str:
        files = f"{done} file{'' if done == 1 else 's'} checked in {duration(seconds)}"
        if _awaited:
            return f"{files}, waiting for {_awaited[-1]}"
        return f"{files}, at {now}" if now else f"{files}, checking others"

    with beating(say, text, every=every):
        yield counted()
