"""Baselines: files of known findings, so that `lint` reports only new findings.

A baseline is part of the repository. Its paths are relative to its directory, and findings are
matched by fingerprint (`report.py`). SPL000 (unreadable) is never matched, because an
unreadable file may hide other findings.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks.lint.configuration import STDIN
from speclaunch.checks.lint.report import (
    FIGURE,
    KnownFinding,
    Report,
    fingerprints,
    fingerprints_by_message,
    path_from,
)
from speclaunch.checks.rules.interface import Finding, Severity
from speclaunch.checks.rules.registry import UNREADABLE
from speclaunch.core import InputError, Place, read_regular, reason, replacing
from speclaunch.engine import shown_path

VERSION = 2
BY_MESSAGE = "1:"
"""Prefix of the fingerprints of format 1, which are computed from messages."""
_MOST_BYTES = 64 << 20
_TEXTS = ("code", "path", "message", "fingerprint")
_OLD_MESSAGES = Path(__file__).parent / "data" / "texts_1.json"
"""Messages of the release that wrote format 1, by rule. Each has a text with `{}` for variable
parts, and its arguments (null: known only when the rule runs). A finding whose message fits none of
its rule's texts was reworded later, and is matched by its arguments."""


class Covered(Struct, frozen=True):
    """Scope of a lint run: the paths on its command line and the rules selected for each path."""

    paths: tuple[str, ...]
    is_selected: Callable[[str, str], bool] = lambda _code, _path: True

    @property
    def inside(self) -> list[str]:
        """`paths`, with each directory replaced by a path in it, which need not exist."""
        return [str(Path(path, "x")) if Path(path).is_dir() else path for path in self.paths]

    def holds(self, entry: KnownFinding, folder: str) -> bool:
        """True if the lint run would have reported this known finding if it still existed."""
        path = os.path.join(folder, entry.path)  # noqa: PTH118
        for named in self.paths:
            if named == STDIN:
                continue
            absolute = os.path.abspath(named)  # noqa: PTH100
            if path == absolute or path.startswith(absolute.rstrip(os.sep) + os.sep):
                return self.is_selected(entry.code, path)
        return False


def without_known(
    report: Report, baseline_of: Callable[[str], Path | None], covered: Covered
) -> Report:
    """Return the report without the findings in each file's baseline.

    The report counts the hidden findings and lists the baseline entries that match no finding.
    Raises InputError for an unreadable baseline.
    """
    known, gone = 0, list[KnownFinding]()
    files = list(report.files)
    of_paths = (baseline_of(path) for path in covered.inside)  # the path may no longer exist
    numbers: dict[Path, list[int]] = {path: [] for path in of_paths if path is not None}
    for number, file in enumerate(files):
        path = baseline_of(file.path)
        if path is not None:
            numbers.setdefault(path, []).append(number)
    for path, some in numbers.items():
        entries = read_baseline(path)
        folder = _folder(path)
        found = _known_findings(entries, [f for n in some for f in files[n].findings], folder)
        hidden = set(found.values())
        known += len(hidden)
        gone += [
            entry
            for mark, entry in entries.items()
            if mark not in hidden and covered.holds(entry, folder)
        ]
        for n in some:
            left = [f for f in files[n].findings if id(f) not in found]
            files[n] = replace(files[n], findings=tuple(left))
    return replace(report, files=tuple(files), known=known, gone=tuple(gone))


def _known_findings(
    entries: Mapping[str, KnownFinding], findings: Sequence[Finding], folder: str
) -> dict[int, str]:
    """Return the fingerprint of each finding that is in the baseline, by object id."""
    known = {
        identity: mark for identity, mark in _named(findings, folder).items() if mark in entries
    }
    if not any(mark.startswith(BY_MESSAGE) for mark in entries):
        return known
    named = _named(findings, folder, fingerprints_by_message)
    for finding in findings:
        mark = BY_MESSAGE + named.get(id(finding), "")
        if id(finding) not in known and mark in entries and not _got_worse(entries[mark], finding):
            known[id(finding)] = mark
    used = {BY_MESSAGE + mark for mark in named.values()}
    left = [finding for finding in findings if id(finding) in named and id(finding) not in known]
    return known | _known_reworded(entries, used, left, folder)


def _known_reworded(
    entries: Mapping[str, KnownFinding], used: set[str], findings: Sequence[Finding], folder: str
) -> dict[int, str]:
    """Return reworded findings' fingerprints by object id, matched by rule, path and arguments."""
    free = {
        mark: entry
        for mark, entry in entries.items()
        if mark.startswith(BY_MESSAGE) and mark not in used
    }
    taken: dict[tuple[object, ...], str] = {}
    known: dict[int, str] = {}
    for finding in sorted(findings, key=lambda finding: finding.place.position):
        if not _is_reworded(finding):
            continue
        path = path_from(finding.place.path, folder)
        arguments = tuple(sorted(finding.arguments.items()))
        of_versions = (finding.code, path, finding.place.position, arguments)
        mark = taken.get(of_versions) or next(
            (
                mark
                for mark, old in free.items()
                if (old.code, old.path) == (finding.code, path)
                and _is_about_the_same(old.code, old.message, finding)
            ),
            None,
        )
        if mark is not None:
            free.pop(mark, None)
            taken[of_versions] = known[id(finding)] = mark
    return known


def _is_reworded(finding: Finding) -> bool:
    """True if baselines of format 1 have another message for this finding."""
    texts = _old_messages().get(finding.code)
    return texts is not None and not any(pattern.fullmatch(finding.message) for pattern, _ in texts)


def _is_about_the_same(code: str, message: str, finding: Finding) -> bool:
    """True if a message of format 1 is about the arguments of a reworded finding."""
    for pattern, arguments in _old_messages().get(code, ()):
        if pattern.fullmatch(message):
            return arguments is None or set(arguments) == set(finding.arguments)
    return False


@cache
def _old_messages() -> dict[str, list[tuple[re.Pattern[str], list[str] | None]]]:
    messages: dict[str, list[list[Any]]] = json.loads(_OLD_MESSAGES.read_bytes())

    def pattern(text: str) -> re.Pattern[str]:
        return re.compile(".*?".join(map(re.escape, text.split("{}"))), re.DOTALL)

    return {
        code: [(pattern(text), arguments) for text, arguments in texts]
        for code, texts in messages.items()
    }


def _got_worse(old: KnownFinding, new: Finding) -> bool:
    """True if a number in an error changed (such as from 2 to 4) to a value that the user set."""
    if new.severity is not Severity.ERROR or old.message == new.message:
        return False
    before, after = FIGURE.findall(old.message), FIGURE.findall(new.message)
    values = set(new.arguments.values())
    return len(before) == len(after) and any(
        old_figure != figure and figure in values
        for old_figure, figure in zip(before, after, strict=True)
    )


def read_baseline(path: Path) -> dict[str, KnownFinding]:
    """Return a baseline's findings by fingerprint. Raises InputError with the error's place."""
    shown = shown_path(path)
    try:
        data = read_regular(path, _MOST_BYTES)
    except OSError as error:
        help_ = f"run `speclaunch lint --write-baseline {shown}`"
        raise InputError(f"cannot read {shown}: {reason(error)}", help=help_) from None
    line, column, why = 1, 1, "not a baseline of findings"
    try:
        document = json.loads(data)
        if document["version"] not in (1, VERSION):
            found = f"{document['version']!r:.20}"
            why = f"it has format {found}; this speclaunch reads format {VERSION}"
            raise ValueError(why)
        entries = dict(map(_known, document["findings"]))
        if document["version"] == VERSION:
            return entries
        return {BY_MESSAGE + mark: entry for mark, entry in entries.items()}
    except json.JSONDecodeError as error:
        line, column, why = error.lineno, error.colno, f"not JSON: {error.msg}"
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise InputError(f"the baseline {shown}: {why}", Place(shown, line, column))


def write_baseline(path: Path, findings: Iterable[Finding], covered: Covered) -> int:
    """Write a lint run's findings and the old entries of other paths; return the number of entries.

    The file is written atomically. Raises InputError.
    """
    folder = _folder(path)
    found = list(findings)
    marks = _named(found, folder)
    previous = read_baseline(path) if path.exists() else {}
    entries = {mark: entry for mark, entry in previous.items() if not covered.holds(entry, folder)}
    for finding in found:
        if id(finding) in marks:
            where = path_from(finding.place.path, folder)
            entries[marks[id(finding)]] = KnownFinding(finding.code, where, finding.message)
    ordered = sorted(entries.items(), key=lambda item: (item[1].path, item[1].code, item[0]))
    rows = [(entry.code, entry.path, entry.message, mark) for mark, entry in ordered]
    objects = (dict(zip(_TEXTS, row, strict=True)) for row in rows)
    body = ",".join(f"\n  {json.dumps(item, ensure_ascii=False)}" for item in objects)
    text = f'{{\n "version": {VERSION},\n "findings": [{body}\n ]\n}}\n'
    _write(path, text.encode("utf-8", "backslashreplace"))
    return len(entries)


def _named(
    findings: Sequence[Finding],
    folder: str,
    marks: Callable[[Iterable[Finding], str], list[str]] = fingerprints,
) -> Mapping[int, str]:
    """Return fingerprints by object id, except for SPL000."""
    named = [finding for finding in findings if finding.code != UNREADABLE.code]
    return {id(finding): mark for finding, mark in zip(named, marks(named, folder), strict=True)}


def _folder(path: Path) -> str:
    return os.path.dirname(os.path.abspath(path))  # noqa: PTH100, PTH120


def _known(entry: Any) -> tuple[str, KnownFinding]:
    code, path, message, mark = (entry[name] for name in _TEXTS)
    if not all(isinstance(text, str) for text in (code, path, message, mark)):
        raise TypeError("not a string")
    return mark, KnownFinding(code, path, message)


def _write(path: Path, data: bytes) -> None:
    """Write a file with the mode of the old file, or the default mode for a new file."""
    try:
        with replacing(path, data, 0o666) as temporary, contextlib.suppress(OSError):
            temporary.chmod(stat.S_IMODE(path.stat().st_mode))
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def all_findings(report: Report) -> Iterator[Finding]:
    """Return the findings of all files."""
    return (finding for file in report.files for finding in file.findings)
