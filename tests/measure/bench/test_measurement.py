"""Numbers of requests and rounds, worked out by hand."""

from __future__ import annotations

import pytest

from speclaunch.measure.bench.certificate import certificate, single
from speclaunch.measure.bench.measurement import (
    Objection,
    Round,
    SpeedClaim,
    accepted_by_position,
    request_from,
)
from speclaunch.measure.bench.schema import MeasuredRecord
from speclaunch.measure.bench.stored import FILE, begin_bench
from tests.support.measure.bench.making import PLAIN, a_round

SAID = {
    "success": True,
    "error": "",
    "latency": 0.28,
    "ttft": 0.16,
    "asked": 32,
    "characters": 28,
    "meta": {
        "prompt_tokens": 48,
        "completion_tokens": 32,
        "cached_tokens": 1,
        "spec_verify_ct": 11,
        "spec_num_proposed_drafts": 77,
        "spec_correct_drafts_histogram": [7, 0, 0, 1, 1, 0, 0, 2],
    },
}
"""As the generator of 0.5.23 told it on the CPU engine."""


def test_a_request_as_the_generator_tells_it() -> None:
    found = request_from(SAID)
    assert found.accept_length == pytest.approx(32 / 11)
    assert found.per_token == pytest.approx(0.12 / 31)
    assert (found.prompt, found.cached) == (48, 1)
    assert accepted_by_position([found]) == pytest.approx(
        (4 / 11, 4 / 11, 4 / 11, 3 / 11, 2 / 11, 2 / 11, 2 / 11)
    )


def test_a_request_that_was_told_nothing_of() -> None:
    found = request_from({**SAID, "meta": {}})
    assert (found.tokens, found.accept_length, found.per_token) == (None, None, None)


def summary(rounds: list[Round]) -> MeasuredRecord:
    (cell,) = single("R", rounds, (), simulated={}).cells
    return cell.candidate


def test_acceptance_is_counted_over_all_steps() -> None:
    rounds = [a_round(verify_steps=10), a_round(verify_steps=30)]
    assert summary(rounds).accept_length == pytest.approx(4 * 64 / (4 * 40))
    assert summary([a_round(**PLAIN)]).accept_length is None


def test_throughput_is_the_median_of_the_rounds() -> None:
    rounds = [a_round(seconds=seconds) for seconds in (1.0, 2.0, 8.0)]
    assert summary(rounds).output_tokens_per_second == pytest.approx(64.0)
    assert summary(rounds).time_per_output_token == pytest.approx(0.9 / 31)


def measured(factor: float) -> list[Round]:
    ours = [a_round("R", n, 2.0 + 0.01 * n) for n in range(4)]
    theirs = [a_round("plain", n, factor * 2.0, **PLAIN) for n in range(4)]
    return [*ours, *theirs]


@pytest.mark.parametrize(
    ("factor", "claim"),
    [(2.0, SpeedClaim.PAYS), (0.5, SpeedClaim.DOES_NOT_PAY), (1.0, SpeedClaim.NOT_SHOWN)],
)
def test_a_certificate_says_what_the_rounds_say(factor: float, claim: SpeedClaim) -> None:
    found = certificate("R", "plain", measured(factor), ())
    (cell,) = found.cells
    assert (found.claim, cell.candidate.accept_length) == (claim, 3.2)
    assert cell.speed_up.low <= cell.speed_up.ratio <= cell.speed_up.high
    assert cell.speed_up.pairs == 4


def test_more_cells_take_wider_intervals() -> None:
    one = certificate("R", "plain", measured(2.0), ()).cells[0].speed_up
    rounds = measured(2.0)
    more = [a for each in range(5) for a in _renamed(rounds, f"w{each}")]
    many = certificate("R", "plain", more, ())
    assert all(c.speed_up.high - c.speed_up.low > one.high - one.low for c in many.cells)


def _renamed(rounds: list[Round], name: str) -> list[Round]:
    from msgspec.structs import replace

    return [replace(one, workload=name) for one in rounds]


def test_what_does_not_count_has_no_number() -> None:
    found = certificate("R", "plain", measured(2.0), [Objection("errors", "R: it failed")])
    assert (found.cells, found.claim) == ((), None)
    assert "does not count" in found.sentence


def test_too_few_pairs_say_nothing() -> None:
    rounds = [r for r in measured(2.0) if r.number < 2]
    (found,) = certificate("R", "plain", rounds, ()).objections
    assert found.kind == "pairs"


def test_a_comparison_goes_on_where_it_was(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path))
    first = begin_bench("R", "key", {}, fresh=False)
    rounds = [a_round("R"), a_round("plain", positions=(), cached=0)]
    first.write(rounds)
    again = begin_bench("R", "key", {}, fresh=False)
    assert (again.directory, list(again.rounds)) == (first.directory, rounds)
    assert begin_bench("R", "other", {}, fresh=False).rounds == ()
    fresh = begin_bench("R", "key", {}, fresh=True)
    assert begin_bench("R", "key", {}, fresh=False).directory == fresh.directory != first.directory
    assert fresh.rounds == ()
    again.write(rounds, {"claim": "pays"})
    assert begin_bench("R", "key", {}, fresh=False).directory != first.directory
    (first.directory / FILE).write_text("{")
    assert begin_bench("R", "key", {}, fresh=False).rounds == ()
