"""The record of a launch: readable whenever it is looked at, and without any secret."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from speclaunch.core.files import write_json
from speclaunch.core.reads.safe_json import read_json
from speclaunch.engine.plan.budget import Fit, MemoryBudget
from speclaunch.serving.launch.client import OverriddenArgument, Verification
from speclaunch.serving.launch.diagnosis.interface import Cause, Diagnosis, Direction
from speclaunch.serving.launch.engine_log import Phase
from speclaunch.serving.launch.journal import FILE, Journal, JournalHeader, RecipeEntry
from speclaunch.serving.launch.phases import PhaseTracker
from speclaunch.serving.launch.planner import Rung

SECRET = "sk-very-secret"


def begin(directory: Path) -> Journal:
    recipe = RecipeEntry("r", args={"api_key": SECRET})
    return Journal(directory, JournalHeader(recipe, address="http://x"), [SECRET])


def attempt(journal: Journal, number: int = 1, rung: Rung | None = None) -> None:
    journal.attempt(
        number,
        {"mem_fraction_static": 0.7} if rung else {},
        rung,
        command=["python", "--api-key", SECRET],
        environment={"HF_TOKEN": SECRET, "A": None},
        log=journal.directory / f"engine-{number}.log",
    )


def read(directory: Path) -> dict[str, object]:
    document = read_json(directory / FILE)
    assert document is not None
    return document


def test_the_whole_story(tmp_path: Path) -> None:
    journal = begin(tmp_path)
    attempt(journal)
    journal.spawned(4711)
    tracker = PhaseTracker()
    tracker.enter(Phase.WEIGHTS, 1.5)
    journal.progress(tracker)
    cause = Cause("c", "title", "m", "r", True, {"mem_fraction_static": Direction.LOWER})
    found = Diagnosis(Phase.GRAPHS, cause=cause, line="OOM", line_number=7, numbers={"a": 0.5})
    journal.attempt_ended("failed", 1, "OOM", tracker.steps, found)
    journal.waiting()
    attempt(
        journal,
        2,
        Rung("lower", {"mem_fraction_static": 0.7}, "w", "c", MemoryBudget(Fit.FITS, "")),
    )
    changed = (OverriddenArgument("mem_fraction_static", "0.8", "0.7"),)
    journal.ready(Verification(None, "EAGLE", changed), 3.25)
    journal.served({"mem_fraction_static": 0.7}, ["++args.mem_fraction_static=0.7"])
    assert read(tmp_path)["state"] == "serving"
    journal.ended("stopped", None, 0)
    document = read(tmp_path)
    assert document["state"] == "ended"
    first, second = document["attempts"]  # type: ignore[misc]
    assert (first["pid"], first["ending"], first["exit_code"]) == (4711, "failed", 1)
    assert first["milestones"][1] == {
        "phase": "load target weights",
        "started": 1.5,
        "ended": None,
        "detail": "",
    }
    assert first["diagnosis"]["cause"]["directions"] == {"mem_fraction_static": "lower"}
    assert second["rung"]["predicted"]["fit"] == "fits"
    assert second["ready_seconds"] == 3.25
    assert second["verification"]["changes"] == [
        {"name": "mem_fraction_static", "asked": "0.8", "effective": "0.7"}
    ]
    assert document["served"]["overrides"] == ["++args.mem_fraction_static=0.7"]  # type: ignore[index]
    assert SECRET not in (tmp_path / FILE).read_text()
    assert (tmp_path / FILE).stat().st_mode & 0o077 == 0


OLD = """
{"version": 1, "name": "20261101-100000-r", "speclaunch": "0.5.0", "state": "ended",
 "recipe": {"name": "r", "path": "/r.yaml", "overrides": ["args.port=1"], "args": {"tp_size": 2}},
 "engine": {"version": "0.5.20", "python": "/p"},
 "hardware": {"name": "H100", "count": 2, "memory_mib": 81559, "driver": null, "declared": false,
              "gpus": [0, 1]},
 "address": "http://127.0.0.1:1", "model": "m",
 "plan": {"resolved": {"page_size": 1}, "undecided": {}, "reasons": {}, "changes": ["a"],
          "budget": {"fit": "fits", "why": "w", "phase": null, "tokens": 10,
                     "running_requests": 2, "mem_fraction_static": 0.8}},
 "attempts": [], "served": null, "ending": null}
"""
"""A journal of version 0.5."""


def test_a_header_has_the_format_of_earlier_versions(tmp_path: Path) -> None:
    document = json.loads(OLD)
    header = JournalHeader.read(document)
    assert header.recipe.args == {"tp_size": 2}
    assert header.hardware is not None and header.hardware.gpus == (0, 1)
    assert header.plan is not None and header.plan.budget is not None
    assert header.plan.budget.mem_fraction_static == 0.8
    Journal(tmp_path, header, [])
    written = read(tmp_path)
    parts = ("recipe", "engine", "hardware", "address", "model", "plan")
    assert {name: written[name] for name in parts} == {name: document[name] for name in parts}


def test_a_damaged_section_costs_only_itself() -> None:
    document = {**json.loads(OLD), "hardware": {"name": 3}, "plan": [], "new": 1}
    del document["model"]
    header = JournalHeader.read(document)
    assert (header.hardware, header.plan, header.model) == (None, None, "")
    assert (header.recipe.name, header.engine.version) == ("r", "0.5.20")
    assert JournalHeader.read({}) == JournalHeader()


def test_a_disk_that_cannot_be_written_costs_the_record_only(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    journal = begin(directory)
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()
    attempt(journal)
    assert journal.error == "No such file or directory"
    directory.mkdir()
    journal.ended("stopped", None, 0)
    assert journal.error is None
    assert read(directory)["state"] == "ended"


def test_a_full_disk_leaves_the_last_record_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    code = textwrap.dedent(
        f"""
        import resource, signal
        from pathlib import Path
        from speclaunch.core.files import write_json
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        write_json(Path({str(path)!r}), {{"a": 1}})
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        try:
            write_json(Path({str(path)!r}), {{"a": "x" * 1000}})
        except OSError:
            print("refused")
        """
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "refused\n", done.stderr
    assert read_json(path) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.thorough
def test_kill_9_at_any_time_leaves_a_journal_that_can_be_read(tmp_path: Path) -> None:
    write_json(tmp_path / "journal.json", {"n": -1})
    code = textwrap.dedent(
        f"""
        from pathlib import Path
        from speclaunch.core.files import write_json
        print("go", flush=True)
        n = 0
        while True:
            write_json(Path({str(tmp_path)!r}) / "journal.json", {{"n": n, "x": "y" * 100_000}})
            n += 1
        """
    )
    for _ in range(5):
        writer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert writer.stdout is not None and writer.stdout.readline() == b"go\n"
        time.sleep(0.05)
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        document = read_json(tmp_path / "journal.json")
        assert document is not None and document["n"] >= 0


@pytest.mark.parametrize("text", ["", "{", "[]", "nonsense", "[" * 100_000, "\x00"])
def test_what_is_no_journal_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / FILE
    path.write_text(text)
    assert read_json(path) is None
    assert read_json(tmp_path / "none") is None


def test_a_clock_that_jumps_changes_no_duration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = begin(tmp_path)
    attempt(journal)
    monkeypatch.setattr(time, "time", lambda: 1e9)
    tracker = PhaseTracker()
    tracker.enter(Phase.WEIGHTS, 2.0)
    journal.progress(tracker)
    journal.ended("stopped", None, 0)
    text = (tmp_path / FILE).read_text()
    assert json.loads(text)["attempts"][0]["milestones"][1]["started"] == 2.0
    assert json.loads(text)["updated"].startswith("2001-09-09T01:46:40")
