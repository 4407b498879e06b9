"""Run speclaunch and record each process, written path, network call and opened file.

    python tests/security/audited.py EVENTS WORDS…

EVENTS gets one JSON list an event: `[kind, details…]`. The hook sees this process and its forks; a
program that it starts appears as one `process` event.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any

MEMORY_BYTES = 3 << 30
"""Address space of a run: a reader without a bound needs more."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {
    *("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate"),
    *("os.chmod", "os.chown", "os.utime", "shutil.rmtree", "shutil.move", "shutil.copyfile"),
}
_PROCESSES = {"os.exec", "os.posix_spawn", "os.spawn", "os.system", "pty.spawn"}
_NETWORK = {"socket.connect", "socket.sendto", "socket.getaddrinfo", "urllib.Request"}


def _listen(fd: int) -> None:
    def text(value: object) -> str:
        try:
            return os.fsdecode(value)  # type: ignore[arg-type]
        except TypeError:
            return repr(value)

    def note(*event: str) -> None:
        os.write(fd, json.dumps(event).encode() + b"\n")

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            if isinstance(path, int):
                return
            writes = (isinstance(flags, int) and flags & _WRITING) or (
                isinstance(mode, str) and set(mode) & set("wax+")
            )
            note("write" if writes else "read", os.path.abspath(text(path)))  # noqa: PTH100
        elif event == "subprocess.Popen":
            program, words, cwd, _ = arguments
            note("process", text(program), json.dumps([text(w) for w in words]), text(cwd or ""))
        elif event in _PROCESSES:
            note("process", *map(text, arguments[:1]), "[]", "")
        elif event in _CHANGES:
            if isinstance(arguments[-1], int) and arguments[-1] >= 0 and event == "os.remove":
                return  # below a directory that is open: of `shutil.rmtree`, which has its own event
            note("write", os.path.abspath(text(arguments[0])))  # noqa: PTH100
        elif event in _NETWORK:
            address = arguments[1] if event in ("socket.connect", "socket.sendto") else arguments[0]
            note("network", event, text(address))

    sys.addaudithook(hear)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    _listen(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    sys.argv = ["speclaunch", *sys.argv[2:]]
    del sys.path[0]
    from speclaunch.app.verbs.app import main

    main()
