"""The model on numbers that are known."""

from __future__ import annotations

import pytest

from speclaunch.measure.tune.model import NGRAM, DraftSetting, Trial, fitted, settings


def chain(steps: int, accepted: tuple[float, ...], seconds: float = 0.01) -> Trial:
    return Trial(DraftSetting(steps, 1, steps + 1), seconds, 1 + sum(accepted), accepted)


def test_positions_that_were_never_accepted_stay_so() -> None:
    """As the engine tells it: a histogram ends at the deepest position that was accepted. These are
    the numbers of a measured chain of 8 steps."""
    model = fitted([chain(8, (1.0, 0.94, 0.47, 0.47))])
    for steps in (4, 5, 6, 8):
        assert model.accept_length(DraftSetting(steps, 1, steps + 1)) == pytest.approx(
            3.88, abs=0.01
        )
    assert model.accept_length(DraftSetting(2, 1, 3)) == pytest.approx(2.94, abs=0.01)
    assert fitted([chain(3, ())]).accept_length(DraftSetting(1, 1, 2)) < 2
    assert fitted([chain(3, (0.0,))]).accept_length(DraftSetting(8, 1, 9)) == 1


def test_positions_that_were_not_tried_go_on_as_the_last_ones() -> None:
    model = fitted([chain(3, (0.8, 0.64, 0.512))])
    assert model.accept_length(DraftSetting(4, 1, 5)) == pytest.approx(
        1 + 0.8 + 0.64 + 0.512 + 0.4096
    )


def test_costs_are_found_exactly_where_they_are_a_sum() -> None:
    truth = (0.004, 0.0012, 0.0003)
    trials = [
        Trial(one, truth[0] + truth[1] * one.steps + truth[2] * one.tokens, 2.0)
        for one in settings("EAGLE3", 12)[::7]
    ]
    model = fitted(trials)
    assert (model.base, model.by_step, model.by_token) == pytest.approx(truth)
    for one in settings("EAGLE3"):
        expected = truth[0] + truth[1] * one.steps + truth[2] * one.tokens
        assert model.step_seconds(one) == pytest.approx(expected)


def test_no_cost_is_below_zero() -> None:
    """Where more tokens took less time, by chance, they are taken to cost nothing."""
    trials = [
        Trial(DraftSetting(0, 1, tokens), 0.02 - 0.0001 * tokens, 2.0) for tokens in (2, 8, 32)
    ]
    model = fitted(trials)
    assert (model.by_step, model.by_token) == (0.0, 0.0)
    assert 0.016 < model.base < 0.02
    one = Trial(settings(NGRAM)[0], 0.01, 2.0)
    assert fitted([one]).base + 2 * fitted([one]).by_token == pytest.approx(0.01)


def test_what_was_measured_is_taken_as_it_is() -> None:
    trial = chain(3, (0.5, 0.25, 0.125))
    assert fitted([trial, chain(5, (0.9,) * 5)]).speed(trial.setting) == trial.speed
