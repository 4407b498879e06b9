"""What is asked of which engine, in which order, and what is kept on the way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from speclaunch.app.verbs.prove import Served, Task, _Count, ask_ours, check_answers
from speclaunch.app.verbs.shared import lookup
from speclaunch.core.errors import LaunchError
from speclaunch.measure.bench.sides import NONE, SideOptions, baseline, candidate
from speclaunch.measure.prove.answers import ProofPrompt, ProofServer
from speclaunch.measure.prove.proof import served_dtype
from speclaunch.serving.launch.client import EngineError
from tests.measure.prove.test_proof import Cycle
from tests.measure.prove.test_stored import begun

RECIPE = "recipe=cpu_standalone"


class Engines:
    """Engines that are there at once. `fails_at`: the concurrency at which ours dies."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.fails_at = fails_at
        self.served: list[str] = []
        self.levels: list[int] = []
        self.ended = 0

    @contextmanager
    def serving(self, side: Any) -> Iterator[Any]:
        self.served.append(side.name)
        try:
            yield SimpleNamespace(queried=self._queried)
        finally:
            self.ended += 1

    @contextmanager
    def _queried(self, requests: int) -> Iterator[Any]:
        def server(level: int) -> ProofServer:
            self.levels.append(level)
            if level == self.fails_at:
                raise KeyboardInterrupt
            return ProofServer(Cycle, level)

        yield server


@pytest.fixture(scope="module")
def task() -> Task:
    asked = SideOptions((), None, lookup((), None), dry_run=True)
    ours = candidate([RECIPE], asked)
    questions = tuple(ProofPrompt(text, 8) for text in ("a", "bc", "def"))
    return Task(ours, baseline(NONE, [RECIPE], ours, asked), questions, (1, 4), 0)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path))


def test_a_dry_run_says_starts_and_requests(task: Task) -> None:
    assert list(task.lines()) == [
        "starts:   2, both at once: cpu_standalone; cpu_standalone without speculation",
        "requests: 6 to cpu_standalone: 3 prompts at concurrency 1, 4, 8 tokens each",
        "          9 to cpu_standalone without speculation, and one more for each answer that "
        "differs",
    ]
    sampled = list(replace(task, samples=50).lines())
    assert sampled[1].startswith("requests: 156 to")
    assert sampled[1].endswith("50 samples of 4 tokens for 3 of them")
    assert sampled[2].startswith("          159 to")


def test_all_is_asked_once_and_judged(task: Task) -> None:
    engines, said = Engines(), []
    stored = begun(task.key, task.about, fresh=False)
    ask_ours(task, engines, stored, said.append)  # type: ignore[arg-type]
    proof = check_answers(task, engines, stored.progress, "float32")  # type: ignore[arg-type]
    assert engines.served == ["cpu_standalone", "cpu_standalone without speculation"]
    assert (engines.ended, proof.counts.same, proof.is_lossless) == (2, 6, True)
    assert said[0].startswith("cpu_standalone: 3 answers at concurrency 1 in ")


def test_what_was_answered_before_ctrl_c_is_not_asked_again(task: Task) -> None:
    first = Engines(fails_at=4)
    stored = begun(task.key, task.about, fresh=False)
    with pytest.raises(KeyboardInterrupt):
        ask_ours(task, first, stored, lambda _: None)  # type: ignore[arg-type]
    assert first.ended == 1
    again = begun(task.key, task.about, fresh=False)
    assert again.progress.saved == "3 answers"
    second = Engines()
    ask_ours(task, second, again, lambda _: None)  # type: ignore[arg-type]
    assert second.levels == [4]
    third = Engines()
    ask_ours(task, third, begun(task.key, {}, fresh=False), print)  # type: ignore[arg-type]
    assert third.served == []  # all is there: the plain server alone is started
    assert check_answers(task, third, again.progress, "float32").is_lossless  # type: ignore[arg-type]


@pytest.mark.thorough
def test_samples_are_drawn_from_both(task: Task) -> None:
    sampled = replace(task, samples=10)
    engines = Engines()
    stored = begun(sampled.key, {}, fresh=False)
    ask_ours(sampled, engines, stored, lambda _: None)  # type: ignore[arg-type]
    assert stored.progress.saved == "36 answers"
    proof = check_answers(sampled, engines, stored.progress, "float32")  # type: ignore[arg-type]
    assert proof.sampled is not None
    assert (proof.sampled.positions, proof.sampled.probability) == (9, 1.0)


def test_another_engine_variable_or_question_is_another_proof(task: Task) -> None:
    asked = SideOptions((), None, lookup((), None), dry_run=True)
    other = candidate([RECIPE, "+engine.env.SGLANG_X=1"], asked)
    keys = [
        task.key,
        replace(task, ours=other).key,
        replace(task, questions=task.questions[:2]).key,
        replace(task, levels=(1,)).key,
        replace(task, samples=1).key,
    ]
    assert len(set(keys)) == len(keys)


def test_the_data_type_is_that_of_the_arguments(task: Task) -> None:
    assert served_dtype(task.ours.plan) == "float32"


def served(*, lives: bool) -> tuple[Served, list[str]]:
    said: list[str] = []
    engine: Any = SimpleNamespace(
        is_gone=lambda *_: not lives, log=Path("engine-1.log"), address=None
    )
    side: Any = SimpleNamespace(name="one")
    return Served(side, engine, said.append), said


@pytest.mark.parametrize("error", [EngineError("refused"), LaunchError("/generate answered 500")])
def test_an_engine_that_ended_is_told_with_its_log(error: Exception) -> None:
    one, _ = served(lives=False)
    with pytest.raises(LaunchError, match="one ended during the queries") as caught, one.queried(3):
        raise error
    (problem,) = caught.value.problems
    assert problem.help == "read its log: speclaunch diagnose engine-1.log"


def test_an_engine_that_lives_gave_no_answer() -> None:
    one, _ = served(lives=True)
    with pytest.raises(LaunchError, match="one gave no valid answer: silent"), one.queried(3):
        raise EngineError("silent")
    with pytest.raises(LaunchError, match=r"^/generate answered 400$"), one.queried(3):
        raise LaunchError("/generate answered 400")


def test_progress_says_how_long_still() -> None:
    count = _Count(40)
    assert count.text(3) == "0 of 40 requests"
    for _ in range(10):
        count.tick()
    assert count.text(20) == "10 of 40 requests, about 1 min 0 s left"
