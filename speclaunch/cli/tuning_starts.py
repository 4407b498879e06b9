"""The engine starts of `speclaunch tune`: trials of settings, and the comparison of the best."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from speclaunch.bench.comparison import Schedule, measure, steps
from speclaunch.bench.engines import Engine, Order, end_on_signals
from speclaunch.bench.generator import Generator
from speclaunch.bench.keeping import begin, key_of
from speclaunch.bench.measurement import Round
from speclaunch.bench.sides import Side
from speclaunch.errors import LaunchError
from speclaunch.launch import kept_work
from speclaunch.launch.free_port import free_port
from speclaunch.launch.journal_header import command
from speclaunch.record import record
from speclaunch.report.console import err_lines
from speclaunch.tuning.budget import Budget, Expectation, expectation
from speclaunch.tuning.objective import Objective
from speclaunch.tuning.search import Next, next_trial
from speclaunch.tuning.setting import Setting
from speclaunch.tuning.space import order_of
from speclaunch.tuning.trials import KeptStarts, Protocol, Start
from speclaunch.tuning.trials import measure as measure_setting
from speclaunch.tuning.verification import OWN, Verdict, from_plain, plain, verdict

_MINUTE = 60


@record
class Question:
    """What is tuned, for what, and how much that may cost."""

    side: Side
    algorithm: str
    path: Path
    """The recipe's file."""
    space: tuple[Setting, ...]
    own: Setting | None
    aim: Objective
    protocol: Protocol
    budget: Budget
    compared: int
    """How many of the best are compared with the recipe's own."""
    compared_rounds: int
    compared_starts: int
    """Of each side of the comparison."""
    blocks: int
    fresh: bool

    @property
    def key(self) -> str:
        """Of what decides the trials: the command, the settings, the workload."""
        asked = [
            command(self.side.prepared),
            [asdict(one) for one in self.space],
            asdict(self.protocol),
        ]
        return kept_work.digest(asked)


def tried(question: Question, memory: KeptStarts) -> tuple[KeptStarts, str]:
    """All trials that the budget allows, each kept as it ends, and why there are no more."""
    lines = err_lines()
    if memory.starts:
        lines.print(f"going on: {len(memory.starts)} settings were measured before")
    end_on_signals()
    with tempfile.TemporaryDirectory(prefix="speclaunch-tune-") as text:
        work = _Work(question, Path(text))
        try:
            while True:
                step = _next(question, memory)
                if step.setting is None:
                    return memory, step.why
                lines.print(
                    f"{memory.tried + 1}: {step.setting} ({step.why}){_left(question, memory)}"
                )
                try:
                    start = work.start(step.setting)
                except LaunchError as error:
                    failed = {**memory.failed, str(step.setting): str(error)}
                    memory = replace(memory, failed=failed)
                    said = [f"   not measured: {error}"]
                else:
                    memory = replace(memory, starts=(*memory.starts, start))
                    said = _lines_of(start)
                memory.write()  # before it is told: who has read it may interrupt
                for line in said:
                    lines.print(line)
        finally:
            work.close()


def _next(question: Question, memory: KeptStarts) -> Next:
    left = tuple(one for one in question.space if str(one) not in memory.failed)
    trials = [one for start in memory.starts for one in start.trials]
    most = question.budget.tried - len(memory.failed)
    step = next_trial(question.aim, left, question.own, trials, most)
    if step.setting is not None and not _expected(question, memory).fits(
        question.budget, memory.seconds
    ):
        return Next(None, "another start would end behind --minutes")
    return step


def _expected(question: Question, memory: KeptStarts) -> Expectation:
    return expectation(
        question.side,
        question.protocol,
        question.budget,
        question.compared_rounds,
        memory.starts,
    )


def _left(question: Question, memory: KeptStarts) -> str:
    if not memory.starts:
        return ""
    expected = _expected(question, memory)
    left = (question.budget.tried - memory.tried) * expected.start + expected.comparison
    if question.budget.seconds is not None:
        left = min(left, question.budget.seconds - memory.seconds)
    return f", at most {math.ceil(left / _MINUTE)} min left"


def _lines_of(start: Start) -> list[str]:
    several = len(start.trials) > 1
    return [
        f"   {one.speed:.1f} tokens/s a request{f' at {one.concurrency}' if several else ''}, "
        f"acceptance length {one.accept_length:.2f}, {1000 * one.step_seconds:.1f} ms a step"
        for one in start.trials
    ]


class _Work:
    """The load generator, loaded once, and the engines' logs."""

    def __init__(self, question: Question, folder: Path) -> None:
        self.question = question
        self.folder = folder

    @cached_property
    def generator(self) -> Generator:
        side = self.question.side
        return Generator(side.prepared.python, side.environment, self.folder, side.tokenizer)

    def start(self, setting: Setting) -> Start:
        question = self.question
        order = order_of(question.side, setting, question.algorithm)
        starter = _starter(self.folder)
        return measure_setting(setting, order, starter, self.generator, question.protocol)

    def close(self) -> None:
        if "generator" in self.__dict__:
            self.generator.close()


def _starter(folder: Path) -> Callable[[Order], Any]:
    return lambda order: Engine(order, folder / f"{order.port}.log")


def verified(
    question: Question, memory: KeptStarts, best: Sequence[Setting]
) -> tuple[KeptStarts, Verdict | None]:
    """The best against the recipe's own in rounds that take turns; None: there is nothing to
    compare, or no time. Raises LaunchError."""
    asked = {"settings": [str(one) for one in best], "starts_each": question.compared_starts}
    if memory.verified is not None and asked.items() <= memory.verified.items():
        return memory, from_plain(memory.verified["verdict"])
    if not best:
        return memory, None
    limit = question.budget.seconds
    if limit is not None and memory.seconds + _expected(question, memory).comparison > limit:
        err_lines().print("no time is left to compare the best: --minutes")
        return memory, None
    schedule = _schedule(question, best)
    rounds = _compared(question, schedule, best)
    found = verdict(question.aim, question.protocol, best, rounds, question.compared_starts)
    kept = {**asked, "verdict": plain(found)}
    memory = replace(
        memory,
        verified=kept if not found.refused else None,
        compared=memory.compared + schedule.starts_in_all,
    )
    memory.write()
    return memory, found


def _schedule(question: Question, best: Sequence[Setting]) -> Schedule:
    side, protocol = question.side, question.protocol
    own = replace(side.order(free_port()), name=OWN)
    return Schedule(
        (own, *(order_of(side, one, question.algorithm, str(one)) for one in best)),
        (protocol.prompts,),
        question.aim.concurrencies,
        question.compared_rounds,
        protocol.requests,
        question.blocks,
        question.compared_starts,
    )


def _compared(question: Question, schedule: Schedule, best: Sequence[Setting]) -> list[Round]:
    side = question.side
    changed = [side.prepared.changed(one.arguments(question.algorithm)) for one in best]
    commands = [command(side.prepared), *map(command, changed)]
    name = side.prepared.recipe.deployment.name
    about = {"sides": [one.name for one in schedule.sides], "commands": commands}
    kept = begin(name, key_of(commands, schedule), about, fresh=question.fresh)
    rounds = list(kept.rounds)
    due = [one for one in steps(schedule) if not one.is_done(rounds)]
    lines = err_lines()
    told = ", ".join(str(one) for one in best)
    lines.print(f"comparing with the recipe's own: {told}; {len(due)} rounds")
    if not due:
        return rounds
    generator = Generator(side.prepared.python, side.environment, kept.directory, side.tokenizer)
    began = time.monotonic()
    try:
        for number, found in enumerate(
            measure(schedule, _starter(kept.directory), generator, lines.print, rounds), 1
        ):
            rounds.append(found)
            kept.write(rounds)
            left = (time.monotonic() - began) / number * (len(due) - number)
            lines.print(
                f"{number}/{len(due)} {found.side}: {found.throughput:.1f} tokens/s at "
                f"{found.concurrency}, about {math.ceil(left)} s left"
            )
    finally:
        generator.close()
    kept.write(rounds, {"tune": question.key})
    return rounds
