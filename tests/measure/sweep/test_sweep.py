"""A sweep with the scripted engine: its rows, what is not started, what is not run again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from speclaunch.measure.sweep_jobs import Folder, JobVerdict, Row
from tests.support.serving.launch import fake_sglang

pytestmark = pytest.mark.thorough


class Sweep:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        python = fake_sglang.install(folder / "engine")
        (folder / "mine.yaml").write_text(fake_sglang.RECIPE.format(python=python))
        self.env = {**os.environ, "SPECLAUNCH_HOME": str(folder / "home")}

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "speclaunch", "-m", "recipe=mine.yaml", *words]

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*words),
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str) -> tuple[int, dict[str, Any], str]:
        process = self.start(*words, "--output-format=json")
        out, err = process.communicate(timeout=100)
        return process.returncode, json.loads(out) if out.strip() else {}, err

    def left(self) -> list[str]:
        """Processes of this test that still run."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            text = " ".join(process.info["cmdline"] or [])
            if str(self.folder) in text and process.status() != psutil.STATUS_ZOMBIE:
                found.append(text[:120])
        return found


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep(tmp_path)


def until(what: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def rows(folder: Path) -> list[Path]:
    return sorted(folder.glob("rows/*.json"))


def test_a_row_a_job_and_the_same_command_runs_nothing_again(sweep: Sweep) -> None:
    words = ("args.speculative_num_draft_tokens=4,8", "--directory=d")
    code, document, said = sweep.run(*words)
    assert (code, document["summary"]["served"]) == (0, 2), said
    for job in document["jobs"]:
        assert job["acceptance_length"] == 3.2 and job["kv_tokens"] == 8192
        assert job["ready_seconds"] > 0 and job["engine"] == "0.5.23"
    stamps = [path.stat().st_mtime_ns for path in rows(sweep.folder / "d")]
    code, again, said = sweep.run(*words)
    assert code == 0 and again["jobs"] == document["jobs"]
    assert "2 of 2 rows done, 0 to run" in said
    assert [path.stat().st_mtime_ns for path in rows(sweep.folder / "d")] == stamps


def test_what_is_refused_is_a_row_with_its_reason_and_never_started(sweep: Sweep) -> None:
    code, document, _ = sweep.run("args.mem_fraction_static=0.5,1.5", "args.nonsense=1,null")
    assert code == 0
    verdicts = [job["verdict"] for job in document["jobs"]]
    assert verdicts == ["refused", "served", "refused", "refused"]
    assert "nonsense" in document["jobs"][0]["reason"]
    runs = list((sweep.folder / "home" / "runs").iterdir())
    assert len(runs) == 1


def test_a_failed_job_is_a_row_and_is_tried_again_when_asked(sweep: Sweep) -> None:
    words = ("engine.env.FAKE_BEHAVIOUR=engine,bare-assertion", "--directory=d")
    code, document, said = sweep.run(*words)
    assert code == 1, said
    assert [job["verdict"] for job in document["jobs"]] == ["served", "failed"]
    assert document["jobs"][1]["reason"]
    ended = document["jobs"][1]["ended"]
    time.sleep(1.1)
    _, kept, _ = sweep.run(*words)
    assert kept["jobs"][1]["ended"] == ended
    _, tried, _ = sweep.run(*words, "--retry")
    assert tried["jobs"][1]["ended"] != ended and tried["jobs"][0] == document["jobs"][0]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_sweep_that_is_ended_leaves_no_engine_and_is_continued(
    sweep: Sweep, how: signal.Signals
) -> None:
    process = sweep.start("args.speculative_num_draft_tokens=2,4,6", "--directory=d")
    folder = sweep.folder / "d"
    until(lambda: rows(folder))
    done = rows(folder)
    until(lambda: len(list(folder.glob("rows/*.log"))) > 1)  # the second one has begun
    process.send_signal(how)
    _, said = process.communicate(timeout=60)
    if how is not signal.SIGKILL:
        assert process.returncode == 130
        assert "speclaunch sweep --resume" in said
    until(lambda: not sweep.left(), 30)
    kept = {path: path.read_bytes() for path in rows(folder)}
    assert set(done) <= set(kept) and len(kept) < 3

    resumed = subprocess.run(
        [sys.executable, "-m", "speclaunch", "sweep", f"--resume={folder}", "--output-format=json"],
        env=sweep.env,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["summary"]["served"] == 3
    assert {path: path.read_bytes() for path in kept} == kept


def test_joblib_runs_them_side_by_side(sweep: Sweep) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="speclaunch[sweep]")
    code, document, said = sweep.run(
        "args.speculative_num_draft_tokens=2,4",
        "launch.share_gpus=true",
        *("hydra/launcher=joblib", "hydra.launcher.n_jobs=2"),
    )
    assert (code, document["summary"]["served"]) == (0, 2), said
    assert document["launcher"] == "joblib"


def test_two_jobs_that_come_to_the_same_are_run_once(sweep: Sweep) -> None:
    code, document, _ = sweep.run("++args.speculative_num_draft_tokens=8", "description=a,b")
    assert code == 0 and document["summary"]["served"] == 2
    assert document["jobs"][0]["key"] == document["jobs"][1]["key"]
    assert len(list((sweep.folder / "home" / "runs").iterdir())) == 1


def test_a_second_command_does_not_run_the_same_folder(sweep: Sweep) -> None:
    (sweep.folder / "d").mkdir()
    with Folder(sweep.folder / "d").looked_after():
        code, _, said = sweep.run("--directory=d")
    assert code == 1 and f"is running in process {os.getpid()}" in said


def test_a_dry_run_lists_the_jobs_and_writes_nothing(sweep: Sweep) -> None:
    done = subprocess.run(
        sweep.command("args.mem_fraction_static=0.4,1.5", "--dry-run", "--trust-engine"),
        cwd=sweep.folder,
        env=sweep.env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    first, second = done.stdout.splitlines()[1:3]
    assert first.split()[-2:] == ["to", "run"] and "refused" in second
    assert not (sweep.folder / "home" / "sweeps").exists()


def test_plans_start_nothing(sweep: Sweep) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "speclaunch", "plan", "-m", "eagle3_llama8b,mtp_deepseek_v3"),
            *("--hardware=h100:8", "--output-format=json"),
        ],
        env=sweep.env,
        capture_output=True,
        text=True,
        timeout=100,
    )
    fits, refused = json.loads(done.stdout)["jobs"]
    assert fits["verdict"] == "fits" and fits["kv_tokens"] > 100_000
    assert refused["verdict"] == "refused" and "SPL711" in refused["reason"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["args.api_key=sk-1"], 2, "is a secret"),
        (["hydra/launcher=nonsense"], 1, "the launcher ended"),
        (["hydra/launcher=ray"], 1, "speclaunch[ray]"),
    ],
)
def test_what_cannot_be_run_is_said(sweep: Sweep, words: list[str], code: int, said: str) -> None:
    got, _, err = sweep.run(*words)
    assert (got, said in err) == (code, True), err


def test_a_folder_that_is_none_is_refused(sweep: Sweep, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "speclaunch", "sweep", f"--resume={tmp_path}"],
        env=sweep.env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "not a sweep's directory" in done.stderr


def test_a_row_is_kept_whole(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    (tmp_path / "rows").mkdir()
    row = Row("k", JobVerdict.SERVED, acceptance_length=2.5, kv_tokens=10)
    folder.write(row)
    assert folder.row("k") == row
    (tmp_path / "rows" / "k.json").write_text('{"verdict": "odd"')
    assert folder.row("k") is None
