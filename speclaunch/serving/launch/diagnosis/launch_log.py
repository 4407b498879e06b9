"""State of one engine start from the log read so far, and the release derived from the log's
wording."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace
from packaging.version import Version

from speclaunch.engine import FIRST_IN_POOL, canonical, held_versions, history
from speclaunch.serving.launch.diagnosis.interface import (
    Cause,
    FailureLevel,
    LogFailure,
    Milestone,
    Where,
)
from speclaunch.serving.launch.engine_log import BATCH, PHASES, LogMark, Phase, may_be_milestone

_WORDINGS: tuple[tuple[re.Pattern[str], str | None, str | None], ...] = (
    # model_executor/model_runner.py: `elapsed=` from 0.5.9; bootstrap.py replaced it in 0.5.21
    (re.compile(r"Init torch distributed ends\. mem usage="), None, "0.5.8.post1"),
    (re.compile(r"Init torch distributed ends\. elapsed="), "0.5.9", "0.5.20"),
    (re.compile(r"Memory baseline taken\."), "0.5.21", None),
    (re.compile(r"Load weight end\. elapsed="), "0.5.9", None),
    (re.compile(r"Load weight end\. type="), None, "0.5.8.post1"),
    # mem_cache/memory_pool.py
    (re.compile(r"KV Cache is allocated\. #tokens"), None, "0.5.12.post1"),
    (re.compile(r"KV Cache is allocated\. dtype: "), "0.5.13", None),
    # speculative/eagle_worker*.py
    (re.compile(r"Capture draft (?:extend )?cuda graph (?:begin|end)"), None, "0.5.13.post1"),
    (re.compile(r"Capture (?:target|draft) [\w ]{1,20} CUDA graph"), "0.5.14", None),
    # server_args.py resolved_dict
    (re.compile(r"server_args=ServerArgs\("), None, "0.5.18"),
    (re.compile(r"server_args=\{"), "0.5.19", None),
    (re.compile(r"Loaded weights leave no GPU memory"), FIRST_IN_POOL, None),
)
_RELEASE_MARKS = tuple(
    (pattern, Version(first) if first else None, Version(last) if last else None)
    for pattern, first, last in _WORDINGS
)
_ARGUMENT = re.compile(r"[(,{] ?'?(?P<name>[a-z][a-z0-9_]{2,60})'?[=:]")
_SETTING = (
    "mem_fraction_static|max_running_requests|max_total_tokens|context_length|chunked_prefill_size"
    "|cuda_graph_max_bs(?:_decode|_prefill)?|speculative_num_steps|speculative_eagle_topk"
    "|speculative_num_draft_tokens|tp_size|dp_size|pp_size|port|mamba_full_memory_ratio"
    "|max_mamba_cache_size|hicache_ratio|hicache_size"
)
_SETTINGS = re.compile(
    rf"[(,{{] ?'?(?P<name>{_SETTING})'?(?:=|: )(?P<value>-?\d{{1,12}}(?:\.\d{{1,12}})?)(?=[,)}}])"
)
_ITEM = re.compile(
    r"(?:(?<=[(,{])|(?<=[(,{] ))'?(?P<name>[a-z][a-z0-9_]{2,60})'?(?:=|: )"
    r"(?P<value>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^,)}\[{(]*)"
)
_PLAIN = re.compile(r"-?\d{1,12}(?:\.\d{1,12})?\Z|True\Z|False\Z|None\Z|['\"]")
_ON_CPU = re.compile(r"[(,{] ?'?device'?(?:=|: )'cpu'")


class Wording(Struct):
    """Narrowest range of releases consistent with all lines so far."""

    first: Version | None = None
    last: Version | None = None

    def read(self, text: str) -> None:
        """Process a line that may narrow the range."""
        for pattern, first, last in _RELEASE_MARKS:
            if pattern.match(text):
                self._narrow(first, last)
        if text.startswith("server_args="):
            names = {found["name"] for found in _ARGUMENT.finditer(text)}
            for name in sorted(names):
                self._narrow(*_bounds(name))
            if "cuda_graph_max_bs" in names:  # a flag until 0.5.19, a field until 0.5.13
                self._narrow(None, Version("0.5.13.post1"))

    def _narrow(self, first: Version | None, last: Version | None) -> None:
        low = self.first if first is None else max(self.first or first, first)
        high = self.last if last is None else min(self.last or last, last)
        if low is None or high is None or low <= high:  # ignore a contradiction
            self.first, self.last = low, high

    def allows(self, version: str) -> bool:
        """True if a release may have printed the lines read so far."""
        release = Version(version)
        return (self.first is None or release >= self.first) and (
            self.last is None or release <= self.last
        )

    @property
    def newest(self) -> str | None:
        """Newest known release that may have printed the lines; None if unknown."""
        if self.first is None and self.last is None:
            return None
        fitting = [version for version in held_versions() if self.allows(version)]
        return fitting[-1] if fitting else None

    @property
    def draft_in_pool(self) -> bool | None:
        """True if the draft's memory comes out of the pool; None if unknown."""
        if self.first is not None and self.first >= Version(FIRST_IN_POOL):
            return True
        if self.last is not None and self.last < Version(FIRST_IN_POOL):
            return False
        return None


@lru_cache(maxsize=4096)
def _bounds(argument: str) -> tuple[Version | None, Version | None]:
    """Return the first and the last release with an argument of this name; None for an open end."""
    known = history(argument)
    if known is None or len(known.spans) != 1:
        return None, None
    oldest = held_versions()[0]
    return (
        None if known.first == oldest else Version(known.first),
        None if known.current else Version(known.last),
    )


def settings(text: str) -> dict[str, float]:
    """Return the arguments in `server_args=…` that a remedy may change."""
    return {found["name"]: float(found["value"]) for found in _SETTINGS.finditer(text)}


UNREADABLE = object()
"""Replacement for a logged list, object or other value that is not a plain literal."""


def logged_arguments(text: str) -> dict[str, Any]:
    """Return the arguments in `server_args=…`, by the engine's current names.

    A value that is not a plain literal becomes UNREADABLE.
    """
    return {canonical(item["name"]): _plain(item["value"].strip()) for item in _ITEM.finditer(text)}


def _plain(text: str) -> Any:
    if _PLAIN.match(text) is None:
        return UNREADABLE
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return UNREADABLE


def on_cpu(text: str) -> bool:
    """True if `server_args=…` names the CPU as its device."""
    return _ON_CPU.search(text) is not None


# Beginnings of the engine's lines, to skip nearly all of a long log quickly.
#
# A line that matches none of these is skipped.
# tests/serving/launch/diagnosis/test_catalogue.py compares them with all patterns.

RETRACTED = re.compile(
    r"(?:KV cache pool is full\. Retract requests\.|Decode out of memory happened\.) "
    r"#retracted_reqs: (?P<number>\d{1,9})"
)
WARNED = re.compile(
    r"max_total_tokens=\d{1,15} is larger than the profiled value"
    r"|max_running_requests (?:was reduced from the requested|is capped to)"
    r"|KV pool holds \d{1,15} tokens, fewer than"
    r"|Disable DFLASH draft cuda graph because only"
    r"|NaN detected in .{1,200}; values were sanitized"
    r"|Detected errors during sampling! NaN in the logits"
    r"|Out of memory even after retracting|retract_decode: aborted"
)

_MESSAGE_STARTS = (
    "Prefill out of", "Decode out of", "Out of memory", "Port is", "ERROR: ", "Watchdog timeout",
    "Health check failed", "Subprocess ", "Initialization failed", "KV cache pool is full",
    "max_total_tokens=", "max_running_requests ", "KV pool holds", "Disable DFLASH", "NaN detected",
    "Detected errors", "retract_decode",
)  # fmt: skip
_OUTPUT_PARTS = (
    ": error: ", "No module named", "slurmstepd", ".cu:", "NCCL WARN", "what():", "Fatal Python",
    "Segfault", "Segmentation fault", "Bus error", "Aborted", "Illegal instruction", "[Errno ",
    "terminate called", "free()", "malloc()", "double free", "UserWarning: 'python -m", "usage: ",
    "finding module specification",
)  # fmt: skip


def is_batch(text: str) -> bool:
    """True for a line about a batch, which shows that the engine is working."""
    return "#running-req" in text and BATCH.match(text) is not None


def may_be_message(text: str) -> bool:
    """True if a line may be a logged error or warning with a signature."""
    return text.startswith(_MESSAGE_STARTS) or " watchdog timeout (" in text[:100]


def may_be_logged(text: str) -> bool:
    """True if the engine may have logged this line without a header."""
    return is_batch(text) or may_be_milestone(text) or may_be_message(text)


def may_be_printed(text: str) -> bool:
    """True if argparse, a runtime or the shell may have printed this line without a header."""
    return any(part in text for part in _OUTPUT_PARTS)


_MAX_SUSPECTS = 200
_LIFE_OF_OTHERS = 20
"""Number of lines from other ranks that proves the engine survived a failed rank. Other ranks may
print some lines while the parent still collects the failed rank."""
_LIFE_AFTER_DEATH = 50
"""Number of signs of life after a fatal error that puts the error in doubt."""
_MAX_SURVIVED = 20
_ORDER = tuple(Phase)
_CLOSES = {LogMark.LOAD_END: LogMark.LOAD_BEGIN, LogMark.CAPTURE_END: LogMark.CAPTURE_BEGIN}
_EARLY = frozenset(
    {
        LogMark.BASELINE, LogMark.LOAD_BEGIN, LogMark.LOAD_END, LogMark.POOL, LogMark.POOL_END,
        LogMark.CAPTURE_BEGIN, LogMark.CAPTURE_END,
    }
)  # fmt: skip
_LATER = _EARLY - {LogMark.BASELINE, LogMark.LOAD_BEGIN}
"""Milestones that cannot directly follow the memory baseline of a rank."""
_LATE = frozenset({LogMark.SUMMARY, LogMark.READY})
_UNOPENED = (_EARLY | _LATE) - _CLOSES.keys()
"""Milestones that cannot occur during a load or a capture."""


class Suspect(Struct, frozen=True):
    """An error that may be the cause."""

    failure: LogFailure
    level: FailureLevel
    cause: Cause | None
    rule: str | None = None
    numbers: Mapping[str, float] = {}
    final: bool = True
    """True if the surrounding lines show that the error ended a process."""
    fatal: bool = False
    """True if nothing catches the error, so later signs of life come from another process."""
    life: int = 0
    """Number of signs of life in the log before the error."""
    where: Where = Where.EXCEPTION


class RankProgress(Struct):
    """Progress of one rank, from the milestones in its log lines."""

    seen: set[LogMark] = set()
    loads: int = 0
    """Number of weight loads started."""
    last: LogMark | None = None
    pooled_before_load: bool = False
    """True if the last load of weights began after a pool was allocated. Releases up to 0.5.13 use
    this order; their draft uses memory that `mem_fraction_static` leaves free."""
    phase: Phase = Phase.IMPORTS
    time: str = ""
    """Time of the rank's last milestone, in the engine's format."""
    opened: LogMark | None = None
    """Load or capture that has begun and not ended; None if there is none."""

    def contradicts(self, mark: LogMark) -> bool:
        """True if a process with this rank's milestones cannot reach `mark` next."""
        if mark is LogMark.BATCH:
            return self.opened is not None or self.last in (LogMark.BASELINE, LogMark.LOAD_END)
        if self.seen & _LATE:  # a serving rank loads and repeats nothing
            return mark in _EARLY or (mark in self.seen and mark in _LATE)
        if mark in _CLOSES:
            return self.last is not None and self.opened is not _CLOSES[mark]
        unloaded = self.last is LogMark.BASELINE and mark in _LATER
        return mark in _UNOPENED and (self.opened is not None or unloaded)

    def take(self, mark: LogMark) -> None:
        if mark in _CLOSES.values():
            self.opened = mark
        elif mark in _CLOSES:
            self.opened = None
        if mark is LogMark.LOAD_BEGIN:
            self.loads += 1
            self.pooled_before_load = bool(self.seen & {LogMark.POOL, LogMark.POOL_END})
        if mark in (LogMark.LOAD_BEGIN, LogMark.LOAD_END):
            self.phase = Phase.WEIGHTS if self.loads < 2 else Phase.DRAFT_WEIGHTS
        elif mark in PHASES and not (self.phase is Phase.READY and mark is not LogMark.READY):
            self.phase = PHASES[mark]
        self.seen.add(mark)
        self.last = mark


class LaunchLog(Struct):
    """State of a start: its milestones, its errors, and its signs of life."""

    wording: Wording = field(default_factory=Wording)
    courses: dict[str, RankProgress] = {}
    milestones: list[Milestone] = []
    suspects: list[Suspect] = []
    """Errors that the engine may not have survived."""
    survived: dict[str, Suspect] = {}
    """Last error that the engine survived, for each cause or exception class."""
    settings: dict[str, float] = {}
    arguments: str = ""
    """Log line with the engine's server arguments."""
    cpu: bool = False
    served: bool = False
    stopped_at: int = 0
    """Line number of the stop request; 0 if there is none."""
    dead: bool = False
    begun: bool = False
    """True once the start has reached a milestone."""
    contradicted: bool = False
    unended: bool = False
    """True if this start followed one that had not ended, and has loaded nothing yet."""
    retracted: int = 0
    notes: list[str] = []
    lone: int = 0
    """Number of lines that looked like an exception without a traceback."""
    life: int = 0
    """Number of signs of life so far: log lines that show a working scheduler."""
    _others: int = 0

    @property
    def mixed(self) -> bool:
        """True if the log may mix lines from several processes."""
        return self.contradicted or self.unended

    @property
    def ended(self) -> bool:
        return self.dead or self.stopped or bool(self.suspects)

    @property
    def stopped(self) -> bool:
        return self.stopped_at > 0

    def course(self, rank: str) -> RankProgress:
        """Return the progress of `rank`; an empty name means the engine's only process."""
        found = self.courses.get(rank)
        if found is None:
            found = self.courses[rank] = RankProgress()
        return found

    def best_course(self, rank: str) -> RankProgress:
        """Return the progress of `rank`; if it has none, that of the rank that is furthest
        ahead."""
        own = self.courses.get(rank)
        if own is not None and own.last is not None:
            return own
        known = [course for course in self.courses.values() if course.last is not None]
        return max(known, key=lambda rank: _ORDER.index(rank.phase), default=RankProgress())

    @property
    def phase(self) -> Phase:
        """Phase of the rank that is furthest ahead."""
        return max(
            (course.phase for course in self.courses.values()),
            key=_ORDER.index,
            default=Phase.IMPORTS,
        )

    def take(self, mark: LogMark, rank: str, number: int, time: str = "") -> None:
        """Record a line's milestone, and dismiss errors that the engine evidently survived."""
        self.begun = True
        if mark is LogMark.STOP:
            self.stopped_at = self.stopped_at or number
            return
        if mark is LogMark.DEATH:
            self.dead = True
            return
        if mark is not LogMark.SERVING:  # from the parent, no sign of the scheduler
            self._live(rank)
        course = self.course(rank)
        known = self.course("").seen or course.seen  # else the beginning of the log is missing
        cut = mark in _LATER and not course.seen - {LogMark.ARGUMENTS} and bool(known)
        self.contradicted = self.contradicted or cut or course.contradicts(mark)
        self.see_time(rank, time)
        if mark is LogMark.LOAD_BEGIN and course.last is LogMark.BASELINE:
            self.unended = False
        if mark is LogMark.BATCH:
            if course.last is None:  # the beginning of the log is missing
                course.phase = Phase.READY
                self.served = True
            course.last = course.last or mark
            return
        if mark is LogMark.READY:
            self.served = True
        course.take(mark)

    def see_time(self, rank: str, time: str) -> None:
        """Record a line's time. If it goes back, several processes wrote the log."""
        course = self.course(rank)
        if time:
            self.contradicted = self.contradicted or time < course.time
            course.time = time

    def suspect(self, error: Suspect) -> None:
        """Record an error, unless the error limit is reached."""
        if self.full:
            return
        before = self.suspects[-1] if self.suspects else None
        if (
            before is not None
            and not error.failure.contested
            and before.level is FailureLevel.UNKNOWN
            and before.failure.chain
            and before.failure.chain == error.failure.chain
        ):  # of unknown exceptions in a traceback, only the last counts
            self.suspects.pop()
        self.suspects.append(replace(error, life=self.life))

    @property
    def full(self) -> bool:
        return len(self.suspects) >= _MAX_SUSPECTS

    def _live(self, rank: str) -> None:
        self.life += 1
        if not self.suspects or self.suspects[0].life + _LIFE_AFTER_DEATH < self.life:
            return  # the remaining suspects are fatal and old
        self._others += 1
        everything = self._others >= _LIFE_OF_OTHERS
        left = []
        for suspect in self.suspects:
            alive = suspect.failure.rank == rank or (not suspect.failure.rank and not suspect.final)
            if suspect.fatal or self.dead or not (everything or alive):
                left.append(suspect)
            elif suspect.level is FailureLevel.CAUSE or (
                suspect.level is FailureLevel.UNKNOWN and suspect.final
            ):
                name = suspect.cause.name if suspect.cause is not None else suspect.failure.kind
                if name in self.survived or len(self.survived) < _MAX_SURVIVED:
                    self.survived[name] = suspect
        self.suspects = left
        if everything or not left:
            self._others = 0

    def verdict(self) -> Suspect | None:
        """Return the error that most likely ended the engine; None if there is no error."""
        found = sorted(
            (suspect for suspect in self.suspects if not self._of_stop(suspect)),
            key=lambda suspect: (
                -suspect.level,
                not suspect.fatal,
                not suspect.final,
                suspect.failure.number,
            ),
        )
        return found[0] if found else None

    def rivals(self, verdict: Suspect | None) -> list[Suspect]:
        """Return errors except `verdict` that may have ended the engine.

        A fatal error of a known cause has no rivals.
        """
        if verdict is not None and verdict.failure.contested:
            chain = verdict.failure.chain
            return [
                suspect
                for suspect in self.suspects
                if suspect.failure.chain == chain and suspect is not verdict
            ]
        if verdict is not None and verdict.level is FailureLevel.CAUSE and verdict.fatal:
            return []
        found = [
            suspect
            for suspect in self.survived.values()
            if self.life - suspect.life < _LIFE_AFTER_DEATH
        ]
        if verdict is not None and not verdict.fatal:
            found += [
                suspect
                for suspect in self.suspects
                if suspect.level >= FailureLevel.AFTERMATH
                and (suspect.fatal or (suspect.final and not verdict.final))
            ]
        name = verdict.cause.name if verdict is not None and verdict.cause is not None else None
        return [suspect for suspect in found if suspect.cause is None or suspect.cause.name != name]

    def outlived(self, suspect: Suspect) -> bool:
        """True if many signs of life follow a fatal error, which may then belong to another
        process."""
        return self.life - suspect.life >= _LIFE_AFTER_DEATH

    def _of_stop(self, suspect: Suspect) -> bool:
        return (
            self.stopped
            and suspect.failure.number > self.stopped_at
            and suspect.level < FailureLevel.CAUSE
        )
