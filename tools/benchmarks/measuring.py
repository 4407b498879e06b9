"""Runs commands in turn and keeps what each one took."""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

SAMPLE_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Spent:
    """What one command took."""

    wall: float
    """Seconds until it ended."""
    cpu: float
    """Seconds of the processor, of its children too, as far as it waited for them."""
    peak_mib: float
    """The most memory: resident, of the largest process, or shared out among the tree."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Which seconds are compared: those on the wall, or those of the processor."""

    cpu: bool = False

    def seconds(self, spent: Sequence[Spent]) -> float:
        """The median of some rounds."""
        return statistics.median(one.cpu if self.cpu else one.wall for one in spent)


class UnexpectedEndError(Exception):
    """A command did not end as the measurement supposes."""


def spend(
    command: Sequence[str | Path],
    cwd: Path,
    env: Mapping[str, str],
    *,
    ends: Sequence[int] = (0,),
    sample_memory: bool = False,
) -> Spent:
    """Run a command to its end. Raises UnexpectedEndError for an exit code not in `ends`."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [str(word) for word in command],
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with _sampled(process.pid) if sample_memory else contextlib.nullcontext([0.0]) as sizes:
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in ends:
        said = " ".join(map(str, command))
        raise UnexpectedEndError(f"{said}: exit code {process.returncode}, not one of {ends}")
    return Spent(wall, used.ru_utime + used.ru_stime, max(used.ru_maxrss / 1024, *sizes))


@contextlib.contextmanager
def _sampled(pid: int) -> Iterator[list[float]]:
    """The memory of the process and its descendants over the time, in MiB; pages that several
    have are divided among them."""
    sizes = [0.0]
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(SAMPLE_SECONDS):
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                tree = [process, *process.children(recursive=True)]
                if len(tree) > 1:
                    sizes.append(sum(one.memory_full_info().pss for one in tree) / 2**20)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield sizes
    finally:
        ended.set()
        thread.join()


def in_turn(
    commands: Mapping[str, Callable[[], Spent]], rounds: int, *, first: bool = True
) -> dict[str, list[Spent]]:
    """Each command once a round; each round begins with another one.

    With `first` each runs once before, so that all files are in memory.
    """
    names = list(commands)
    if first:
        for name in names:
            commands[name]()
    spent: dict[str, list[Spent]] = {name: [] for name in names}
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            spent[name].append(commands[name]())
    return spent
