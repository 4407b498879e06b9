"""Whether an earlier life of this rank, on this host, has left no process."""

from __future__ import annotations

import os
from pathlib import Path

from speclaunch.launch.agreement.records import Joined

MARK = "SPECLAUNCH_RANK"
"""In the environment of every engine of a life, and so of all its processes."""


def process_space() -> str:
    """Where a process id means the same: this boot, this process namespace. Empty where it is
    unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def is_gone(joined: Joined) -> bool:
    """Whether nothing of it is left. False where that cannot be told: then its lease decides."""
    if not joined.space or joined.space != process_space() or joined.pid <= 0 or not joined.mark:
        return False
    return not _lives(joined.pid) and not _marked(joined.mark)


def _lives(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[0] not in (b"Z", b"X")


def _marked(mark: str) -> bool:
    text = f"{MARK}={mark}".encode()
    for entry in os.listdir("/proc"):  # noqa: PTH208 - names are all that is wanted
        if not entry.isdigit():
            continue
        try:
            if text in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                return True
        except ProcessLookupError:
            continue
        except FileNotFoundError:
            continue
        except OSError:  # of another user: not an engine of ours
            continue
    return False
