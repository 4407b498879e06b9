"""When an engine hangs, and when it is only slow."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from speclaunch.deployments.recipe.schema import WatchdogSection as Settings
from speclaunch.serving.launch.supervisor import Ending, EngineSpec, supervise
from speclaunch.serving.launch.watchdog import HangDetector, ProbeAnswer, Watchdog

from .conftest import Recorder

QUICK = {"interval_seconds": 0.2, "timeout_seconds": 0.3, "failures": 3}


def judge(**settings: float) -> HangDetector:
    return HangDetector(Settings.model_validate(settings), armed=True)


def test_so_many_failures_in_a_row_make_a_hang() -> None:
    one = judge(failures=3)
    assert [one.answered(ProbeAnswer.SILENT, t, t + 20) for t in (100.0, 140.0, 180.0)] == [
        False,
        False,
        True,
    ]
    assert "3 times in a row" in one.reason


@pytest.mark.parametrize("answer", [ProbeAnswer.GENERATED, ProbeAnswer.BUSY])
def test_an_answer_in_between_begins_the_count_anew(answer: ProbeAnswer) -> None:
    one = judge(failures=2)
    one.answered(ProbeAnswer.SILENT, 100, 120)
    one.answered(answer, 140, 141)
    assert not one.answered(ProbeAnswer.FAILED, 180, 200)
    assert one.answered(ProbeAnswer.FAILED, 220, 240)


def test_batches_in_the_log_while_it_was_asked_mean_that_it_is_busy() -> None:
    one = judge(failures=1)
    one.progress(110)
    assert not one.answered(ProbeAnswer.SILENT, 100, 120)
    assert one.answered(ProbeAnswer.SILENT, 130, 150)


def test_it_is_only_asked_after_a_time_without_progress() -> None:
    one = judge(interval_seconds=20)
    one.progress(100)
    assert not one.due(119)
    assert one.due(120)


@pytest.mark.parametrize("answer", [ProbeAnswer.SILENT, ProbeAnswer.FAILED, ProbeAnswer.UNFIT])
def test_an_engine_that_never_generated_is_never_hung(answer: ProbeAnswer) -> None:
    one = HangDetector(Settings(failures=1), armed=False)
    assert not any(one.answered(answer, t, t + 20) for t in (100.0, 200.0, 300.0))
    one.answered(ProbeAnswer.GENERATED, 400, 401)
    assert one.answered(ProbeAnswer.SILENT, 500, 520)


class Scripted:
    def __init__(self, answers: list[ProbeAnswer], counters: Callable[[], object]) -> None:
        self.answers, self._counters = answers, counters

    def generate(self, timeout: float) -> ProbeAnswer:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def counters(self) -> object:
        return self._counters()


def watch(dog: Watchdog, seconds: float) -> str | None:
    dog.start()
    deadline = time.monotonic() + seconds
    while dog.hung is None and time.monotonic() < deadline:
        time.sleep(0.02)
    dog.stop()
    return dog.hung


@pytest.mark.thorough
def test_counters_that_move_are_progress() -> None:
    dog = Watchdog(
        Settings.model_validate(QUICK), Scripted([ProbeAnswer.SILENT], time.monotonic), armed=True
    )
    assert watch(dog, 1.5) is None
    assert dog.probes_sent == 0


@pytest.mark.thorough
def test_counters_that_stand_still_are_none() -> None:
    dog = Watchdog(
        Settings.model_validate(QUICK), Scripted([ProbeAnswer.SILENT], lambda: 7), armed=True
    )
    assert watch(dog, 5) is not None


@pytest.mark.thorough
def test_the_log_of_a_stopped_process_is_not_trusted() -> None:
    dog = Watchdog(
        Settings.model_validate(QUICK),
        Scripted([ProbeAnswer.SILENT], time.monotonic),
        stopped=lambda: "its process 7 (sglang::detokenizer)",
        armed=True,
    )
    hung = watch(dog, 5)
    assert hung is not None and hung.endswith("its process 7 (sglang::detokenizer) is stopped")


@pytest.mark.thorough
def test_an_engine_that_hangs_while_it_serves_is_ended(order: Callable[..., EngineSpec]) -> None:
    outcome = supervise(order("hangs", watchdog=QUICK), Recorder())
    assert outcome.ending is Ending.HUNG
    assert outcome.reason is not None and "no longer generates" in outcome.reason
    assert outcome.served


@pytest.mark.thorough
def test_a_busy_engine_is_left_alone(order: Callable[..., EngineSpec]) -> None:
    import os
    import signal
    import subprocess

    recorder = Recorder()
    recorder.on_ready = lambda: subprocess.Popen(["sh", "-c", f"sleep 4; kill -TERM {os.getpid()}"])
    outcome = supervise(order("busy", watchdog=QUICK), recorder)
    assert outcome.ending is Ending.STOPPED
    assert signal.SIGTERM  # it ended because it was asked to, not because it was thought to hang


@pytest.mark.thorough
def test_a_stopped_scheduler_is_a_hang_that_is_named(order: Callable[..., EngineSpec]) -> None:
    import os
    import signal

    import psutil

    recorder = Recorder()

    def halt() -> None:
        for process in psutil.Process(recorder.pid).children():
            if "scheduler" in " ".join(process.cmdline()):
                os.kill(process.pid, signal.SIGSTOP)

    recorder.on_ready = halt
    outcome = supervise(order("engine", watchdog=QUICK), recorder)
    assert outcome.ending is Ending.HUNG
    assert outcome.reason is not None and "is stopped" in outcome.reason
