"""The JSON of a certificate is a contract: its schema is kept in the documentation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec.json
import pytest
from msgspec import ValidationError, convert

from speclaunch.measure.bench.measurement import Objection
from speclaunch.measure.bench.schema import (
    CertificateDocument,
    DifferenceDocument,
    SingleDocument,
    difference,
)
from tests.support.app.output.bench.made import made
from tests.support.loops import rows
from tests.support.schemas import schema_of

SCHEMA = Path(__file__).parents[4] / "docs" / "reference" / "bench.schema.json"
REAL = Path(__file__).with_name("cpu_ngram.json")
"""A certificate that was measured on the CPU engine."""


def schema() -> dict[str, Any]:
    return {
        "certificate": schema_of(CertificateDocument),
        "single": schema_of(SingleDocument),
        "difference": schema_of(DifferenceDocument),
    }


def test_the_schema_is_that_of_the_documentation() -> None:
    """Where this fails on purpose: tests/app/output/bench/write_schema.py writes it anew."""
    assert json.loads(SCHEMA.read_text()) == json.loads(json.dumps(schema()))


def test_the_documentation_names_every_key() -> None:
    page = (SCHEMA.parent / "bench.md").read_text()
    parts = [part for whole in schema().values() for part in whole["$defs"].values()]
    for part in parts:
        for name in part["properties"]:
            assert f"`{name}`" in page, f"{part['title']}.{name}"


@pytest.mark.thorough
def test_documents_keep_the_schema() -> None:
    parts = json.loads(SCHEMA.read_text())
    refused = made(objections=(Objection("errors", "R: it failed"),))
    for one in (made(), refused):
        jsonschema.validate(json.loads(msgspec.json.encode(one)), parts["certificate"])
    found = difference(made(), made(seed=2), ("a", "b"))
    jsonschema.validate(json.loads(msgspec.json.encode(found)), parts["difference"])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"version": 1}, parts["certificate"])


def test_a_real_certificate_keeps_the_schema_and_is_read_whole() -> None:
    said = json.loads(REAL.read_text())
    jsonschema.validate(said, json.loads(SCHEMA.read_text())["certificate"])
    found = convert(said, CertificateDocument)
    assert found.speculation is None and found.published == ()  # keys that came later
    assert subset(said, json.loads(msgspec.json.encode(found)))


def subset(old: Any, new: Any) -> bool:
    """True if `new` has all of `old`, and only further keys."""
    if isinstance(old, dict):
        return isinstance(new, dict) and all(k in new and subset(v, new[k]) for k, v in old.items())
    if isinstance(old, list):
        return len(old) == len(new) and all(map(subset, old, new))
    return bool(old == new)


def test_a_document_says_each_round_and_how_times_are_spread() -> None:
    found = made(rounds=7)
    (cell, *_) = found.cells
    assert len(cell.candidate.rounds) == len(cell.baseline.rounds) == cell.speed_up.pairs == 7
    latency = cell.candidate.quantiles.latency
    assert list(latency) == sorted(latency)
    assert latency[found.quantiles.index(0.5)] == pytest.approx(cell.candidate.latency)


@rows(
    "change",
    [
        lambda said: said.pop("cells"),
        lambda said: said["cells"][0]["candidate"]["rounds"].pop(),
        lambda said: said["cells"][0]["candidate"]["rounds"].__setitem__(0, 0.0),
        lambda said: said["cells"][0]["speed_up"].__setitem__("low", float("nan")),
        lambda said: (
            said["cells"][0]["baseline"]["quantiles"]["latency"].__delitem__(0)
            if isinstance(said["cells"][0]["baseline"]["quantiles"]["latency"], list)
            else None
        ),
        lambda said: said.__setitem__("version", 2),
    ],
)
def test_what_is_no_certificate_is_refused(change) -> None:  # type: ignore[no-untyped-def]
    said = json.loads(msgspec.json.encode(made()))
    change(said)
    with pytest.raises(ValidationError):
        convert(said, CertificateDocument)
