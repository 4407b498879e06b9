"""Queries engines about plans: stored answers first, the rest in batches."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from speclaunch.checks.engine_check.command import AskedCommand, NotAskedError, asked_command
from speclaunch.checks.engine_check.interface import EngineAnswer, EngineQuestion
from speclaunch.checks.engine_check.opinion import Opinion, converse, inquire
from speclaunch.core import (
    EntryFiles,
    ExitCode,
    Place,
    Problem,
    SpeclaunchError,
    digest,
    speclaunch_home,
)
from speclaunch.engine import MARK, Ask, Plan

if TYPE_CHECKING:
    from speclaunch.checks.engine_check.engine_judge import EngineJudge


_SECONDS = 240.0
"""For what is asked at once, beside `_SECONDS_EACH` of it."""
_SECONDS_EACH = 0.5
_LOADING_SECONDS = 6.0
"""Until a judge that was never asked has its first answer."""

FindJudge = Callable[[str | None, Path | None], "EngineJudge | None"]
_Ask = Callable[["EngineJudge", Sequence[EngineQuestion]], list[EngineAnswer]]


class NoJudgeError(SpeclaunchError):
    """`--ask always`, and nobody is there to be asked (exit 2)."""

    exit_code = ExitCode.USAGE


class PlanQuery(Struct, frozen=True):
    """A query to one release about a plan."""

    judge: EngineJudge
    command: AskedCommand | None
    """None: `why` says why the engine cannot be queried about it."""
    why: str = ""
    blamed: Collection[Place] = ()
    """The places of our own errors: a refusal that they explain is looked into no further."""


class _NotKept(Exception):
    """A question was not asked before."""


class Asker(Struct):
    """Asks judges as `--ask` has it. `find` tells the judge of a release, or of an interpreter."""

    mode: Ask
    verdicts: Verdicts | None
    find: FindJudge
    _loaded: set[str] = set()
    _found: dict[tuple[str, Path | None], EngineJudge | None] = {}

    def judge(self, version: str, python: Path | None = None) -> EngineJudge | None:
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
    ) -> PlanQuery | None:
        """What to ask about a plan; None where nobody is asked. Raises NoJudgeError."""
        judge = self.judge(plan.request.version, python)
        if judge is None:
            return None
        try:
            return PlanQuery(judge, asked_command(plan), blamed=blamed)
        except NotAskedError as error:
            return PlanQuery(judge, None, str(error))

    def known(self, wanted: PlanQuery) -> Opinion | None:
        """The opinion, where all that it takes was asked before."""
        try:
            return self._opinion(wanted, _nobody)
        except _NotKept:
            return None

    def cost(self, wanted: PlanQuery) -> float:
        """Seconds that asking will take: as the last time, or as most judges take to load."""
        known = None if self.verdicts is None else self.verdicts.seconds(wanted.judge.digest)
        return _LOADING_SECONDS if known is None else known

    def opinion_on(self, wanted: PlanQuery) -> Opinion:
        """The opinion, asked for as far as it was not before."""
        return self._opinion(wanted, self._at_once)

    def opinion(
        self, plan: Plan, python: Path | None = None, blamed: Collection[Place] = ()
    ) -> Opinion | None:
        """The opinion on a plan; None where nobody is asked. Raises NoJudgeError."""
        wanted = self.wanted(plan, python, blamed)
        return None if wanted is None else self.opinion_on(wanted)

    def _opinion(self, wanted: PlanQuery, ask: _Ask) -> Opinion:
        judge, command = wanted.judge, wanted.command
        if command is None:
            return Opinion(judge.release, why=wanted.why)
        return converse(
            inquire(command, judge.release, wanted.blamed),
            lambda questions: self._answers(judge, questions, command.seen, ask),
        )

    def _answers(
        self,
        judge: EngineJudge,
        questions: Sequence[EngineQuestion],
        seen: Sequence[str],
        ask: _Ask,
    ) -> list[EngineAnswer]:
        """Kept answers, and those of the judge to all other questions at once."""
        by_name = {name_of(judge.digest, one, seen): one for one in questions}
        found: dict[str, EngineAnswer] = {}
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

    def _at_once(
        self, judge: EngineJudge, questions: Sequence[EngineQuestion]
    ) -> list[EngineAnswer]:
        """Ask. The first time is kept: loading is nearly all of what an opinion costs."""
        began = time.monotonic()
        answers = judge.ask(questions, seconds=_SECONDS + _SECONDS_EACH * len(questions))
        if judge.digest not in self._loaded:
            self._loaded.add(judge.digest)
            if self.verdicts is not None and any(one.accepted is not None for one in answers):
                self.verdicts.took(judge.digest, time.monotonic() - began)
        return answers


def _is_of(judge: EngineJudge, version: str) -> bool:
    """Whether a judge is of a version; a fork's goes by another name."""
    return judge.release == version or MARK in version


def _nobody(_judge: EngineJudge, _questions: Sequence[EngineQuestion]) -> list[EngineAnswer]:
    raise _NotKept


SWITCH = "SPECLAUNCH_NO_CACHE"
"""The variable that, set to anything, switches it off (as of `checks/lint/cache.py`)."""
FOLDER = "verdicts"
_FORMAT = 3
_MOST_BYTES = 1 << 17
"""Of an entry; a larger one is not kept."""
_MOST_IN_FOLDER, _MOST_BYTES_IN_FOLDER = 100, 512 << 10
"""Of one of the 256 folders: all have 128 MiB, and 25,600 entries."""
_BROKEN = (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""Errors of reading a damaged entry."""


class Verdicts:
    """The kept answers of all releases. One that is missing, broken, or another user's is as good
    as none; what cannot be written is not kept."""

    def __init__(self, folder: Path) -> None:
        self._files = EntryFiles(str(folder), _MOST_BYTES, _MOST_IN_FOLDER, _MOST_BYTES_IN_FOLDER)

    def get(self, name: str) -> EngineAnswer | None:
        """The answer of that name."""
        with contextlib.suppress(*_BROKEN):
            text = self._files.get(name)
            found = None if text is None else convert(json.loads(text), EngineAnswer)
            return found if found is not None and found.accepted is not None else None
        return None

    def put(self, name: str, answer: EngineAnswer) -> None:
        """Keep an answer. What could not be judged may be another time."""
        if answer.accepted is not None:
            with contextlib.suppress(TypeError, ValueError, RecursionError):
                text = json.dumps(to_builtins(answer), separators=(",", ":"))
                self._files.put(name, text.encode())

    def seconds(self, judge: str) -> float | None:
        """Return the seconds that the judge with a digest took to load and answer."""
        with contextlib.suppress(*_BROKEN):
            text = self._files.get(_seconds_name(judge))
            return None if text is None else float(text)
        return None

    def took(self, judge: str, seconds: float) -> None:
        """Keep how long a judge took."""
        self._files.put(_seconds_name(judge), f"{seconds:.3f}".encode())


def opened(*, wanted: bool = True) -> Verdicts | None:
    """The verdicts in speclaunch's home; None where nothing is to be kept."""
    if not wanted or os.environ.get(SWITCH):
        return None
    return Verdicts(speclaunch_home() / FOLDER)


def name_of(judge: str, question: EngineQuestion, seen: Sequence[str]) -> str:
    """The name of the answer that the judge with a digest gives. `seen`: what it reads on disk."""
    folder = str(question.folder) if seen else ""  # else no path is followed
    said = [_FORMAT, judge, to_builtins(replace(question, folder=None)), folder, list(seen)]
    return digest(json.dumps(said).encode("utf-8", "surrogateescape"))


def _seconds_name(judge: str) -> str:
    return digest(f"seconds {judge}".encode())
