"""Guard process between speclaunch and the engine: a script that needs only the standard library.

An engine must never outlive its supervisor, however the supervisor ends. speclaunch holds the other
end of this process's standard input. When that end closes, even by `kill -9`, the guard stops the
engine. It adopts orphaned descendants (PR_SET_CHILD_SUBREAPER), so no process of the engine is
left, not even in another session. If the guard itself is killed, the kernel kills the engine's
parent with it (PR_SET_PDEATHSIG).

Protocol. Standard input: one JSON line (the order of `process.EngineProcess`), then `stop`, `kill`
or `until SECONDS` lines; end of file means `stop`. `until` is a lease (`boot_seconds`) for an
engine of several hosts. The guard kills the engine at that time, even if speclaunch hangs, unless a
later `until` arrived. Standard output: JSON lines `{"pid": n}`, `{"log_error": "…"}`,
`{"error": "…"}` if the engine cannot be started, and `{"exit": n}`; a negative exit code is a
signal number.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
RUN_VARIABLE = "SPECLAUNCH_RUN"
"""Environment variable of an engine and all its processes, used to find them."""

_POLL_SECONDS = 0.05
_CHUNK = 1 << 16
_LONGEST_HELD = 600
_UNFINISHED = re.compile(
    rb"(?:[\"'][\w.-]{1,60}\\?[\"']\s{0,4}:\s{0,4}\\?[\"']?[^\"'\r\n]*"
    rb"|(?:[Bb]earer|[Bb]asic|BEARER|BASIC)\s{1,4}[^\s]*|[^\s]*)\Z"
)
"""Start of a possible secret at the end of an incomplete text."""


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def adopt_orphans() -> None:
    """Make this process adopt orphaned descendants."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def descendants(root: int) -> list[int]:
    """Return the ids of the descendants of `root`, without zombies, children before parents."""
    parents = parents_by_pid()
    found: list[int] = []
    level = [root]
    while level:
        level = [pid for pid, parent in parents.items() if parent in level]
        found = level + found
    return found


def marked(value: str, variable: str = RUN_VARIABLE) -> list[int]:
    """Return the ids of processes with `variable=value` in their environment."""
    mark = f"{variable}={value}".encode()
    found: list[int] = []
    for pid in parents_by_pid():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if mark in file.read().split(b"\0"):
                    found.append(pid)
        except OSError:
            continue  # it ended, or belongs to another user
    return found


def parents_by_pid() -> dict[int, int]:
    """Return the parent id of every living process, by process id."""
    found: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue  # it ended in the meantime
        if fields[0] not in (b"Z", b"X"):
            found[int(name)] = int(fields[1])
    return found


def kill_all(root: int, seconds: float = 5.0) -> list[int]:
    """Kill all descendants of `root`, trying for up to `seconds`; return the survivors' ids."""
    deadline = time.monotonic() + seconds
    while True:
        left = descendants(root)
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        reap()
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(_POLL_SECONDS)


def reap() -> dict[int, int]:
    """Collect ended children; return their exit codes by process id (negative: signal number)."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = os.waitstatus_to_exitcode(status)


class Log:
    """Log file of the engine's output, with secrets redacted. A full disk costs only log text.

    When a file would exceed `most` bytes, it is renamed to `PATH.1`, the previous `PATH.1` to
    `PATH.2`, and so on up to `keep`. A new file is then started.
    """

    def __init__(
        self,
        path: str,
        secrets: list[str],
        most: int,
        keep: int,
        patterns: Sequence[tuple[Sequence[str], str]] = (),
    ) -> None:
        self._path, self._most, self._keep = path, most, keep
        self._fd = self._open()
        self._size = os.fstat(self._fd).st_size
        self._secrets = [secret.encode() for secret in secrets if secret]
        self._patterns = [
            ([hint.encode() for hint in hints], pattern.encode()) for hints, pattern in patterns
        ]
        self._held = b""
        self.error: str | None = None

    def write(self, data: bytes) -> None:
        """Write the engine's output, except a tail that may begin a secret."""
        data = self._held + data
        keep = max((_overlap(data, secret) for secret in self._secrets), default=0)
        if self._patterns:
            found = _UNFINISHED.search(data[-_LONGEST_HELD:])
            keep = max(keep, len(found[0]) if found else 0)
        self._held = data[len(data) - keep :] if keep else b""
        self._put(self._redacted(data[: len(data) - keep]))

    def close(self) -> None:
        """Write the text that `write` held back."""
        self._put(self._redacted(self._held))
        self._held = b""

    def _redacted(self, data: bytes) -> bytes:
        for secret in self._secrets:
            data = data.replace(secret, b"***")
        for hints, pattern in self._patterns:
            if any(hint in data for hint in hints):
                data = re.sub(pattern, rb"\1***", data)
        return data

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def _put(self, data: bytes) -> None:
        if self._size and self._size + len(data) > self._most:
            lines = data.rfind(b"\n") + 1  # no line is cut in two
            self._append(data[:lines])
            data = data[lines:]
            self._rotate()
        self._append(data)

    def _rotate(self) -> None:
        self._size = 0
        try:
            for number in range(self._keep - 1, 0, -1):
                with contextlib.suppress(FileNotFoundError):
                    os.replace(f"{self._path}.{number}", f"{self._path}.{number + 1}")
            if self._keep:
                os.replace(self._path, f"{self._path}.1")
            else:
                os.unlink(self._path)  # its readers can still read it to its end
            old, self._fd = self._fd, self._open()
            os.close(old)
        except OSError as error:
            self.error = error.strerror

    def _append(self, data: bytes) -> None:
        try:
            while data:
                written = os.write(self._fd, data)
                self._size += written
                data = data[written:]
            self.error = None
        except OSError as error:
            self.error = error.strerror


def _overlap(data: bytes, secret: bytes) -> int:
    """Return the number of bytes at the end of `data` that may begin `secret`."""
    return next(
        (n for n in range(min(len(secret) - 1, len(data)), 0, -1) if data.endswith(secret[:n])), 0
    )


class EngineGuard:
    """Guard that runs one engine to its end."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._grace: float = order["grace_seconds"]
        self._log = Log(
            order["log"],
            order["secrets"],
            order["log_max_bytes"],
            order["log_keep"],
            order["secret_patterns"],
        )
        self._private: list[str] = order["private_files"]
        self._deadline: float | None = None
        self._until: float | None = order.get("until")
        self._partial_order: bytes = b""
        self._reported_error: str | None = None
        adopt_orphans()
        me = os.getpid()

        def in_child() -> None:
            _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != me:  # the guard died before the line above
                os._exit(1)

        self._output, engine_end = os.pipe()
        try:
            engine = subprocess.Popen(
                order["argv"],
                stdin=subprocess.DEVNULL,
                stdout=engine_end,
                stderr=engine_end,
                env=order["env"],
                cwd=order["cwd"],
                process_group=0,
                preexec_fn=in_child,  # noqa: PLW1509 - the guard has one thread
            )
        finally:
            os.close(engine_end)
        self._pid = engine.pid
        engine.returncode = 0  # reaped here, not by Popen
        send({"pid": self._pid})

    def run(self) -> int:
        """Execute orders until the engine has ended; return its exit code."""
        wake, notify = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(notify, False)
        signal.set_wakeup_fd(notify, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: self.stop())
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is speclaunch's to handle
        listening = [0, self._output, wake]
        while True:
            ready, _, _ = select.select(listening, [], [], self._patience())
            if wake in ready:
                drain(wake)
            if self._output in ready and not self._pump():
                listening.remove(self._output)
            if 0 in ready and not self._obey():
                listening.remove(0)
            code = reap().get(self._pid)
            if code is not None:
                return self._finish(code)
            over = self._deadline is not None and time.monotonic() >= self._deadline
            if over or (self._until is not None and boot_seconds() >= self._until):
                self._kill()

    def stop(self) -> None:
        """Request a graceful stop; kill the engine after its grace time."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self._grace
            try:
                # Only the parent: it drains requests and ends its children. Signaled together they
                # consider each other crashed (measured on 0.5.23: exit -9 instead of 0).
                os.kill(self._pid, signal.SIGTERM)
                os.kill(self._pid, signal.SIGCONT)
            except ProcessLookupError:
                pass

    def _patience(self) -> float | None:
        left = [] if self._deadline is None else [self._deadline - time.monotonic()]
        if self._until is not None:
            left.append(self._until - boot_seconds())
        return max(0.0, min([*left, 1.0])) if left else None

    def _obey(self) -> bool:
        received = os.read(0, _CHUNK)
        *orders, self._partial_order = (self._partial_order + received).split(b"\n")
        for order in orders:
            if order.startswith(b"until "):
                self._until = float(order[len(b"until ") :])
            elif order == b"kill":
                self._kill()
            else:
                self.stop()
        if not received:
            self.stop()  # speclaunch has ended
        return bool(received)

    def _kill(self) -> None:
        self._deadline, self._until = float("inf"), None
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _pump(self) -> bool:
        data = os.read(self._output, _CHUNK)
        self._log.write(data)
        if self._log.error != self._reported_error:
            self._reported_error = self._log.error
            send({"log_error": self._log.error})
        return bool(data)

    def _finish(self, code: int) -> int:
        kill_all(os.getpid())
        os.set_blocking(self._output, False)
        try:
            while self._pump():
                pass
        except BlockingIOError:
            pass
        self._log.close()
        for path in self._private:
            with contextlib.suppress(OSError):
                os.unlink(path)
        return code


def boot_seconds() -> float:
    """Return the monotonic time in seconds, including time in suspend."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def send(message: dict[str, Any]) -> None:
    """Send a message to speclaunch if it is still running."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(message).encode() + b"\n")


def drain(fd: int) -> None:
    """Empty a non-blocking pipe."""
    try:
        while os.read(fd, _CHUNK):
            pass
    except BlockingIOError:
        pass


def read_order() -> dict[str, Any]:
    """Return the first line of standard input, read byte by byte, so that later orders remain
    unread."""
    line = bytearray()
    while not line.endswith(b"\n"):
        chunk = os.read(0, 1)
        if not chunk:
            sys.exit(0)  # speclaunch ended before it sent an order
        line += chunk
    order: dict[str, Any] = json.loads(line)
    return order


def main() -> None:
    """Read an order, run its engine to its end, and report the exit code."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    order = read_order()
    try:
        guard = EngineGuard(order)
    except OSError as error:
        send({"error": f"{error.strerror}: {error.filename or order['argv'][0]}"})
        sys.exit(0)
    send({"exit": guard.run()})


if __name__ == "__main__":
    main()
