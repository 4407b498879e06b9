"""What the engine refuses we refuse, what it accepts we accept, with the values that it uses.

The verdicts are those of the released engines' own validation (tools/engine_verdicts.py). A
failure prints the disagreements; `python -m tests.support.conformance.report` looks closer.
"""

from __future__ import annotations

import fcntl
import os
import pickle
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import pytest

from tests.support.conformance import agreement, data
from tests.support.conformance.compare import EXPLAINED, Comparison, compared, exceptions, fits
from tests.support.conformance.report import (
    comparisons,
    confusion,
    confusion_text,
    grouped,
    value_text,
)
from tools.engine_verdicts import generated

pytestmark = pytest.mark.slow
VERSIONS = data.versions()
ALWAYS = {VERSIONS[0], VERSIONS[len(VERSIONS) // 2], VERSIONS[-1]}
EACH = [
    version
    if version in ALWAYS
    else pytest.param(version, marks=pytest.mark.campaign(f"conformance {version}"))
    for version in VERSIONS
]
TOGETHER = pytest.mark.campaign("conformance")
"""Of what looks at all releases at once."""
KNOWN: dict[str, str] = {}
"""Configurations that the engine refuses and we do not, and why: nothing else may be missed."""


Found = Callable[[str], tuple[Comparison, ...]]


@pytest.fixture(scope="session")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """The comparisons of a release, made once for all workers: they take half a minute each."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if os.environ.get("PYTEST_XDIST_WORKER") else own

    @lru_cache
    def of(version: str) -> tuple[Comparison, ...]:
        return _made_once(shared / f"conformance-{version}.pickle", version)

    return of


def _made_once(file: Path, version: str) -> tuple[Comparison, ...]:
    with file.open("a+b") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        if not file.stat().st_size:
            stream.write(pickle.dumps(tuple(comparisons(version))))
            stream.flush()
        stream.seek(0)
        made: tuple[Comparison, ...] = pickle.loads(stream.read())
        return made


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", EACH)
def test_what_the_engine_refuses_is_an_error(found: Found, version: str) -> None:
    missed = [c for c in found(version) if c.outcome == "missed" and c.said.id not in KNOWN]
    table = confusion_text(confusion(found(version)))
    assert not missed, f"\n{table}\n{grouped(missed, 'missed')}"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", EACH)
def test_what_the_engine_accepts_is_no_error(found: Found, version: str) -> None:
    alarms = [c for c in found(version) if c.outcome == "false alarm"]
    table = confusion_text(confusion(found(version)))
    assert not alarms, f"\n{table}\n{grouped(alarms, 'false alarm')}"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", EACH)
def test_the_plan_has_the_values_of_the_engine(found: Found, version: str) -> None:
    """Every field, in every configuration that both accept; but for what compare.EXPLAINED says."""
    wrong = [
        (c.said.id, c.said.machine, d)
        for c in found(version)
        for d in c.differences
        if d.explained(c.said) is None
    ]
    assert not wrong, f"\n{value_text(found(version))}\n{wrong[:5]}"


@TOGETHER
@pytest.mark.timeout(1800)
def test_every_exception_is_needed(found: Found) -> None:
    idle = list(exceptions().entries)
    for version in VERSIONS:
        for comparison in found(version):
            if comparison.said.accepts and comparison.errors:
                idle = [
                    entry
                    for entry in idle
                    if not any(fits(entry, comparison.said, *error) for error in comparison.errors)
                ]
    assert not idle


@TOGETHER
@pytest.mark.timeout(1800)
def test_every_explanation_is_needed(found: Found) -> None:
    seen = {
        d.explained(c.said) for version in VERSIONS for c in found(version) for d in c.differences
    }
    assert {one.why for one in EXPLAINED} == seen


@TOGETHER
@pytest.mark.timeout(1800)
def test_the_table_of_agreement_is_the_generated_one(found: Found) -> None:
    everything = [c for version in VERSIONS for c in found(version)]
    assert agreement.DOCUMENT.read_text() == agreement.document(everything), (
        "run python -m tests.support.conformance.report --agreement"
    )


@TOGETHER
@pytest.mark.timeout(1800)
def test_the_plan_tells_values_in_enough_configurations(found: Found) -> None:
    """The fields of the issue, each in at least 400 configurations of an NVIDIA GPU or a CPU."""
    counts = agreement.counts([c for version in VERSIONS for c in found(version)])
    for field in agreement.FIELDS:
        assert sum(count.agreed for count in counts[field].values()) >= 400, field


def test_the_data_is_large_enough_to_mean_something() -> None:
    assert len(VERSIONS) >= 5
    for version in VERSIONS:
        said = [s for s in data.load(version) if s.machine == "h200" and compared(s)]
        refused = sum(not s.accepts for s in said)
        assert len(said) >= 400
        assert 0.1 < refused / len(said) < 0.7
        artefacts = [s for s in data.load(version) if s.verdict == "artefact"]
        assert len(artefacts) <= len(data.load(version)) // 50


def test_the_configurations_are_those_that_the_tool_writes() -> None:
    assert generated() == data.CONFIGURATIONS.read_text()
