"""A real Slurm runs the rendered job with the real engine: it serves, and ends without leftovers."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from speclaunch.serving.launch.runs import free_port
from tests.e2e.conftest import speclaunch, survivors
from tests.support import slurm_cluster

WHY = slurm_cluster.missing()
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(WHY is not None, reason=f"no Slurm on this machine: {WHY}"),
    pytest.mark.timeout(900),
]


class Cluster:
    def __init__(self, env: dict[str, str], folder: Path) -> None:
        self.env, self.folder = {**os.environ, **env}, folder

    def run(self, *words: str) -> str:
        done = subprocess.run(
            words, env=self.env, cwd=self.folder, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def submit(self, recipe: str, *words: str) -> str:
        script = self.folder / f"{len(list(self.folder.glob('*.sbatch')))}.sbatch"
        rendered = speclaunch("render", recipe, *words, "--to", "slurm", "-o", str(script))
        assert rendered.returncode == 0, rendered.stderr
        return self.run("sbatch", "--parsable", str(script)).strip()

    def state(self, job: str) -> str:
        return self.run("squeue", "-h", "-j", job, "-o", "%T").strip() if self._known(job) else ""

    def _known(self, job: str) -> bool:
        return job in self.run("squeue", "-h", "-o", "%i").split()

    def log(self) -> str:
        return "\n".join(path.read_text()[-3000:] for path in self.folder.glob("*.out"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("slurm")
    env = slurm_cluster.up(folder / "cluster")
    yield Cluster(env, folder)
    slurm_cluster.down(folder / "cluster")


def until(what: Callable[[], object], cluster: Cluster, seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, cluster.log()
        time.sleep(0.5)


def serves(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def engines(*ports: int) -> list[psutil.Process]:
    """The engines' processes, with everything below them."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "sglang.launch_server" in words and any(str(port) in words for port in ports):
            found += [process, *process.children(recursive=True)]
    return found


def generated(port: int) -> int:
    answer = httpx.post(
        f"http://127.0.0.1:{port}/generate",
        json={"text": "a", "sampling_params": {"max_new_tokens": 8, "ignore_eos": True}},
        timeout=60,
    )
    tokens: int = answer.raise_for_status().json()["meta_info"]["completion_tokens"]
    return tokens


def test_a_job_serves_is_requeued_and_ends_with_its_time(cluster: Cluster) -> None:
    port = free_port()
    job = cluster.submit("cpu_ngram", f"args.port={port}", "++deploy.drain_seconds=8")
    until(lambda: serves(port), cluster)
    assert generated(port) == 8
    first = engines(port)
    assert len(first) >= 3  # the engine, its scheduler, its detokenizer

    cluster.run("scontrol", "requeue", job)
    assert survivors(first, 40) == []
    assert "Gracefully exiting" in cluster.log()
    until(lambda: cluster.state(job) == "PENDING", cluster, 60)
    cluster.run("scontrol", "update", f"jobid={job}", "StartTime=now")
    until(lambda: serves(port), cluster)
    second = engines(port)

    cluster.run("scontrol", "update", f"jobid={job}", f"TimeLimit={2 + _minutes(cluster, job)}")
    until(lambda: not serves(port), cluster)
    assert survivors(second, 60) == []
    until(lambda: cluster.state(job) in ("", "FAILED", "TIMEOUT"), cluster, 60)


def test_two_roles_on_two_hosts_end_when_the_job_is_cancelled(
    cluster: Cluster, tmp_path: Path
) -> None:
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
    job = cluster.submit(str(recipe))
    until(lambda: all(serves(port) for port in ports), cluster)
    assert [generated(port) for port in ports] == [8, 8]
    nodes = cluster.run("squeue", "-h", "-j", job, "-o", "%N").strip()
    assert nodes == "n[1-2]"
    running = engines(*ports)
    assert len(running) >= 6

    cluster.run("scancel", job)
    assert survivors(running, 60) == []
    until(lambda: cluster.state(job) == "", cluster, 60)
    assert cluster.log().count("Finished server process") >= 2


def test_every_script_is_one_that_slurm_takes(cluster: Cluster) -> None:
    for name in ("eagle3_qwen3_235b", "mtp_deepseek_r1", "cpu_standalone"):
        script = speclaunch("render", name, "--to", "slurm").stdout
        done = subprocess.run(
            ["sbatch", "--test-only"], input=script, env=cluster.env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr


def _minutes(cluster: Cluster, job: str) -> int:
    """How long a job runs already."""
    told = cluster.run("squeue", "-h", "-j", job, "-o", "%M").strip().split("-")[-1].split(":")
    return int(told[-2]) + 60 * int(told[-3]) if len(told) > 2 else int(told[-2])
