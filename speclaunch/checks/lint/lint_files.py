"""Lint many files: reuse cached results and check the other files.

The checking modules are imported for the first file that is not cached.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, convert, to_builtins

from speclaunch.checks.lint.cache import Cache
from speclaunch.checks.lint.configuration import (
    STDIN,
    STDIN_SHOWN,
    FoundFile,
    LintSettings,
    find_files,
)
from speclaunch.checks.lint.report import FileReport, FileResult, Report
from speclaunch.checks.lint.workers import Answer, WorkerDiedError, progress, spread
from speclaunch.core import Place, Problem, lazy, read_or_none, reads, redact

if TYPE_CHECKING:
    from speclaunch.checks.lint.collect import LintedFile
    from speclaunch.checks.lint.configuration import Options
    from speclaunch.checks.lint.left_out import LeftOut
    from speclaunch.checks.lint.report import CheckedFile
    from speclaunch.checks.rules.interface import Finding

_FIRST = 16
"""Files checked before processes are forked; all processes share the modules imported for them."""
_FILES_A_PROCESS = 150
"""Minimum number of files for each process; fewer are faster in this process."""
_ASKING_FILES_A_PROCESS = 40
"""Minimum number of files for each process with the engine check: loading an engine takes as long
as checking this many files."""
_MOST_PROCESSES = 8
_CREDENTIAL = lazy(r"://[^/\s\"]*@")


class LintRun(Struct):
    """Files to lint, with their settings.

    `settings` is called for every file before the first check, `options` only if a file is checked.
    `installed` returns the installed engine; it is called before the checking modules are
    imported. `jobs`: number of processes; None to choose it by file count.
    """

    paths: Sequence[str]
    stdin: bytes
    settings: Callable[[str], LintSettings]
    options: Callable[[LintSettings], Options]
    cache: Cache | None = None
    jobs: int | None = None
    installed: Callable[[], object] = lambda: None
    left_out: Callable[[], LeftOut] | None = None
    only_deployments: bool = False
    """True to also skip named files without deployments."""
    queries_engines: bool = False
    """True if checking a file may query an engine, with a worker in each process."""

    def report(self, log: Callable[[str], None] = lambda _: None) -> Report:
        found = list(find_files(self.paths, self.left_out, only_deployments=self.only_deployments))
        for file in found:  # a wrong configuration is reported before anything is checked
            self.settings(file.path)
        results: list[FileResult] = []
        with progress(log) as follow:
            for result in self._results(found):
                follow(result.path)
                results.append(result)
        compared = [result.checked for result in results if result.checked is not None]
        if compared:
            from speclaunch.checks.lint.run import compare, result_of  # noqa: PLC0415

            compare(compared)
            results = [
                result if result.checked is None else result_of(result.checked)
                for result in results
            ]
        seen: set[str] = set()
        reports: list[FileReport] = []
        for file_result in results:
            if file_result.reports:
                shown = file_result.reports[0].path
                reports += file_result.without_complaints if shown in seen else file_result.reports
                seen.add(shown)
        return Report(tuple(reports), tuple(result.path for result in results if result.not_read))

    def _results(self, found: Sequence[FoundFile]) -> Iterator[FileResult]:
        groups = self._groups(found)
        known = [groups.get(file.path) or self._cached(file) for file in found]
        missing = [file for file, result in zip(found, known, strict=True) if result is None]
        if not all(self.settings(file.path).versions for file in missing):
            self.installed()
        alone = 0 if self.queries_engines else _FIRST  # this process should load no engine first
        processes = self.processes(len(missing), first=alone)
        rest = [] if processes == 1 else missing[alone:]
        here = len(missing) - len(rest)
        with contextlib.ExitStack() as stack:
            answers: Iterator[Answer] | None = None
            for file, result in zip(found, known, strict=True):
                if result is not None:
                    yield result
                elif here:
                    here -= 1
                    yield self._check(file)
                else:
                    if answers is None:
                        answers = stack.enter_context(spread(rest, self._answer, processes))
                    yield self._from_answer(file, next(answers))

    def _groups(self, found: Sequence[FoundFile]) -> dict[str, FileResult]:
        """Return the results of group files, checked through their recipes.

        Files named by the user get all findings, others only those about their comments.
        """
        candidates = [file for file in found if _may_be_group(file)]
        if not candidates:
            return {}
        from speclaunch.checks.lint import groups  # noqa: PLC0415  rarely needed

        others = {file.path for file in found}
        results: dict[str, FileResult] = {}
        for file in filter(groups.is_group, candidates):
            dirs = lambda path: self.settings(path).config_dirs  # noqa: E731
            recipes = list(groups.recipes_with(file.path, dirs, self.left_out))
            left = [recipe for recipe in recipes if recipe.path not in others]
            has_ignores = bool(recipes) and groups.has_ignores(file.path)
            if recipes and not left and not has_ignores:
                continue  # all of them are linted, and report the findings in it
            more: tuple[Finding, ...] = ()
            if has_ignores:
                checked = [
                    recipe for recipe in map(self._checked_again, recipes) if recipe is not None
                ]
                selected = self.options(self.settings(file.path)).selected_codes
                more = groups.unused_in(file.path, checked, selected)
            if not file.is_named and not more:
                continue
            through = (left or recipes) if file.is_named else []
            own = map(self._by_itself, through)
            results[file.path] = groups.result_of_group(file.path, own, more)
        return results

    def checked(self) -> Iterator[CheckedFile]:
        """Yield the files with deployments, each checked separately and without the cache."""
        for file in find_files(self.paths, self.left_out):
            found = self._checked_again(file)
            if found is not None:
                yield found

    def _checked_again(self, file: FoundFile) -> CheckedFile | None:
        """Check a file without the cache; return None if it has no deployments."""
        from speclaunch.checks.lint.collect import read_found  # noqa: PLC0415
        from speclaunch.checks.lint.run import check, result_of  # noqa: PLC0415

        settings = self.settings(file.path)
        source = read_found(file, self.stdin, settings.config_dirs)
        if source is None or source.not_read:
            return None
        checked = check(source, self.options(settings))
        result_of(checked)
        return checked

    def _by_itself(self, file: FoundFile) -> FileResult:
        """Return the result of a file, except findings that depend on other files."""
        result = self._cached(file) or self._check(file)
        if result.checked is None:
            return result
        from speclaunch.checks.lint.run import result_of  # noqa: PLC0415

        return result_of(result.checked)

    def _cached(self, file: FoundFile) -> FileResult | None:
        if file.is_unread:
            return FileResult(file.path, not_read=True)
        name = self._name(file)
        if self.cache is None or name is None:
            return None
        value = self.cache.get(name)
        try:
            return None if value is None else _decoded(file, value)
        except ValueError:
            return None

    def _name(self, file: FoundFile) -> str | None:
        """Return the cache key, or None if the file is not cached."""
        if self.cache is None or file.path == STDIN:
            return None
        data = read_or_none(file.path)
        if data is None:
            return None
        path = file.path.encode("utf-8", "surrogateescape")
        key = self.settings(file.path).cache_key.encode("utf-8", "surrogateescape")
        return self.cache.name(b"file", path, str(file.is_named).encode(), data, key)

    def _check(self, file: FoundFile) -> FileResult:
        """Return the result of one file, and cache it if it depends on no other file."""
        from speclaunch.checks.lint.collect import read_found  # noqa: PLC0415
        from speclaunch.checks.lint.run import check, result_of  # noqa: PLC0415

        cache, name, settings = self.cache, self._name(file), self.settings(file.path)
        checked = None
        with contextlib.nullcontext() if cache is None else reads.recording(cache.shipped) as seen:
            source = read_found(file, self.stdin, settings.config_dirs)
            if source is None:
                result = FileResult(file.path)
            elif source.not_read:
                result = FileResult(source.path, not_read=True)
            else:
                checked = check(source, self.options(settings))
                if checked.is_compared:
                    return FileResult(file.path, checked=checked)
                result = result_of(checked)
        if cache is not None and name is not None and seen is not None:
            secrets = [] if checked is None else checked.secrets
            cache.put(name, _encoded(result), seen, lambda text: _is_safe(text, secrets))
        return result

    def read_again(self, shown: str) -> tuple[LintedFile | None, LintSettings]:
        """Return a file, reread by its reported path (None: see `read_found`), and its settings."""
        from speclaunch.checks.lint.collect import read_found  # noqa: PLC0415

        file = FoundFile(STDIN if shown == STDIN_SHOWN else shown, is_named=True)
        settings = self.settings(file.path)
        return read_found(file, self.stdin, settings.config_dirs), settings

    def _answer(self, file: FoundFile) -> bytes:
        """Return a file's result as JSON for the parent; `null` if it depends on other files."""
        result = self._check(file)
        return json.dumps(None if result.checked is not None else _encoded(result)).encode()

    def _from_answer(self, file: FoundFile, answer: Answer) -> FileResult:
        if not isinstance(answer, WorkerDiedError):
            value = None if answer is None else json.loads(answer)
            return self._check(file) if value is None else _decoded(file, value)
        from speclaunch.checks.lint.collect import LintedFile  # noqa: PLC0415
        from speclaunch.checks.lint.run import check, result_of  # noqa: PLC0415

        problem = Problem(
            f"not checked: the process that read the file ended with {answer}",
            Place(file.path),
            "exclude the file, and report this as a bug in speclaunch",
        )
        source = LintedFile(file.path, problems=(problem,))
        return result_of(check(source, self.options(self.settings(file.path))))

    def processes(self, files: int, each: int | None = None, first: int = 0) -> int:
        """Return the number of processes for `files` files, with at least `each` files per process.

        The `first` files are checked before any process starts.
        """
        if self.queries_engines:
            each = _ASKING_FILES_A_PROCESS
        if sys.platform != "linux":
            return 1
        if self.jobs is not None:
            return min(self.jobs, max(1, files - first))
        available = min(len(os.sched_getaffinity(0)), _MOST_PROCESSES)
        return max(1, min(available, files // (each or _FILES_A_PROCESS)))


def _encoded(result: FileResult) -> list[Any]:
    return [result.not_read, result.complaints, to_builtins(result.reports)]


def _decoded(file: FoundFile, value: Any) -> FileResult:
    """Decode a result that `_encoded` returned. Raises ValueError for other values."""
    not_read, complaints, reports = convert(value, tuple[bool, int, tuple[FileReport, ...]])
    if not 0 <= complaints <= (len(reports[0].findings) if reports else 0):
        raise ValueError("not a result")
    return FileResult(file.path, reports, complaints, not_read)


def _may_be_group(file: FoundFile) -> bool:
    """True if a file may belong to a group, and is user-named or may have ignore comments."""
    data = (read_or_none(file.path) or b"") if file.path.endswith(".yaml") else b""
    return b"@package" in data and (file.is_named or b"speclaunch:" in data)


def _is_safe(text: str, secrets: Sequence[str]) -> bool:
    """True if a text contains no secret of the file, so it may be cached."""
    return not (
        any(json.dumps(secret)[1:-1] in text for secret in secrets)
        or _CREDENTIAL.search(text)
        or redact(text) != text
    )
