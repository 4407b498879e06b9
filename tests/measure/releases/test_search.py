"""The search for the first bad release: the bound of starts, and probes that are wrong at times."""

from __future__ import annotations

import random

import pytest

from speclaunch.measure.releases.search import (
    ProbeVerdict,
    ReleaseProbe,
    SearchOutcome,
    SearchStep,
    most_starts,
    net_evaluations,
    step,
)
from tests.support.loops import rows


def names(count: int) -> list[str]:
    return [f"r{number}" for number in range(count)]


def run(
    count: int,
    first: int,
    wrong: float = 0.0,
    rate: float = 0.0,
    seed: int = 0,
    skipped: tuple[int, ...] = (),
) -> tuple[SearchStep, int]:
    """Search where `first` is the first bad release and a share `wrong` of probes is wrong."""
    chance, held, probes = random.Random(seed), names(count), list[ReleaseProbe]()
    while True:
        due = step(held, probes, rate=rate)
        if due.probe is None:
            return due, len(probes)
        at = held.index(due.probe)
        bad = (at >= first) ^ (chance.random() < wrong)
        verdict = (
            ProbeVerdict.SKIP if at in skipped else ProbeVerdict.BAD if bad else ProbeVerdict.GOOD
        )
        probes.append(ReleaseProbe(due.probe, verdict))


@pytest.mark.thorough
@rows("count", range(2, 30))
def test_every_pair_is_found_within_the_bound(count: int) -> None:
    for first in range(1, count):
        found, starts = run(count, first)
        assert found.outcome is SearchOutcome.FOUND
        assert found.pair == (f"r{first - 1}", f"r{first}")
        assert starts <= most_starts(count)


@rows("count", [2, 3, 8, 9])
def test_wrong_endpoints_are_named_within_the_bound(count: int) -> None:
    assert run(count, 0)[0].outcome is SearchOutcome.GOOD_IS_BAD
    assert run(count, count)[0].outcome is SearchOutcome.BAD_IS_GOOD
    assert max(run(count, first)[1] for first in (0, count)) <= most_starts(count)


def test_both_releases_of_a_pair_were_probed() -> None:
    held = names(8)
    for first in range(1, 8):
        probes: list[ReleaseProbe] = []
        while (due := step(held, probes)).probe is not None:
            at = held.index(due.probe)
            probes.append(
                ReleaseProbe(due.probe, ProbeVerdict.BAD if at >= first else ProbeVerdict.GOOD)
            )
        assert {f"r{first - 1}", f"r{first}"} <= {probe.release for probe in probes}


@pytest.mark.thorough
@pytest.mark.parametrize("count", [2, 3, 8, 12])
def test_a_fifth_of_the_starts_may_be_wrong(count: int) -> None:
    right = 0
    for seed in range(100):
        first = 1 + seed % (count - 1)
        found, _ = run(count, first, 0.2, 0.2, seed)
        right += found.pair == (f"r{first - 1}", f"r{first}")
    assert right >= 95


def test_believing_flaky_starts_is_not_enough() -> None:
    right = sum(run(8, 4, 0.2, 0.0, seed)[0].pair == ("r3", "r4") for seed in range(100))
    assert right < 80


@rows(
    "skipped, outcome, pair",
    [
        ((2,), SearchOutcome.FOUND, ("r4", "r5")),
        ((4,), SearchOutcome.SKIPPED, ("r3", "r5")),
        ((4, 5, 6), SearchOutcome.SKIPPED, ("r3", "r7")),
        ((0,), SearchOutcome.FOUND, ("r4", "r5")),
    ],
)
def test_releases_that_cannot_be_tested(
    skipped: tuple[int, ...], outcome: SearchOutcome, pair: tuple[str, str]
) -> None:
    found, _ = run(8, 5, skipped=skipped)
    assert (found.outcome, found.pair) == (outcome, pair)


def test_an_endpoint_that_matters_and_cannot_be_tested() -> None:
    found, _ = run(4, 1, skipped=(0,))
    assert found.outcome is SearchOutcome.SKIPPED


def test_the_search_gives_up() -> None:
    held = names(4)
    probes = [ReleaseProbe("r1", verdict) for verdict in (ProbeVerdict.GOOD, ProbeVerdict.BAD) * 30]
    assert step(held, probes, rate=0.2, most=60).outcome is SearchOutcome.UNDECIDED


def test_contradicting_reliable_probes_start_the_test_of_unreliable_ones() -> None:
    held = names(4)
    probes = [ReleaseProbe("r1", ProbeVerdict.BAD), ReleaseProbe("r2", ProbeVerdict.GOOD)]
    assert step(held, probes).probe is not None


def test_an_installed_release_is_preferred() -> None:
    held = names(5)
    assert step(held, []).probe == "r2"
    assert step(held, [], installed=["r3"]).probe == "r3"
    assert step(held, [], installed=["r1"]).probe == "r2"


def test_the_next_releases_are_foreseen() -> None:
    due = step(names(8), [])
    assert due.probe == "r3" or due.probe == "r4"
    assert len(due.following) == 2 and due.probe not in due.following


@pytest.mark.parametrize(("rate", "net"), [(0.0, 1), (0.2, 4), (0.4, 12)])
def test_evaluations_that_a_verdict_needs(rate: float, net: int) -> None:
    assert net_evaluations(rate) == net
