"""`speclaunch watch` on a real terminal and in a pipe: drawing, resizing, Ctrl-C."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from rich.cells import cell_len

from tests.support import program
from tests.support.serving.metrics_server import FakeMetrics, metrics_server

pytestmark = pytest.mark.thorough
SECONDS = 300.0
SIZES = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in SIZES}
ALT, MAIN, CURSOR = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25h"
COLOR = re.compile(rb"\x1b\[[0-9;]*\b(?:3[0-7]|9[0-7])m")
CONTROL = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A pseudo-terminal with `speclaunch watch` in its foreground."""

    def __init__(self, url: str, size: tuple[int, int], env: dict[str, str]) -> None:
        self.ours, self.theirs = pty.openpty()
        self.resize(*size)
        self.before = termios.tcgetattr(self.theirs)
        self.child = subprocess.Popen(
            [*program.COMMAND, "watch", url, "--interval", "0.5"],
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  for Ctrl-C
            env={**ENVIRONMENT, "TERM": "xterm-256color", **env},
        )
        self.shown = b""

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read_until(self, text: bytes, count: int = 1) -> bytes:
        """Output up to now, once it has a text so often."""
        deadline = time.monotonic() + SECONDS
        while self.shown.count(text) < count:
            assert time.monotonic() < deadline and self.child.poll() is None, self.shown
            if select.select([self.ours], [], [], 1)[0]:
                self.shown += os.read(self.ours, 1 << 16)
        return self.shown

    def interrupt(self) -> bytes:
        """Press Ctrl-C; return all output of the ended process."""
        os.write(self.ours, b"\x03")
        assert self.child.wait(SECONDS) == 130
        while select.select([self.ours], [], [], 0.1)[0]:
            self.shown += os.read(self.ours, 1 << 16)
        assert termios.tcgetattr(self.theirs) == self.before
        assert b"Traceback" not in self.shown and b"Aborted" not in self.shown
        return self.shown


@contextmanager
def terminal(size: tuple[int, int] = (80, 24), **env: str) -> Iterator[Terminal]:
    with metrics_server(FakeMetrics()) as url:
        found = Terminal(url, size, env)
        try:
            yield found
        finally:
            found.child.kill()
            found.child.wait()
            os.close(found.ours)
            os.close(found.theirs)


def test_the_view_follows_the_size_and_gives_the_terminal_back() -> None:
    with terminal() as found:
        assert ALT in found.read_until(b"no problems", 2) and COLOR.search(found.shown)
        assert b"EAGLE3" in found.shown
        found.resize(44, 8)
        drawn = len(found.shown)
        found.read_until(b"no problems", found.shown.count(b"no problems") + 4)
        frames = found.shown[drawn:].split(b"\x1b[H")[2:-1]
        assert frames
        lines = CONTROL.sub(b"", frames[-1]).decode().splitlines()
        assert 3 < len(lines) <= 8 and max(map(cell_len, lines)) <= 44, lines
        end = found.interrupt()
    assert end.rindex(MAIN) > end.rindex(ALT) and end.rindex(CURSOR) > end.rindex(b"\x1b[?25l")


def test_without_color_the_view_has_none() -> None:
    with terminal(NO_COLOR="1") as found:
        assert ALT in found.read_until(b"no problems", 2)
        assert not COLOR.search(found.interrupt())


def test_a_terminal_without_control_sequences_gets_a_table_each_time() -> None:
    with terminal(TERM="dumb") as found:
        assert b"EAGLE3" in found.read_until(b"accept", 3)
        assert b"\x1b" not in found.interrupt()


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_pipe_gets_lines_until_it_is_interrupted_or_closed(form: str) -> None:
    def begin(url: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*program.COMMAND, "watch", url, "--interval", "0.5", "--output-format", form],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    with metrics_server(FakeMetrics()) as url, begin(url) as first, begin(url) as second:
        try:
            for child in (first, second):
                assert child.stdout is not None
                line = child.stdout.readline()
                assert b"accept" in line and b"\x1b" not in line
            first.send_signal(signal.SIGINT)
            rest, errors = first.communicate(timeout=SECONDS)
            assert (first.returncode, errors) == (130, b"") and b"\x1b" not in rest
            assert second.stdout is not None and second.stderr is not None
            second.stdout.close()
            errors = second.stderr.read()
            second.wait(SECONDS)
            assert b"Traceback" not in errors and b"Exception" not in errors, errors
        finally:
            first.kill()
            second.kill()
