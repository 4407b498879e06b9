"""An engine whose draft gets worse while it serves: reported within 200 verification steps."""

from __future__ import annotations

import json
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from speclaunch.core import speclaunch_home
from tests.e2e.conftest import Serving, serving
from tests.support.proof_faults import WRONG_SHARE, breakable_shim, spoil

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

USUAL = 0.05
MOST_STEPS = 200
READS_LOG_S = 1.5


def recipe(shim: Path, *words: str) -> tuple[str, ...]:
    draft = "args.speculative_draft_model_path=${cpu_model:cycle}"
    return ("recipe=cpu_standalone", draft, f"+engine.env.PYTHONPATH={shim}", *words)


def journal(launch: Serving) -> dict[str, Any]:
    run = launch.run
    return json.loads((speclaunch_home() / "runs" / run / "journal.json").read_text())


def steps_until(launch: Serving, kind: str, most: int) -> int:
    """Generate until the journal has one more event of a kind; return the verification steps."""
    count, steps = len(journal(launch)["events"]), 0
    while steps < most:
        _, meta = launch.generate(f"text {steps}", 60)
        steps += meta["spec_verify_ct"]
        time.sleep(READS_LOG_S)
        events = journal(launch)["events"][count:]
        if events:
            assert [event["kind"] for event in events] == [kind]
            return steps
    raise AssertionError(f"no event {kind!r} within {most} verification steps")


def learn(launch: Serving) -> None:
    for number in range(8):
        launch.generate(f"usual {number}", 800)
    time.sleep(READS_LOG_S)
    assert not journal(launch)["events"]


def test_a_worse_draft_is_reported_once_and_runs_the_hook(tmp_path: Path) -> None:
    shim = breakable_shim(tmp_path, (WRONG_SHARE,))
    spoil(shim, USUAL)
    hook = tmp_path / "hook"
    hook.write_text("#!/bin/sh\nenv; exit 3\n")
    hook.chmod(hook.stat().st_mode | stat.S_IXUSR)
    with serving(*recipe(shim, "--on-degraded-exec", str(hook))) as launch:
        launch.run = launch.report()["run"]
        learn(launch)
        found = {}
        for share in (0.2, 0.5, 0.95):
            spoil(shim, share)
            found[share] = steps_until(launch, "acceptance dropped", MOST_STEPS)
            launch.generate("still wrong", 800)
            time.sleep(READS_LOG_S)
            assert journal(launch)["events"][-1]["kind"] == "acceptance dropped"  # once
            spoil(shim, USUAL)
            steps_until(launch, "acceptance is back", 1_000)
        print(found)
        told = (speclaunch_home() / "runs" / launch.run / "on-degraded.log").read_text()
        assert told.count("SPECLAUNCH_EVENT=acceptance dropped") == 3
        assert "PYTHONPATH" not in told
        course = journal(launch)["attempts"][-1]["course"]
        assert max(length for length in course["accept_length"] if length) > 3


def test_a_launch_can_stop(tmp_path: Path) -> None:
    shim = breakable_shim(tmp_path, (WRONG_SHARE,))
    spoil(shim, USUAL)
    with serving(*recipe(shim, "serving.on_degraded=stop")) as launch:
        launch.run = launch.report()["run"]
        learn(launch)
        spoil(shim, 0.95)
        steps_until(launch, "acceptance dropped", MOST_STEPS)
        assert launch.end() == 1
        ending = journal(launch)["ending"]
        assert ending["result"] == "degraded" and "acceptance length dropped" in ending["reason"]
