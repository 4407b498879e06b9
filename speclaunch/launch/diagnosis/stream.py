"""Follows the lines of one engine: milestones, errors, and what they are about."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from packaging.version import Version

from speclaunch.launch.diagnosis.causes import CATALOGUE
from speclaunch.launch.diagnosis.causes.oom import allocation
from speclaunch.launch.diagnosis.interface import Cause, Milestone
from speclaunch.launch.diagnosis.launch_log import LaunchLog, Suspect
from speclaunch.launch.diagnosis.line_prefilter import (
    RETRACTED,
    WARNED,
    is_batch,
    may_be_logged,
    may_be_message,
    may_be_printed,
)
from speclaunch.launch.diagnosis.milestone_text import milestone_text
from speclaunch.launch.diagnosis.release_wording import Wording, on_cpu, settings
from speclaunch.launch.diagnosis.signature import Known, Level, LogFailure, Signature, Where
from speclaunch.launch.diagnosis.tracebacks import BEGIN, Tracebacks, lone
from speclaunch.launch.log.lines import LogLine
from speclaunch.launch.log.marks import AFTERMATH, CONSEQUENCES, PHASES, LogMark, Phase, mark_of
from speclaunch.rules.messages import rule_of

_AFTERMATH_KINDS = CONSEQUENCES | {
    "SystemExit", "ConnectionRefusedError", "ConnectionAbortedError", "GracefulExit",
    "ChildProcessError", "ContextTerminated", "ActorDiedError", "RayActorError",
    "WorkerCrashedError", "ProcessLookupError", "DeprecationWarning", "UserWarning",
    "FutureWarning", "RuntimeWarning", "ResourceWarning", "Warning",
}  # fmt: skip
_START_WARNING = re.compile(r"\S{0,300}launch_server\.py:\d{1,6}: UserWarning: 'python -m sglang")
_START_USAGE = re.compile(r"usage: (?:sglang serve|launch_server\.py|python3? -m sglang)")
_TIME = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")
_OURS = re.compile(r"(?:^|/)(?:sglang|sgl_kernel)/")
_OUR_PROGRAM = re.compile(r"(?:sglang serve|launch_server\.py|sglang[\w. -]{0,40}): error: ")
_OUR_WORDS = re.compile(
    # within a message that a signature knows: nobody else says so
    r"--mem-fraction-static|--max-running-requests|--cuda-graph-max-bs|peculative|SGLANG_|EAGLE"
    r"|Capture cuda graph failed|scheduler died during initialization|alloc_req_slots"
    r"|lower your batch size"
)
_FATAL = ("Initialization failed", "Watchdog timeout", "Subprocess ")
_ENDS = ("Received sigquit from a child", "SIGQUIT received. signum=")
_MOST_LONE = 1000
_MOST_NOTES = 20
_MOST_MILESTONES = 200

_SIGNATURES = {
    where: [(known, one) for known in CATALOGUE for one in known.signatures if one.where is where]
    for where in Where
}


class Stream:
    """The log of one engine. Feed it lines in order; `launch` is its last start."""

    def __init__(self) -> None:
        self.launch = LaunchLog()
        self.launches = 0
        self.earlier: LaunchLog | None = None
        """The last start before it that failed."""
        self.ours = False
        """Something shows that this is SGLang."""
        self._known = Wording()
        self._tracebacks = Tracebacks(self._failure, self._raised)
        self._before = ""
        """The line before, where it has a header: `logger.exception` puts its text there."""

    def know(self, version: Version) -> None:
        """The engine's version is known, and its wording need not tell."""
        self._known = Wording(version, version)
        self.launch.wording = Wording(version, version)

    def feed(self, line: LogLine) -> None:
        """Take in one line."""
        text = line.text
        before, self._before = self._before, ""
        if line.stamped:
            self._tracebacks.interrupt()
            self._before = text
            self._logged(line, text)
        elif _OUR_PROGRAM.match(text) is None and self._tracebacks.feed(line, text):
            return
        elif text.startswith(BEGIN):
            self._tracebacks.begin(line, before)
        elif may_be_logged(text):
            self._logged(line, text)
        elif may_be_printed(text):
            self._printed(line, text)
        elif text[:1].isalpha() and ": " in text[:200]:
            self._lone_exception(line, text)

    def end(self) -> None:
        """No more lines."""
        self._tracebacks.end()

    # what the engine logs

    def _logged(self, line: LogLine, text: str) -> None:
        if is_batch(text):
            self.ours = True
            self.launch.take(LogMark.BATCH, line.rank, line.number)
            return
        marked = mark_of(text)
        if marked is not None:
            self._mark(*marked, line)
        if may_be_message(text):
            self._message(line, text)
        if text.endswith(BEGIN):
            head = text[: -len(BEGIN)]
            self.launch.see_time(line.rank, _time(line))
            self.ours = self.ours or head.endswith(" hit an exception: ")
            self._tracebacks.begin(line, head)

    def _mark(self, mark: LogMark, found: re.Match[str], line: LogLine) -> None:
        ends = line.text.startswith(_ENDS)
        self.ours = self.ours or ends or mark not in (LogMark.SERVING, LogMark.STOP, LogMark.DEATH)
        if mark is LogMark.ARGUMENTS:
            self._tracebacks.flush()
            if self.launch.begun or self.launch.suspects:
                self._begin()
            self.launches = max(self.launches, 1)
            self.launch.settings = settings(line.text)
            self.launch.cpu = on_cpu(line.text)
        launch = self.launch
        launch.take(mark, line.rank, line.number, _time(line))
        launch.wording.hear(line.text)
        if ends:
            end = self._failure(line, "", line.text)
            launch.suspect(Suspect(end, Level.END, None, fatal=True))
        if mark in (LogMark.STOP, LogMark.DEATH) or len(launch.milestones) >= _MOST_MILESTONES:
            return
        if not re.search(r"[1-9]", line.rank):  # the first of several ranks speaks for all
            course = launch.course(line.rank)
            words, numbers = milestone_text(mark, found, course.loads)
            if words:
                phase = PHASES.get(mark, course.phase)
                launch.milestones.append(Milestone(phase, words, line.number, numbers))

    def _begin(self) -> None:
        if self.launch.verdict() is not None or self.launch.survived:
            self.earlier = self.launch
        unended = self.launch.begun and not self.launch.ended
        self.launch = LaunchLog(wording=replace(self._known), unended=unended)
        self.launches = max(self.launches, 1) + 1

    def _message(self, line: LogLine, text: str) -> None:
        launch = self.launch
        retracted = RETRACTED.match(text)
        if retracted is not None:
            self.ours = True
            launch.retracted += int(retracted["number"])
        elif WARNED.match(text) and len(launch.notes) < _MOST_NOTES:
            note = text.split("\n", maxsplit=1)[0][:300]
            if note not in launch.notes:
                launch.notes.append(note)
        if not launch.full:
            self._ask(Where.MESSAGE, self._failure(line, "", text))

    # what is printed without the engine's header

    def _printed(self, line: LogLine, text: str) -> None:
        if _START_WARNING.match(text) or _START_USAGE.match(text):
            self.ours = True
            launch = self.launch
            if launch.dead or launch.suspects or launch.stopped or launch.served:
                self._begin()
            if not text.startswith("usage: "):
                return
        self.ours = self.ours or _OUR_PROGRAM.search(text[:300]) is not None
        if not self.launch.full:
            self._ask(Where.OUTPUT, self._failure(line, "", text))

    def _lone_exception(self, line: LogLine, text: str) -> None:
        found = None if self.launch.full else lone(text)
        if found is None or self.launch.lone >= _MOST_LONE:
            return
        self.launch.lone += 1
        self._raised(self._failure(line, *found), False)

    def _raised(self, failure: LogFailure, final: bool) -> None:
        self.ours = self.ours or any(_OURS.search(frame.path) for frame in failure.frames)
        if failure.kind in _AFTERMATH_KINDS or AFTERMATH.match(failure.message):
            return
        if failure.through_arguments and self.launch.dead:
            self._begin()
            failure = self._placed(failure)
        if self.launch.full or self._ask(Where.EXCEPTION, failure, final=final):
            return
        if failure.head.startswith("Initialization failed. warmup"):
            return  # its own cause says it
        if final or failure.frames:  # else a line of unknown origin that looks like an exception
            fatal = final and failure.ends_process
            self.launch.suspect(Suspect(failure, Level.UNKNOWN, None, final=final, fatal=fatal))

    def _ask(self, where: Where, failure: LogFailure, *, final: bool = True) -> bool:
        """Whether a signature knows the error; it is then a suspect."""
        match = _first_match(where, failure)
        if match is None:
            return False
        if where is Where.EXCEPTION:
            said = _OUR_WORDS.search(failure.message[:500])
            self.ours = self.ours or said is not None
        self.launch.suspect(_suspect(where, failure, match, final=final))
        return True

    def _failure(self, line: LogLine, kind: str, message: str) -> LogFailure:
        return self._placed(
            LogFailure(
                number=line.number,
                raw=line.raw.rstrip("\r\n"),
                kind=kind,
                message=message,
                rank=line.rank,
                cpu=self.launch.cpu,
                draft_in_pool=self.launch.wording.draft_in_pool,
            )
        )

    def _placed(self, failure: LogFailure) -> LogFailure:
        course = self.launch.best_course(failure.rank)
        return replace(
            failure,
            phase=Phase.READY if self.launch.served else course.phase,
            served=self.launch.served,
            last=course.last,
            loads=course.loads,
            pooled_before_load=course.pooled_before_load,
        )


def _time(line: LogLine) -> str:
    found = _TIME.search(line.raw[:500]) if line.stamped else None
    return found[1] if found is not None else ""


def possible_causes(suspect: Suspect) -> list[Cause]:
    """The causes of an error if its milestones are of other processes, most likely first."""
    found = {}
    for failure in _circumstances(suspect.failure):
        match = _first_match(suspect.where, failure)
        if match is not None:
            found[match[0].cause.name] = match[0].cause
    return list(found.values())


_STAGES: tuple[tuple[Phase, LogMark | None, int, bool], ...] = (
    (Phase.SCHEDULER, LogMark.BASELINE, 0, False),
    (Phase.WEIGHTS, LogMark.LOAD_BEGIN, 1, False),
    (Phase.DRAFT_WEIGHTS, LogMark.LOAD_BEGIN, 2, True),
    (Phase.DRAFT_WEIGHTS, LogMark.LOAD_END, 2, False),
    (Phase.GRAPHS, LogMark.CAPTURE_BEGIN, 2, False),
    (Phase.READY, LogMark.BATCH, 2, False),
)
"""Phase, last milestone, loads of weights, and whether a pool came before the last load."""


def _circumstances(failure: LogFailure) -> Iterator[LogFailure]:
    """The same error at every stage of a start, beginning with its own."""
    yield failure
    for cpu in (failure.cpu, not failure.cpu):
        for phase, last, loads, pooled in _STAGES:
            yield replace(
                failure,
                phase=phase,
                last=last,
                loads=loads,
                pooled_before_load=pooled,
                served=phase is Phase.READY,
                cpu=cpu,
            )


_Match = tuple[Known, Signature, re.Match[str]]


def _first_match(where: Where, failure: LogFailure) -> _Match | None:
    """The first signature that knows the error."""
    for known, one in _SIGNATURES[where]:
        found = one.pattern.match(failure.message)
        if found is not None and (one.when is None or one.when(failure)):
            return known, one, found
    return None


def _is_fatal(where: Where, failure: LogFailure, level: Level) -> bool:
    """True if nothing survives it, by what the engine prints around it."""
    match where:
        case Where.EXCEPTION:
            return failure.ends_process
        case Where.MESSAGE:
            return failure.message.startswith(_FATAL)
        case Where.OUTPUT:
            return level is Level.CAUSE


def _suspect(where: Where, failure: LogFailure, match: _Match, *, final: bool) -> Suspect:
    known, one, found = match
    numbers: dict[str, float] = {}
    for name, value in found.groupdict().items():
        try:
            numbers[name] = float(value)
        except (TypeError, ValueError):  # a group that is not there, or a name
            continue
    numbers |= allocation(failure.message)
    foretold = rule_of(failure.message) if one.rule is None else None
    rule = one.rule if foretold is None else foretold.code
    fatal = final and _is_fatal(where, failure, one.level)
    return Suspect(failure, one.level, known.cause, rule, numbers, final, fatal, where=where)
