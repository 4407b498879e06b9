"""A Ray cluster of two nodes on this machine, for tests.

    python tests/support/ray_cluster.py FOLDER [--ray PATH/TO/bin/ray]     # until Ctrl-C

Both nodes are of this machine: 127.0.0.1 and 127.0.0.2; their CPUs are declared, not looked for.
Needs `pip install 'ray[default]'`, in an environment of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

CPUS = 16
_WAIT_S = 120.0
_TRIES = 5


def program() -> str | None:
    """Ray's command: SPECLAUNCH_TEST_RAY, else that of the PATH."""
    return os.environ.get("SPECLAUNCH_TEST_RAY") or shutil.which("ray")


@contextlib.contextmanager
def cluster(folder: Path, ray: str) -> Iterator[str]:
    """A cluster while the block runs; the address for `ray job`."""
    folder.mkdir(parents=True, exist_ok=True)
    gcs, dashboard = _free_ports(2)
    env = {**os.environ, "RAY_JOB_STOP_WAIT_TIME_S": "60", "RAY_USAGE_STATS_ENABLED": "0"}
    common = [f"--num-cpus={CPUS}", "--disable-usage-stats", "--block"]
    head = [f"--port={gcs}", f"--dashboard-port={dashboard}", f"--temp-dir={folder}"]
    address = f"http://127.0.0.1:{dashboard}"
    nodes: list[subprocess.Popen[bytes]] = []
    try:
        with (folder / "start.log").open("wb") as log:
            for words in (
                ["--head", "--node-ip-address=127.0.0.1", *head],
                ["--node-ip-address=127.0.0.2", f"--address=127.0.0.1:{gcs}"],
            ):
                command = [ray, "start", *words, *common]
                for left in reversed(range(_TRIES)):  # Ray gives a busy machine 30 s, no more
                    node = subprocess.Popen(
                        command, env=env, stdout=log, stderr=log, start_new_session=True
                    )
                    nodes.append(node)
                    if _came_up(address, node, len(nodes)):
                        break
                    _killed(nodes.pop())
                    if not left:
                        raise TimeoutError(f"no cluster comes up: see {folder}/start.log")
        yield address
    finally:
        for node in reversed(nodes):
            node.send_signal(signal.SIGTERM)
        for node in nodes:
            try:
                node.wait(90)  # it drains for 30 s
            except subprocess.TimeoutExpired:
                node.kill()


def _came_up(address: str, node: subprocess.Popen[bytes], nodes: int) -> bool:
    """Whether so many nodes are alive, before the newest one gives up."""
    deadline = time.monotonic() + _WAIT_S
    while node.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError):
            if _alive(address) >= nodes:
                return True
        time.sleep(0.5)
    return False


def _killed(node: subprocess.Popen[bytes]) -> None:
    """End a node that failed, with what it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(node.pid, signal.SIGKILL)
    node.wait()


def _alive(address: str) -> int:
    url = f"{address}/api/v0/nodes?detail=false"
    with urllib.request.urlopen(url, timeout=5) as answer:
        return int(answer.read().count(b'"ALIVE"'))


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ray", default=program())
    given = parser.parse_args()
    if given.ray is None:
        sys.exit("Ray is not installed: pip install 'ray[default]'")
    with cluster(given.folder.absolute(), given.ray) as address:
        print(f"export RAY_ADDRESS={address}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
