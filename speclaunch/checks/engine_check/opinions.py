"""A release's opinion on a plan: acceptance, or refusal and its cause, and resolved values.

Stored answers are used first; all other questions are sent in batches.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, convert
from msgspec.structs import replace

from speclaunch.checks.engine_check.questions import (
    STAND_INS,
    EngineAnswer,
    EngineQuestion,
    NotQueriedError,
    QueryCommand,
    Unit,
    query_command,
)
from speclaunch.core import (
    EntryFiles,
    ExitCode,
    Place,
    SpeclaunchError,
    digest,
    json_value,
    speclaunch_home,
)
from speclaunch.engine import (
    MARK,
    EngineCheckMode,
    Plan,
    Reason,
    UnknownValueError,
    canonical,
    is_secret_argument,
)

if TYPE_CHECKING:
    from speclaunch.checks.engine_check.engine_judge import EngineJudge


Inquiry = Generator[list[EngineQuestion], list[EngineAnswer], "Opinion"]
"""Generator that yields batches of questions, receives their answers, and returns an opinion."""
Batch = Callable[[Sequence[EngineQuestion]], list[EngineAnswer]]

_PARSER = "SystemExit"
_LONGEST = 400
"""Maximum characters of the engine's message in a report."""


class ReleaseRefusal(Struct, frozen=True):
    """Refusal by a release, with its cause."""

    words: str
    """The engine's message, on one line."""
    kind: str
    """Class name of the exception; `SystemExit` for a parser error."""
    place: str
    """Source line of the refusal: `srt/server_args.py:1234`; empty if unknown."""
    line: str
    """Text of that source line; empty if it cannot be read."""
    units: tuple[Unit, ...]
    """Arguments and variables that together cause the refusal, in the order of the message.
    Empty: the model alone is refused on this hardware. If removing the arguments at the places of
    speclaunch's own errors ends the refusal, those arguments are the cause.
    """
    machines: tuple[str, ...]
    named: tuple[Unit, ...] = ()
    """Other arguments that the engine names in its message or on that source line. Removing them
    does not always end the refusal: `tp_size % dp_size` fails with the default `tp_size`, too."""
    doubts: tuple[str, ...] = ()
    """Doubtful facts about the models. If they are wrong, there may be no refusal."""


class Opinion(Struct, frozen=True):
    """A release's opinion on a deployment. `why`: the reason if there is no verdict."""

    release: str
    accepted: bool = False
    refusal: ReleaseRefusal | None = None
    resolved: Mapping[str, Any] = {}
    """Resolved values by the engine's names; empty if the hardware is unknown."""
    why: str = ""
    is_lasting: bool = True
    """True if repeating the query gives the same result: nothing hung, crashed or was missing."""


def inquire(command: QueryCommand, release: str, blamed: Collection[Place] = ()) -> Inquiry:
    """Inquire whether `release` accepts a command and, if not, why.

    `blamed`: places of speclaunch's own errors, which are tried first as the cause.
    """
    answers = yield [command.question(machine) for machine in command.machines]
    open_ = next((answer for answer in answers if answer.accepted is None), None)
    taken = next((answer for answer in answers if answer.accepted), None)
    if taken is not None:
        known = len(command.machines) == 1
        return Opinion(release, accepted=True, resolved=taken.resolved if known else {})
    if open_ is not None:
        why = _single_line(open_.why) or "it gave no answer"
        return Opinion(release, why=why, is_lasting=False)
    first = answers[0]
    units = (yield from _explained(command, first, blamed)) or (yield from _needed(command, first))
    return Opinion(
        release,
        refusal=ReleaseRefusal(
            _single_line(first.why),
            first.kind,
            first.place,
            first.line.strip(),
            _in_order(units, first.why),
            command.machines,
            _named(command.units, units, f"{first.why} {first.line}"),
            command.doubts,
        ),
    )


def converse(inquiry: Inquiry, ask: Batch) -> Opinion:
    """Run an inquiry and return its opinion."""
    try:
        questions = next(inquiry)
        while True:
            questions = inquiry.send(ask(questions))
    except StopIteration as end:
        found: Opinion = end.value
    return found


def _explained(
    command: QueryCommand, refused: EngineAnswer, blamed: Collection[Place]
) -> Generator[list[EngineQuestion], list[EngineAnswer], tuple[Unit, ...]]:
    """Return the units at `blamed` if the refusal disappears without them, else none.

    This takes one query; a search for the cause takes about twenty.
    """
    suspected = frozenset(n for n, unit in enumerate(command.units) if unit.place in blamed)
    if not suspected:
        return ()
    (without,) = yield [command.question(command.machines[0], suspected)]
    if without.accepted is None or _is_same(refused, without):
        return ()
    return tuple(command.units[number] for number in sorted(suspected))


def _needed(
    command: QueryCommand, refused: EngineAnswer
) -> Generator[list[EngineQuestion], list[EngineAnswer], tuple[Unit, ...]]:
    """Return a minimal set of units that causes the refusal."""
    search = smallest(len(command.units))
    everything = frozenset(range(len(command.units)))
    machine = command.machines[0]
    try:
        sets: list[UnitSet] = next(search)
        while True:
            questions = [command.question(machine, everything - units) for units in sets]
            answers = yield questions
            sets = search.send([_is_same(refused, answer) for answer in answers])
    except StopIteration as end:
        found: UnitSet = end.value
    return tuple(command.units[number] for number in sorted(found))


def _is_same(refused: EngineAnswer, other: EngineAnswer) -> bool:
    """True if `other` is the same refusal: same kind, and same source line or parser message."""
    if other.accepted is not False or other.kind != refused.kind:
        return False
    if refused.kind == _PARSER or not refused.place:
        return other.why == refused.why
    return other.place == refused.place


def _single_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}\N{HORIZONTAL ELLIPSIS}"


def is_named_in(name: str, words: str) -> bool:
    """True if the engine's message `words` names the argument `name`.

    One-word names never match, because they may be prose.
    """
    if "_" not in name:
        return False
    text = words.lower().replace("--", " ").replace("-", "_")
    return re.search(rf"(?<![a-z0-9_]){re.escape(name.lower())}(?![a-z0-9_])", text) is not None


def _named(units: Sequence[Unit], refused: Sequence[Unit], words: str) -> tuple[Unit, ...]:
    """Return the units outside `refused` that the message `words` names."""
    return tuple(
        unit
        for unit in units
        if unit not in refused
        if is_named_in(unit.name, words)
        or is_named_in(unit.written.lstrip("-").replace("-", "_"), words)
    )


def _in_order(units: Sequence[Unit], words: str) -> tuple[Unit, ...]:
    """Return the units in the order of the engine's message, then those that it does not name."""
    text = words.lower().replace("-", "_")

    def position(unit: Unit) -> int:
        names = {unit.name.lower(), unit.written.lstrip("-").lower().replace("-", "_")}
        found = [at for name in names if (at := text.find(name)) >= 0]
        return min(found, default=len(text) + 1)

    return tuple(sorted(units, key=position))


UnitSet = frozenset[int]
"""Indices of the units that remain in a command."""
Search = Generator[list[UnitSet], list[bool], UnitSet]
"""Generator that yields lists of unit sets, receives True for each set that causes the original
refusal, and returns a minimal set."""
_MOST_ROUNDS = 12
"""Maximum number of batches, after which the current set is the result."""


def smallest(units: int) -> Search:
    """Return the search for a minimal refused set of a command's units. `units`: the unit count.

    The set is empty if the command is refused even without units. Two rounds usually suffice. The
    first tries each unit alone, and all units but one; the second, only the units that cannot be
    removed.
    """
    everything = frozenset(range(units))
    without = [everything - {unit} for unit in range(units)]
    alone = [frozenset({unit}) for unit in range(units)]
    answers = yield [frozenset(), *without, *alone]
    if answers[0]:
        return frozenset()
    needed = frozenset(unit for unit in range(units) if not answers[1 + unit])
    sufficient = list(compress(alone, answers[1 + units :]))
    if sufficient:
        return next((unit_set for unit_set in sufficient if unit_set <= needed), sufficient[0])
    if needed != everything:
        (is_enough,) = yield [needed]
        if is_enough:
            return (yield from _smaller(needed))
    return (yield from _smaller(everything))


def _smaller(units: UnitSet) -> Search:
    """Return a ddmin search (Zeller, Hildebrandt 2002) with one batch of complements per round."""
    left, parts = sorted(units), 2
    for _ in range(_MOST_ROUNDS):
        if len(left) < 3:  # a single unit needs no search; of two, each was already tried alone
            break
        parts = min(parts, len(left))
        complements = [frozenset(left).difference(part) for part in _divided(left, parts)]
        answers = yield complements
        found = next(compress(complements, answers), None)
        if found is not None:
            left, parts = sorted(found), max(parts - 1, 2)
        elif parts == len(left):
            break
        else:
            parts *= 2
    return frozenset(left)


def _divided(units: Sequence[int], parts: int) -> Iterable[Sequence[int]]:
    size, more = divmod(len(units), parts)
    start = 0
    for number in range(parts):
        end = start + size + (number < more)
        yield units[start:end]
        start = end


_SECONDS = 240.0
"""Base time limit of a batch in seconds; each question adds `_SECONDS_EACH`."""
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
    """None if the engine cannot be queried, for the reason in `why`."""
    why: str = ""
    blamed: Collection[Place] = ()
    """Places of speclaunch's own errors; no search follows a refusal that they explain."""


class _NotStored(Exception):
    """The answer to a question is not stored."""


class EngineQuerier(Struct):
    """Querier of judges in the mode of `--ask`; `find` returns the judge of a release."""

    mode: EngineCheckMode
    verdicts: Verdicts | None
    find: FindJudge
    _loaded: set[str] = set()
    _found: dict[tuple[str, Path | None], EngineJudge | None] = {}

    def judge(self, version: str, python: Path | None = None) -> EngineJudge | None:
        """Return the judge of exactly `version`, preferably that of `python`, or None.

        If the mode is `always`, raise NoJudgeError instead of returning None.
        """
        if self.mode is EngineCheckMode.NEVER:
            return None
        key = version, python
        if key not in self._found:
            tried = (python, None) if python is not None else (None,)
            found = (self.find(version, interpreter) for interpreter in tried)
            fitting = (  # a fork's name differs from the version of its catalogue
                judge
                for judge in found
                if judge is not None and (judge.release == version or MARK in version)
            )
            self._found[key] = next(fitting, None)
        judge = self._found[key]
        if judge is None and self.mode is EngineCheckMode.ALWAYS:
            raise NoJudgeError(
                f"--ask always: no judge for SGLang {version} is available",
                help=f"run `speclaunch engine judge add {version}`",
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
        """Return the expected seconds of a query: last measured, else a typical loading time."""
        known = None if self.verdicts is None else self.verdicts.seconds(query.judge.digest)
        return _LOADING_SECONDS if known is None else known

    def opinion_on(self, query: PlanQuery) -> Opinion:
        """Return the opinion; query the judge only for answers that are not stored."""
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
        """Query the judge; store the duration of its first query, most of which is loading."""
        began = time.monotonic()
        answers = judge.ask(questions, seconds=_SECONDS + _SECONDS_EACH * len(questions))
        if judge.digest not in self._loaded:
            self._loaded.add(judge.digest)
            if self.verdicts is not None and any(answer.accepted is not None for answer in answers):
                self.verdicts.took(judge.digest, time.monotonic() - began)
        return answers


def _nobody(_judge: EngineJudge, _questions: Sequence[EngineQuestion]) -> list[EngineAnswer]:
    raise _NotStored


SWITCH = "SPECLAUNCH_NO_CACHE"
"""Environment variable that disables the cache, whatever its value (as in checks/lint/cache.py)."""
FOLDER = "verdicts"
_FORMAT = 3
_MOST_BYTES = 1 << 17
"""Maximum bytes of an entry; larger entries are not cached."""
_MOST_IN_FOLDER, _MOST_BYTES_IN_FOLDER = 100, 512 << 10
"""Maximum entries and bytes in each of the 256 folders: 25,600 entries and 128 MiB in total."""
_BROKEN = (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""Errors raised by reading a damaged entry."""


class Verdicts:
    """Stored answers of all releases.

    An entry that is damaged or owned by another user counts as missing. Failed writes are ignored.
    """

    def __init__(self, folder: Path) -> None:
        self._files = EntryFiles(str(folder), _MOST_BYTES, _MOST_IN_FOLDER, _MOST_BYTES_IN_FOLDER)

    def get(self, name: str) -> EngineAnswer | None:
        with contextlib.suppress(*_BROKEN):
            text = self._files.get(name)
            found = None if text is None else convert(json.loads(text), EngineAnswer)
            return found if found is not None and found.accepted is not None else None
        return None

    def put(self, name: str, answer: EngineAnswer) -> None:
        """Store an answer if it has a verdict. Without one, a later query may succeed."""
        if answer.accepted is not None:
            with contextlib.suppress(TypeError, ValueError, RecursionError):
                text = json.dumps(json_value(answer), separators=(",", ":"))
                self._files.put(name, text.encode())

    def seconds(self, judge: str) -> float | None:
        """Return the seconds that a judge (by digest) took to load and answer; None if unknown."""
        with contextlib.suppress(*_BROKEN):
            text = self._files.get(_seconds_name(judge))
            return None if text is None else float(text)
        return None

    def took(self, judge: str, seconds: float) -> None:
        self._files.put(_seconds_name(judge), f"{seconds:.3f}".encode())


def opened(*, enabled: bool = True) -> Verdicts | None:
    """Return the stored verdicts in speclaunch's home; None if the cache is disabled."""
    if not enabled or os.environ.get(SWITCH):
        return None
    return Verdicts(speclaunch_home() / FOLDER)


def name_of(judge: str, question: EngineQuestion, seen: Sequence[str]) -> str:
    """Return an answer's cache key. `judge`: a judge's digest; `seen`: as in `QueryCommand`."""
    folder = str(question.folder) if seen else ""  # no path is read
    parts = [_FORMAT, judge, json_value(replace(question, folder=None)), folder, list(seen)]
    return digest(json.dumps(parts).encode("utf-8", "surrogateescape"))


def _seconds_name(judge: str) -> str:
    return digest(f"seconds {judge}".encode())


_OTHERWISE = frozenset({"enable_dp_attention", "model_path", "tokenizer_path", "config"})
"""Arguments not compared, because the engine changes them: paths and `enable_dp_attention`. From
0.5.22 the engine turns the latter into `attn_dp_size` (parallel_hook.py:60). It reports
`enable_dp_attention` if `attn_dp_size` is above 1 (0.5.23 server_args.py:332)."""

_LATER = "auto"
"""Value that, like None, validation leaves to the model runner (`dtype`)."""


class Contradiction(Struct, frozen=True):
    """Value on which speclaunch and the engine disagree: a speclaunch bug."""

    name: str
    ours: Any
    engine: Any
    report: str


class ResolvedPlan(Struct, frozen=True):
    """Plan in which the engine's own values replace unknown and contradicted values."""

    plan: Plan
    filled: tuple[str, ...] = ()
    """Arguments whose values were unknown before."""
    contradictions: tuple[Contradiction, ...] = ()


def engine_source(release: str) -> str:
    """Return the source of values that come from an engine check."""
    return f"engine check of SGLang {release}"


def with_engine_values(plan: Plan, opinion: Opinion) -> ResolvedPlan:
    """Return a plan with the engine's resolved values; unchanged if there are none."""
    reported = {
        canonical(name): value
        for name, value in opinion.resolved.items()
        if value is not None and value != _LATER
    }
    if not opinion.accepted or not reported:
        return ResolvedPlan(plan)
    filled = {name: reported[name] for name in plan.undecided if name in reported}
    reason = Reason("the engine's own answer", engine_source(opinion.release))
    hardware = "unknown hardware" if plan.facts.hardware is None else plan.facts.hardware.name
    contradictions: list[Contradiction] = []
    for name, ours in sorted(_claims(plan).items()):
        if name in reported and not _agree(ours, engine := reported[name]):
            what = f"resolves {engine!r}, speclaunch {ours!r}"
            report = f"{name}: SGLang {opinion.release} on {hardware} {what}"
            contradictions.append(Contradiction(name, ours, engine, report))
    wrong = {contradiction.name: contradiction.engine for contradiction in contradictions}
    if not filled and not wrong:
        return ResolvedPlan(plan)
    new = filled | wrong
    changed = replace(
        plan,
        resolved={**plan.resolved, **new},
        undecided={name: why for name, why in plan.undecided.items() if name not in filled},
        changes=tuple(change for change in plan.changes if change.name not in wrong),
        reasons={**plan.reasons, **dict.fromkeys(new, reason)},
    )
    return ResolvedPlan(changed, tuple(sorted(filled)), tuple(contradictions))


def _claims(plan: Plan) -> dict[str, Any]:
    """Return the plan's explicit and resolved values; other defaults may be unresolved."""
    found: dict[str, Any] = {}
    for name in sorted({*plan.resolved, *plan.request.values} - _OTHERWISE):
        if name in STAND_INS or is_secret_argument(name):
            continue
        try:
            found[name] = plan.value(name)
        except UnknownValueError:
            continue
    return found


def _agree(ours: Any, engine: Any) -> bool:
    """True if two values are equal, or cannot be compared."""
    if ours is None:
        return True  # resolution leaves it open
    if isinstance(ours, bool) or isinstance(engine, bool):
        return ours is engine or str(ours).casefold() == str(engine).casefold()
    if isinstance(ours, int | float) and isinstance(engine, int | float):
        return math.isclose(ours, engine, rel_tol=1e-6, abs_tol=1e-9)
    if isinstance(ours, list | tuple) and isinstance(engine, list | tuple):
        return len(ours) == len(engine) and all(map(_agree, ours, engine))
    if isinstance(ours, Mapping | list | tuple) or isinstance(engine, Mapping | list | tuple):
        return True  # a text that is parsed into a record: the values are not comparable
    return str(ours).casefold() == str(engine).casefold()
