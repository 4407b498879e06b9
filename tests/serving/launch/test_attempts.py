"""The loop of attempts, with engines that only say how they ended."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from speclaunch.deployments.recipe.schema import Restart
from speclaunch.serving.launch.attempts import Conclusion, Launching, RestartPolicy
from speclaunch.serving.launch.client import Verification
from speclaunch.serving.launch.diagnosis.interface import Cause, Diagnosis, Direction
from speclaunch.serving.launch.engine_log import Phase
from speclaunch.serving.launch.planner import Attempt, Rung
from speclaunch.serving.launch.process import Interrupts
from speclaunch.serving.launch.supervisor import Ending, EngineOutcome, EngineSpec

from .conftest import Recorder

FRACTION = "mem_fraction_static"
MEMORY = Cause("oom", "out of memory", "", "", True, {FRACTION: Direction.LOWER})
BUG = Cause("bug", "a bug", "", "", False)

STARTED = EngineOutcome(Ending.FAILED, "died", 1)
SERVED = EngineOutcome(Ending.DIED, "died", 1, ready_seconds=1.0, checked=True)
HUNG = EngineOutcome(Ending.HUNG, "hangs", -9, ready_seconds=1.0, checked=True)
STOPPED = EngineOutcome(Ending.STOPPED, None, 0, ready_seconds=1.0, checked=True)


@dataclass(frozen=True)
class NoMore:
    why: str = "nothing is left"
    help: str | None = "buy memory"


@dataclass
class Talk(Recorder):
    said: list[str] = field(default_factory=list)

    def attempt(self, number: int, changes: Mapping[str, Any], rung: Rung | None) -> None:
        self.said.append(f"{number} {dict(changes)}")

    def failed(self, why: str) -> None:
        self.said.append(f"failed {why}")

    def waiting(self, seconds: float) -> None:
        self.said.append(f"wait {seconds:g}")

    def note(self, text: str) -> None:
        self.said.append(text)


Script = Sequence[tuple[EngineOutcome, Cause | None]]


def play(
    script: Script,
    make: Callable[..., EngineSpec],
    ladder: Callable[[Sequence[Attempt]], Any] | None = None,
    restart: Restart | None = None,
    max_attempts: int = 6,
    changes: Mapping[str, Any] | None = None,
    on_run: Callable[[int], None] = lambda number: None,
) -> tuple[Conclusion, list[str]]:
    todo = iter(script)
    now: list[Cause | None] = []
    talk = Talk()

    def run_engine(order: EngineSpec, observer: object, interrupts: Interrupts) -> EngineOutcome:
        on_run(len(now))
        outcome, cause = next(todo)
        now.append(cause)
        return outcome

    def diagnose(
        lines: Iterable[str], *, version: str | None = None, exit_code: int | None = None
    ) -> Diagnosis:
        assert version == "0.5.23"
        return Diagnosis(Phase.KV_POOL, cause=now[-1], line="the line")

    settings = restart or Restart(first_delay_seconds=0)
    with Interrupts() as interrupts:
        conclusion = Launching(
            order=lambda number, changes: make("serve"),
            diagnose=diagnose,
            version="0.5.23",
            observer=talk,
            interrupts=interrupts,
            policy=RestartPolicy(settings, settings.policy != "never"),
            ladder=ladder,
            max_attempts=max_attempts,
            run_engine=run_engine,
        ).run(changes or {})
    assert next(todo, None) is None, "not every engine was started"
    return conclusion, talk.said


def lower(attempts: Sequence[Attempt]) -> Rung | NoMore:
    value = round(attempts[-1].changes.get(FRACTION, 0.9) - 0.1, 2)
    return Rung("lower", {FRACTION: value}, "why", "cost") if value > 0.6 else NoMore()


def test_what_memory_explains_is_stepped_until_it_serves(order: Callable[..., EngineSpec]) -> None:
    done, said = play([(STARTED, MEMORY), (STARTED, MEMORY), (STOPPED, None)], order, lower)
    assert done.outcome.ending is Ending.STOPPED
    assert [dict(one.changes) for one in done.attempts] == [{}, {FRACTION: 0.8}, {FRACTION: 0.7}]
    assert said == [
        "1 {}",
        "failed out of memory: the line",
        "2 {'mem_fraction_static': 0.8}",
        "failed out of memory: the line",
        "3 {'mem_fraction_static': 0.7}",
    ]


@pytest.mark.parametrize("cause", [BUG, None])
def test_what_memory_does_not_explain_takes_no_rung(
    order: Callable[..., EngineSpec], cause: Cause | None
) -> None:
    def never(attempts: Sequence[Attempt]) -> Rung:
        raise AssertionError("the ladder was asked")

    done, _ = play([(STARTED, cause)], order, never)
    assert done.outcome.ending is Ending.FAILED
    assert len(done.attempts) == 1
    assert done.explanation is None


def test_without_recovery_it_fails_at_once(order: Callable[..., EngineSpec]) -> None:
    done, _ = play([(STARTED, MEMORY)], order)
    assert len(done.attempts) == 1
    assert done.explanation is not None and "recovery is off" in done.explanation


def test_the_ladder_says_why_it_ends(order: Callable[..., EngineSpec]) -> None:
    done, _ = play([(STARTED, MEMORY)] * 3, order, lower)
    assert (done.explanation, done.help) == ("nothing is left", "buy memory")


def test_no_more_attempts_than_allowed(order: Callable[..., EngineSpec]) -> None:
    done, _ = play([(STARTED, MEMORY)] * 2, order, lower, max_attempts=2)
    assert done.explanation is not None and "--max-attempts" in done.explanation


def test_no_configuration_is_tried_twice(order: Callable[..., EngineSpec]) -> None:
    def same(attempts: Sequence[Attempt]) -> Rung:
        return Rung("same", {FRACTION: 0.8}, "", "")

    done, _ = play([(STARTED, MEMORY), (STARTED, MEMORY)], order, same)
    assert done.explanation == "same was tried before"


@pytest.mark.parametrize("outcome", [SERVED, HUNG])
def test_a_crash_or_hang_while_serving_starts_the_same_again(
    order: Callable[..., EngineSpec], outcome: EngineOutcome
) -> None:
    done, _ = play([(outcome, BUG), (STOPPED, None)], order, lower)
    assert done.outcome.ending is Ending.STOPPED
    assert [dict(one.changes) for one in done.attempts] == [{}, {}]


def test_a_crash_loop_is_given_up(order: Callable[..., EngineSpec]) -> None:
    restart = Restart(first_delay_seconds=0, limit=2)
    done, _ = play([(SERVED, BUG)] * 3, order, lower, restart)
    assert done.outcome.ending is Ending.DIED
    assert done.explanation is not None and "3 times within" in done.explanation


def test_a_restart_that_does_not_come_up_counts_to_the_loop(
    order: Callable[..., EngineSpec],
) -> None:
    restart = Restart(first_delay_seconds=0, limit=2)
    done, _ = play([(SERVED, BUG), (STARTED, BUG), (STARTED, BUG)], order, lower, restart)
    assert done.outcome.ending is Ending.FAILED
    assert done.explanation is not None and "3 times" in done.explanation


def test_out_of_memory_after_it_served_steps(order: Callable[..., EngineSpec]) -> None:
    done, _ = play([(SERVED, MEMORY), (STOPPED, None)], order, lower)
    assert [dict(one.changes) for one in done.attempts] == [{}, {FRACTION: 0.8}]


def test_after_serving_the_attempts_count_anew(order: Callable[..., EngineSpec]) -> None:
    script = [(STARTED, MEMORY), (SERVED, MEMORY), (STOPPED, None)]
    done, _ = play(script, order, lower, max_attempts=2)
    assert done.outcome.ending is Ending.STOPPED


def test_an_engine_that_ends_well_is_not_started_again(order: Callable[..., EngineSpec]) -> None:
    ended = EngineOutcome(Ending.DIED, None, 0, ready_seconds=1.0, checked=True)
    done, _ = play([(ended, None)], order, lower)
    assert len(done.attempts) == 1 and done.diagnosis is None


def test_an_engine_that_does_something_else_than_asked_is_not_tried_again(
    order: Callable[..., EngineSpec],
) -> None:
    unfit = Verification(None, None, problems=("speculation is off",))
    outcome = EngineOutcome(Ending.FAILED, "speculation is off", 0, unfit, ready_seconds=1.0)
    done, _ = play([(outcome, MEMORY)], order, lower)
    assert len(done.attempts) == 1


def test_a_signal_ends_the_pause_between_two_engines(order: Callable[..., EngineSpec]) -> None:
    restart = Restart(first_delay_seconds=600, longest_delay_seconds=600)
    done, said = play(
        [(SERVED, BUG)],
        order,
        lower,
        restart,
        on_run=lambda _: os.kill(os.getpid(), signal.SIGTERM),
    )
    assert done.outcome.ending is Ending.INTERRUPTED
    assert said[-1] == "wait 600"


def test_it_begins_where_it_is_told_to(order: Callable[..., EngineSpec]) -> None:
    done, _ = play([(STARTED, MEMORY), (STOPPED, None)], order, lower, changes={FRACTION: 0.85})
    assert [one.changes[FRACTION] for one in done.attempts] == [0.85, 0.75]


def test_the_log_of_the_last_attempt_is_named(
    order: Callable[..., EngineSpec], tmp_path: Path
) -> None:
    done, _ = play([(STARTED, BUG)], order, lower)
    assert done.log == tmp_path / "engine.log"
