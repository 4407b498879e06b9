"""Drives a real shell on a terminal: what a key makes of a line."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

START = {
    "bash": ("bash", "--norc", "--noprofile", "-i"),
    "zsh": ("zsh", "-f", "-i"),
    "fish": ("fish", "--no-config", "--interactive"),
}
READY = "ready-for-the-next-line"
_QUIET_S, _MOST_S = 0.4, 20.0
_CONTROL = re.compile(
    r"\x1b\[[0-9;?>=]*[A-Za-z]|\x1b[=>()][B0]?|\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\r"
)


def is_there(shell: str) -> bool:
    return shutil.which(shell) is not None


class Shell:
    """A shell with speclaunch on its PATH and its completion loaded from `script`."""

    def __init__(self, name: str, script: Path, cwd: Path) -> None:
        self.name = name
        bin_ = cwd / ".bin"
        bin_.mkdir(exist_ok=True)
        program = bin_ / "speclaunch"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m speclaunch "$@"\n')
        program.chmod(0o755)
        self._terminal, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (50, 200))
        home = cwd / ".home"
        home.mkdir(exist_ok=True)
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("SPECLAUNCH")},
            "PATH": f"{bin_}:{os.environ['PATH']}",
            "HOME": str(home),
            "TERM": "xterm",
            "PS1": "$ ",
            "PYTHONPATH": str(Path(__file__).resolve().parents[3]),
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self._process = subprocess.Popen(
            START[name], stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd, env=environment,
            start_new_session=True, preexec_fn=lambda: _take(theirs),  # noqa: PLW1509
        )  # fmt: skip
        os.close(theirs)
        setup = {
            "bash": f"source {script}",
            "zsh": f"PS1='$ '; autoload -Uz compinit && compinit -u -D && source {script}",
            "fish": f"source {script}; function fish_prompt; echo '$ '; end",
        }[name]
        self._send(f"{setup}; echo {READY[:5]}'{READY[5:]}'\n")
        self._until(READY + "\n")
        self._settle()

    def completed(self, typed: str) -> list[str]:
        """The words of the line that one TAB behind `typed` makes."""
        self._send(typed)
        self._settle()
        self._send("\t")
        self._settle()
        self._send("\x01printf '<%s>\\n' \x05; echo END\n")
        said = self._until("\nEND\n")
        self._settle()
        return re.findall(r"^<(.*)>$", said, re.M)

    def listed(self, typed: str) -> str:
        """What is shown when TAB is pressed twice."""
        self._send(typed)
        self._settle()
        self._send("\t\t")
        said = self._settle()
        for key in ("\x1b", "\x03"):  # close the list, forget the line
            self._send(key)
            self._settle()
        return said

    def end(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._terminal)

    def _send(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def _read(self, most: float) -> str:
        if not select.select([self._terminal], [], [], most)[0]:
            return ""
        try:
            data = os.read(self._terminal, 65536).decode(errors="replace")
        except OSError:
            return ""
        if "\x1b[c" in data or "\x1b[0c" in data:  # what are you? A terminal answers.
            self._send("\x1b[?1;2c")
        return data

    def _settle(self) -> str:
        """What is written until nothing is for a while; completions take their time."""
        said, quiet = "", 0.0
        begun = time.monotonic()
        while quiet < _QUIET_S and time.monotonic() - begun < _MOST_S:
            found = self._read(0.1)
            said += found
            quiet = 0.0 if found or self._is_busy() else quiet + 0.1
        return _CONTROL.sub("", said)

    def _is_busy(self) -> bool:
        """Whether the shell waits for a process of its own."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        try:
            return bool(children.read_text().strip())
        except OSError:
            return False

    def _until(self, text: str) -> str:
        said = ""
        begun = time.monotonic()
        while text not in _CONTROL.sub("", said):
            assert time.monotonic() - begun < _MOST_S, f"{self.name}: no {text!r} in {said!r}"
            said += self._read(0.2)
        return _CONTROL.sub("", said)


def _take(terminal: int) -> None:
    import fcntl

    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
