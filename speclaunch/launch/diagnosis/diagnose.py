"""Engine output in, diagnosis out."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.version import Version

from speclaunch.engine.catalogue import resolve_version
from speclaunch.launch.diagnosis.causes import BY_NAME
from speclaunch.launch.diagnosis.interface import Candidate, Cause, Diagnosis
from speclaunch.launch.diagnosis.launch_log import LaunchLog, Suspect
from speclaunch.launch.diagnosis.signature import Level, Where
from speclaunch.launch.diagnosis.stream import Stream, possible_causes
from speclaunch.launch.log.lines import read
from speclaunch.launch.log.marks import Phase

_MOST_STREAMS = 500
_KILLED = (-9, 137)
_CONTINUED = "an engine continued after it"
_MIXED = "lines of several processes are in this log"
_EARLIER = "it ended an earlier start in this log"


def diagnose(
    lines: Iterable[str], *, version: str | None = None, exit_code: int | None = None
) -> Diagnosis:
    """Say how far an engine came and what it died of.

    `lines` may be of any length and origin, and are read once, in order. `version` is the engine's
    where it is known; else its wording tells. `exit_code` is the engine's, negative for a signal;
    who knows it also knows that no other engine wrote to the log.
    """
    streams: dict[str, Stream] = {}
    latest = ""
    for line in read(lines):
        stream = streams.get(line.source)
        if stream is None:
            if len(streams) >= _MOST_STREAMS:
                continue
            stream = streams[line.source] = Stream()
            _know(stream, version)
        if line.source:
            latest = line.source
        stream.feed(line)
    for stream in streams.values():
        stream.end()
    return _told(_chosen(streams, latest), version, exit_code)


def proof(diagnosis: Diagnosis) -> str | None:
    """The line that proves it, without what collectors and the engine put in front."""
    if diagnosis.line is None:
        return None
    return next((line.text for line in read([diagnosis.line]) if line.text), diagnosis.line)


def _know(stream: Stream, version: str | None) -> None:
    if version is not None:
        stream.know(Version(resolve_version(version).held))


def _chosen(streams: dict[str, Stream], latest: str) -> Stream:
    """The engine to report: the first with a fatal error, else the first with an error, else the
    one with the last line."""
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


def _told(stream: Stream, version: str | None, exit_code: int | None) -> Diagnosis:
    launch = stream.launch
    suspect = launch.verdict() if stream.ours else None
    cause = suspect.cause if suspect is not None else _by_exit(launch, exit_code)
    unclear = False
    candidates: tuple[Candidate, ...] = ()
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
        cpu=launch.cpu,
        rule=suspect.rule if suspect is not None and not unclear else None,
        rank=(suspect.failure.rank or None) if suspect is not None else None,
        notes=tuple(notes),
        unclear=unclear,
        candidates=candidates,
    )


def _doubts(
    stream: Stream, verdict: Suspect | None, *, alone: bool
) -> tuple[bool, tuple[Candidate, ...]]:
    """True if the log does not prove a cause, and the causes that it may show.

    `alone`: only one engine writes to the log, whatever its lines look like.
    """
    launch = stream.launch
    mixed = launch.mixed and not alone
    earlier = stream.earlier.verdict() if stream.earlier is not None else None
    found: list[Candidate] = []
    outlived = False
    if verdict is not None:
        outlived = verdict.fatal and launch.outlived(verdict)
        found += _candidates(verdict, _CONTINUED if outlived else _MIXED, mixed)
    for rival in launch.rivals(verdict):
        found += _candidates(rival, _MIXED if rival.fatal else _CONTINUED, mixed)
    if earlier is not None and (verdict is None or verdict.level is Level.END or mixed):
        found += _candidates(earlier, _EARLIER, mixed)
    distinct = {one.cause.name: one for one in reversed(found)}
    candidates = tuple(reversed(distinct.values()))
    if verdict is None:
        doubtful = earlier is not None or any(map(_may_be_fatal, launch.survived.values()))
        return bool(found) and doubtful and (mixed or not launch.served), candidates
    if not outlived and all(one.cause is verdict.cause for one in candidates):
        return False, ()
    return bool(candidates), candidates


def _may_be_fatal(one: Suspect) -> bool:
    """True if only a later sign of life speaks against it: a traceback, or what is left of one."""
    return one.final or (one.where is Where.EXCEPTION and not one.failure.frames)


def _candidates(suspect: Suspect, reason: str, mixed: bool) -> list[Candidate]:
    """The causes that an error may have; several if its milestones may be of other processes."""
    varied = mixed or (suspect.cause is None and suspect.failure.through_arguments)
    causes = possible_causes(suspect) if varied else [suspect.cause]
    failure = suspect.failure
    return [Candidate(one, failure.raw, failure.number, reason) for one in causes if one]


def _line(suspect: Suspect | None) -> str | None:
    if suspect is None:
        return None
    failure = suspect.failure
    if not failure.message and failure.code:  # `AssertionError` alone: what it asserted
        place = failure.frames[-1].file if failure.frames else ""
        return f"{failure.raw}: {failure.code}" + (f" ({place})" if place else "")
    return failure.raw


def _by_exit(launch: LaunchLog, exit_code: int | None) -> Cause | None:
    """What an exit code says where the log says nothing."""
    if exit_code in _KILLED and not launch.stopped:
        if launch.cpu and launch.phase is Phase.KV_POOL and not launch.served:
            return BY_NAME["killed-filling-pool"]
        return BY_NAME["process-killed" if launch.served else "killed-while-starting"]
    return None
