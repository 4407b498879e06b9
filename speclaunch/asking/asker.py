"""Who is asked about a plan, and the asking: kept verdicts first, the rest in batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import field
from pathlib import Path

from speclaunch.asking.command import AskedCommand, NotAsked, asked_command
from speclaunch.asking.mode import Ask
from speclaunch.asking.opinion import Opinion, converse, inquire
from speclaunch.asking.verdicts import Verdicts, name_of
from speclaunch.engine.forks import MARK
from speclaunch.errors import ExitCode, Place, Problem, SpeclaunchError
from speclaunch.judge.interface import Answer, Judge, Question, judge_for
from speclaunch.plan.plan import Plan
from speclaunch.record import record

_SECONDS = 240.0
"""For what is asked at once, beside `_SECONDS_EACH` of it."""
_SECONDS_EACH = 0.5
_LOADING_SECONDS = 6.0
"""Until a judge that was never asked has its first answer."""

FindJudge = Callable[[str | None, Path | None], Judge | None]
_Ask = Callable[[Judge, Sequence[Question]], list[Answer]]


class NoJudgeError(SpeclaunchError):
    """`--ask always`, and nobody is there to be asked (exit 2)."""

    exit_code = ExitCode.USAGE


@record
class Wanted:
    """A plan that a release is to be asked about."""

    plan: Plan
    judge: Judge
    command: AskedCommand | NotAsked
    blamed: Collection[Place] = ()
    """The places of our own errors: a refusal that they explain is looked into no further."""


class _NotKept(Exception):
    """A question was not asked before."""


@record(frozen=False)
class Asker:
    """Asks judges as `--ask` has it. `find` tells the judge of a release, or of an interpreter."""

    mode: Ask
    verdicts: Verdicts | None = None
    find: FindJudge = judge_for
    _loaded: set[str] = field(default_factory=set)
    _found: dict[tuple[str, Path | None], Judge | None] = field(default_factory=dict)

    def judge(self, version: str, python: Path | None = None) -> Judge | None:
        """Who judges for exactly this version; an interpreter's own engine before all others.

        Raises NoJudgeError where one must be there.
        """
        if self.mode is Ask.NEVER:
            return None
        key = version, python
        if key not in self._found:
            tried = (python, None) if python is not None else (None,)
            found = (self.find(version, one) for one in tried)
            self._found[key] = next(
                (one for one in found if one is not None and _is_of(one, version)), None
            )
        judge = self._found[key]
        if judge is None and self.mode is Ask.ALWAYS:
            raise NoJudgeError(
                Problem(
                    f"--ask always: no judge for SGLang {version} is available",
                    help=f"speclaunch engine judge add {version}",
                )
            )
        return judge

    def wanted(
        self, plan: Plan, python: Path | None = None, blamed: Collection[Place] = ()
    ) -> Wanted | None:
        """What to ask about a plan; None where nobody is asked. Raises NoJudgeError."""
        judge = self.judge(plan.request.version, python)
        return None if judge is None else Wanted(plan, judge, asked_command(plan), blamed)

    def known(self, wanted: Wanted) -> Opinion | None:
        """The opinion, where all that it takes was asked before."""
        try:
            return self._opinion(wanted, _nobody)
        except _NotKept:
            return None

    def cost(self, wanted: Wanted) -> float:
        """Seconds that asking will take: as the last time, or as most judges take to load."""
        known = None if self.verdicts is None else self.verdicts.seconds(wanted.judge.digest)
        return _LOADING_SECONDS if known is None else known

    def opinion_on(self, wanted: Wanted) -> Opinion:
        """The opinion, asked for as far as it was not before."""
        return self._opinion(wanted, self._at_once)

    def opinion(
        self, plan: Plan, python: Path | None = None, blamed: Collection[Place] = ()
    ) -> Opinion | None:
        """The opinion on a plan; None where nobody is asked. Raises NoJudgeError."""
        wanted = self.wanted(plan, python, blamed)
        return None if wanted is None else self.opinion_on(wanted)

    def _opinion(self, wanted: Wanted, ask: _Ask) -> Opinion:
        judge, command = wanted.judge, wanted.command
        if isinstance(command, NotAsked):
            return Opinion(judge.release, why=command.why)
        return converse(
            inquire(command, judge.release, wanted.blamed),
            lambda questions: self._answers(judge, questions, command.seen, ask),
        )

    def _answers(
        self, judge: Judge, questions: Sequence[Question], seen: Sequence[str], ask: _Ask
    ) -> list[Answer]:
        """Kept answers, and those of the judge to all other questions at once."""
        by_name = {name_of(judge.digest, one, seen): one for one in questions}
        found: dict[str, Answer] = {}
        for name in by_name:
            kept = self.verdicts.get(name) if self.verdicts is not None else None
            if kept is not None:
                found[name] = kept
        missing = [name for name in by_name if name not in found]
        answers = ask(judge, [by_name[name] for name in missing]) if missing else []
        for name, answer in zip(missing, answers, strict=True):
            found[name] = answer
            if self.verdicts is not None:
                self.verdicts.put(name, answer)
        return [found[name_of(judge.digest, one, seen)] for one in questions]

    def _at_once(self, judge: Judge, questions: Sequence[Question]) -> list[Answer]:
        """Ask. The first time is kept: loading is nearly all of what an opinion costs."""
        began = time.monotonic()
        answers = judge.ask(questions, seconds=_SECONDS + _SECONDS_EACH * len(questions))
        if judge.digest not in self._loaded:
            self._loaded.add(judge.digest)
            if self.verdicts is not None and any(one.accepted is not None for one in answers):
                self.verdicts.took(judge.digest, time.monotonic() - began)
        return answers


def _is_of(judge: Judge, version: str) -> bool:
    """Whether a judge is of a version; a fork's goes by another name."""
    return judge.release == version or MARK in version


def _nobody(_judge: Judge, _questions: Sequence[Question]) -> list[Answer]:
    raise _NotKept
