"""Edits of a text by line and column, target values of a fix, and texts that can be edited."""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, islice, pairwise, product, takewhile
from pathlib import Path
from typing import Any

from msgspec import Struct

from speclaunch.checks.rules.interface import Fix
from speclaunch.core import (
    InputError,
    Place,
    is_literal_secret,
    literals,
    read_regular,
    write_temporary,
)
from speclaunch.engine import Catalogue, canonical, parse_argv, render_args


class TextEdit(Struct, frozen=True):
    """Replacement of the text between two positions (from 1, the end excluded).

    Columns count characters (code points); line ends are part of their line. If begin and end are
    equal, `new` is inserted. Line `n + 1`, column 1 is the end of a text of `n` complete lines.
    """

    line: int
    column: int
    end_line: int
    end_column: int
    new: str


class FileEdits(Struct, frozen=True):
    """File before and after a fix: `applied(before, edits)` is `after`.

    `path` is the file's name as `lint` shows it. `before` has no byte order mark. `safe`: the fix
    preserves the intent of the deployment.
    """

    path: str
    edits: tuple[TextEdit, ...]
    safe: bool
    before: str
    after: str


def text_edits_between(before: str, after: str) -> tuple[TextEdit, ...]:
    """Return the edits from one text to the other, in order. No two are adjacent."""
    old, new = lines_of(before), lines_of(after)
    starts = list(accumulate(map(len, old), initial=0))
    most = len(old) + (before.endswith("\n") or not old)  # last line in an editor
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    found: list[TextEdit] = []
    for kind, old_from, old_to, new_from, new_to in matcher.get_opcodes():
        if kind == "equal":
            continue
        gone, come = "".join(old[old_from:old_to]), "".join(new[new_from:new_to])
        first = _common(gone, come)
        last = _common(gone[first:][::-1], come[first:][::-1])
        start = starts[old_from] + first
        end = starts[old_to] - last
        line, column = _position(starts, start, most)
        end_line, end_column = _position(starts, end, most)
        inserted = come[first : len(come) - last]
        found.append(TextEdit(line, column, end_line, end_column, inserted))
    return tuple(found)


def applied(text: str, edits: Sequence[TextEdit]) -> str:
    """Return the text with every edit applied. Raises ValueError if edits overlap."""
    starts = list(accumulate(map(len, lines_of(text)), initial=0))
    pieces: list[str] = []
    at = 0
    for edit in sorted(edits, key=lambda item: (item.line, item.column)):
        start = starts[edit.line - 1] + edit.column - 1
        if start < at:
            raise ValueError("edits overlap")
        pieces += [text[at:start], edit.new]
        at = starts[edit.end_line - 1] + edit.end_column - 1
    return "".join([*pieces, text[at:]])


def _common(first: str, second: str) -> int:
    """Return the length of the common prefix of two texts."""
    pairs = zip(first, second, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _position(starts: Sequence[int], offset: int, most: int) -> tuple[int, int]:
    line = min(bisect_right(starts, offset), most)
    return line, offset - starts[line - 1] + 1


_CONTEXT = 3


class ShownDiff(Struct, frozen=True):
    """Diff that is safe to show.

    `hidden` is the number of values replaced by `***`; unless it is 0, the diff cannot be applied.
    `context` is the number of unchanged lines around a change.
    """

    text: str
    hidden: int
    context: int


def shown_diff(before: str, after: str, name: str, hidden: Collection[str]) -> ShownDiff:
    """Return the diff with secrets redacted: the values of `hidden`, and text that looks secret.

    If only context lines contain secrets, fewer context lines are shown.
    """
    known = {value for value in hidden if is_literal_secret(value)}
    for context in range(_CONTEXT, -1, -1):
        text = diff(before, after, name, context)
        if not _found(text, known):
            return ShownDiff(text, 0, context)
    text = diff(before, after, name, _CONTEXT)
    found = _found(text, known)
    for value in sorted(found, key=len, reverse=True):
        text = text.replace(value, "***")
    return ShownDiff(text, len(found), _CONTEXT)


def _found(text: str, known: Collection[str]) -> set[str]:
    return {value for value in known if value in text} | {
        value for line in text.splitlines() for value in literals(line)
    }


class Edit(Struct, frozen=True):
    """Replacement of `length` characters at a line and column (both from 1) with `new`."""

    line: int
    column: int
    length: int
    new: str


class Insertion(Struct, frozen=True):
    """Complete line to insert before line `line`, with the indentation of that line."""

    line: int
    text: str


Change = Edit | Insertion
Ways = list[list[Edit]]
"""Alternative edits for one change, best first. Each alternative is a list of edits."""


def combinations(steps: Iterable[Ways], most: int) -> Iterator[list[Edit]]:
    """Yield at most `most` lists of edits, each with one alternative for every change."""
    for chosen in islice(product(*(step for step in steps if step != [[]])), most):
        yield [edit for edits in chosen for edit in edits]


def apply(text: str, changes: Iterable[Change]) -> str:
    """Return the text with every change applied. Existing line ends are unchanged.

    A line is removed if an edit leaves it empty, or leaves only a continuation (`\\`) or a dash. If
    it was the last line of its command, the continuation before it is removed, too. Raises
    ValueError if edits overlap.
    """
    lines = lines_of(text)
    changes = list(dict.fromkeys(changes))
    edits = sorted(
        (change for change in changes if isinstance(change, Edit)),
        key=lambda edit: (edit.line, edit.column, edit.length),
    )
    for before, after in pairwise(edits):
        if before.line == after.line and before.column + before.length > after.column:
            raise ValueError(f"edits overlap on line {after.line}")
    emptied: set[int] = set()
    for edit in reversed(edits):
        line = lines[edit.line - 1]
        start = edit.column - 1
        if start + edit.length > len(line.rstrip("\r\n")):
            raise ValueError(f"line {edit.line} is shorter than the edit")
        head, rest = line[:start], line[start + edit.length :]
        if not edit.new and edit.length:
            rest = rest.removeprefix(" ")
            head = head if rest.strip() else head.rstrip(" ")
        lines[edit.line - 1] = head + edit.new + rest
        if not edit.new and lines[edit.line - 1].strip() in ("", "\\", "-"):
            emptied.add(edit.line)
    _drop_emptied(lines, emptied)
    inserted: dict[int, list[str]] = {}
    for change in changes:
        if isinstance(change, Insertion):
            inserted.setdefault(change.line, []).append(change.text)
    for number in sorted(inserted, reverse=True):
        line = lines[number - 1] if number <= len(lines) else ""
        indent = line[: len(line) - len(line.lstrip())].rstrip("\r\n")
        end = SourceLines(text).end
        lines[number - 1 : number - 1] = [f"{indent}{added}{end}" for added in inserted[number]]
    return "".join(lines)


def lines_of(text: str) -> list[str]:
    """Return the lines with their ends, split at line feeds only, as editors do."""
    *complete, last = text.split("\n")
    return [*(f"{line}\n" for line in complete), *([last] if last else [])]


class SourceLines:
    """Text of a file by line; `end` is its line ending."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = [line.rstrip("\r") for line in text.split("\n")]
        self.end = "\r\n" if text.count("\r\n") > text.count("\n") // 2 else "\n"

    def line(self, number: int) -> str:
        """Return a line by its number, from 1; empty outside of the text."""
        return self.lines[number - 1] if 1 <= number <= len(self.lines) else ""

    def at(self, place: Place) -> str:
        return self.line(place.line)[place.column - 1 : place.column - 1 + place.length]


def _drop_emptied(lines: list[str], emptied: set[int]) -> None:
    for number in sorted(emptied, reverse=True):
        last = not lines[number - 1].strip()  # not a list item, and no continuation
        lines[number - 1] = ""
        if not last:
            continue
        above = number - 1
        while above >= 1 and not lines[above - 1]:
            above -= 1
        if above >= 1:
            before = lines[above - 1]
            body = before.rstrip()
            if body.endswith("\\") and not body.endswith("\\\\"):
                lines[above - 1] = body[:-1].rstrip() + before[len(body) :]


def diff(before: str, after: str, name: str, context: int = 3) -> str:
    """Return a unified diff for `patch -p1` and `git apply` (`--unidiff-zero` without context)."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True),
        after.splitlines(keepends=True),
        f"a/{name.lstrip('/')}",
        f"b/{name.lstrip('/')}",
        n=context,
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def write_atomically(path: Path, text: str) -> None:
    """Replace a file with a text atomically, preserving its mode. Raises InputError.

    Links are followed. Devices and pipes, such as `/dev/stderr`, are written to directly.
    """
    if not path.exists() or path.is_file():
        write_together({path.resolve() if path.is_symlink() else path: text})
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error


def write_together(texts: Mapping[Path, str]) -> None:
    """Replace files with texts, all or none, preserving their modes. Raises InputError.

    All texts are first written to temporary files. If a file cannot be replaced, the files
    replaced before it are restored.
    """
    staged: dict[Path, Path] = {}
    done: list[tuple[Path, bytes | None]] = []
    path = Path()
    try:
        for path, text in texts.items():
            staged[path] = write_temporary(path, text.encode(), 0o666)
            if path.exists():
                staged[path].chmod(path.stat().st_mode & 0o777)
        for path, temporary in staged.items():
            old = read_regular(path) if len(texts) > 1 and path.exists() else None
            temporary.replace(path)
            done.append((path, old))
    except OSError as error:
        for temporary in staged.values():
            with suppress(OSError):  # the name itself may be invalid
                temporary.unlink()
        for changed, old in done:
            if old is not None:
                changed.write_bytes(old)
        raise InputError(f"cannot write {path}: {error.strerror}") from error


class NotFixableError(Exception):
    """A fix is left to the user; the message is the reason, as a clause."""


class TargetArgument(Struct, frozen=True):
    """Argument after a fix. `words`: its tokens on a command line, empty if it is removed.

    `name`: its name in the newest engine. `own`: its name in the command's version. `stored`: the
    value that this version's parser stores.
    """

    name: str
    own: str
    value: Any
    words: tuple[str, ...]
    stored: Any = None

    @property
    def values(self) -> tuple[str, ...]:
        if len(self.words) == 1 and "=" in self.words[0]:
            return (self.words[0].partition("=")[2],)
        return self.words[1:]

    @property
    def is_removed(self) -> bool:
        return not self.words


class FixTarget(Struct, frozen=True):
    """Arguments and variables of a deployment that a fix sets, with their target values."""

    arguments: Mapping[str, TargetArgument]
    env: Mapping[str, str | None]


def target_of(fix: Fix, catalogue: Catalogue) -> FixTarget:
    """Return a fix's target values for the release of `catalogue`. Raises NotFixableError."""
    found = {canonical(name): _argument(name, value, catalogue) for name, value in fix.set.items()}
    return FixTarget(found, dict(fix.env))


def _argument(name: str, value: Any, catalogue: Catalogue) -> TargetArgument:
    key = canonical(name)
    if value is None:
        return TargetArgument(key, name, None, ())
    rendered = render_args({name: value}, {}, catalogue)
    if rendered.problems:
        raise NotFixableError(rendered.problems[0].message)
    if not rendered.arguments:  # a switch that is off
        return TargetArgument(key, name, value, ())
    words = rendered.arguments[0].tokens
    parsed = parse_argv(words, catalogue, with_values=False)
    refused = [problem for problem in parsed.problems if problem.index is not None]
    if refused or len(parsed.parsed) != 1:
        reason = refused[0].message if refused else f"`{' '.join(words)}` cannot be parsed"
        raise NotFixableError(f"SGLang {catalogue.version} refuses the fix: {reason}")
    (item,) = parsed.parsed
    return TargetArgument(key, item.name, value, words, item.stored)


class EditablePlaces(ABC):
    """Editable text of a deployment: tokens of a command, keys of YAML, keywords of Python.

    Methods raise NotFixableError to leave the fix to the user.
    """

    most_ways: int
    """Maximum number of combinations to try."""

    @abstractmethod
    def change(self, argument: TargetArgument) -> Ways | None:
        """Return alternative edits that change or remove an argument; None if it must be added."""

    @abstractmethod
    def finish(self, new: Sequence[TargetArgument]) -> Iterator[Ways]:
        """Yield the alternatives for each remaining change: removals, and `new` arguments."""

    @abstractmethod
    def set_variable(self, name: str, value: str | None) -> Ways:
        """Return alternative edits that set a variable or remove it (None)."""

    def ways(self, target: FixTarget) -> Iterator[list[Edit]]:
        """Yield lists of edits, each of which reaches the target, best first."""
        steps: list[Ways] = []
        new: list[TargetArgument] = []
        for argument in target.arguments.values():
            found = self.change(argument)
            if found is None:
                new.append(argument)
            else:
                steps.append(found)
        steps += self.finish(new)
        steps += [self.set_variable(name, value) for name, value in target.env.items()]
        yield from combinations(steps, self.most_ways)
