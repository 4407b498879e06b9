"""What several nodes of one scripted engine do to each other, as seen on the real 0.5.23.

The ranks meet at the address of rank 0 and wait for each other there. A rank that loses another one
ends with gloo's words. A worker (rank above 0) answers `/health` alone, and does not end for SIGTERM
(entrypoints/engine.py: "waiting for the rank-0 ShutdownReq broadcast"); it ends with rank 0.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

Say = Callable[..., None]
LOST = (
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer"
)
held: list[object] = []


def hold_settings(settings: str) -> None:
    """Hold a lock for these settings as long as this process lives, and note whether any other
    settings are held: then two engines of one server run with different ones. The kernel knows."""
    directory = Path(os.environ["FAKE_LOCKS"])
    mine = (directory / f"settings-{settings}").open("a")
    fcntl.flock(mine, fcntl.LOCK_SH)
    held.append(mine)
    for path in directory.glob("settings-*"):
        if path.name == f"settings-{settings}":
            continue
        with path.open("a") as other:
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                with (directory / "split").open("a") as found:
                    found.write(f"{settings} starts while {path.name} runs\n")


def join(behaviour: str, say: Say, fraction: float) -> str:
    """Meet the other ranks; the behaviour from then on."""
    words = os.environ["FAKE_NODES"].split()
    count, rank, (host, port) = int(words[0]), int(words[1]), words[2].split(":")
    if rank == 0:
        server = socket.create_server((host, int(port)), reuse_port=False)
        held.append(server)
        for _ in range(count - 1):
            connection, _ = server.accept()
            _watch(connection, say, stopped=False)
            connection.sendall(b"go\n")
            held.append(connection)
        return behaviour
    signal.signal(
        signal.SIGTERM,
        lambda *_: say(
            "SIGTERM received on node_rank 1; waiting for the rank-0 ShutdownReq broadcast"
        ),
    )
    while True:
        with contextlib.suppress(OSError):
            connection = socket.create_connection((host, int(port)))
            if connection.recv(3):
                break
        time.sleep(0.05)
    _watch(connection, say, stopped=True)
    held.append(connection)
    del fraction
    return "worker"


def _watch(connection: socket.socket, say: Say, *, stopped: bool) -> None:
    """End when the other one does."""

    def read() -> None:
        with contextlib.suppress(OSError):
            said = connection.recv(4)
            if stopped and said == b"stop":
                os._exit(0)
        say("Scheduler hit an exception: Traceback (most recent call last):", LOST)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=read, daemon=True).start()


def stop_all() -> None:
    """What rank 0 tells the others before it ends (ShutdownReq)."""
    for one in held:
        if isinstance(one, socket.socket):
            with contextlib.suppress(OSError):
                one.sendall(b"stop")


if __name__ == "__main__":
    sys.exit("this is a part of fake_engine.py")
