"""Two certificates compared: unpaired, with what each one's spread allows, and no more."""

from __future__ import annotations

import math
from random import Random
from statistics import fmean

import pytest
from msgspec.structs import asdict, replace

from speclaunch.measure.bench.measurement import ERROR_RATE, of_starts
from speclaunch.measure.bench.schema import (
    CertificateDocument,
    DifferenceDocument,
    SideRecord,
    difference,
    ratio_between,
)
from tests.support.app.output.bench.made import OURS, SIDES, made

SLEEP = (
    (0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0),
    (1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4),
)
"""Student's own: R's `t.test(extra ~ group, data = sleep)` gives -3.3654832 to 0.2054832 for the
difference, with 17.776 degrees of freedom."""


def compared(
    before: CertificateDocument, after: CertificateDocument, names: tuple[str, str] = ("old", "new")
) -> DifferenceDocument:
    return difference(before, after, names)


def test_the_interval_is_welchs() -> None:
    found = ratio_between(SLEEP[1], SLEEP[0], 0.95)
    low, ratio, high = (math.log(one) for one in (found.low, found.ratio, found.high))
    assert ratio == pytest.approx(-1.58)
    assert -3.3654832 - 0.01 < low < -3.3654832  # 17 degrees instead of 17.776: a little wider
    assert 0.2054832 < high < 0.2054832 + 0.01


def test_without_spread_the_ratio_is_exact() -> None:
    found = ratio_between([0.0, 0.0, 0.0], [0.5, 0.5, 0.5], 0.95)
    assert found.low == found.ratio == found.high == pytest.approx(1.6487, abs=1e-4)
    with pytest.raises(ValueError, match="at least 2"):
        ratio_between([0.0], [0.5, 0.5], 0.95)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("spreads", "sizes"), [((1, 1), (5, 5)), ((1, 4), (6, 5)), ((3, 1), (4, 12))]
)
def test_an_interval_of_95_percent_covers_the_truth_so_often(
    spreads: tuple[int, int], sizes: tuple[int, int]
) -> None:
    random, hits, runs = Random(7), 0, 600
    for _ in range(runs):
        one, other = (
            [random.gauss(middle, 0.03 * spread) for _ in range(size)]
            for middle, spread, size in zip((0.0, 0.3), spreads, sizes, strict=True)
        )
        found = ratio_between(one, other, 0.95)
        hits += found.low <= math.exp(0.3) <= found.high
    assert hits >= 0.93 * runs


def test_a_difference_that_is_there_is_told_and_none_where_none_is() -> None:
    before = made(speed_up=1.4, falls=1.0)
    assert compared(before, made(speed_up=1.9, falls=1.0, seed=2)).verdict == "faster"
    assert compared(made(speed_up=1.9, falls=1.0, seed=2), before).verdict == "slower"
    same = compared(before, made(speed_up=1.4, falls=1.0, seed=3))
    assert same.verdict == "not shown"
    assert {one.verdict for one in same.cells} == {"not shown"}


@pytest.mark.thorough
def test_a_difference_is_claimed_seldom_where_none_is() -> None:
    """Of 60 pairs of certificates with six cells each; 5 percent of them may be wrong."""
    wrong = 0
    for seed in range(60):
        one, other = (made(seed=2 * seed + n, speed_up=1.4, falls=1.0) for n in range(2))
        wrong += any(cell.verdict != "not shown" for cell in compared(one, other).cells)
    assert wrong <= 8  # binomial: more has a probability of 0.2 %


def test_a_machine_that_is_faster_as_a_whole_changes_no_speed_up() -> None:
    before = made(speed_up=1.4, falls=1.0)
    cells = tuple(
        replace(
            cell,
            **{
                name: replace(side, rounds=tuple(2 * one for one in side.rounds))
                for name, side in (("candidate", cell.candidate), ("baseline", cell.baseline))
            },
        )
        for cell in before.cells
    )
    found = compared(before, replace(before, cells=cells))
    for cell in found.cells:
        assert cell.speed_up.ratio == pytest.approx(1)
        assert cell.throughput.ratio == pytest.approx(2)
        assert cell.verdict == "not shown"


def test_cells_that_one_has_alone_are_named() -> None:
    before, after = made(concurrencies=(1, 8)), made(workloads=("code", "repetition"))
    found = compared(before, after)
    assert [(one.workload, one.concurrency) for one in found.cells] == [("code", 1), ("code", 8)]
    assert [(one.workload, one.concurrency) for one in found.only_before] == [
        ("chat", 1),
        ("chat", 8),
    ]
    assert [(one.workload, one.concurrency) for one in found.only_after] == [
        ("code", 32), ("repetition", 1), ("repetition", 8), ("repetition", 32),
    ]  # fmt: skip
    assert found.error_rate == ERROR_RATE


def test_more_cells_take_wider_intervals() -> None:
    few = [compared(*(made(seed=s, concurrencies=(1,)) for s in (1, 2))).cells[0].speed_up]
    before, after = (made(seed=s, concurrencies=(1,)) for s in (1, 2))
    wide = {"cells": tuple(
        replace(cell, concurrency=n) for n in range(1, 9) for cell in before.cells
    )}  # fmt: skip
    more = {"cells": tuple(
        replace(cell, concurrency=n) for n in range(1, 9) for cell in after.cells
    )}  # fmt: skip
    many = compared(replace(before, **wide), replace(after, **more)).cells
    widths = [one.speed_up.high - one.speed_up.low for one in many if one.workload == "code"]
    assert fmean(widths) > few[0].high - few[0].low


def with_sides(
    found: CertificateDocument, *sides: SideRecord, **changes: object
) -> CertificateDocument:
    return replace(found, sides=sides, **changes)


def test_commands_that_differ_are_shown_by_argument() -> None:
    words = list(SIDES[0].command)
    words[words.index("3")] = "5"
    other = replace(SIDES[0], command=tuple(words[::1]), environment={})
    found = compared(made(), with_sides(made(), other, SIDES[1]))
    (one,) = found.arguments
    assert one.side == "candidate"
    assert set(one.lines) == {
        "- SGLANG_ENABLE_SPEC_V2=1",
        "- --speculative-num-steps 3",
        "+ --speculative-num-steps 5",
    }
    assert compared(made(), made()).arguments == ()


def test_the_order_of_arguments_is_no_difference() -> None:
    first, *rest = SIDES[1].command[2::]
    del first, rest
    program, options = SIDES[1].command[:3], SIDES[1].command[3:]
    turned = (*program, *options[4:6], *options[0:2], *options[2:4])
    other = replace(SIDES[1], command=turned)
    assert compared(made(), with_sides(made(), SIDES[0], other)).arguments == ()


@pytest.mark.thorough
def test_what_makes_throughputs_unfair_is_said() -> None:
    newer = [replace(one, engine="0.5.24") for one in SIDES]
    found = compared(made(), with_sides(made(), *newer, hardware="h200"))
    assert any("h100 and h200" in one for one in found.notes)
    assert any("0.5.24" in one for one in found.notes)
    other = replace(SIDES[1], command=(*SIDES[1].command, "--dtype", "float16"))
    found = compared(made(), with_sides(made(), SIDES[0], other))
    assert any("baselines differ" in one for one in found.notes)
    (note,) = compared(made(), made()).notes
    assert note.startswith("one start of each side")
    several = [made(starts=3), made(starts=6)]
    assert compared(*several).notes == ()


def test_each_start_counts_once() -> None:
    one, other = made(starts=3), made(starts=3, seed=2)
    (first, *_) = compared(one, other).cells
    ratios = [
        [math.log(a / b) for a, b in zip(x.candidate.rounds, x.baseline.rounds, strict=True)]
        for x in (one.cells[0], other.cells[0])
    ]
    by_hand = ratio_between(*(of_starts(values, 3) for values in ratios), 1 - 0.05 / 6)
    assert asdict(first.speed_up) == pytest.approx(asdict(by_hand))


def test_acceptance_that_is_made_up_proves_nothing() -> None:
    before = made(speed_up=1.4, falls=1.0)
    after = made(speed_up=3.0, falls=1.0, simulated={OURS: "SGLANG_SIMULATE_ACC_LEN"})
    found = compared(before, after)
    assert found.verdict == "not shown" and all(one.speed_up.low > 1 for one in found.cells)
    assert any("simulates acceptance" in one for one in found.notes)


def test_servers_that_ran_already_differ_by_their_address() -> None:
    sides = [
        SideRecord(name=f"s{port}", engine="0.5.23", url=f"http://127.0.0.1:{port}")
        for port in (30000, 30001)
    ]
    found = compared(made(), with_sides(made(), *sides))
    assert any("+ http://127.0.0.1:30000" in one.lines for one in found.arguments)
