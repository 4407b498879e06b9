"""What the stored campaign on the real engine shows (`campaigns/bench.py`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from speclaunch.measure.bench.measurement import SpeedClaim

RESULTS: dict[str, list[dict[str, Any]]] = json.loads(
    Path(__file__).with_name("campaign.json").read_text()
)
AA, DELAYS, NGRAM = RESULTS["aa"], RESULTS["delays"], RESULTS["ngram"]
FORCED = RESULTS["forced"]


def test_a_deployment_against_itself_is_seldom_claimed_to_differ() -> None:
    assert len(AA) == 40 and {one["concurrency"] for one in AA} == {1, 4}
    assert sum(one["claim"] != SpeedClaim.NOT_SHOWN for one in AA) <= 5


def test_no_good_run_is_refused() -> None:
    assert [one for one in AA if one["objections"]] == []


def test_known_delays_are_in_the_intervals() -> None:
    assert len(DELAYS) == 20
    assert sum(one["held"] for one in DELAYS) >= 17


def test_an_acceptance_length_of_1_never_pays() -> None:
    assert len(FORCED) == 10
    for one in FORCED:
        assert not one["objections"] and one["claim"] == SpeedClaim.DOES_NOT_PAY


def test_ngram_pays_as_a_clock_of_our_own_says() -> None:
    assert len(NGRAM) >= 5
    for one in NGRAM:
        assert not one["objections"] and one["claim"] == SpeedClaim.PAYS
        assert one["held"] == (one["low"] <= one["independent"] <= one["high"])
    assert sum(one["held"] for one in NGRAM) >= len(NGRAM) - 1


@pytest.mark.parametrize("one", DELAYS, ids=lambda one: str(one["number"]))
def test_what_is_said_to_be_held_is(one: dict[str, Any]) -> None:
    within = not one["objections"] and one["low"] <= one["truth"] <= one["high"]
    assert one["held"] == within
