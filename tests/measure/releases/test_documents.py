"""The JSON of bisect and of upgrade, whose schemas are a contract, and what its readers see."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from speclaunch.app.verbs.releases import show_bisect, show_upgrades
from speclaunch.measure.releases.bisect import BisectDocument, DependencyRecord, PairRecord
from speclaunch.measure.releases.search import ProbeVerdict, ReleaseProbe, SearchOutcome
from speclaunch.measure.releases.upgrade import Aspect, UpgradeReason, UpgradeVerdict
from speclaunch.measure.releases.upgrade_run import (
    AdvisoryRecord,
    ChangesRecord,
    DeploymentRecord,
    MemoryNumberRecord,
    RunRecord,
    UpgradeDocument,
    ValueRecord,
)
from tests.support.loops import rows
from tests.support.schemas import schema_of

DOCS = Path(__file__).parents[3] / "docs" / "reference"
SCHEMAS = {
    "bisect": schema_of(BisectDocument),
    "upgrade": schema_of(UpgradeDocument),
}
RECORDS = {
    "bisect": (BisectDocument, PairRecord, DependencyRecord, ReleaseProbe),
    "upgrade": (
        *(
            UpgradeDocument,
            DeploymentRecord,
            UpgradeReason,
            ChangesRecord,
            ValueRecord,
            MemoryNumberRecord,
        ),
        *(AdvisoryRecord, RunRecord),
    ),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schema_is_that_of_the_documentation(name: str) -> None:
    """Where this fails on purpose: tests/measure/releases/write_schema.py writes it anew."""
    assert json.loads((DOCS / f"{name}.schema.json").read_text()) == SCHEMAS[name]


@pytest.mark.parametrize("name", RECORDS)
def test_the_documentation_names_every_key(name: str) -> None:
    page = (DOCS / f"{name}.md").read_text()
    for record in RECORDS[name]:
        for key in record.__struct_encode_fields__:
            assert f"`{key}`" in page, f"{record.__name__}.{key}"


CHANGES = ChangesRecord(
    ["- --old", "+ --new"],
    [ValueRecord("page_size", 1, 64, False, "the default of this version")],
    [],
    [AdvisoryRecord("SPA-1", "It hung.", "warning")],
    [],
)
FOUND = BisectDocument(
    recipe="r",
    check="start",
    good="0.5.17",
    bad="0.5.23",
    outcome=SearchOutcome.FOUND,
    pair=PairRecord("0.5.19", "0.5.20"),
    untested=[],
    flaky=["0.5.21"],
    starts=1,
    probes=[ReleaseProbe("0.5.20", ProbeVerdict.BAD, "exit code 1", 1, 5, 12.0)],
    changes=CHANGES,
    dependencies=[DependencyRecord("torch", "==2.11", "==2.13", "2.13", "2.13")],
)


def told(found: BisectDocument | UpgradeDocument) -> str:
    text = io.StringIO()
    console = Console(file=text, width=300, highlight=False)
    if isinstance(found, BisectDocument):
        show_bisect(console, found)
    else:
        show_upgrades(console, found)
    return text.getvalue()


def test_the_pair_and_its_differences_are_shown() -> None:
    said = told(FOUND)
    assert said.startswith("r: start: good in SGLang 0.5.19, bad in 0.5.20\n")
    for line in (
        "0.5.20   bad      12       exit code 1",
        "flaky, with contradicting results: 0.5.21",
        "  - --old",
        "page_size: 1 → 64 (the default of this version)",
        "fixes SPA-1: It hung.",
        "torch: requires ==2.11 → ==2.13",
    ):
        assert line in said, line
    assert "installed" not in said


@rows(
    "outcome, pair, line",
    [
        (SearchOutcome.GOOD_IS_BAD, None, "not isolated: SGLang 0.5.17 (--good) is also bad"),
        (SearchOutcome.BAD_IS_GOOD, None, "not isolated: SGLang 0.5.23 (--bad) is good"),
        (SearchOutcome.UNDECIDED, None, "not isolated: the probes contradict each other"),
        (
            SearchOutcome.SKIPPED,
            PairRecord("0.5.17", "0.5.19"),
            "the first bad release is between 0.5.17 and 0.5.19; not tested: 0.5.18",
        ),
    ],
)
def test_why_no_pair_was_found(outcome: SearchOutcome, pair: PairRecord | None, line: str) -> None:
    found = replace(FOUND, outcome=outcome, pair=pair, untested=["0.5.18"] if pair else [])
    assert line in told(found)


def test_a_table_has_a_line_for_each_deployment() -> None:
    reasons = [UpgradeReason(Aspect.VALUE, UpgradeVerdict.DIFFERS, f"reason {n}") for n in range(5)]
    records = [
        DeploymentRecord("a", "a.sh", 3, "0.5.20", "0.5.23", UpgradeVerdict.SAFE, [], [], None, []),
        DeploymentRecord(
            "b", "b.sh", 1, "0.5.20", "0.5.23", UpgradeVerdict.DIFFERS, reasons, [], None, []
        ),
    ]
    said = told(UpgradeDocument(to="0.5.23", verdict=UpgradeVerdict.DIFFERS, deployments=records))
    assert "a.sh:3 a" in said and "reason 2; 2 more" in said
    assert "2 deployments → SGLang 0.5.23: 1 safe, 1 differs, 0 not safe, 0 unknown" in said
