"""How readings of published files are scored, and that the manifests have their form."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from campaigns import published

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = sorted(
    path
    for path in (ROOT / "tests" / "published").glob("*.json")
    if path.stem not in ("scores", "shell_scripts")
)


SCRIPT = b"""#!/bin/bash
TP=8
python3 -m sglang.launch_server --model-path a/b --tp $TP --port $PORT --trust-remote-code $EXTRA
"""
READ = {
    "line": 3,
    "values": {"--model-path": "a/b", "--tp": "8", "--port": None, "--trust-remote-code": True},
}


def compare(*commands: object, data: bytes = SCRIPT) -> Any:
    file = published.PublishedFile("o/n", "c", "x.sh", "shell", commands)
    return published.compare(file, published.read(data, "x.sh"))


def test_what_a_person_read_counts_as_right() -> None:
    score = compare(READ)
    assert (score.commands, score.found, score.placed, score.extra) == (1, 1, 1, 0)
    assert (score.values, score.right, score.invented) == (4, 4, 0), score.said


def test_each_difference_counts() -> None:
    wrong = {"line": 3, "values": {"--tp": None, "--port": "1", "--trust-remote-code": True}}
    score = compare(wrong)
    assert (score.values, score.right, score.invented) == (3, 1, 1), score.said


def test_a_command_that_is_not_found_counts_with_its_values() -> None:
    score = compare(READ, data=b"true\n")
    assert (score.commands, score.found, score.values, score.right) == (1, 0, 4, 0)
    score = compare()
    assert (score.commands, score.extra) == (0, 1)


def test_a_mirror_holds_files_or_git_repositories(tmp_path: Path) -> None:
    (tmp_path / "o" / "n").mkdir(parents=True)
    (tmp_path / "o" / "n" / "x.sh").write_bytes(SCRIPT)
    file = published.PublishedFile("o/n", "HEAD", "x.sh", "shell", ())
    assert published.text_of(tmp_path, file) == SCRIPT
    other = tmp_path / "o+other"
    other.mkdir()
    (other / "x.sh").write_bytes(b"true\n")
    git = [
        "git",
        "-C",
        str(other),
        "-c",
        "user.name=n",
        "-c",
        "user.email=e@e",
        "-c",
        "core.hooksPath=",
    ]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    file = published.PublishedFile("o/other", "HEAD", "x.sh", "shell", ())
    assert published.text_of(tmp_path, file) == b"true\n"
    assert published.text_of(tmp_path, published.PublishedFile("o/q", "HEAD", "x", "", ())) is None


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifests_hold_facts_only(path: Path) -> None:
    assert json.loads(path.read_text())["family"] == path.stem
    files = published.load(path.stem)
    assert files
    assert len({(file.name, file.commit) for file in files}) == len(files)
    for file in files:
        assert re.fullmatch(r"[0-9a-f]{40}", file.commit), file.name
        for command in file.commands:
            assert set(command) <= {"line", "values", "maybe"}, file.name
            assert command["line"] >= 1
