"""Text that stores the offset of each of its characters in the user's file.

A script or a YAML value may contain a script (``bash -c "…"``), and a variable's value may be split
into words. All of these are a `SourceText`: text whose characters point into one `Document`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import InputError, Place, Problem

MAX_WORK = 150_000
"""Maximum number of words and expansions in one file (about a second)."""


class Document:
    """Text of one user file."""

    def __init__(self, text: str, shown: str, *, lenient: bool = False) -> None:
        if "\0" in text:
            line = text.count("\n", 0, text.index("\0")) + 1
            raise InputError(Problem("a NUL byte: this is not a text file", Place(shown, line)))
        # Columns are the same without the carriage returns, and no shell needs them.
        self.text = text.replace("\r\n", "\n")
        self.shown = shown
        self.lenient = lenient
        """True for a document or template for readers, which no shell gets unchanged."""
        self._lines: list[int] | None = None
        self._work = 0
        self._parent: Document | None = None
        self.lines_above = 0
        """Number of lines of the file before this part."""
        self._chars_above = 0
        self._comments: list[tuple[int, int]] = []

    def spend(self, steps: int = 1) -> None:
        """Count work. Raise InputError if a file needs far more than any launch script."""
        self._work += steps
        if self._parent is not None:
            self._parent.spend(steps)
        if self._work > MAX_WORK:
            raise InputError(
                Problem(
                    f"{self.shown} is too large to read: it contains or expands to more than "
                    f"{MAX_WORK} words",
                    Place(self.shown),
                    "pass only the part with the server command",
                )
            )

    def place(self, at: int, length: int = 1) -> Place:
        """Return the place of the character `at`; `length` is clipped to the end of its line."""
        if self._lines is None:
            lengths = (len(line) + 1 for line in self.text.split("\n"))
            self._lines = list(accumulate(lengths, initial=0))[:-1]
        at = min(max(at, 0), len(self.text))
        line = bisect_right(self._lines, at)
        start = self._lines[line - 1]
        end = self._lines[line] - 1 if line < len(self._lines) else len(self.text)
        length = max(1, min(length, end - at))
        return Place(self.shown, self.lines_above + line, at - start + 1, length)

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a line and column that count from 0 (as YAML marks do)."""
        self.place(0)
        starts = self._lines or [0]
        return min(starts[min(line, len(starts) - 1)] + column, len(self.text))

    def at(self, place: Place) -> int:
        """Return the offset of a place in this document."""
        return self.offset(max(place.line - 1 - self.lines_above, 0), place.column - 1)

    def stretch(self, at: int) -> tuple[int, int]:  # noqa: ARG002
        """Return the range of the file that the character belongs to."""
        return 0, len(self.text)

    def excerpt(self, start: int, text: str) -> Document:
        """Return the text from `start`, a line's beginning, as a document with the same places.

        `text` must be as long as the original text. Its work counts towards this document.
        """
        found = Document(text, self.shown, lenient=self.lenient)
        found.lines_above = self.place(start).line - 1
        found._chars_above = start
        found._parent = self
        return found

    def indented(self, start: int, text: str) -> Document:
        """Return an excerpt of a program. If it is indented, a line that opens a block is added."""
        if text[:1] not in (" ", "\t"):
            return self.excerpt(start, text)
        above = "if 1:\n"
        found = self.excerpt(start, above + text)
        found.lines_above -= 1
        found._chars_above -= len(above)
        return found

    def note_comment(self, start: int, end: int) -> None:
        """Record the range of text that a shell reads as a comment."""
        if self._parent is not None:
            self._parent.note_comment(start + self._chars_above, end + self._chars_above)
        self._comments.append((start, end))

    @property
    def shell_comments(self) -> list[tuple[int, int]]:
        """Ranges that shells read as comments in the scripts read so far."""
        return self._comments

    def source(self, start: int = 0, end: int | None = None) -> SourceText:
        """Return a part of the file as a source."""
        return SourceText(self, self.text[start:end], start)


class SourceText(Struct, frozen=True, eq=False):
    """Text, with the document offset of each of its characters.

    `where` is one offset if the text is a contiguous part of the file, otherwise one offset per
    character.
    """

    document: Document
    text: str
    where: int | Sequence[int] = 0
    unknown: Sequence[tuple[int, WordPiece]] = ()
    """Pieces of a script inside a word that could not be evaluated, with their positions."""

    def offset(self, at: int) -> int:
        """Return the document offset of character `at`, which may be the end of the text."""
        if isinstance(self.where, int):
            return self.where + at
        if at < len(self.where):
            return self.where[at]
        return self.where[-1] + 1 if self.where else 0

    def place(self, at: int, end: int | None = None) -> Place:
        """Return the place of the text from `at` to `end`."""
        start = self.offset(at)
        last = self.offset(end - 1) if end is not None and end > at else start
        return self.document.place(start, max(last - start, 0) + 1)

    def part(self, start: int, end: int) -> SourceText:
        """Return the text from `start` to `end`."""
        if isinstance(self.where, int):
            return SourceText(self.document, self.text[start:end], self.where + start)
        return SourceText(self.document, self.text[start:end], self.where[start:end])


class SourceSpan(Struct, frozen=True):
    """Range of a source."""

    source: SourceText
    start: int
    end: int

    @property
    def text(self) -> str:
        """Raw text."""
        return self.source.text[self.start : self.end]

    @property
    def place(self) -> Place:
        """Place of the range."""
        return self.source.place(self.start, self.end)


class DefaultOf(NamedTuple):
    """Variable whose default contains a piece: `${name-…}`, or `${name:-…}` if `filled`.

    `at` is the position of that expansion; `number` is the index of the piece in the default.
    """

    name: str
    filled: bool
    at: int
    number: int


class WordPiece(Struct, frozen=True):
    """Range of an expanded word.

    If `exact`, the characters appear in the source from `start` on; otherwise all come from that
    place. `unknown` is the reason why a piece could not be evaluated; its text is then
    raw. `note` states an assumption. `owner` is the assignment that contains it. `condition`
    states when the piece exists: "only under the condition of line 7".
    """

    text: str
    source: SourceText
    start: int
    quoted: bool = False
    exact: bool = True
    unknown: str | None = None
    note: str | None = None
    owner: SourceSpan | None = None
    default_of: tuple[DefaultOf, ...] = ()
    """Environment variables whose default contains this piece, outermost first."""
    inside: bool = False
    """True if an unknown value depends on the file (a loop, a condition)."""
    condition: str | None = None

    def offset(self, index: int) -> int:
        """Return the document offset of the character `index`."""
        return self.source.offset(self.start + (index if self.exact else 0))

    def with_owner(self, owner: SourceSpan | None, *, quoted: bool) -> WordPiece:
        """Return the piece as part of a variable's value, or as quoted."""
        return replace(self, quoted=quoted, owner=owner)

    def slice(self, start: int, end: int) -> WordPiece:
        """Return the piece of characters `start` to `end`."""
        return WordPiece(
            self.text[start:end],
            self.source,
            self.start + (start if self.exact else 0),
            self.quoted,
            self.exact,
            self.unknown,
            self.note,
            self.owner,
            self.default_of,
            self.inside,
            self.condition,
        )


class SourceBuilder:
    """Builder of a source from texts and the document offsets of their characters."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._text: list[str] = []
        self._where: list[int] = []

    def put(self, text: str, where: Iterable[int]) -> None:
        """Add a text with the offset of each of its characters."""
        self._text.append(text)
        self._where.extend(where)

    def put_straight(self, text: str, at: int) -> None:
        """Add a text that appears literally from `at` on."""
        self.put(text, range(at, at + len(text)))

    def stand_in(self, text: str, at: int, last: int) -> None:
        """Add a replacement for the text from `at` to `last`, inclusive."""
        self.put(text, [at] * (len(text) - 1) + [last] * bool(text))

    def source(self) -> SourceText:
        """Return the complete source."""
        return SourceText(self._document, "".join(self._text), self._where)


_QUOTES = str.maketrans("\"'", "  ")


def joined(pieces: Iterable[WordPiece | SourceText], document: Document) -> SourceText:
    """Join pieces into one source, for a script inside a word.

    Quotes in an unknown piece become blanks: they must not end a word of the script.
    """
    builder = SourceBuilder(document)
    unknown: list[tuple[int, WordPiece]] = []
    end = 0
    for piece in pieces:
        text = piece.text
        if isinstance(piece, WordPiece) and piece.unknown:
            unknown.append((end, piece))
            text = text.translate(_QUOTES)
        builder.put(text, map(piece.offset, range(len(text))))
        end += len(text)
    return replace(builder.source(), unknown=unknown)
