"""The engines of a comparison: each launched by a speclaunch of its own, and stopped with ours.

A launch brings its checks, its diagnosis and its clean end along; what it says goes to a log. The
kernel ends it with this process (PR_SET_PDEATHSIG), however that ends, and its guard the engine.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from pathlib import Path

import psutil
from msgspec import Struct

from speclaunch.core import LaunchError, children
from speclaunch.serving import LaunchState, Run, again, living

_POLL_SECONDS = 0.1
_END_SECONDS = 90.0
_TAIL = 30


class EngineOrder(Struct, frozen=True):
    """What to launch: `words` are those of `speclaunch launch` (recipe, overrides, options).

    `url`: of a server that runs already, and is asked as it is. `key`: what it asks for.
    """

    name: str
    words: tuple[str, ...]
    port: int
    url: str | None = None
    key: str | None = None


def next_log(folder: Path) -> Path:
    """Where the next engine of a measurement writes: a file for each start."""
    return folder / f"engine-{len(list(folder.glob('engine-*.log'))) + 1}.log"


class MeasuredEngine:
    """One engine that serves, or is being started."""

    def __init__(self, order: EngineOrder, log: Path) -> None:
        """Begin to start it; `log` gets what its speclaunch says."""
        self.order = order
        self.log = log
        self._run: Run | None = None
        self._paused: list[psutil.Process] = []
        with log.open("wb") as file:
            self._process = children.start(
                children.bound(children.own_command("launch", *order.words)),
                cwd=Path.cwd(),
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def url(self) -> str:
        """Where it serves."""
        return f"http://127.0.0.1:{self.order.port}"

    def wait(self, seconds: float) -> float:
        """Wait until it serves and was verified; how long that took. Raises LaunchError."""
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            if self._process.poll() is not None:
                raise LaunchError(
                    f"{self.order.name} did not start", help=f"{self.log} says why: {self._words()}"
                )
            self._run = self._run or self._found()
            if self._run is not None and again(self._run).state is LaunchState.SERVING:
                return time.monotonic() - began
            time.sleep(_POLL_SECONDS)
        raise LaunchError(f"{self.order.name} did not serve within {seconds:.0f} s")

    def _found(self) -> Run | None:
        for holder in living():
            if holder.pid == self._process.pid:
                return again(Run(Path(holder.run), {}, holder))
        return None

    @property
    def attempts(self) -> int:
        """How often its engine was started: more than once after a crash, or a step of recovery."""
        return len(again(self._run).attempts) if self._run is not None else 0

    @property
    def pid(self) -> int | None:
        """The process of its engine, while it serves."""
        attempts = again(self._run).attempts if self._run is not None else []
        found = attempts[-1].get("pid") if attempts else None
        return found if isinstance(found, int) else None

    @property
    def changes(self) -> dict[str, object]:
        """What recovery changed of its arguments before it served."""
        if self._run is None:
            return {}
        attempts = again(self._run).attempts
        return dict(attempts[-1].get("changes") or {}) if attempts else {}

    @property
    def lives(self) -> bool:
        """Whether its speclaunch still looks after it."""
        return self._process.poll() is None

    def pause(self) -> None:
        """Halt its processes, so that an idle engine takes no time from the other one."""
        pid = self.pid
        if pid is None or self._paused:
            return
        with contextlib.suppress(psutil.Error):
            parent = psutil.Process(pid)
            self._paused = [parent, *parent.children(recursive=True)]
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let them go on."""
        self._signal(signal.SIGCONT)
        self._paused = []

    def _signal(self, number: int) -> None:
        for process in self._paused:
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)

    def stop(self) -> None:
        """Stop it, and wait until all of it is gone; safe to repeat."""
        self.resume()
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_END_SECONDS)
            except KeyboardInterrupt:  # it is being stopped already; a second one is in a hurry
                self._wait_or_kill()
                raise
            except subprocess.TimeoutExpired:
                self._wait_or_kill(0)

    def _wait_or_kill(self, seconds: float = _END_SECONDS) -> None:
        try:
            self._process.wait(seconds)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            self._process.kill()  # its guard stops the engine
            self._process.wait()

    def _words(self) -> str:
        with contextlib.suppress(OSError):
            lines = self.log.read_text(errors="replace").strip().splitlines()
            told = [line for line in lines[-_TAIL:] if line.startswith(("error", "✗"))]
            return (told or lines or [""])[-1]
        return ""


def end_on_signals() -> None:
    """Have SIGTERM and SIGINT end us as Ctrl-C does, engines included; also where the shell that
    began us in the background had the second one ignored."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
