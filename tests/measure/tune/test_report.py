"""What a tuning tells: the JSON is a contract, and the words claim nothing more than was shown."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec.json
import pytest
from msgspec.structs import replace
from rich.console import Console

from speclaunch.app.output.tuning import (
    TuneDocument,
    TuningOutcome,
    document,
    evidence,
    show_outcome,
)
from speclaunch.measure.bench.measurement import Interval
from speclaunch.measure.tune.model import objective
from speclaunch.measure.tune.trials import Compared, LoadRatio, TuningVerdict
from tests.measure.tune.making import DEEP, OWN, TREE, trial
from tests.support.schemas import schema_of

DOCS = Path(__file__).parents[3] / "docs" / "reference"
FASTER = Compared(DEEP, Interval(1.18, 1.12, 1.25, 6), (LoadRatio(1, 1.18),))
ALIKE = Compared(TREE, Interval(1.02, 0.97, 1.07, 6), (LoadRatio(1, 1.02),))
OUTCOME = TuningOutcome(
    recipe="mine",
    engine="0.5.23",
    algorithm="EAGLE3",
    objective="latency",
    own=OWN,
    published=DEEP,
    order=(DEEP, TREE, OWN),
    trials=(trial(OWN, 0.01, 2), trial(DEEP, 0.01, 3), trial(TREE, 0.012, 3)),
    failed={"steps 8, topk 1, 9 draft tokens": "it did not start"},
    verdict=TuningVerdict((FASTER, ALIKE)),
    compared_starts=1,
    ended="no other setting is predicted to be faster",
    starts=6,
    seconds=120.0,
    overrides=("args.speculative_num_steps=5",),
    diff="-a\n+b\n",
    written=Path("mine.yaml"),
    adaptive={"1": {"candidate_steps": [5]}},
    adaptive_file=Path("steps.json"),
)


def schema() -> dict[str, Any]:
    return schema_of(TuneDocument)


def told(outcome: TuningOutcome) -> str:
    text = StringIO()
    show_outcome(Console(file=text, width=120), outcome)
    return text.getvalue()


def test_the_schema_is_that_of_the_documentation() -> None:
    """Where this fails on purpose: tests/measure/tune/write_schema.py writes it anew."""
    assert json.loads((DOCS / "tune.schema.json").read_text()) == schema()


@pytest.mark.parametrize(
    "outcome",
    [
        OUTCOME,
        replace(OUTCOME, verdict=None, written=None, adaptive=None, own=None),
        replace(OUTCOME, verdict=TuningVerdict(refused=("no tokens",))),
    ],
)
def test_the_document_is_of_the_schema(outcome: TuningOutcome) -> None:
    found = document(outcome)
    assert msgspec.json.decode(msgspec.json.encode(found), type=TuneDocument) == found


def test_the_best_is_the_one_that_is_shown_to_be_faster() -> None:
    assert document(OUTCOME).best == DEEP.arguments
    alike = replace(OUTCOME, verdict=TuningVerdict((ALIKE,)))
    assert document(alike).best == OWN.arguments


def test_words() -> None:
    text = told(OUTCOME)
    assert f"{DEEP}: faster, 1.18 times the recipe's own (1.12 to 1.25)" in text
    assert f"{TREE}: not shown, 1.02 times" in text
    assert "written: mine.yaml" in text and "+b" in text
    assert "Its combination of steps was not measured" in text
    assert "args.speculative_adaptive_config=steps.json" in text
    alike = told(
        replace(OUTCOME, verdict=TuningVerdict((ALIKE,)), written=None, diff="", overrides=())
    )
    assert "No setting is shown to be faster. The recipe is unchanged." in alike
    refused = told(replace(OUTCOME, verdict=TuningVerdict(refused=("no tokens",))))
    assert "The comparison does not count: no tokens." in refused
    nothing = told(replace(OUTCOME, verdict=None))
    assert "Nothing was compared. The recipe is unchanged." in nothing
    own_first = told(replace(OUTCOME, verdict=None, order=(OWN, DEEP, TREE)))
    assert "The recipe's own setting is the best of the tried settings." in own_first


def test_the_evidence_of_a_comment() -> None:
    latency = evidence(FASTER, objective("latency"), "code", "2026-11-23")
    assert latency == "2026-11-23: 1.18 (1.12 to 1.25) times as fast, code"
    loads = evidence(FASTER, objective("throughput@1,8"), "chat", "2026-11-23")
    assert loads == "2026-11-23: 1.18 (1.12 to 1.25) times the throughput at 1, 8, chat"


def test_the_documentation_names_every_key() -> None:
    page = (DOCS / "tune.md").read_text()
    for model in schema()["$defs"].values():
        for name in model["properties"]:
            assert f"`{name}`" in page, name


def test_the_published_setting_is_marked() -> None:
    assert f"{DEEP} (published)" in told(OUTCOME)
    assert document(OUTCOME).published == DEEP.arguments
