"""The commands of the page that reproduces the published speed-up are ones that speclaunch takes."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "howto" / "reproduce-the-published-speed-up.md"
COMMANDS = re.findall(r"```bash\n(speclaunch .*)\n```", PAGE.read_text())


@pytest.mark.thorough
@pytest.mark.parametrize("text", COMMANDS)
def test_its_commands_pass_all_checks_on_an_h100(tmp_path: Path, text: str) -> None:
    prompts = [json.dumps({"turns": [f"Question {number}", "And?"]}) for number in range(80)]
    (tmp_path / "question.jsonl").write_text("\n".join(prompts))
    words = [*shlex.split(text)[1:], "--dry-run", "--hardware", "h100", "--engine", "0.5.23"]
    done = subprocess.run(
        [sys.executable, "-m", "speclaunch", *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^starts: +(at most )?\d", done.stdout, re.M), done.stdout


def test_there_are_three_and_the_ratios_are_those_of_the_numbers() -> None:
    assert len(COMMANDS) == 3
    page = PAGE.read_text()
    none, eagle2, eagle3 = (float(one) for one in re.findall(r"\| (\d{3}\.\d\d) \|", page))
    assert f"| {eagle2 / none:.2f} |" in page
    assert f"| {eagle3 / none:.2f} | {eagle3 / eagle2:.2f} |" in page
    assert "Not run here" in page
