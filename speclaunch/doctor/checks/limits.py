"""What a process may use at most (`ulimit`)."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.doctor.line import Line, State
from speclaunch.doctor.surroundings import Surroundings
from speclaunch.facts.facts import UnknownFact

_FILES = 65535
"""The engine raises its own soft limit to this where the hard limit lets it (`set_ulimit`)."""
_FEW_FILES = 4096
_FEW_PROCESSES = 4096


def check(found: Surroundings) -> Iterator[Line]:
    """One line where all is well, one a limit that is not."""
    limits = found.limits
    if isinstance(limits, UnknownFact):
        yield Line("limits", State.UNKNOWN, f"they cannot be told: {limits.why}")
        return
    said = list(_low(limits.files_soft, limits.files_hard, limits.processes))
    yield from said
    if not said:
        locked = _text(limits.locked_memory, 1 << 20, " MiB")
        yield Line(
            "limits",
            State.OK,
            f"open files {_text(limits.files_soft)} (at most {_text(limits.files_hard)}),"
            f" processes {_text(limits.processes)}, locked memory {locked}",
        )


def _low(soft: int | None, hard: int | None, processes: int | None) -> Iterator[Line]:
    if hard is not None and hard < _FILES:
        few = min(soft if soft is not None else hard, hard) < _FEW_FILES
        yield Line(
            "limits",
            State.WARNING if few else State.NOTE,
            f"open files {_text(soft)}, at most {hard}",
            f"the engine wants {_FILES}, and refuses connections when it runs out",
            "docker run --ulimit nofile=65535; elsewhere nofile in /etc/security/limits.conf",
        )
    if processes is not None and processes < _FEW_PROCESSES:
        yield Line(
            "limits",
            State.WARNING,
            f"processes {processes}",
            "threads count: an engine and its compilers start thousands",
            "ulimit -u 65535, or nproc in /etc/security/limits.conf",
        )


def _text(value: int | None, unit: int = 1, name: str = "") -> str:
    return "unlimited" if value is None else f"{value / unit:.0f}{name}"
