"""Fix files: apply fixes, then read and check each file again, until no fix remains.

In each round, a deployment gets at most one fix, the first by place. Edits must not overlap, and
the result is checked before the next round. A fix is left to the user if its edits cannot be
proven, it causes a new error, or its finding remains.
"""

from __future__ import annotations

import codecs
import difflib
import pickle
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks.edit.checked_text import (
    CheckedText,
    NameCorrection,
    composed,
    findings_of,
    fixed_commands,
    fixed_recipe,
    renamed_commands,
    renamed_recipe,
)
from speclaunch.checks.edit.edits import (
    FileEdits,
    NotFixableError,
    applied,
    lines_of,
    text_edits_between,
    write_atomically,
)
from speclaunch.checks.lint.collect import LintedFile, read_buffer, read_commands
from speclaunch.checks.lint.configuration import STDIN_SHOWN, Options
from speclaunch.checks.lint.lint_files import LintRun
from speclaunch.checks.lint.report import Report
from speclaunch.checks.lint.run import check
from speclaunch.checks.lint.workers import WorkerDiedError, spread
from speclaunch.checks.rules.interface import Applicability, Finding, Severity
from speclaunch.core import InputError, SpeclaunchError, read_or_none
from speclaunch.engine import load as load_catalogue

_MOST_ROUNDS = 100
"""Maximum number of rounds, in case fixes contradict each other. ruff has the same limit."""


class LeftFix(Struct, frozen=True):
    """Fix that was not applied, and the reason."""

    finding: Finding
    why: str


class FixedFile(Struct):
    """Result of fixing a file. `applied`: findings whose fixes were applied, in order."""

    path: str
    before: str
    after: str
    applied: list[Finding] = []
    left: list[LeftFix] = []
    unsafe: list[Finding] = []
    """Remaining findings with unsafe fixes, which were not requested."""
    findings: tuple[Finding, ...] = ()
    """Findings in the text after the fixes."""
    hidden: Callable[[], Sequence[str]] = list
    """Function that returns the secret values of the file."""

    @property
    def is_changed(self) -> bool:
        return self.before != self.after


def edits_of(
    source: LintedFile,
    finding: Finding,
    config_dirs: Sequence[Path] = (),
    others: Collection[str] = (),
) -> FileEdits:
    """Return the proven edits of a finding's fix.

    When read back, the new text has the fix's values and is otherwise unchanged. `others`: further
    versions that the file is checked for. Raises NotFixableError with the reason if the fix has no
    edits, or they are left to the user.
    """
    fix = finding.fix
    if fix is None or fix.applicability is None:
        raise NotFixableError("its fix has no edits")
    file = None if source.path == STDIN_SHOWN else Path(source.path)
    correction = None if fix.rename is None else NameCorrection(*fix.rename, finding.place)
    try:
        catalogue = load_catalogue(finding.engine)
        if source.rest is not None:
            raise NotFixableError("correct the recipe's other problems first")
        if source.recipe is not None:
            if file is None:
                raise NotFixableError("a recipe on standard input cannot be fixed")
            where = (source.text, source.path, file)
            if correction is not None:
                after = renamed_recipe(*where, correction, config_dirs)
            else:
                after = fixed_recipe(*where, fix, catalogue, config_dirs, finding.deployments)
        elif source.invocations and correction is not None:
            after = renamed_commands(source.text, source.path, file, correction, catalogue)
        elif source.invocations:
            after = fixed_commands(
                source.text, source.path, file, finding.deployments, fix, catalogue, others
            )
        else:
            raise NotFixableError("its deployment was not read")
    except SpeclaunchError as error:
        raise NotFixableError(str(error)) from error
    edits = text_edits_between(source.text, after)
    is_safe = fix.applicability is Applicability.SAFE
    return FileEdits(source.path, edits, is_safe, source.text, after)


_Key = tuple[str, str, str, tuple[int, ...]]
"""Identity of a finding, unchanged by edits: engine version, code, message, deployments."""


def fix_file(
    source: LintedFile, options: Options, config_dirs: Sequence[Path] = (), *, unsafe: bool = False
) -> FixedFile:
    """Return a file with its safe fixes applied, or all fixes if `unsafe`. Nothing is written.

    Never raises because of the file's content.
    """
    work = _Work(source, options, tuple(config_dirs), unsafe)
    now = work.check(source)
    done = FixedFile(source.path, source.text, source.text)
    seen = {source.text}
    for _ in range(_MOST_ROUNDS):
        found = work.round(now)
        if found is None or found[0].source.text in seen:
            break
        before = now.source.text
        now, findings = found
        seen.add(now.source.text)
        done.applied += [_as_before(finding, source, before) for finding in findings]
    done.after = now.source.text
    done.findings = now.findings
    done.hidden = lambda: check(source, options).secrets
    for finding in now.findings:
        if _is_requested(finding, unsafe=unsafe):
            done.left.append(
                LeftFix(finding, work.refused.get(_key(now, finding), "it was not retried"))
            )
        elif finding.fix is not None and finding.fix.applicability is not None:
            done.unsafe.append(finding)
    return done


def _key(text: CheckedText, finding: Finding) -> _Key:
    return finding.engine, finding.code, finding.message, text.numbers(finding)


def _errors(text: CheckedText) -> Counter[tuple[str, str, int]]:
    """Return how often each error (engine version, code) occurs in each deployment."""
    return Counter(
        (finding.engine, finding.code, number)
        for finding in text.findings
        if finding.severity is Severity.ERROR
        for number in text.numbers(finding) or (-1,)
    )


def _is_requested(finding: Finding, *, unsafe: bool) -> bool:
    kind = finding.fix.applicability if finding.fix is not None else None
    return kind is Applicability.SAFE or (unsafe and kind is Applicability.UNSAFE)


class _Work(Struct):
    source: LintedFile
    options: Options
    config_dirs: tuple[Path, ...]
    unsafe: bool
    refused: dict[_Key, str] = {}

    def check(self, source: LintedFile) -> CheckedText:
        return CheckedText(source, findings_of(source, self.options))

    def round(self, now: CheckedText) -> tuple[CheckedText, list[Finding]] | None:
        """Return the text and the fixed findings of one round; None if no fix is left."""
        while chosen := list(self._chosen(now)):
            why: str | None = None
            for some in (chosen, chosen[:1]) if len(chosen) > 1 else (chosen,):
                findings = [finding for finding, _ in some]
                made = self._together(now, [edits for _, edits in some])
                if made is None:
                    why = "its edits cannot be applied"
                    continue
                why = self._worse(now, made, findings)
                if why is None:
                    return made, findings
            self.refused[_key(now, chosen[0][0])] = why or ""
        return None

    def _chosen(self, now: CheckedText) -> Iterator[tuple[Finding, FileEdits]]:
        """Yield findings and their edits, proven and not overlapping; the first per deployment."""
        taken: set[int] = set()
        lines: set[int] = set()
        versions = tuple(dict.fromkeys(finding.engine for finding in now.findings))
        for finding in now.findings:
            key = _key(now, finding)
            numbers = set(now.numbers(finding)) or {-1}
            is_requested = _is_requested(finding, unsafe=self.unsafe)
            if not is_requested or key in self.refused or taken & numbers:
                continue
            all_versions = self.options.versions or versions
            others = [version for version in all_versions if version != finding.engine]
            try:
                edits = edits_of(now.source, finding, self.config_dirs, others)
            except NotFixableError as error:
                self.refused[key] = str(error)
                continue
            except Exception as error:  # one broken fix must not block the others
                message = f"{type(error).__name__}: {error}"
                self.refused[key] = f"a bug in speclaunch prevents the fix; report it: {message}"
                continue
            own = {line for edit in edits.edits for line in range(edit.line - 1, edit.end_line + 1)}
            if own & lines:
                continue
            taken |= numbers
            lines |= own
            yield finding, edits

    def _together(self, now: CheckedText, some: Sequence[FileEdits]) -> CheckedText | None:
        edits = [edit for file_edits in some for edit in file_edits.edits]
        try:
            source = self.read(applied(now.source.text, edits))
        except (ValueError, InputError):
            return None
        return self.check(source)

    def _worse(self, now: CheckedText, made: CheckedText, fixed_: Iterable[Finding]) -> str | None:
        """Return the reason to reject the new text `made`; None if it is acceptable."""
        more = _errors(made) - _errors(now)
        if more:
            engine, code, _ = next(iter(more))
            version = f" in SGLang {engine}" if len(self.options.versions) > 1 else ""
            return f"it would cause {code}{version}"
        if len(now.source.invocations) != len(made.source.invocations):
            return "it would change the number of commands"
        left = {_key(made, finding) for finding in made.findings}
        if any(_key(now, fixed) in left for fixed in fixed_):
            return "the finding would remain"
        return None

    def read(self, text: str) -> LintedFile:
        """Return the file with a new text. Raises InputError if the text cannot be read."""
        source = self.source
        if source.rest is not None:
            raise InputError("first fix the part that cannot be read")
        if source.recipe is not None:
            from speclaunch.deployments import validate  # noqa: PLC0415  slow to import

            composition = composed(text, source.path, Path(source.path), self.config_dirs)
            return LintedFile(source.path, text, validate(composition))
        if source.path != STDIN_SHOWN:
            found = read_buffer(source.path, text.encode(), self.config_dirs)
            if found is None:
                raise InputError("the file would be empty")
            return found
        return read_commands(source.path, text)


def _as_before(finding: Finding, source: LintedFile, text: str) -> Finding:
    """Return a finding in the fixed text with its line number in the original file."""
    if text == source.text or finding.place.path != source.path:
        return finding
    old, new = lines_of(source.text), lines_of(text)
    at = finding.place.line - 1
    for kind, first, last, start, end in difflib.SequenceMatcher(
        None, old, new, autojunk=False
    ).get_opcodes():
        if not start <= at < end:
            continue
        line = first + at - start
        if kind != "equal":
            line = max(range(first, max(last, first + 1)), key=lambda n: _likeness(old, n, new[at]))
        return replace(finding, place=replace(finding.place, line=line + 1))
    return finding


def _likeness(lines: Sequence[str], number: int, other: str) -> float:
    line = lines[number] if number < len(lines) else ""
    return difflib.SequenceMatcher(None, line, other).quick_ratio()


_FIXES_A_PROCESS = 8
"""Minimum number of files for each process; with fewer, a process costs more than it saves."""


def fixable_paths(report: Report, *, unsafe: bool) -> list[str]:
    """Return the files with findings whose fixes are requested, without duplicates, in order."""
    return list(
        dict.fromkeys(
            file.path
            for file in report.files
            for finding in file.findings
            if _is_requested(finding, unsafe=unsafe)
        )
    )


def independent_files(report: Report) -> frozenset[str]:
    """Return the files with findings only in themselves, not in a group or `--config` file."""
    elsewhere = {
        file.path
        for file in report.files
        for finding in file.findings
        if finding.place.path != file.path
    }
    return frozenset(file.path for file in report.files if file.path not in elsewhere)


def fixed_files(
    paths: Sequence[str], run: LintRun, *, unsafe: bool, independent: frozenset[str]
) -> Iterator[tuple[FixedFile, bytes]]:
    """Yield each file with its fixes, and its original bytes; nothing is written.

    `independent`: files that depend on no other file; several processes may fix them in parallel.
    """
    alone = [path for path in paths if path in independent]
    processes = min(run.processes(len(paths), _FIXES_A_PROCESS), len(alone))
    made = _fixed_in_processes(alone, run, processes, unsafe=unsafe) if processes > 1 else {}
    for path in paths:
        found = made[path] if path in made else _fixed(path, run, unsafe=unsafe)
        if found is not None:
            yield found


_Fixed = tuple[FixedFile, bytes]


def _fixed(path: str, run: LintRun, *, unsafe: bool) -> _Fixed | None:
    source, settings = run.read_again(path)
    data = run.stdin if path == STDIN_SHOWN else read_or_none(path)
    if source is None or data is None or _text(data) != source.text:
        return None  # it is gone, or changed during the fix
    return fix_file(source, run.options(settings), settings.config_dirs, unsafe=unsafe), data


def _fixed_in_processes(
    paths: Sequence[str], run: LintRun, processes: int, *, unsafe: bool
) -> dict[str, _Fixed | None]:
    """Fix files in several processes; return the results by path (None: the file's process died).

    Files that cannot be fixed are omitted. No file may be written meanwhile.
    """

    def work(path: str) -> bytes:
        found = _fixed(path, run, unsafe=unsafe)
        if found is None:
            return b""
        found[0].hidden = list  # only called in the parent process
        return pickle.dumps(found)

    made: dict[str, _Fixed | None] = {}
    with spread(paths, work, processes) as answers:
        for path, answer in zip(paths, answers, strict=True):
            if isinstance(answer, WorkerDiedError):
                made[path] = None  # lint reports it
            elif answer is not None:
                file, data = pickle.loads(answer)  # noqa: S301  written by a fork of this process
                file.hidden = partial(_secrets, path, run)
                made[path] = file, data
    return made


def _secrets(path: str, run: LintRun) -> Sequence[str]:
    source, settings = run.read_again(path)
    return [] if source is None else check(source, run.options(settings)).secrets


def written(fixed: FixedFile, before: bytes) -> None:
    """Write the new text atomically.

    Links, a byte order mark and the mode are preserved. Raises InputError if the file changed
    meanwhile or cannot be written.
    """
    path = Path(fixed.path)
    if read_or_none(fixed.path) != before:
        message = f"{fixed.path} changed while it was being fixed"
        raise InputError(message, help="run the command again")
    write_atomically(path.resolve(), in_bytes(fixed, before).decode())


def in_bytes(fixed: FixedFile, before: bytes) -> bytes:
    """Return the new text in UTF-8, with a byte order mark if the file had one."""
    mark = codecs.BOM_UTF8 if before.startswith(codecs.BOM_UTF8) else b""
    return mark + fixed.after.encode()


def _text(data: bytes) -> str | None:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def counted(files: Sequence[FixedFile], report: Report) -> str:
    """Return a summary such as `3 fixed, 2 left`; empty if there was nothing to fix."""
    fixed = sum(len(file.applied) for file in files)
    unsafe = sum(len(file.unsafe) for file in files)
    looked_at = {file.path for file in files}
    unsafe += sum(
        finding.fix is not None and finding.fix.applicability is Applicability.UNSAFE
        for file in report.files
        if file.path not in looked_at
        for finding in file.findings
    )
    left = sum(len(file.left) for file in files) + unsafe
    if not fixed and not left:
        return ""
    hint = ""
    if unsafe:
        fixes = "1 fix is" if unsafe == 1 else f"{unsafe} fixes are"
        hint = f" ({fixes} unsafe: --unsafe-fixes)"
    return f"{fixed} fixed, {left} left{hint}"
