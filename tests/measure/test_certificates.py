"""Stored results of a deployment, as its lock has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from speclaunch.core import speclaunch_home
from speclaunch.deployments import LockedCertificate, load, prepare
from speclaunch.measure.bench.sides import identity_of
from speclaunch.measure.bench.stored import certificates_of
from speclaunch.measure.bench.stored_names import stored_files, stored_length
from speclaunch.serving import command
from tests.support.loops import rows


def store(folder: str, name: str, file: str, identity: list[str], result: dict[str, Any]) -> None:
    path = speclaunch_home() / folder / name / file
    path.parent.mkdir(parents=True)
    about = {"commands": [identity]}
    path.write_text(json.dumps({"about": about, "updated": "2026-11-27T01:02", "result": result}))


def test_the_newest_results_of_the_same_command_with_their_lengths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path / "home"))
    recipe = tmp_path / "r.yaml"
    recipe.write_text("args: {model_path: m, speculative_algorithm: NGRAM}\n")
    prepared = prepare(load(str(recipe)), "0.5.23", dry_run=True)
    cells = [{"candidate": {"accept_length": length}} for length in (2.0, 3.0)]
    measured = {"sentence": "pays", "counts": True, "cells": cells}
    levels = [{"accept_length": 2.25}, {"accept_length": None}]
    proven = {"lossless": True, "answers": {"same": 3}, "concurrencies": levels}
    identity = [*identity_of(prepared)]
    store("benches", "1-r", "bench.json", identity, measured)
    store("benches", "2-r", "bench.json", identity, {**measured, "counts": False})
    store("benches", "3-r", "bench.json", [*identity, "--x"], measured)
    agreed = {"same": True, "counts": {"same": 20, "differs": 0}}
    store("proofs", "4-r", "proof.json", [*command(prepared)], proven)
    store("contracts", "5-r", "contract.json", [*command(prepared)], agreed)
    assert len(stored_files()) == 3
    result = "lossless: 3 same, None tie, None wrong"
    assert certificates_of(prepared) == (
        LockedCertificate("bench", "1-r", "2026-11-27", "pays", 2.5),
        LockedCertificate("prove", "4-r", "2026-11-27", result, 2.25),
        LockedCertificate(
            "contract", "5-r", "2026-11-27", "same: 20 request fields the same, 0 differ"
        ),
    )


@rows("odd", [{}, {"cells": 3}, {"cells": [1, {}]}, {"cells": [{"accept_length": "x"}]}])
def test_results_of_any_form_have_a_length_or_none(odd: dict[str, Any]) -> None:
    assert stored_length(odd) is None
