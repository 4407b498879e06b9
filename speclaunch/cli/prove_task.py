"""What a proof asks of which engine, in which order."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from speclaunch.bench.sides import Side
from speclaunch.cli.prove_engines import Engines, Say
from speclaunch.heartbeat import duration
from speclaunch.launch.journal_header import command
from speclaunch.plan.plan import UnknownValueError
from speclaunch.plan.topics.dtype import SHORT, halved
from speclaunch.proving.answers import Question
from speclaunch.proving.keeping import Heard, Kept, key_of
from speclaunch.proving.proof import Proof, prove, reference, sampled, samples_agree
from speclaunch.record import record

_SAMPLED_PROMPTS = 8
_SAMPLED_TOKENS = 4
_SAMPLING_AT_ONCE = 8


@record
class Task:
    """What is to be proven: `samples` answers are drawn for each of a few questions."""

    ours: Side
    plain: Side
    questions: tuple[Question, ...]
    levels: tuple[int, ...]
    samples: int

    @property
    def together(self) -> bool:
        """Whether both engines are up at the same time: on the CPU engine, as for `bench`; two of
        them do not fit on the GPUs of one."""
        return self.ours.prepared.cpu is not None and self.plain.prepared.cpu is not None

    @property
    def few(self) -> tuple[Question, ...]:
        """What is sampled."""
        chosen = self.questions[:_SAMPLED_PROMPTS] if self.samples else ()
        return tuple(Question(one.text, _SAMPLED_TOKENS) for one in chosen)

    @property
    def drawn(self) -> int:
        """How many samples each server draws."""
        return len(self.few) * self.samples

    @property
    def of_plain(self) -> int:
        """Requests that the plain server answers at least: the prompts' tokens, its own answers,
        their logprobs at once, and the samples. One more for each answer that differs."""
        return 3 * len(self.questions) + self.drawn

    def is_complete(self, heard: Heard) -> bool:
        """Whether the speculative server need not be asked any more."""
        return set(self.levels) <= set(heard.greedy) and bool(heard.samples) == bool(self.few)

    @property
    def about(self) -> dict[str, Any]:
        """For the record on disk."""
        sides = (self.ours, self.plain)
        return {
            "sides": [side.name for side in sides],
            "commands": [command(side.prepared) for side in sides],
            "engine": self.ours.prepared.version,
        }

    @property
    def key(self) -> str:
        """A digest of what is asked, and whom."""
        return key_of(
            {
                **self.about,
                "env": [dict(side.prepared.spelling.env) for side in (self.ours, self.plain)],
                "questions": [(one.text, one.tokens) for one in self.questions],
                "levels": self.levels,
                "samples": self.samples,
            }
        )

    def lines(self) -> Iterator[str]:
        """What would be done."""
        how = "both at once" if self.together else "one after the other"
        yield f"starts:   2, {how}: {self.ours.name}; {self.plain.name}"
        count, tokens = len(self.questions), self.questions[0].tokens
        levels = ", ".join(map(str, self.levels))
        asked = count * len(self.levels) + self.drawn
        yield (
            f"requests: {asked} to {self.ours.name}: {count} prompts at concurrencies of {levels}, "
            f"{tokens} tokens each{self._samples()}"
        )
        yield (
            f"          {self.of_plain} to {self.plain.name}, and one more for each answer that "
            "differs"
        )

    def _samples(self) -> str:
        if not self.drawn:
            return ""
        return f"; {self.samples} samples of {_SAMPLED_TOKENS} tokens for {len(self.few)} of them"


class Keeper:
    """What was heard so far, written whenever there is more."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self.heard = kept.heard

    def add(self, heard: Heard) -> None:
        """Keep it."""
        self.heard = heard
        self._kept.write(heard)


def ask_ours(task: Task, engines: Engines, keeper: Keeper, say: Say) -> None:
    """All answers of the speculative server that are not there yet. Raises LaunchError."""
    if task.is_complete(keeper.heard):
        return
    due = [level for level in task.levels if level not in keeper.heard.greedy]
    samples = 0 if keeper.heard.samples else task.drawn
    with (
        engines.serving(task.ours) as served,
        served.asked(len(due) * len(task.questions) + samples) as server,
    ):
        for level in due:
            began = time.monotonic()
            answers = server(level).answers(task.questions, logprobs=False)
            keeper.add(Heard({**keeper.heard.greedy, level: answers}, keeper.heard.samples))
            took = duration(time.monotonic() - began)
            say(f"{task.ours.name}: {len(answers)} answers at a concurrency of {level} in {took}")
        if samples:
            drawn = sampled(server(_SAMPLING_AT_ONCE), task.few, task.samples)
            keeper.add(Heard(keeper.heard.greedy, drawn))


def judge(task: Task, engines: Engines, heard: Heard, dtype: str) -> Proof:
    """The answers judged by the plain server. Raises LaunchError."""
    greedy = {level: heard.greedy[level] for level in task.levels}
    with engines.serving(task.plain) as served, served.asked(task.of_plain) as server:
        plain = reference(server, task.questions, max(task.levels), dtype)
        answers = prove(server, plain, greedy)
        if not task.drawn:
            return Proof(answers, plain.tolerance)
        theirs = sampled(server(_SAMPLING_AT_ONCE), task.few, task.samples)
    return Proof(answers, plain.tolerance, samples_agree(heard.samples, theirs))


def served_dtype(side: Side) -> str:
    """The data type that it computes in; empty where that is not known."""
    try:
        given = side.plan.value("dtype")
    except UnknownValueError:
        return ""
    target = side.plan.facts.target
    if given != "auto":
        return SHORT.get(str(given), str(given))
    if target is None:
        return ""
    return halved(target) if target.dtype in (None, "float32") else str(target.dtype)
