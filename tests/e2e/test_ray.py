"""A real Ray cluster of two nodes runs the rendered job with the real engine."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from speclaunch.serving.launch.runs import free_port
from tests.e2e.conftest import speclaunch, survivors
from tests.e2e.test_slurm import engines, generated, serves
from tests.support import ray_cluster

RAY = ray_cluster.program()
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        RAY is None, reason="no Ray: neither on the PATH nor named by SPECLAUNCH_TEST_RAY"
    ),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    assert RAY is not None
    before = {process.pid for process in psutil.process_iter()}
    folder = Path(f"/tmp/ray-{os.getpid()}")  # its sockets' paths may have 107 characters
    with ray_cluster.cluster(folder, RAY) as found:
        yield found
    ours = [p for p in psutil.process_iter() if p.pid not in before and _is_ray(p, folder)]
    assert survivors(ours, 30) == []


def _is_ray(process: psutil.Process, folder: Path) -> bool:
    try:
        return str(folder) in " ".join(process.cmdline())
    except psutil.Error:
        return False


def ray(address: str, *words: str, cwd: Path | None = None) -> str:
    env = {**os.environ, "RAY_ADDRESS": address}
    command = [str(RAY), "job", *words]
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=180)
    return done.stdout + done.stderr


def test_two_servers_on_two_nodes_serve_and_end_with_the_job(address: str, tmp_path: Path) -> None:
    ports = free_port(), free_port()
    recipe = tmp_path / "two.yaml"
    roles = "".join(
        f"  {name}: {{args: {{port: {port}}}}}\n"
        for name, port in zip(("one", "two"), ports, strict=True)
    )
    recipe.write_text(
        "defaults:\n  - base\n  - model: cpu_cycle\n  - speculation: ngram\n"
        f"  - override hardware: cpu\n  - _self_\nroles:\n{roles}deploy: {{drain_seconds: 8}}\n"
    )
    job = tmp_path / "job"
    job.mkdir()
    done = speclaunch("render", str(recipe), "--to", "ray", "-o", str(job / "two.py"))
    assert done.returncode == 0, done.stderr
    python = str(Path(str(RAY)).with_name("python"))
    submit = ["submit", "--no-wait", "--submission-id=two", "--working-dir=.", "--"]
    ray(address, *submit, python, "two.py", cwd=job)
    deadline = time.monotonic() + 600
    while not all(serves(port) for port in ports):
        assert time.monotonic() < deadline, ray(address, "logs", "two")[-5000:]
        time.sleep(1)
    assert [generated(port) for port in ports] == [8, 8]
    said = ray(address, "logs", "two")
    hosts = re.findall(r"^(?:one|two): http://([\d.]+):\d+$", said, re.M)
    assert len(set(hosts)) == 2, said[:2000]
    running = engines(*ports)
    assert len(running) >= 6

    ray(address, "stop", "two")
    assert survivors(running, 60) == []
    assert ray(address, "logs", "two").count("Finished server process") >= 2
