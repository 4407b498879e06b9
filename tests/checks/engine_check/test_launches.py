"""What a judge says, and what the real server does: stored, and a few of them again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from campaigns import judge_against_launch as tool
from speclaunch.engine.facts.cpu_engine import CpuEngine
from tests.support.loops import rows

HEAD, *ROWS = tool.rows(tool.STORED)


def test_both_agree_on_every_line() -> None:
    found = Counter(tool.verdict(row) for row in ROWS)
    assert set(found) <= {"accepted", "refused", *tool.ELSEWHERE}, found
    assert found["accepted"] + found["refused"] >= 180
    assert min(found["accepted"], found["refused"]) >= 60
    assert sum(found[name] for name in tool.ELSEWHERE) <= 20


def test_a_refusal_comes_of_the_same_line_of_the_engine() -> None:
    refused = [row for row in ROWS if tool.verdict(row) == "refused"]
    of_source = [row for row in refused if row["launched"].get("place")]
    assert len(of_source) > 60
    same = [row for row in of_source if row["launched"]["place"] == row["judged"]["place"]]
    assert same == of_source


@pytest.mark.thorough
def test_a_line_is_a_function_of_its_number(tmp_path: Path) -> None:
    models = tool.read_models(laid_out(tmp_path))
    for row in ROWS[:8]:
        if row["words"][1].startswith("tiny/"):
            assert tool.line(row["number"], models) == row["words"]


def laid_out(folder: Path) -> Path:
    for name, config in HEAD["configs"].items():
        (folder / name).write_text(tool.json.dumps(config))
    return folder


SAID: dict[str, Any] = {"accepted": True, "kind": "", "why": "", "place": ""}
REFUSED = {"accepted": False, "kind": "ValueError", "why": "no such size", "place": "a.py:1"}
PLACE = "srt/server_args.py:1"


@rows(
    "real, judged, verdict",
    [
        ({"passed": True}, SAID, "accepted"),
        ({"passed": False, "error": "ValueError: no such size"}, REFUSED, "refused"),
        ({"passed": False, "error": "x.ValueError: no such size"}, REFUSED, "refused"),
        ({"passed": False, "error": "ValueError: another"}, REFUSED, "other words"),
        ({"passed": False, "error": "TypeError: no such size"}, REFUSED, "other words"),
        ({"passed": False, "error": "ValueError", "place": "a.py:1"}, REFUSED, "refused"),
        ({"passed": False, "error": "ValueError", "place": "a.py:2"}, REFUSED, "other words"),
        ({"passed": True}, REFUSED, "judge refuses"),
        ({"passed": False, "error": "ValueError: no", "place": PLACE}, SAID, "judge accepts"),
        ({"passed": False, "error": "ImportError: x", "place": PLACE}, SAID, "needs a package"),
        ({"passed": True, "error": "ValueError: x", "place": "srt/configs/a.py:1"}, SAID,
         "judge accepts"),
        ({"passed": True, "error": "ValueError: x", "place": "srt/managers/a.py:1"}, SAID,
         "accepted"),
        ({"passed": False, "error": "PackageNotFoundError: x"}, REFUSED, "needs a package"),
        ({"passed": False, "error": "OSError: m does not appear to have a file named a.py"},
         REFUSED, "needs the model's code"),
        ({"passed": True}, SAID | {"accepted": None}, "not judged"),
    ],
)  # fmt: skip
def test_what_counts_as_the_same(
    real: dict[str, Any], judged: dict[str, Any], verdict: str
) -> None:
    assert tool.verdict({"launched": real, "judged": judged}) == verdict


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(400)
@pytest.mark.parametrize("verdict", ["accepted", "refused"])
def test_a_line_is_started_again(verdict: str, cpu_engine: CpuEngine, tmp_path: Path) -> None:
    row = next(row for row in ROWS if tool.verdict(row) == verdict)
    (configs := tmp_path / "configs").mkdir()
    (folder := tmp_path / "run").mkdir()
    tool.place(laid_out(configs), row["words"], folder, cpu_engine)
    real = tool.launched(cpu_engine, row["words"], folder)
    judged = tool.judged(row["words"], configs, cpu_engine)
    assert tool.verdict({"launched": real, "judged": judged}) == verdict
    assert tool.verdict({"launched": real, "judged": row["judged"]}) == verdict
