"""The tutorial's commands on the CPU engine, in order."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from speclaunch.serving.launch.runs import free_port
from tests.support.tutorial import steps

from .conftest import Marked, command

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

SHOWN = {
    "recipes cp": "laptop.yaml",
    "recipe=": "laptop is serving at http://127.0.0.1:",
    "ps": "serving",
    "stop": "has ended",
    "bench": "",
}
"""What the output of a command has, whatever the machine."""


def test_a_laptop_launches_stops_and_measures(marked: Marked, tmp_path: Path) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*words), cwd=tmp_path, env=marked.env, capture_output=True, text=True
        )

    port, seen = f"args.port={free_port()}", []
    for step in steps():
        kind = next((kind for kind in SHOWN if " ".join(step.words).startswith(kind)), None)
        if not step.on_the_engine or kind is None:  # tests/serving/cpu_engine/ installs the engine
            continue
        done = run(*step.words, *([port] if kind == "recipe=" else []))
        assert SHOWN[kind] in done.stdout + done.stderr, done
        if kind == "bench":
            said = json.loads(run("bench", "show", "last", "--output-format", "json").stdout)
            kinds = {one["kind"] for one in said["objections"]}
            assert kinds <= {"drift"}, said  # of a machine that does much else
            assert done.returncode == bool(kinds), done.stderr
        else:
            assert done.returncode == 0, done.stderr
        seen.append(kind)
    assert seen == list(SHOWN)
    assert marked.left() == []
