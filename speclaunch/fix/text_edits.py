"""The difference of two texts as edits with exact ranges, for editors and code scanners."""

from __future__ import annotations

import difflib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from speclaunch.fix.edits import lines_of
from speclaunch.record import record


@record
class TextEdit:
    """Replace the text from a line and column up to another (all from 1, the end left out).

    Columns count characters (code points), line ends are part of their line. Where begin and end
    are the same, `new` is inserted. Line `n + 1`, column 1 is the end of a text of `n` whole lines.
    """

    line: int
    column: int
    end_line: int
    end_column: int
    new: str


@record
class FileEdits:
    """What a fix makes of a file: `applied(before, edits)` is `after`.

    `path` is the file's name as the lint shows it. `before` is without a byte order mark. `safe`:
    the deployment still does what it was meant to do.
    """

    path: str
    edits: tuple[TextEdit, ...]
    safe: bool
    before: str
    after: str


def text_edits_between(before: str, after: str) -> tuple[TextEdit, ...]:
    """The edits that turn one text into the other, in order, none next to another."""
    old, new = lines_of(before), lines_of(after)
    starts = list(accumulate(map(len, old), initial=0))
    most = len(old) + (before.endswith("\n") or not old)  # an editor's last line
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
    """The text with every edit made. Raises ValueError when edits overlap."""
    starts = list(accumulate(map(len, lines_of(text)), initial=0))
    pieces: list[str] = []
    at = 0
    for start, end, new in _offsets(starts, edits):
        if start < at:
            raise ValueError("edits overlap")
        pieces += [text[at:start], new]
        at = end
    return "".join([*pieces, text[at:]])


def _offsets(starts: Sequence[int], edits: Sequence[TextEdit]) -> Iterator[tuple[int, int, str]]:
    for edit in sorted(edits, key=lambda one: (one.line, one.column)):
        start = starts[edit.line - 1] + edit.column - 1
        yield start, starts[edit.end_line - 1] + edit.end_column - 1, edit.new


def _position(starts: Sequence[int], offset: int, most: int) -> tuple[int, int]:
    line = min(bisect_right(starts, offset), most)
    return line, offset - starts[line - 1] + 1


def _common(one: str, other: str) -> int:
    """How many characters both begin with."""
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return at
    return min(len(one), len(other))
