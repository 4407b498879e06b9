"""Diagnosis of an engine from its output."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from msgspec.structs import replace
from packaging.version import Version

from speclaunch.checks import rule_of
from speclaunch.engine import resolve_version
from speclaunch.serving.launch.diagnosis.causes import BY_NAME, CATALOGUE
from speclaunch.serving.launch.diagnosis.causes.memory import allocation
from speclaunch.serving.launch.diagnosis.interface import (
    Cause,
    CauseCandidate,
    Diagnosis,
    FailureLevel,
    KnownCause,
    LogFailure,
    Milestone,
    Signature,
    Where,
)
from speclaunch.serving.launch.diagnosis.launch_log import (
    RETRACTED,
    WARNED,
    LaunchLog,
    Suspect,
    Wording,
    is_batch,
    logged_arguments,
    may_be_logged,
    may_be_message,
    may_be_printed,
    on_cpu,
    settings,
)
from speclaunch.serving.launch.diagnosis.tracebacks import BEGIN, Tracebacks, lone
from speclaunch.serving.launch.engine_log import (
    AFTERMATH,
    CONSEQUENCES,
    PHASES,
    LogLine,
    LogMark,
    Phase,
    mark_of,
    read,
)


def milestone_text(
    mark: LogMark, found: re.Match[str], loads: int
) -> tuple[str, Mapping[str, float]]:
    """Return a milestone's text for users (empty if there is none), and its figures."""
    groups = found.groupdict()
    numbers = {n: value for n, value in _figures(found).items() if n not in ("type", "what")}
    whose = "target" if loads < 2 else "draft"
    what = " ".join((groups.get("what") or "").lower().split())
    graphs = f" ({what})" if what else ""
    text = ""
    match mark:
        case LogMark.ARGUMENTS:
            text = "arguments accepted"
        case LogMark.LOAD_BEGIN:
            text = f"loading the {whose}'s weights{_gb(numbers, 'avail_gb', 'free')}"
        case LogMark.LOAD_END:
            size = _gb(numbers, "used_gb", "taken")
            text = f"{whose}'s weights loaded: {groups['type']}{size}"
        case LogMark.POOL:
            text = f"KV cache allocated: {int(numbers['tokens']):,} tokens"
        case LogMark.POOL_END:
            text = f"pool complete{_gb(numbers, 'avail_gb', 'free')}"
        case LogMark.CAPTURE_BEGIN:
            text = f"capturing graphs{graphs}{_gb(numbers, 'avail_gb', 'free')}"
        case LogMark.CAPTURE_END:
            text = f"graphs captured{graphs}{_gb(numbers, 'used_gb', 'taken')}"
        case LogMark.SUMMARY:
            text = (
                f"scheduler ready: {int(numbers['tokens']):,} tokens, {int(numbers['requests'])} "
                "concurrent requests"
            )
        case LogMark.READY:
            text = "ready"
    return text, numbers


def _gb(numbers: Mapping[str, float], name: str, word: str) -> str:
    shown = name in numbers and numbers[name] >= 0.005  # tiny models: "-0.00 GB"
    return f", {numbers[name]:.2f} GB {word}" if shown else ""


def _figures(found: re.Match[str]) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for name, value in found.groupdict().items():
        with suppress(TypeError, ValueError):  # a missing group, or a name
            numbers[name] = float(value)
    return numbers


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
_OUR_TEXTS = re.compile(
    # within a message that a signature matches: only SGLang prints these
    r"--mem-fraction-static|--max-running-requests|--cuda-graph-max-bs|peculative|SGLANG_|EAGLE"
    r"|Capture cuda graph failed|scheduler died during initialization|alloc_req_slots"
    r"|lower your batch size"
)
_FATAL = ("Initialization failed", "Watchdog timeout", "Subprocess ")
_ENDS = ("Received sigquit from a child", "SIGQUIT received. signum=")
_MAX_LONE = 1000
_MAX_NOTES = 20
_MAX_MILESTONES = 200

_SIGNATURES = {
    where: [
        (known, signature)
        for known in CATALOGUE
        for signature in known.signatures
        if signature.where is where
    ]
    for where in Where
}


class Stream:
    """Log of one engine, read line by line; `launch` is its last start."""

    def __init__(self) -> None:
        self.launch = LaunchLog()
        self.launches = 0
        self.earlier: LaunchLog | None = None
        """Last failed start before `launch`; None if there is none."""
        self.ours = False
        """True once a line has proved that this is an SGLang log."""
        self._known = Wording()
        self._tracebacks = Tracebacks(self._failure, self._raised)
        self._before = ""
        """Previous line if it has a header, otherwise empty. It may be the message of
        `logger.exception`."""

    def know(self, version: Version) -> None:
        """Set the engine's version, which is otherwise derived from the wording of the log."""
        self._known = Wording(version, version)
        self.launch.wording = Wording(version, version)

    def feed(self, line: LogLine) -> None:
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
        self._tracebacks.end()

    # logged by the engine

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
            self.launch.arguments = line.text
            self.launch.cpu = on_cpu(line.text)
        launch = self.launch
        launch.take(mark, line.rank, line.number, _time(line))
        launch.wording.read(line.text)
        if ends:
            end = self._failure(line, "", line.text)
            launch.suspect(Suspect(end, FailureLevel.END, None, fatal=True))
        if mark in (LogMark.STOP, LogMark.DEATH) or len(launch.milestones) >= _MAX_MILESTONES:
            return
        if not re.search(r"[1-9]", line.rank):  # the first of several ranks represents all
            course = launch.course(line.rank)
            text, numbers = milestone_text(mark, found, course.loads)
            if text:
                phase = PHASES.get(mark, course.phase)
                launch.milestones.append(Milestone(phase, text, line.number, numbers))

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
        elif WARNED.match(text) and len(launch.notes) < _MAX_NOTES:
            note = text.split("\n", maxsplit=1)[0][:300]
            if note not in launch.notes:
                launch.notes.append(note)
        if not launch.full:
            self._match(Where.MESSAGE, self._failure(line, "", text))

    # printed without the engine's header

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
            self._match(Where.OUTPUT, self._failure(line, "", text))

    def _lone_exception(self, line: LogLine, text: str) -> None:
        found = None if self.launch.full else lone(text)
        if found is None or self.launch.lone >= _MAX_LONE:
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
        if self.launch.full or self._match(Where.EXCEPTION, failure, final=final):
            return
        if failure.head.startswith("Initialization failed. warmup"):
            return  # its own cause reports it
        if final or failure.frames:  # else a line of unknown origin that looks like an exception
            fatal = final and failure.ends_process
            self.launch.suspect(
                Suspect(failure, FailureLevel.UNKNOWN, None, final=final, fatal=fatal)
            )

    def _match(self, where: Where, failure: LogFailure, *, final: bool = True) -> bool:
        """Record the error as a suspect if a signature matches it; return True if one does."""
        match = _first_match(where, failure)
        if match is None:
            return False
        if where is Where.EXCEPTION:
            found = _OUR_TEXTS.search(failure.message[:500])
            self.ours = self.ours or found is not None
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
    """Return the possible causes, most likely first, of an error whose milestones may belong to
    other processes."""
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
"""Stages of a start. Each has its phase, its last milestone, its number of weight loads, and True
if a pool was allocated before the last load."""


def _circumstances(failure: LogFailure) -> Iterator[LogFailure]:
    """Yield the error as logged, then copies placed in each stage of a GPU and a CPU start."""
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


_Match = tuple[KnownCause, Signature, re.Match[str]]


def _first_match(where: Where, failure: LogFailure) -> _Match | None:
    for known, signature in _SIGNATURES[where]:
        found = signature.pattern.match(failure.message)
        if found is not None and (signature.when is None or signature.when(failure)):
            return known, signature, found
    return None


def _is_fatal(where: Where, failure: LogFailure, level: FailureLevel) -> bool:
    """True if the surrounding output shows that nothing catches the error."""
    match where:
        case Where.EXCEPTION:
            return failure.ends_process
        case Where.MESSAGE:
            return failure.message.startswith(_FATAL)
        case Where.OUTPUT:
            return level is FailureLevel.CAUSE


def _suspect(where: Where, failure: LogFailure, match: _Match, *, final: bool) -> Suspect:
    known, signature, found = match
    numbers = _figures(found) | allocation(failure.message)
    matching_rule = rule_of(failure.message) if signature.rule is None else None
    rule = signature.rule if matching_rule is None else matching_rule.code
    fatal = final and _is_fatal(where, failure, signature.level)
    return Suspect(failure, signature.level, known.cause, rule, numbers, final, fatal, where=where)


_MAX_STREAMS = 500
_KILLED = (-9, 137)
_CONTINUED = "an engine continued after it"
_MIXED = "lines of several processes are in this log"
_EARLIER = "it ended an earlier start in this log"


def diagnose(
    lines: Iterable[str], *, version: str | None = None, exit_code: int | None = None
) -> Diagnosis:
    """Return the progress of an engine and the cause of its end.

    `lines` is a log of any length and origin, read once and in order. `version` is the engine's,
    if known; otherwise it is derived from the log's wording. `exit_code` is the engine's, negative
    for a signal. Passing `exit_code` also states that no other engine wrote to the log.
    """
    streams: dict[str, Stream] = {}
    latest = ""
    for line in read(lines):
        stream = streams.get(line.source)
        if stream is None:
            if len(streams) >= _MAX_STREAMS:
                continue
            stream = streams[line.source] = Stream()
            if version is not None:
                stream.know(Version(resolve_version(version).held))
        if line.source:
            latest = line.source
        stream.feed(line)
    for stream in streams.values():
        stream.end()
    return _diagnosis(_chosen(streams, latest), version, exit_code)


def proof(diagnosis: Diagnosis) -> str | None:
    """Return the log line that proves the cause, without prefixes of log collectors or the engine;
    None if no line does."""
    if diagnosis.line is None:
        return None
    return next((line.text for line in read([diagnosis.line]) if line.text), diagnosis.line)


def _chosen(streams: dict[str, Stream], latest: str) -> Stream:
    """Return the engine log to report: the first with a fatal error; if none, the first with an
    error; if none, the log with the last line."""
    ours = {name: stream for name, stream in streams.items() if stream.ours}
    failed = [
        (not verdict.fatal, verdict.failure.number, stream)
        for stream in ours.values()
        if (verdict := stream.launch.verdict()) is not None
    ]
    if failed:
        return min(failed, key=lambda found: found[:2])[2]
    if latest in ours:
        return ours[latest]
    return next(iter(ours.values()), None) or next(iter(streams.values()), None) or Stream()


def _diagnosis(stream: Stream, version: str | None, exit_code: int | None) -> Diagnosis:
    launch = stream.launch
    suspect = launch.verdict() if stream.ours else None
    cause = suspect.cause if suspect is not None else _by_exit(launch, exit_code)
    unclear = False
    candidates: tuple[CauseCandidate, ...] = ()
    if stream.ours:
        unclear, candidates = _doubts(stream, suspect, alone=exit_code is not None)
    if unclear:
        cause = None
    notes = list(launch.notes)
    if launch.retracted:
        notes.append(f"the KV pool was full: {launch.retracted:,} requests were retracted")
    return Diagnosis(
        phase=suspect.failure.phase if suspect is not None else launch.phase,
        served=launch.served,
        cause=cause,
        line=_line(suspect),
        line_number=suspect.failure.number if suspect is not None else None,
        numbers=suspect.numbers if suspect is not None else {},
        version=version or launch.wording.newest,
        engine=stream.ours,
        stopped=launch.stopped,
        launches=max(stream.launches, 1),
        milestones=tuple(launch.milestones),
        settings=dict(launch.settings),
        arguments=logged_arguments(launch.arguments),
        cpu=launch.cpu,
        rule=suspect.rule if suspect is not None and not unclear else None,
        rank=(suspect.failure.rank or None) if suspect is not None else None,
        notes=tuple(notes),
        unclear=unclear,
        candidates=candidates,
    )


def _doubts(
    stream: Stream, verdict: Suspect | None, *, alone: bool
) -> tuple[bool, tuple[CauseCandidate, ...]]:
    """Return True if the log does not prove a cause, together with the possible causes.

    `alone`: True if only one engine writes to the log, whatever its lines look like.
    """
    launch = stream.launch
    mixed = launch.mixed and not alone
    earlier = stream.earlier.verdict() if stream.earlier is not None else None
    found: list[CauseCandidate] = []
    outlived = False
    if verdict is not None:
        outlived = verdict.fatal and launch.outlived(verdict)
        found += _candidates(verdict, _CONTINUED if outlived else _MIXED, mixed)
    for rival in launch.rivals(verdict):
        found += _candidates(rival, _MIXED if rival.fatal else _CONTINUED, mixed)
    if earlier is not None and (verdict is None or verdict.level is FailureLevel.END or mixed):
        found += _candidates(earlier, _EARLIER, mixed)
    distinct = {suspect.cause.name: suspect for suspect in reversed(found)}
    candidates = tuple(reversed(distinct.values()))
    if verdict is None:
        # tracebacks, or parts of them: only a later sign of life contradicts these
        lasting = [
            suspect
            for suspect in launch.survived.values()
            if suspect.final or (suspect.where is Where.EXCEPTION and not suspect.failure.frames)
        ]
        doubtful = earlier is not None or bool(lasting)
        return bool(found) and doubtful and (mixed or not launch.served), candidates
    if not outlived and all(candidate.cause is verdict.cause for candidate in candidates):
        return False, ()
    return bool(candidates), candidates


def _candidates(suspect: Suspect, reason: str, mixed: bool) -> list[CauseCandidate]:
    """Return the possible causes of an error; several if `mixed` (its milestones may belong to
    other processes)."""
    varied = mixed or (suspect.cause is None and suspect.failure.through_arguments)
    causes = possible_causes(suspect) if varied else [suspect.cause]
    failure = suspect.failure
    return [CauseCandidate(cause, failure.raw, failure.number, reason) for cause in causes if cause]


def _line(suspect: Suspect | None) -> str | None:
    if suspect is None:
        return None
    failure = suspect.failure
    if not failure.message and failure.code:  # `AssertionError` alone: its assertion
        place = failure.frames[-1].file if failure.frames else ""
        return f"{failure.raw}: {failure.code}" + (f" ({place})" if place else "")
    return failure.raw


def _by_exit(launch: LaunchLog, exit_code: int | None) -> Cause | None:
    """Return the cause that an exit code implies if the log shows no cause; None if unknown."""
    if exit_code in _KILLED and not launch.stopped:
        if launch.cpu and launch.phase is Phase.KV_POOL and not launch.served:
            return BY_NAME["killed-filling-pool"]
        return BY_NAME["process-killed" if launch.served else "killed-while-starting"]
    return None
