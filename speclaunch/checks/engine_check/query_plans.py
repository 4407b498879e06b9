"""Query engines about plans: stored answers first, the rest in batches."""

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

from speclaunch.checks.engine_check.command import NotQueriedError, QueryCommand, query_command
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
from speclaunch.engine import MARK, EngineCheckMode, Plan

if TYPE_CHECKING:
    from speclaunch.checks.engine_check.engine_judge import EngineJudge


_SECONDS = 240.0
"""Seconds for a batch, plus `_SECONDS_EACH` for each question."""
_SECONDS_EACH = 0.5
_LOADING_SECONDS = 6.0
"""Estimated seconds until the first answer of a new judge."""

FindJudge = Callable[[str | None, Path | None], "EngineJudge | None"]
_Ask = Callable[["EngineJudge", Sequence[EngineQuestion]], list[EngineAnswer]]


class NoJudgeError(SpeclaunchError):
    """`--ask always` without an available judge (exit 2)."""

    exit_code = ExitCode.USAGE


class PlanQuery(Struct, frozen=True):
    """A query to one release about a plan."""

    judge: EngineJudge
    command: QueryCommand | None
    """None: `why` is the reason that the engine cannot be queried."""
    why: str = ""
    blamed: Collection[Place] = ()
    """Places of our own errors; a refusal that they explain is not investigated."""


class _NotStored(Exception):
    """The answer to a question is not stored."""


class EngineQuerier(Struct):
    """Queries judges in the mode of `--ask`. `find` returns the judge of a release or
    interpreter."""

    mode: EngineCheckMode
    verdicts: Verdicts | None
    find: FindJudge
    _loaded: set[str] = set()
    _found: dict[tuple[str, Path | None], EngineJudge | None] = {}

    def judge(self, version: str, python: Path | None = None) -> EngineJudge | None:
        """Return the judge of exactly this version, preferably the interpreter's own engine.

        Raises NoJudgeError if the mode requires a judge.
        """
        if self.mode is EngineCheckMode.NEVER:
            return None
        key = version, python
        if key not in self._found:
            tried = (python, None) if python is not None else (None,)
            found = (self.find(version, interpreter) for interpreter in tried)
            self._found[key] = next(
                (judge for judge in found if judge is not None and _is_of(judge, version)), None
            )
        judge = self._found[key]
        if judge is None and self.mode is EngineCheckMode.ALWAYS:
            raise NoJudgeError(
                Problem(
                    f"--ask always: no judge for SGLang {version} is available",
                    help=f"speclaunch engine judge add {version}",
                )
            )
        return judge

    def query_for(
        self, plan: Plan, python: Path | None = None, blamed: Collection[Place] = ()
    ) -> PlanQuery | None:
        """Return the query about a plan; None without a judge. Raises NoJudgeError."""
        judge = self.judge(plan.request.version, python)
        if judge is None:
            return None
        try:
            return PlanQuery(judge, query_command(plan), blamed=blamed)
        except NotQueriedError as error:
            return PlanQuery(judge, None, str(error))

    def known(self, query: PlanQuery) -> Opinion | None:
        """Return the opinion if all its answers are stored, else None."""
        try:
            return self._opinion(query, _nobody)
        except _NotStored:
            return None

    def cost(self, query: PlanQuery) -> float:
        """Return the expected seconds of a query: last measured, else the usual loading time."""
        known = None if self.verdicts is None else self.verdicts.seconds(query.judge.digest)
        return _LOADING_SECONDS if known is None else known

    def opinion_on(self, query: PlanQuery) -> Opinion:
        """Return the opinion, with queries for the answers that are not stored."""
        return self._opinion(query, self._at_once)

    def opinion(
        self, plan: Plan, python: Path | None = None, blamed: Collection[Place] = ()
    ) -> Opinion | None:
        """Return the opinion on a plan; None without a judge. Raises NoJudgeError."""
        query = self.query_for(plan, python, blamed)
        return None if query is None else self.opinion_on(query)

    def _opinion(self, query: PlanQuery, ask: _Ask) -> Opinion:
        judge, command = query.judge, query.command
        if command is None:
            return Opinion(judge.release, why=query.why)
        return converse(
            inquire(command, judge.release, query.blamed),
            lambda questions: self._answers(judge, questions, command.seen, ask),
        )

    def _answers(
        self,
        judge: EngineJudge,
        questions: Sequence[EngineQuestion],
        seen: Sequence[str],
        ask: _Ask,
    ) -> list[EngineAnswer]:
        """Return stored answers, and the judge's answers to all other questions in one batch."""
        by_name = {name_of(judge.digest, question, seen): question for question in questions}
        found: dict[str, EngineAnswer] = {}
        for name in by_name:
            stored = self.verdicts.get(name) if self.verdicts is not None else None
            if stored is not None:
                found[name] = stored
        missing = [name for name in by_name if name not in found]
        answers = ask(judge, [by_name[name] for name in missing]) if missing else []
        for name, answer in zip(missing, answers, strict=True):
            found[name] = answer
            if self.verdicts is not None:
                self.verdicts.put(name, answer)
        return [found[name_of(judge.digest, question, seen)] for question in questions]

    def _at_once(
        self, judge: EngineJudge, questions: Sequence[EngineQuestion]
    ) -> list[EngineAnswer]:
        """Query the judge, and store the time of its first query, which is mostly loading."""
        began = time.monotonic()
        answers = judge.ask(questions, seconds=_SECONDS + _SECONDS_EACH * len(questions))
        if judge.digest not in self._loaded:
            self._loaded.add(judge.digest)
            if self.verdicts is not None and any(answer.accepted is not None for answer in answers):
                self.verdicts.took(judge.digest, time.monotonic() - began)
        return answers


def _is_of(judge: EngineJudge, version: str) -> bool:
    """True if a judge validates a version. Always True for a fork, whose name differs."""
    return judge.release == version or MARK in version


def _nobody(_judge: EngineJudge, _questions: Sequence[EngineQuestion]) -> list[EngineAnswer]:
    raise _NotStored


SWITCH = "SPECLAUNCH_NO_CACHE"
"""Environment variable that disables the cache, whatever its value (as in checks/lint/cache.py)."""
FOLDER = "verdicts"
_FORMAT = 3
_MOST_BYTES = 1 << 17
"""Limit of an entry; larger entries are not cached."""
_MOST_IN_FOLDER, _MOST_BYTES_IN_FOLDER = 100, 512 << 10
"""Limits of each of the 256 folders: 128 MiB and 25,600 entries in total."""
_BROKEN = (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""Errors raised by reading a damaged entry."""


class Verdicts:
    """Stored answers of all releases. An entry that is damaged, or owned by another user, counts
    as missing. Failed writes are ignored."""

    def __init__(self, folder: Path) -> None:
        self._files = EntryFiles(str(folder), _MOST_BYTES, _MOST_IN_FOLDER, _MOST_BYTES_IN_FOLDER)

    def get(self, name: str) -> EngineAnswer | None:
        """Return the answer under a key."""
        with contextlib.suppress(*_BROKEN):
            text = self._files.get(name)
            found = None if text is None else convert(json.loads(text), EngineAnswer)
            return found if found is not None and found.accepted is not None else None
        return None

    def put(self, name: str, answer: EngineAnswer) -> None:
        """Store an answer, unless it has no verdict, because a later query may give one."""
        if answer.accepted is not None:
            with contextlib.suppress(TypeError, ValueError, RecursionError):
                text = json.dumps(to_builtins(answer), separators=(",", ":"))
                self._files.put(name, text.encode())

    def seconds(self, judge: str) -> float | None:
        """Return the seconds that a judge (by digest) took to load and answer, if stored."""
        with contextlib.suppress(*_BROKEN):
            text = self._files.get(_seconds_name(judge))
            return None if text is None else float(text)
        return None

    def took(self, judge: str, seconds: float) -> None:
        """Store the seconds that a judge took."""
        self._files.put(_seconds_name(judge), f"{seconds:.3f}".encode())


def opened(*, enabled: bool = True) -> Verdicts | None:
    """Return the verdicts in speclaunch's home; None if the cache is disabled."""
    if not enabled or os.environ.get(SWITCH):
        return None
    return Verdicts(speclaunch_home() / FOLDER)


def name_of(judge: str, question: EngineQuestion, seen: Sequence[str]) -> str:
    """Return the key of an answer. `judge`: the judge's digest; `seen`: text it reads on disk."""
    folder = str(question.folder) if seen else ""  # no path is read
    parts = [_FORMAT, judge, to_builtins(replace(question, folder=None)), folder, list(seen)]
    return digest(json.dumps(parts).encode("utf-8", "surrogateescape"))


def _seconds_name(judge: str) -> str:
    return digest(f"seconds {judge}".encode())
