"""What a real bash makes of a text: the server commands that it would start, as recorded words.

Nothing of what a text names is executed. PATH holds recording stand-ins for `python3`, `python` and
`sglang`, which write their arguments and their environment and end, and the few programs that only
start another (`env`, `nohup`, `nice`); whatever else a text calls is answered by nothing at all. It
runs in an empty directory, with an environment of its own and limits, as nobody where the caller
is root. A text that calls a program by an absolute path is not run.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

BASH = shutil.which("bash") or "/bin/bash"
NOBODY = 65534
SECONDS = 10

_RECORD = """#!{shell} -p
exec 9>"{records}/$$.new"
printf '%s\\0' "$0" "$#" "$@" >&9
while IFS= read -r -d '' pair; do printf '%s\\0' "$pair" >&9; done < /proc/$$/environ
exec 9>&-
{move} "{records}/$$.new" "{records}/$$.done"
"""

_PRELUDE = """ulimit -t 10 -f 16384 -c 0
command_not_found_handle() { return 0; }
sleep() { :; }
"""
"""Sourced before a text: limits; what is not on the PATH does nothing, and succeeds."""

_ABSOLUTE = re.compile(r"(?:^|[\s;&|(`!])/(?!dev/)[\w.-]+/[\w./-]*", re.M)
_OURS = frozenset({"PATH", "PWD", "OLDPWD", "SHLVL", "_", "BASH_ENV", "HOME"})


@dataclass(frozen=True, slots=True)
class Command:
    """One server command that bash would have started."""

    program: str
    """`python3`, `python` or `sglang`."""
    words: tuple[str, ...]
    env: Mapping[str, str]
    """The environment that it was given, without what bash sets for everybody."""

    @property
    def entry(self) -> str | None:
        """How the words reach the engine: launch_server, serve, slime; None for another program."""
        if self.program == "sglang":
            return "serve" if self.words[:1] == ("serve",) else None
        if _module(self.words) is not None:
            return "launch_server"
        slime = any(word.startswith("--sglang-") for word in self.words)
        return "slime" if slime else None

    @property
    def arguments(self) -> tuple[str, ...]:
        """The words behind the engine's entry point."""
        if self.entry == "serve":
            return self.words[1:]
        at = _module(self.words)
        if at is not None:
            return self.words[at:]
        first = next((i for i, w in enumerate(self.words) if w.startswith("-")), len(self.words))
        return self.words[first:]


def _module(words: Sequence[str]) -> int | None:
    """Where the words behind `-m sglang.launch_server` (or its file) begin."""
    for index, word in enumerate(words):
        if word == "-m" and words[index + 1 : index + 2] == ("sglang.launch_server",):
            return index + 2
        if word.endswith("sglang/launch_server.py"):
            return index + 1
        if not word.startswith("-") and (index == 0 or words[index - 1] not in ("-W", "-X")):
            return None
    return None


@dataclass(frozen=True, slots=True)
class Recording:
    """What became of a text."""

    commands: tuple[Command, ...] = ()
    code: int = 0
    said: str = ""
    refused: str | None = None
    """Why the text was not run at all."""
    servers: tuple[Command, ...] = field(init=False)
    """The commands that start an engine."""

    def __post_init__(self) -> None:
        found = tuple(command for command in self.commands if command.entry is not None)
        object.__setattr__(self, "servers", found)


class Sandbox:
    """A directory of stand-ins; one for many texts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.bin = directory / "bin"
        self.records = directory / "records"
        self.bin.mkdir()
        self.records.mkdir()
        move = shutil.which("mv") or "/bin/mv"
        record = _RECORD.format(shell=BASH, records=self.records, move=move)
        for name in ("python3", "python", "sglang"):
            (self.bin / name).write_text(record)
            (self.bin / name).chmod(0o755)
        for name in ("env", "nohup", "nice", "bash", "sh"):
            (self.bin / name).symlink_to(shutil.which(name) or f"/usr/bin/{name}")
        self.prelude = directory / "prelude"
        self.prelude.write_text(_PRELUDE)
        self.as_nobody = os.geteuid() == 0
        if self.as_nobody:
            directory.chmod(0o755)
            os.chown(self.records, NOBODY, NOBODY)

    def run(
        self,
        text: str,
        *,
        files: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        words: Sequence[str] = (),
    ) -> Recording:
        """Run a text; `words` are its positional parameters, `files` lie beside it."""
        outside = text.replace("/usr/bin/env", "").replace("#!/bin/bash", "")
        for found in _ABSOLUTE.finditer(outside):
            if _runs(outside, found):
                return Recording(refused=f"it names {found[0].strip()}")
        with tempfile.TemporaryDirectory(dir=self.directory) as name:
            work = Path(name)
            for path, content in (files or {}).items():
                (work / path).parent.mkdir(parents=True, exist_ok=True)
                (work / path).write_text(content)
            (work / "text.sh").write_text(text)
            if self.as_nobody:
                for path_ in (work, *work.rglob("*")):
                    os.chown(path_, NOBODY, NOBODY)
            code, said = self._bash(work, env or {}, words)
            return Recording(tuple(self._read()), code, said)

    def _bash(self, work: Path, env: Mapping[str, str], words: Sequence[str]) -> tuple[int, str]:
        held, given = os.pipe()  # open as long as anything that the text started is alive
        process = subprocess.Popen(
            [BASH, "--norc", "text.sh", *words],
            cwd=work,
            env={
                "PATH": str(self.bin),
                "HOME": str(work),
                "BASH_ENV": str(self.prelude),
                **env,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(given,),
            start_new_session=True,
            text=True,
            errors="replace",
            **({"user": NOBODY, "group": NOBODY, "extra_groups": []} if self.as_nobody else {}),
        )
        os.close(given)
        try:
            _, said = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            said = "timed out"
        end = time.monotonic() + 2
        while time.monotonic() < end and not select.select([held], [], [], 0.5)[0]:
            pass
        os.close(held)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return process.returncode, said[-400:]

    def _read(self) -> Iterator[Command]:
        found = sorted(self.records.glob("*.done"), key=lambda path: path.stat().st_mtime_ns)
        for path in found:
            parts = path.read_bytes().decode("utf-8", "replace").split("\0")[:-1]
            count = int(parts[1])
            pairs = (pair.partition("=") for pair in parts[2 + count :])
            env = {name: value for name, _, value in pairs if name not in _OURS}
            yield Command(Path(parts[0]).name, tuple(parts[2 : 2 + count]), env)
        for path in self.records.iterdir():
            path.unlink()


def _runs(text: str, found: re.Match[str]) -> bool:
    """Whether an absolute path stands where a command would, or is written to."""
    at = found.start() + found[0].index("/")
    line = text[text.rfind("\n", 0, at) + 1 : at].strip()
    before = line[-1:]
    return not line or before in ";&|(`!>" or line.split()[-1] in ("exec", "sudo", "then", "do")


@contextlib.contextmanager
def sandbox() -> Iterator[Sandbox]:
    """A sandbox that is taken away again."""
    with tempfile.TemporaryDirectory(prefix="speclaunch-bash-") as directory:
        yield Sandbox(Path(directory))


def parses(text: str) -> str | None:
    """What `bash -n` says against a text, or nothing."""
    done = subprocess.run(
        [BASH, "--norc", "-n"], input=text, capture_output=True, text=True, check=False, timeout=10
    )
    return done.stderr.strip()[:300] if done.returncode or done.stderr.strip() else None
