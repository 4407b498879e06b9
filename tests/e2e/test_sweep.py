"""A sweep over the real engine on the CPU, killed in the middle and continued."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.e2e.conftest import speclaunch

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def left(folder: Path) -> list[str]:
    """What still runs of a sweep: its mark is in the environment of all of it."""
    found = []
    for process in psutil.process_iter(["environ", "cmdline"]):
        own = (process.info["environ"] or {}).get("SWEEP_OF_TEST") == str(folder)
        if own and process.status() != psutil.STATUS_ZOMBIE:
            found.append(" ".join(process.info["cmdline"] or [])[:120])
    return found


def test_a_sweep_is_killed_and_continued_through_joblib(tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="speclaunch[sweep]")
    folder = tmp_path / "sweep"
    words = ["-m", "recipe=cpu_ngram", "args.speculative_num_draft_tokens=4,8,many"]
    words += ["hydra/launcher=joblib", "hydra.launcher.n_jobs=1", f"--directory={folder}"]
    sweep = subprocess.Popen(
        [sys.executable, "-m", "speclaunch", *words],
        env={**os.environ, "SWEEP_OF_TEST": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 300
    while not (done := list(folder.glob("rows/*.json"))):
        assert time.monotonic() < deadline and sweep.poll() is None
        time.sleep(0.2)
    time.sleep(6)  # in the middle of the second start
    assert len(left(folder)) > 3
    sweep.send_signal(signal.SIGKILL)
    sweep.communicate()
    deadline = time.monotonic() + 30
    while left(folder):
        assert time.monotonic() < deadline, left(folder)
        time.sleep(0.2)
    kept = done[0].read_bytes()

    again = speclaunch(*words, "--output-format=json", timeout=500)
    document = json.loads(again.stdout)
    assert again.returncode == 0, again.stderr
    assert "1 of 3 rows done" in again.stderr or "2 of 3 rows done" in again.stderr
    served, other, refused = document["jobs"]
    assert done[0].read_bytes() == kept
    for job in (served, other):
        assert job["verdict"] == "served" and job["kv_tokens"] == 8192
        assert job["acceptance_length"] > 1.5 and job["ready_seconds"] > 1
    assert refused["verdict"] == "refused" and "many" in refused["reason"]
