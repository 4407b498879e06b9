"""Lint of many files: what is remembered is told again, the others are checked.

What is remembered needs nothing of the rules: the modules that check are imported for the first
file that has to be.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from speclaunch import reads
from speclaunch.lint.cache import Cache
from speclaunch.lint.configuration import FileSettings
from speclaunch.lint.entries import told_from, told_json
from speclaunch.lint.paths import STDIN, FoundFile, find_files
from speclaunch.lint.report import FileReport, Report, ToldFile
from speclaunch.lint.workers import WorkerDiedError, spread
from speclaunch.patterns import lazy
from speclaunch.reads.bounded import read_regular
from speclaunch.record import record
from speclaunch.redaction import redact

if TYPE_CHECKING:
    from speclaunch.lint.left_out import LeftOut
    from speclaunch.lint.run import CheckedFile, Options
    from speclaunch.rules.finding import Finding

_FIRST = 16
"""Files that are checked before processes are made: what they import and read, all have."""
_FILES_A_PROCESS = 150
"""Fewer take longer in a process of their own than in this one."""
_ASKING_FILES_A_PROCESS = 40
"""The same where each process loads an engine to ask, which takes as long as so many answers."""
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

    `settings` is asked for every file before one is checked, `options` once one has to be;
    `installed` tells the engine on this machine, and is asked before the modules that check are
    imported. `jobs` None: as many processes as pay.
    """

    paths: Sequence[str]
    stdin: bytes
    settings: Callable[[str], FileSettings]
    options: Callable[[FileSettings], Options]
    cache: Cache | None = None
    jobs: int | None = None
    installed: Callable[[], object] = lambda: None
    left_out: Callable[[], LeftOut] | None = None
    only_deployments: bool = False
    """Leave out named files, too, in which nothing is."""
    asks_engines: bool = False
    """Whether checking a file may ask an engine, by a worker that each process has for itself."""

    def outcomes(self) -> Iterator[Outcome]:
        """What is known of each, in their order."""
        found = list(find_files(self.paths, self.left_out, only_deployments=self.only_deployments))
        for file in found:  # a configuration that is wrong is told before anything is checked
            self.settings(file.path)
        groups = self._groups(found)
        known = [groups.get(file.path) or self._remembered(file) for file in found]
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

            compare(compared)
            for one in all_:
                if one.checked is not None:
                    one.told = reported(one.checked)
        done: set[str] = set()
        files: list[FileReport] = []
        for one in all_:
            if one.told is not None:
                shown = one.told.reports[0].path
                files += one.told.without_complaints if shown in done else one.told.reports
                done.add(shown)
        return Report(tuple(files), tuple(one.path for one in all_ if one.is_not_read))

    def _groups(self, found: Sequence[FoundFile]) -> dict[str, Outcome]:
        """What is known of the files of groups, through the recipes: of those that were named;
        of those below a directory whether their comments silence anything."""
        asked = [file for file in found if _may_be_group(file)]
        if not asked:
            return {}
        from speclaunch.lint import groups  # noqa: PLC0415  nearly never

        others = {file.path for file in found}
        outcomes: dict[str, Outcome] = {}
        for file in filter(groups.is_group, asked):
            dirs = lambda path: self.settings(path).config_dirs  # noqa: E731
            recipes = list(groups.recipes_with(file.path, dirs, self.left_out))
            left = [one for one in recipes if one.path not in others]
            has_ignores = bool(recipes) and groups.has_ignores(file.path)
            if recipes and not left and not has_ignores:
                continue  # all of them are linted, and tell of it
            more: tuple[Finding, ...] = ()
            if has_ignores:
                checked = [one for one in map(self._checked_again, recipes) if one is not None]
                options = self.options(self.settings(file.path))
                more = groups.unused_in(file.path, checked, options)
            if not file.is_named and not more:
                continue
            others_tell = left or recipes if file.is_named else []
            told = groups.told_of_group(file.path, map(self._told_of, others_tell), more)
            outcomes[file.path] = Outcome(file.path, told)
        return outcomes

    def _checked_again(self, file: FoundFile) -> CheckedFile | None:
        """A file as it was checked, with what its comments silenced."""
        from speclaunch.lint.collect import read_found  # noqa: PLC0415
        from speclaunch.lint.run import check, reported  # noqa: PLC0415

        settings = self.settings(file.path)
        source = read_found(file, self.stdin, settings.config_dirs)
        if source is None or source.not_read:
            return None
        checked = check(source, self.options(settings))
        reported(checked)
        return checked

    def _told_of(self, file: FoundFile) -> ToldFile:
        """What is told of a file that is not linted for itself."""
        outcome = self._remembered(file) or self._check(file)
        if outcome.checked is None:
            return outcome.told or ToldFile()
        from speclaunch.lint.run import reported  # noqa: PLC0415

        return reported(outcome.checked)

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
        said = self.settings(file.path).said.encode("utf-8", "surrogateescape")
        return self.cache.name(b"file", path, str(file.is_named).encode(), data, said)

    def _checked(self, files: Sequence[FoundFile]) -> Generator[Outcome, None, None]:
        if not all(self.settings(file.path).versions for file in files):
            self.installed()
        alone = 0 if self.asks_engines else _FIRST  # else this process would load an engine first
        processes = self.processes(len(files), first=alone)
        first = files if processes == 1 else files[:alone]
        for file in first:
            yield self._check(file)
        rest = files[len(first) :]
        if not rest:
            return
        with spread(rest, self._answer, processes) as answers:
            for file, answer in zip(rest, answers, strict=True):
                if isinstance(answer, WorkerDiedError):
                    yield self._not_checked(file, answer)
                    continue
                value = None if answer is None else json.loads(answer)
                yield self._check(file) if value is None else _outcome(file, value)

    def _not_checked(self, file: FoundFile, died: WorkerDiedError) -> Outcome:
        """The outcome of a file that ended the process that checked it."""
        from speclaunch.errors import Place, Problem  # noqa: PLC0415
        from speclaunch.lint.collect import LintedFile  # noqa: PLC0415
        from speclaunch.lint.run import check, reported  # noqa: PLC0415

        problem = Problem(
            f"not checked: the process that read it ended with {died}",
            Place(file.path),
            "exclude the file, and report this as a bug in speclaunch",
        )
        source = LintedFile(file.path, problems=(problem,))
        return Outcome(file.path, reported(check(source, self.options(self.settings(file.path)))))

    def processes(self, files: int, each: int | None = None, first: int = 0) -> int:
        """How many processes share so many files, of which one should have `each` to pay; the
        `first` ones are nobody else's."""
        if self.asks_engines:
            each = _ASKING_FILES_A_PROCESS
        if sys.platform != "linux":
            return 1
        if self.jobs is not None:
            return min(self.jobs, max(1, files - first))
        at_hand = min(len(os.sched_getaffinity(0)), _MOST_PROCESSES)
        return max(1, min(at_hand, files // (each or _FILES_A_PROCESS)))

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

        settings = self.settings(file.path)
        source = read_found(file, self.stdin, settings.config_dirs)
        if source is None:
            return Outcome(file.path), []
        if source.not_read:
            return Outcome(source.path, is_not_read=True), []
        checked = check(source, self.options(settings))
        if checked.is_compared:
            return Outcome(file.path, checked=checked), []
        return Outcome(file.path, reported(checked)), checked.secrets


def _value(outcome: Outcome) -> list[Any]:
    told = None if outcome.told is None else told_json(outcome.told)
    return [outcome.is_not_read, told]


def _outcome(file: FoundFile, value: Any) -> Outcome:
    """Raises ValueError, TypeError, KeyError or IndexError for what `_value` never gives."""
    not_read, told = value
    if not isinstance(not_read, bool):
        raise TypeError("not an outcome")
    return Outcome(file.path, None if told is None else told_from(told), not_read)


def _may_be_group(file: FoundFile) -> bool:
    """Whether it may be a group's file of which something is to be told."""
    data = (_data(file.path) or b"") if file.path.endswith(".yaml") else b""
    return b"@package" in data and (file.is_named or b"speclaunch:" in data)


def _data(path: str) -> bytes | None:
    try:
        return read_regular(path)
    except OSError:
        return None


def _is_safe(text: str, secrets: Sequence[str]) -> bool:
    """Whether no secret of the file is in what is kept of it; nearly always it was taken out."""
    return not (
        any(json.dumps(secret)[1:-1] in text for secret in secrets)
        or _CREDENTIAL.search(text)
        or redact(text) != text
    )
