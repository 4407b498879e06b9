"""The last campaign of campaigns/proof.py: complete, and all of it as it must be."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from campaigns.proof import LEAST_REQUESTS, RECIPES, count, objections, stored
from tests.support.loops import rows
from tests.support.proof_faults import FAULTS, breakable_shim


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [one for one in stored() if one["kind"] == kind]


def test_the_stored_campaign_is_as_it_must_be() -> None:
    """After a change of the faults: `python -m campaigns proof run --missing --store`."""
    assert objections(stored()) == []


def test_no_alarm_in_a_thousand_requests_to_good_engines() -> None:
    good = of_kind("good")
    assert {one["recipe"] for one in good} == set(RECIPES)
    assert all(len(one["concurrencies"]) == 4 for one in good)
    asked = sum(count(one, "requests") for one in good)
    assert asked >= LEAST_REQUESTS
    assert sum(count(one, "same") + count(one, "tie") for one in good) == asked
    assert all(one["lossless"] for one in good)


def test_six_broken_verifications_are_found_and_six_broken_drafts_are_none() -> None:
    verify, draft = of_kind("verify"), of_kind("draft")
    assert len(verify) >= 7 and len(draft) >= 6  # forced acceptance is one of the former
    assert all(count(one, "wrong") for one in verify)
    assert not any(count(one, "wrong") for one in draft)


@rows(
    "kind, change",
    [
        ("good", {"wrong": 1}),
        ("verify", {"wrong": 0}),
        ("draft", {"wrong": 1}),
        ("draft", {"accept_length": 99.0}),
    ],
)
def test_a_bad_result_is_objected_to(kind: str, change: dict[str, Any]) -> None:
    results = copy.deepcopy(stored())
    one = next(one for one in results if one["kind"] == kind)
    for level in one["concurrencies"]:
        level.update(change)
    assert len(objections(results)) == 1


def test_a_missing_result_is_objected_to() -> None:
    assert len(objections(stored()[1:])) >= 1
    assert len(objections(stored()[:-1])) == 1


def test_the_faults_fit_the_shim_as_it_is(tmp_path: Path) -> None:
    """Raises StaleFaultError otherwise."""
    shim = breakable_shim(tmp_path)
    planted = {path.name for path in (shim / "planted_faults").iterdir()}
    for number, fault in enumerate(FAULTS):
        assert any(name.startswith(f"fault_{number}") for name in planted), fault.name
    assert (shim / "planted_faults" / "active").read_text() == "-1"
