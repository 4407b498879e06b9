"""Running the programs of an installation: every line logged, nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from speclaunch.core import ExitCode, LaunchError, children

_TAIL = 200
_GRACE_S = 5.0
TICK_S = 1.0
"""Seconds between two calls of ``on_tick``."""


def ignore(line: str) -> None:
    """The listener that does not listen."""


def never_mind() -> None:
    """The clock's listener that does nothing."""


class Completed(Struct, frozen=True):
    """How a program ended: its exit status and the last lines it printed."""

    status: int
    lines: tuple[str, ...]
    in_time: bool = True
    """False when the deadline ended it."""

    def last_error(self) -> str:
        """The line that says why: pip's last ``ERROR:``, else the last line that isn't blank."""
        said = [line for line in self.lines if line.strip()]
        errors = [line for line in said if line.startswith("ERROR: ")]
        if errors:
            return errors[-1].removeprefix("ERROR: ")
        return said[-1].strip() if said else f"exit status {self.status}, without a message"


def run_logged(
    command: Sequence[str | Path],
    *,
    log: Path,
    environment: Mapping[str, str],
    on_line: Callable[[str], None] = ignore,
    on_tick: Callable[[], None] = never_mind,
    keep_open: Sequence[int] = (),
    deadline_s: float | None = None,
) -> Completed:
    """Run ``command`` to its end, appending what it prints to ``log`` and telling ``on_line``.

    ``on_tick`` is called every second from a thread of its own, however silent the program is;
    after ``deadline_s`` seconds the program is killed.

    The child has a session of its own: when this call is left by an exception, Ctrl-C included,
    the child and all of its children are stopped first. ``keep_open`` are file descriptors the
    child inherits, so that a lock outlives a parent that is killed.
    """
    tail: deque[str] = deque(maxlen=_TAIL)
    with log.open("a", encoding="utf-8", errors="replace") as record:
        record.write(f"\n$ {' '.join(str(part) for part in command)}\n")
        record.flush()
        child = children.start(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=log.parent,  # ours: nobody's module is picked up from where the user stands
            start_new_session=True,
            pass_fds=tuple(keep_open),
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        late = threading.Event()
        try:
            with _clock(child, on_tick, deadline_s, late):
                for raw in child.stdout or ():
                    line = raw.rstrip()
                    record.write(line + "\n")
                    record.flush()
                    tail.append(line)
                    on_line(line)
                return Completed(child.wait(), tuple(tail), not late.is_set())
        finally:
            _stop(child)


@contextmanager
def _clock(
    child: subprocess.Popen[str],
    on_tick: Callable[[], None],
    deadline_s: float | None,
    late: threading.Event,
) -> Iterator[None]:
    """Tick while the block runs; past the deadline set ``late`` and kill the child's session."""
    ended = threading.Event()
    began = time.monotonic()

    def run() -> None:
        while not ended.wait(TICK_S):
            if deadline_s is not None and time.monotonic() - began >= deadline_s:
                late.set()
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                return
            on_tick()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _stop(child: subprocess.Popen[str]) -> None:
    """End the session of ``child`` if it still runs: asked first, then killed."""
    if child.stdout is not None:
        child.stdout.close()
    if child.poll() is not None:
        return
    for sign, patience in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError):
            os.killpg(child.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            child.wait(patience)
            return


AGAIN = "run the installation again: it resumes where it stopped"
"""The end of many a remedy."""


class StepState(StrEnum):
    """How far a step is."""

    WAITING = "waiting"
    """Another process is installing; this one goes on when that one has ended."""
    RUNNING = "running"
    NOTE = "note"
    """Something the user should know; the step goes on."""
    SKIPPED = "skipped"
    """Done by an earlier run."""
    DONE = "done"
    FAILED = "failed"


class InstallStep(Struct, frozen=True):
    """One report: step ``index`` of ``total`` (from 1) and what it is doing now."""

    index: int
    total: int
    title: str
    detail: str
    state: StepState


Report = Callable[[InstallStep], None]


class Say(Protocol):
    """Tells what a step is doing now."""

    def __call__(self, detail: str, state: StepState = StepState.RUNNING, /) -> None:
        """Report it."""


def silent(step: InstallStep) -> None:
    """The report to nobody."""


class InstallError(LaunchError):
    """The CPU engine cannot be installed, or not used; says what to do about it."""

    def __init__(self, message: str, remedy: str, log: Path | None = None) -> None:
        super().__init__(message, help=remedy, log=log)
        self.message = message
        self.remedy = remedy


class InstallInterruptedError(InstallError):
    """The user stopped the installation; the next one goes on where it was."""

    exit_code = ExitCode.INTERRUPTED
