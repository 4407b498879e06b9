"""What the engine refuses we refuse, what it accepts we accept, with the values that it uses.

The verdicts are those of the released engines' own validation (tools/engine_verdicts.py). A
failure prints the disagreements; `python -m tests.conformance.report` looks closer.
"""

from __future__ import annotations

import sys
from functools import lru_cache

import pytest

from tests.conformance import data
from tests.conformance.compare import Comparison, compared, exceptions, fits
from tests.conformance.report import (
    comparisons,
    confusion,
    confusion_text,
    grouped,
    value_text,
)

pytestmark = pytest.mark.slow
VERSIONS = data.versions()
KNOWN: dict[str, str] = {}
"""Configurations that the engine refuses and we do not, and why: nothing else may be missed."""
NOT_YET = {
    "disable_cuda_graph": "backends without graphs switch it off up to 0.5.14",
    "disable_overlap_schedule": "hybrid models and `--speculative-algorithm none` up to 0.5.14",
    "disable_radix_cache": "dual_chunk_flash_attn and others switch it off",
    "enable_dp_attention": "0.5.23 derives it from attn_dp_size, which is compared",
    "enable_lora": "lora_paths switches it on",
    "mamba_radix_cache_strategy": "auto is left as it is",
    "mem_fraction_static": "a few backends reserve more",
    "sampling_backend": "nothing asks for it",
    "device": "the draft of a configuration may have another",
    "decode_attention_backend": "a hybrid default of 0.5.3",
    "page_size": "a few backends of 0.5.12",
    "speculative_draft_attention_backend": "DFLASH chooses one from 0.5.18",
}
"""Fields whose resolution is not complete; every other one is the engine's in every case."""


@lru_cache
def found(version: str) -> tuple[Comparison, ...]:
    return tuple(comparisons(version))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", VERSIONS)
def test_what_the_engine_refuses_is_an_error(version: str) -> None:
    missed = [c for c in found(version) if c.outcome == "missed" and c.said.id not in KNOWN]
    table = confusion_text(confusion(found(version)))
    assert not missed, f"\n{table}\n{grouped(missed, 'missed')}"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", VERSIONS)
def test_what_the_engine_accepts_is_no_error(version: str) -> None:
    alarms = [c for c in found(version) if c.outcome == "false alarm"]
    table = confusion_text(confusion(found(version)))
    assert not alarms, f"\n{table}\n{grouped(alarms, 'false alarm')}"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_plan_has_the_values_of_the_engine(version: str) -> None:
    wrong = [c for c in found(version) if {d.name for d in c.differences} - set(NOT_YET)]
    assert not wrong, f"\n{value_text(found(version))}"


@pytest.mark.timeout(600)
def test_every_exception_is_needed() -> None:
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
    sys.path.insert(0, str(data.HERE.parent.parent / "tools"))
    from engine_verdicts import generated

    assert generated() == data.CONFIGURATIONS.read_text()
