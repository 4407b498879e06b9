"""Engines of a comparison, each launched by a separate speclaunch process.

Each launch includes checks, diagnosis and a clean stop; its output goes to a log. The kernel ends
the launch when this process ends for any reason (PR_SET_PDEATHSIG), and the launch's guard ends the
engine.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from msgspec import Struct

from speclaunch.core import LaunchError, beating, children, duration
from speclaunch.engine import Address
from speclaunch.serving import LaunchState, Run, reread_run, running_launches

_POLL_SECONDS = 0.1
_END_SECONDS = 90.0
_TAIL = 30
_DYING_SECONDS = 10.0
"""Time limit for an engine to exit with its speclaunch process after closing its connections."""


class EngineOrder(Struct, frozen=True):
    """An engine to launch.

    `words`: arguments of `speclaunch launch` (recipe, overrides, options). `url`: address of a
    server that is already running, used unchanged. `key`: API key of the server.
    """

    name: str
    words: tuple[str, ...]
    port: int
    url: str | None = None
    key: str | None = None


def next_log(folder: Path) -> Path:
    """Return the log path of the next engine start; each start has its own file."""
    return folder / f"engine-{len(list(folder.glob('engine-*.log'))) + 1}.log"


class MeasuredEngine:
    """A serving or starting engine."""

    def __init__(self, order: EngineOrder, log: Path) -> None:
        """Start the engine. `log` receives the output of its speclaunch process."""
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
        """Base URL of the server."""
        return f"http://127.0.0.1:{self.order.port}"

    @property
    def address(self) -> Address:
        """Address of the server, with its key."""
        return Address("127.0.0.1", self.order.port, tls=False, api_key=self.order.key or None)

    def wait(self, seconds: float, say: Callable[[str], None] | None = None) -> float:
        """Wait until the engine serves and is verified; return the seconds. Raises LaunchError.

        `say` receives progress periodically.
        """
        if say is not None:
            with beating(say, lambda waited: f"{self.order.name}: starting for {duration(waited)}"):
                return self.wait(seconds)
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            if self._process.poll() is not None:
                raise LaunchError(
                    f"{self.order.name} did not start", help=f"see {self.log}: {self._words()}"
                )
            self._run = self._run or self._found()
            if self._run is not None and reread_run(self._run).state is LaunchState.SERVING:
                return time.monotonic() - began
            time.sleep(_POLL_SECONDS)
        raise LaunchError(f"{self.order.name} did not serve within {seconds:.0f} s")

    def _found(self) -> Run | None:
        for holder in running_launches():
            if holder.pid == self._process.pid:
                return reread_run(Run(Path(holder.run), {}, holder))
        return None

    @property
    def attempts(self) -> int:
        """Number of engine starts; more than 1 after a crash or a recovery step."""
        return len(reread_run(self._run).attempts) if self._run is not None else 0

    @property
    def pid(self) -> int | None:
        """Process ID of the engine while it serves."""
        attempts = reread_run(self._run).attempts if self._run is not None else []
        found = attempts[-1].get("pid") if attempts else None
        return found if isinstance(found, int) else None

    @property
    def changes(self) -> dict[str, object]:
        """Arguments that recovery changed before the engine served."""
        if self._run is None:
            return {}
        attempts = reread_run(self._run).attempts
        return dict(attempts[-1].get("changes") or {}) if attempts else {}

    @property
    def lives(self) -> bool:
        """True if its speclaunch process is running."""
        return self._process.poll() is None

    def is_gone(self, seconds: float = _DYING_SECONDS) -> bool:
        """True if the engine has ended, or ends within `seconds`."""
        until = time.monotonic() + seconds
        while self.lives and time.monotonic() < until:
            time.sleep(0.1)
        return not self.lives

    def pause(self) -> None:
        """Pause its processes, because an idle engine would slow down the other."""
        pid = self.pid
        if pid is None or self._paused:
            return
        with contextlib.suppress(psutil.Error):
            parent = psutil.Process(pid)
            self._paused = [parent, *parent.children(recursive=True)]
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume its processes."""
        self._signal(signal.SIGCONT)
        self._paused = []

    def _signal(self, number: int) -> None:
        for process in self._paused:
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)

    def stop(self) -> None:
        """Stop the engine and wait until all its processes have ended; safe to repeat."""
        self.resume()
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_END_SECONDS)
            except KeyboardInterrupt:  # already stopping; a second Ctrl-C waits less
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
            errors = [line for line in lines[-_TAIL:] if line.startswith(("error", "✗"))]
            return (errors or lines or [""])[-1]
        return ""


def end_on_signals() -> None:
    """Make SIGTERM and SIGINT end this process and its engines, as Ctrl-C does.

    Also works if a shell started this process in the background, ignoring SIGINT.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
