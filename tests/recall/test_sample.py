"""What is stored of a campaign is judged again: nothing that was caught is missed now.

The command lines name real models; what is known of them here is what the index ships.
"""

from __future__ import annotations

import json
import lzma
from collections import Counter
from pathlib import Path

import pytest

from campaigns.recalling.comparing import Line, compare
from campaigns.recalling.generated import constraints, counts, section
from campaigns.recalling.reporting import page
from tests.support.loops import rows

SAMPLE = Path(__file__).parent / "sample.jsonl.xz"
ALLOWED_ALARMS = 0
CAUGHT = 0.88
"""The least share of the refused, with what the index knows of the models."""


def lines() -> list[Line]:
    text = lzma.decompress(SAMPLE.read_bytes()).decode()
    found = [json.loads(row) for row in text.splitlines()]
    return [
        compare(row["seed"], row["release"], row["machine"], tuple(row["words"]), row["said"])
        for row in found
    ]


@pytest.mark.thorough
def test_recall_and_false_alarms_do_not_fall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = Counter(line.outcome for line in lines())
    refused = found["caught"] + found["chance"] + found["missed"]
    assert found["alarm"] <= ALLOWED_ALARMS, found
    assert refused > 30
    assert found["caught"] + found["chance"] >= CAUGHT * refused, found


def line(verdict: str, errors: int = 0, later: int = 0, message: str = "") -> Line:
    all_errors = tuple((f"SPL{number}", "") for number in range(errors))
    said = {"verdict": verdict, "message": message}
    return Line(
        "1/h100/0", "0.5.23", "h100", ("--model-path", "m"), said, all_errors, all_errors[:later]
    )


@rows(
    "judged, outcome",
    [
        (line("accepted"), "right"),
        (line("accepted", 1), "alarm"),
        (line("accepted", 1, 1), "later"),
        (line("accepted", 2, 1), "alarm"),
        (line("refused"), "missed"),
        (line("usage_error", 1), "caught"),
        (line("refused", 1, 1), "chance"),
        (line("artefact", 1), "not judged"),
        (line("refused", 1, message="X does not recognize this architecture"), "not judged"),
    ],
)
def test_an_outcome_is_what_both_sides_say(judged: Line, outcome: str) -> None:
    assert judged.outcome == outcome


@pytest.mark.thorough
def test_the_page_counts_and_groups() -> None:
    refused = line("refused", message="tp_size 3 is no number | at all")
    text = page([refused, refused, line("accepted", 1), line("refused", 1)], 4)
    for name in ("0.5.23", "h100", "all"):
        assert f"| {name} | 3 | 33.3% | 33.3% | 1 | 1 | 0 | 0 |" in text
    assert "| 2 | `tp_size # is no number / at all` | 0.5.23 |" in text
    assert "- 0.5.23 on h100, SPL0: `--model-path m`" in text
    assert "| 1 | 4 | 3 | 33.3% | 33.3% | 1 | 1 |" in text


def spoken(verdict: str, codes: tuple[str, ...], rows: tuple[str, ...], message: str = "") -> Line:
    errors = tuple((code, "") for code in codes)
    said = {"verdict": verdict, "message": message}
    return Line("1/h100/0", "0.5.23", "h100", (), said, errors, rows=rows)


def test_the_rows_are_counted_apart_from_the_rules() -> None:
    found = counts(
        [
            spoken("refused", ("SPL017",), ("tp … is no number", "x"), "tp 3 is  no number at all"),
            spoken("refused", ("SPL017", "SPL101"), ("another",), "tp 3"),
            spoken("usage_error", ("SPL101",), ()),
            spoken("accepted", (), ("wrong",)),
            spoken("accepted", (), ()),
            spoken("artefact", ("SPL017",), ("x",)),
        ]
    )
    assert dict(found["0.5.23"]) == {"refused": 3, "alone": 1, "spoke": 3, "right": 2, "words": 1}


@pytest.mark.thorough
def test_a_row_that_is_wrong_is_shown() -> None:
    text = section([spoken("accepted", (), ("wrong",)), spoken("refused", (), ("right",))])
    assert "Precision of the rows: 50.00%." in text
    assert "- 0.5.23 on h100: `wrong`" in text
    assert "| 2 | 1 | 0 | 0 of 1 |" in text


@pytest.mark.thorough
def test_every_release_adds_rows_that_no_rule_foretells() -> None:
    found = constraints()
    assert all(0 < added <= read for read, added in found.values())
    assert found["0.5.23"][0] > found["0.5.8.post1"][0]
