"""Two installations of speclaunch that run the same command lines in the same folders."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

SECONDS = 300
"""After this time a case is killed."""

CODE = ("speclaunch", "advisories", "conf", "recipes", "models", "docs")
"""What an installation consists of, below its checkout."""
SERVERS = ("tests/support/program.py", "tests/program.py")
"""The server of a checkout that forks for each command line: the present place, the former one."""

PLAIN = (
    (re.compile(r"(?<=/sweeps/)[0-9a-f]{12}"), "DIGEST"),
    (re.compile(r"^\d+ files? checked in .*\n", re.MULTILINE), ""),
    (re.compile(r"(crash-[a-z-]*)\d{8}-\d{6}-\d+"), r"\1TIME-PID"),
)
"""Text that differs from run to run, and what replaces it: digests of paths, progress by the
clock, crash reports."""

PLAIN_OF_A_LAUNCH = (
    (re.compile(r"\[ *[\d.]+ s\]|after [\d.]+ s"), "SECONDS"),
    (re.compile(r"process \d+|(?<=127.0.0.1:)\d+|\d{8}-\d{6}(?=-fake)"), "NUMBER"),
)
"""The same of a launch."""


@dataclass(frozen=True, slots=True)
class Case:
    """One command line, and where it runs."""

    name: str
    args: tuple[str, ...]
    scene: str = "empty"
    """The folder it runs in, by its name in `netting.scenes`."""
    env: tuple[tuple[str, str], ...] = ()
    stdin: str | None = None
    """A file of the scene."""
    writes: bool = False
    """True if it runs in a copy of the scene: the files that it changes belong to the answer."""
    home: str | None = None
    """A scene that is copied to HOME; None for an empty one."""
    serves: bool = False
    """True if it starts the scripted engine, on a free port: times and processes differ."""
    is_cold: bool = False
    """True for a process of its own, as a user starts it, instead of a fork."""
    is_warm: bool = False
    """True if the present version keeps its HOME from one such case to the next."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str
    files: dict[str, str] = field(default_factory=dict)


class Side:
    """One installation: its checkout, and the interpreter that it is installed for."""

    def __init__(self, root: Path, python: Path, *, is_base: bool, hash_seed: str = "0") -> None:
        self.root, self.python, self.is_base = root.resolve(), python.absolute(), is_base
        self.hash_seed = hash_seed
        self.server = next(p for name in SERVERS if (p := self.root / name).is_file())

    def digest(self) -> str:
        """Return a fingerprint of its code and data."""
        known = hashlib.sha256(str(self.python).encode())
        paths = [self.server]
        for name in CODE:
            paths += sorted((self.root / name).rglob("*"))
        for path in paths:
            if path.is_file() and path.suffix != ".pyc":
                known.update(f"{path.relative_to(self.root)}\0".encode() + path.read_bytes())
        return known.hexdigest()

    def answers(self, cases: Sequence[Case], net: Path, jobs: int) -> dict[str, Answer]:
        """Run the cases below `net`, where the scenes are, `jobs` at a time.

        The installation is imported from a copy, `net/code`: its files have the same names for
        both, and what changes in the checkout meanwhile changes nothing here.
        """
        code = net / "code"
        shutil.rmtree(code, ignore_errors=True)
        for name in CODE:
            if (self.root / name).is_dir():  # older versions have no advisories
                shutil.copytree(self.root / name, code / name)
        shutil.copyfile(self.server, code / "server.py")
        with self._servers(net, jobs if any(not one.is_cold for one in cases) else 0) as servers:
            free = list(servers)
            lock = threading.Lock()

            def run(number: int) -> Answer:
                case = cases[number]
                if case.is_cold:
                    return self._answer(case, net, number, None)
                with lock:
                    server = free.pop()
                try:
                    return self._answer(case, net, number, server)
                finally:
                    free.append(server)

            with ThreadPoolExecutor(jobs) as pool:
                found = list(pool.map(run, range(len(cases))))
        return {case.name: answer for case, answer in zip(cases, found, strict=True)}

    def _environment(self, net: Path, home: Path) -> dict[str, str]:
        return {
            "PATH": "/usr/bin:/bin",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "COLUMNS": "100",
            "HF_ENDPOINT": "http://127.0.0.1:9",  # nothing is fetched
            "PYTHONPATH": str(net / "code"),
            "PYTHONHASHSEED": self.hash_seed,
        }

    @contextmanager
    def _servers(self, net: Path, count: int) -> Iterator[list[subprocess.Popen[str]]]:
        command = [self.python, net / "code/server.py"]
        environment = self._environment(net, net)
        servers = [
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=net,
                env=environment,
            )
            for _ in range(count)
        ]
        try:
            yield servers
        finally:
            for server in servers:
                server.communicate()

    def _answer(
        self, case: Case, net: Path, number: int, server: subprocess.Popen[str] | None
    ) -> Answer:
        place = net / f"at-{number:05}"
        folder, home = net / "scenes" / case.scene, place / "home"
        is_warm = case.is_warm and not self.is_base
        if is_warm:  # one at a time: the home is the same for all of them
            home = net / "warm"
            home.mkdir(exist_ok=True)
        place.mkdir()
        if case.home is not None:
            shutil.copytree(net / "scenes" / case.home, home, symlinks=True)
        elif not is_warm:
            home.mkdir()
        if case.writes:
            shutil.copytree(folder, place / "work", symlinks=True)
            folder = place / "work"
        before = contents(folder) if case.writes else {}
        environment = self._environment(net, home) | dict(case.env)
        args = list(case.args)
        if case.serves:
            args = [word.replace("port=0", f"port={_free_port()}") for word in args]
        stdin = folder / case.stdin if case.stdin else Path(os.devnull)
        out, err = place / "out", place / "err"
        if server is None:
            command = [self.python, "-m", "speclaunch", *args]
            with stdin.open("rb") as given, out.open("wb") as o, err.open("wb") as e:
                code = subprocess.run(
                    command,
                    check=False,
                    cwd=folder,
                    env=environment,
                    stdin=given,
                    stdout=o,
                    stderr=e,
                ).returncode
        else:
            request = {
                "words": args,
                "cwd": str(folder),
                "env": environment,
                "timeout": SECONDS,
                "stdin": str(stdin),
                "stdout": str(out),
                "stderr": str(err),
            }
            assert server.stdin is not None and server.stdout is not None
            server.stdin.write(json.dumps(request) + "\n")
            server.stdin.flush()
            code = int(server.stdout.readline())
        after = contents(folder) if case.writes else {}
        files = {
            name: self._plain(after.get(name, b"(removed)"), case, net, number, home)
            for name in sorted(before.keys() | after.keys())
            if before.get(name) != after.get(name)
        }
        texts = [self._plain(path.read_bytes(), case, net, number, home) for path in (out, err)]
        shutil.rmtree(place)
        return Answer(code, *texts, files)

    def _plain(self, text: bytes, case: Case, net: Path, number: int, home: Path) -> str:
        shown = text.decode("utf-8", "backslashreplace")
        names = {home: "HOME", net / f"at-{number:05}": "AT", net: "NET", self.python: "PYTHON"}
        for path, name in names.items():
            shown = shown.replace(str(path), name)
        for pattern, instead in (*PLAIN, *(PLAIN_OF_A_LAUNCH if case.serves else ())):
            shown = pattern.sub(instead, shown)
        return shown


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all files below a folder, by their names in it; locks hold a process."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
