"""Lint of many files: what is remembered is told again, the others are checked.

What is remembered needs nothing of the rules: the modules that check are imported for the first
file that has to be.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speclaunch import reads
from speclaunch.importer.suffixes import MAX_BYTES
from speclaunch.lint.cache import Cache
from speclaunch.lint.entries import told_from, told_json
from speclaunch.lint.paths import STDIN, FoundFile, find_files
from speclaunch.lint.report import FileReport, Report, ToldFile
from speclaunch.lint.workers import spread
from speclaunch.patterns import lazy
from speclaunch.record import record

if TYPE_CHECKING:
    from speclaunch.lint.run import CheckedFile, Options

_FIRST = 16
"""Files that are checked before processes are made: what they import and read, all have."""
_FILES_A_PROCESS = 150
"""Fewer take longer in a process of their own than in this one."""
_MOST_PROCESSES = 8
_CREDENTIAL = lazy(r"://[^/\s\"]*@")


@record(frozen=False)
class Outcome:
    """What is known of a file. `told` and `checked` None: nothing is in it that could be told."""

    path: str
    told: ToldFile | None = None
    is_not_read: bool = False
    checked: CheckedFile | None = None
    """Where it has to be compared with other files first."""


@record(frozen=False)
class Files:
    """The files to lint, and how.

    `options` is asked once a file has to be checked; `before_checking` is called before that and
    before the modules that check are imported. `jobs` None: as many processes as pay.
    """

    paths: Sequence[str]
    stdin: bytes
    config_dirs: tuple[Path, ...]
    options: Callable[[], Options]
    cache: Cache | None = None
    jobs: int | None = None
    before_checking: Callable[[], object] = lambda: None

    def outcomes(self) -> Iterator[Outcome]:
        """What is known of each, in their order."""
        found = list(find_files(self.paths))
        known = [self._remembered(file) for file in found]
        missing = [file for file, outcome in zip(found, known, strict=True) if outcome is None]
        with contextlib.closing(self._checked(missing)) as checked:
            for outcome in known:
                yield next(checked) if outcome is None else outcome

    def report(self, outcomes: Iterator[Outcome]) -> Report:
        """The report of all files, those compared that have to be."""
        all_ = list(outcomes)
        compared = [one.checked for one in all_ if one.checked is not None]
        if compared:
            from speclaunch.lint.run import compare, reported  # noqa: PLC0415

            compare(compared, self.options())
            for one in all_:
                if one.checked is not None:
                    one.told = reported(one.checked, self.options())
        done: set[str] = set()
        files: list[FileReport] = []
        for one in all_:
            if one.told is not None:
                shown = one.told.reports[0].path
                files += one.told.without_complaints if shown in done else one.told.reports
                done.add(shown)
        return Report(tuple(files), tuple(one.path for one in all_ if one.is_not_read))

    def _remembered(self, file: FoundFile) -> Outcome | None:
        if file.is_unread:
            return Outcome(file.path, is_not_read=True)
        name = self._name(file)
        if self.cache is None or name is None:
            return None
        value = self.cache.get(name)
        try:
            return None if value is None else _outcome(file, value)
        except (ValueError, TypeError, KeyError, IndexError):
            return None

    def _name(self, file: FoundFile) -> str | None:
        """Under which name what is told of a file is kept; None: it is not."""
        if self.cache is None or file.path == STDIN:
            return None
        data = _data(file.path)
        if data is None:
            return None
        path = file.path.encode("utf-8", "surrogateescape")
        return self.cache.name(b"file", path, str(file.is_named).encode(), data)

    def _checked(self, files: Sequence[FoundFile]) -> Generator[Outcome, None, None]:
        if files:
            self.before_checking()
        processes = self._processes(len(files))
        first = files if processes == 1 else files[:_FIRST]
        for file in first:
            yield self._check(file)
        rest = files[len(first) :]
        if not rest:
            return
        with spread(rest, self._answer, processes) as answers:
            for file, answer in zip(rest, answers, strict=True):
                value = None if answer is None else json.loads(answer)
                yield self._check(file) if value is None else _outcome(file, value)

    def _processes(self, files: int) -> int:
        if sys.platform != "linux":
            return 1
        most = max(1, files - _FIRST)
        if self.jobs is not None:
            return min(self.jobs, most)
        at_hand = min(len(os.sched_getaffinity(0)), _MOST_PROCESSES)
        return max(1, min(at_hand, files // _FILES_A_PROCESS))

    def _answer(self, file: FoundFile) -> bytes:
        """What another process says of a file; `null` where it has to be compared with others."""
        outcome = self._check(file)
        return json.dumps(None if outcome.checked is not None else _value(outcome)).encode()

    def _check(self, file: FoundFile) -> Outcome:
        if self.cache is None:
            return self._check_now(file)[0]
        name = self._name(file)
        with reads.recording(self.cache.shipped) as looked:
            outcome, secrets = self._check_now(file)
        if name is not None and outcome.checked is None:
            self.cache.put(name, _value(outcome), looked, lambda text: _is_safe(text, secrets))
        return outcome

    def _check_now(self, file: FoundFile) -> tuple[Outcome, list[str]]:
        from speclaunch.lint.collect import read_found  # noqa: PLC0415
        from speclaunch.lint.run import check, reported  # noqa: PLC0415

        source = read_found(file, self.stdin, self.config_dirs)
        if source is None:
            return Outcome(file.path), []
        if source.not_read:
            return Outcome(source.path, is_not_read=True), []
        options = self.options()
        checked = check(source, options)
        if checked.is_compared:
            return Outcome(file.path, checked=checked), []
        return Outcome(file.path, reported(checked, options)), checked.secrets


def _value(outcome: Outcome) -> list[Any]:
    told = None if outcome.told is None else told_json(outcome.told)
    return [outcome.is_not_read, told]


def _outcome(file: FoundFile, value: Any) -> Outcome:
    """Raises ValueError, TypeError, KeyError or IndexError for what `_value` never gives."""
    not_read, told = value
    if not isinstance(not_read, bool):
        raise TypeError("not an outcome")
    return Outcome(file.path, None if told is None else told_from(told), not_read)


def _data(path: str) -> bytes | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as file:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
                return None
            return file.read()
    except (OSError, ValueError):
        return None


def _is_safe(text: str, secrets: Sequence[str]) -> bool:
    """Whether no secret of the file is in what is kept of it; nearly always it was taken out."""
    return not (
        any(json.dumps(secret)[1:-1] in text for secret in secrets) or _CREDENTIAL.search(text)
    )
