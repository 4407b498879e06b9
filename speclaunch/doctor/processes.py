"""The processes of this machine, the engines among them, and whose they are."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path, PurePath

import psutil

from speclaunch.doctor.machine_facts import Process
from speclaunch.launch.guard import RUN_VARIABLE
from speclaunch.record import record

_TITLE = "sglang::"
"""The engine names its own processes so: sglang::scheduler_TP0, sglang::detokenizer (0.4.6 on)."""
_MODULES = frozenset({"sglang.launch_server", "sglang.srt.entrypoints.http_server"})
_DEFAULT_PORT = 30000
_COMMANDS = frozenset({"sglang", "sglang.cli.main"})
_GUARD = "speclaunch/launch/guard.py"
_ADOPTERS = frozenset({"systemd", "init", "tini", "dumb-init", "docker-init"})
"""Processes that take in those whose parent is gone."""


class Custody(StrEnum):
    """Who looks after an engine."""

    SPECLAUNCH = "speclaunch"
    """A launch of speclaunch that is still there: it stops the engine when it ends."""
    PARENT = "parent"
    """Whoever started it."""
    SERVICE = "service"
    """It was started to run by itself (a service, a container's main process, setsid)."""
    LEFT_OVER = "left over"
    """Its parent has gone, and it was not meant to run by itself."""
    ZOMBIE = "zombie"
    """It has ended, and its parent has not noticed."""


@record
class EngineTree:
    """An engine: its topmost process, and all that belong to it."""

    root: Process
    members: tuple[Process, ...]
    custody: Custody
    keeper: int | None = None
    """The process that looks after it."""

    @property
    def port(self) -> int | None:
        """Where it serves, once it does; its processes listen on others for each other."""
        asked = _option(self.root.words, "--port") or str(_DEFAULT_PORT)
        listening = {port for member in self.members for port in member.ports}
        return int(asked) if asked.isdigit() and int(asked) in listening else None


def read_processes() -> tuple[Process, ...]:
    """Every process that may be seen; what an engine's own is, in more detail."""
    now = time.time()
    names = ["pid", "ppid", "name", "cmdline", "username", "status", "create_time"]
    found: list[Process] = []
    for item in psutil.process_iter(names):
        info = item.info
        process = Process(
            info["pid"],
            info["ppid"] or 0,
            info["name"] or "",
            tuple(info["cmdline"] or ()),
            info["username"] or "",
            info["status"] == psutil.STATUS_ZOMBIE,
            _session(info["pid"]),
            max(0.0, now - info["create_time"]) if info["create_time"] else None,
        )
        found.append(process)
    return tuple(_with_details(found))


def _with_details(processes: list[Process]) -> Iterator[Process]:
    """What takes longer to read, for the engines only: their ports and their marks."""
    ports = _ports() if any(is_engine(process) for process in processes) else {}
    for p in processes:
        if not is_engine(p):
            yield p
            continue
        yield replace(p, run=_mark(p.pid), ports=tuple(sorted(ports.get(p.pid, ()))))


def _ports() -> dict[int, set[int]]:
    """The TCP ports that each process listens on, as far as this user may see them."""
    found: dict[int, set[int]] = {}
    with contextlib.suppress(psutil.Error, OSError):
        for one in psutil.net_connections(kind="tcp"):
            if one.status == psutil.CONN_LISTEN and one.pid and one.laddr:
                found.setdefault(one.pid, set()).add(one.laddr[1])
    return found


def _mark(pid: int) -> str | None:
    mark = f"{RUN_VARIABLE}=".encode()
    try:
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if entry.startswith(mark):
                return entry.removeprefix(mark).decode(errors="replace")
    except OSError:
        pass
    return None


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def engines(processes: Iterable[Process]) -> tuple[EngineTree, ...]:
    """Every engine on the machine, in the order of its process id."""
    table = {process.pid: process for process in processes}
    trees: dict[int, list[Process]] = {}
    for process in table.values():
        if is_engine(process):
            root = next((p for p in reversed(_line_of(process, table)) if is_engine(p)), process)
            trees.setdefault(root.pid, []).append(process)
    return tuple(_tree(table[pid], trees[pid], table) for pid in sorted(trees))


def is_engine(process: Process) -> bool:
    """Whether a process is an SGLang server or one of its own."""
    if process.name.startswith(_TITLE):
        return True
    words = process.words
    if not words:
        return False
    if words[0].startswith((_TITLE, "sglang.launch_server")):
        return True
    program = PurePath(words[0]).name
    if program.startswith("python"):
        return _runs_server(words)
    return program == "sglang" and "serve" in words[1:2]


def _option(words: Sequence[str], flag: str) -> str | None:
    """The value of a flag, in either spelling; the last one counts."""
    value = None
    for index, word in enumerate(words):
        if word == flag:
            value = next(iter(words[index + 1 :]), None)
        elif word.startswith(f"{flag}="):
            value = word.partition("=")[2]
    return value


def may_end(process: Process, user: str) -> bool:
    """Whether this user may end a process."""
    return user in ("root", process.user)


def _runs_server(words: Sequence[str]) -> bool:
    """`python [options] -m sglang.launch_server …`, `python …/bin/sglang serve …`."""
    for index, word in enumerate(words[1:], 1):
        following = words[index + 1] if index + 1 < len(words) else ""
        if word == "-m":
            serves = tuple(words[index + 2 : index + 3]) == ("serve",)
            return following in _MODULES or (following in _COMMANDS and serves)
        if not word.startswith("-"):
            path = PurePath(word)
            if path.name == "sglang":
                return following == "serve"
            if path.parts[-2:] == ("sglang", "launch_server.py"):
                return True
    return False


def _tree(root: Process, members: Sequence[Process], table: Mapping[int, Process]) -> EngineTree:
    custody, keeper = _custody(root, table)
    ordered = tuple(sorted(members, key=lambda p: p.pid))
    return EngineTree(root, ordered, custody, keeper)


def _custody(root: Process, table: Mapping[int, Process]) -> tuple[Custody, int | None]:
    if root.zombie:
        return Custody.ZOMBIE, root.parent
    for ancestor in _line_of(root, table):
        if any(word.endswith(_GUARD) for word in ancestor.words):
            return Custody.SPECLAUNCH, ancestor.parent
    parent = table.get(root.parent)
    # a parent that is not listed is one that we may not see, not one that is gone
    adopted = root.parent <= 1 or (parent is not None and parent.name in _ADOPTERS)
    if not adopted:
        return Custody.PARENT, root.parent
    return (Custody.SERVICE if _runs_by_itself(root, table) else Custody.LEFT_OVER), None


def _runs_by_itself(root: Process, table: Mapping[int, Process]) -> bool:
    """Whether a process without a parent was meant to be one.

    Started by a service manager or with setsid it leads a session of its own, as a container's
    main process it lives in that of process 1; an orphan's session has lost its leader.
    """
    if root.pid == 1:
        return True
    if root.run is not None or _is_part(root):
        return False
    return root.session is None or root.session == root.pid or root.session in table


def _is_part(process: Process) -> bool:
    """A process that only ever runs below a server: scheduler, detokenizer, …"""
    return process.name.startswith(_TITLE) or bool(
        process.words and process.words[0].startswith(_TITLE)
    )


def _line_of(process: Process, table: Mapping[int, Process]) -> list[Process]:
    """The ancestors of a process, its parent first."""
    found: list[Process] = []
    seen = {process.pid}
    current = table.get(process.parent)
    while current is not None and current.pid not in seen:
        found.append(current)
        seen.add(current.pid)
        current = table.get(current.parent)
    return found
