"""Words after expansion: pieces of text with their places, joined and split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import Place, lazy
from speclaunch.deployments.sources.interface import Default, Word
from speclaunch.deployments.sources.shell_syntax import Literal, Part
from speclaunch.deployments.sources.source_text import (
    PLACEHOLDER_STARTS,
    DefaultOf,
    SourceSpan,
    WordPiece,
    why_placeholder,
)


class Field(Struct, frozen=True):
    """One word after expansion.

    `span` is its range in the file, if it has only one (a word, an array element, a variable's
    value). `used` is the range that expands it, if that is elsewhere.
    """

    pieces: tuple[WordPiece, ...]
    span: SourceSpan | None = None
    used: SourceSpan | None = None

    @property
    def unknown(self) -> str | None:
        """Reason why the word could not be evaluated, or None."""
        for piece in self.pieces:
            if piece.unknown:
                return piece.unknown
        return None

    @property
    def text(self) -> str:
        """Text of the word, with its unknown parts unchanged.

        Source text with its quotes if the unquoted text is ambiguous (a literal `$` next to a
        variable).
        """
        if len(self.pieces) == 1 and not self.pieces[0].unknown:
            return self.pieces[0].text
        if self._is_raw and self.span is not None:
            return self.span.text
        return "".join(piece.text for piece in self.pieces)

    @property
    def _is_raw(self) -> bool:
        """True if `text` includes the quotes in the file."""
        dollar = any("$" in piece.text for piece in self.pieces if not piece.unknown)
        return dollar and self.span is not None and self.unknown is not None

    @property
    def place(self) -> Place:
        """Place of the text."""
        if self.span is not None:
            return self.span.place
        first, last = self.pieces[0], self.pieces[-1]
        start = first.offset(0)
        length = last.offset(max(len(last.text) - 1, 0)) - start + 1
        return first.source.document.place(start, max(length, 1))

    @property
    def stretch(self) -> SourceSpan:
        """Range in the file, or the closest single range."""
        if self.span is not None:
            return self.span
        first = self.pieces[0]
        return SourceSpan(
            first.source, first.start, first.start + (len(first.text) if first.exact else 1)
        )

    def word(self) -> Word:
        """Return the word for results and messages."""
        if self._is_plain():
            used = self.used.place if self.used is not None else None
            return Word(self.pieces[0].text, self.place, True, None, used)
        unknown = self.unknown
        condition = next((piece.condition for piece in self.pieces if piece.condition), None)
        why = unknown or next((piece.note for piece in self.pieces if piece.note), condition)
        used = self.used.place if self.used is not None else None
        text = self.text
        if unknown is None and self.pieces:
            quoted = all(piece.quoted for piece in self.pieces)
            lenient = self.pieces[0].source.document.lenient
            placeholder = why_placeholder(text, lenient=lenient, quoted=quoted)
            if placeholder is not None:
                return Word(text, self.place, False, placeholder, used, True, condition=condition)
        if unknown is not None:
            inside = self._is_raw or any(piece.inside for piece in self.pieces)
            return Word(text, self.place, False, why, used, inside=inside, condition=condition)
        defaults = self._defaults()
        return Word(text, self.place, True, why, used, defaults=defaults, condition=condition)

    def _is_plain(self) -> bool:
        """True for one text without a reason, condition, note or default."""
        if len(self.pieces) != 1:
            return False
        piece = self.pieces[0]
        if piece.unknown or piece.condition or piece.note or piece.default_of:
            return False
        return not piece.source.document.lenient and not PLACEHOLDER_STARTS.search(piece.text)

    def _defaults(self) -> tuple[Default, ...]:
        if not any(piece.default_of for piece in self.pieces):
            return ()
        stretches: list[_Stretch] = []
        at = 0
        for piece in self.pieces:
            stretches.append(_Stretch(at, at + len(piece.text), piece.start, piece.default_of))
            at += len(piece.text)
        return _nested(stretches)


class _Stretch(NamedTuple):
    """Position of a piece in its word and in the file, and the defaults around it."""

    start: int
    end: int
    written: int
    default_of: tuple[DefaultOf, ...]

    def continues(self, other: _Stretch) -> bool:
        """True if it continues the default of `other`. A second use of a default does not."""
        if not self.default_of or not other.default_of:
            return False
        mine, its = self.default_of[0], other.default_of[0]
        return mine[:3] == its[:3] and (its.number, other.written) < (mine.number, self.written)


def _nested(stretches: Sequence[_Stretch]) -> tuple[Default, ...]:
    groups: list[list[_Stretch]] = []
    for stretch in stretches:
        if groups and stretch.continues(groups[-1][-1]):
            groups[-1].append(stretch)
        else:
            groups.append([stretch])
    return tuple(
        Default(
            group[0].start,
            group[-1].end,
            group[0].default_of[0].name,
            group[0].default_of[0].filled,
            _nested([stretch._replace(default_of=stretch.default_of[1:]) for stretch in group]),
        )
        for group in groups
        if group[0].default_of
    )


_BLANKS = lazy(r"[ \t\n]+")


class FieldBuilder:
    """Builder of fields from pieces."""

    def __init__(self) -> None:
        self._fields: list[Field] = []
        self._pieces: list[WordPiece] = []
        self._open = False
        self._single: Field | None = None

    def add(self, pieces: Sequence[WordPiece], *, quoted: bool) -> None:
        """Add text without splitting; quoted text makes a word even if it is empty."""
        for piece in pieces:
            if piece.text or (quoted and piece.default_of):
                must_quote = quoted and not piece.quoted
                self._pieces.append(
                    piece.with_owner(piece.owner, quoted=True) if must_quote else piece
                )
        self._open = self._open or quoted or bool(self._pieces)

    def split(self, pieces: Sequence[WordPiece]) -> None:
        """Add the text of an unquoted expansion, split at blanks."""
        for piece in pieces:
            if piece.unknown or piece.quoted:
                self.add((piece,), quoted=True)
                continue
            start = 0
            for blank in _BLANKS.finditer(piece.text):
                if blank.start() > start:
                    self.add((piece.slice(start, blank.start()),), quoted=False)
                self._close()
                start = blank.end()
            if start < len(piece.text):
                self.add((piece.slice(start, len(piece.text)),), quoted=False)
            elif piece.default_of and not piece.text and self._open:
                self._pieces.append(piece)

    def several(self, fields: Sequence[Field], *, quoted: bool) -> None:
        """Add array elements as words. The first and last join the adjacent text."""
        for number, field in enumerate(fields):
            if number:
                self._close()
            if quoted or (field.unknown is None and not _BLANKS.search(field.text) and field.text):
                if not self._open:
                    self._single = field
                self._pieces.extend(field.pieces)
                self._open = True
            else:
                self.split(
                    [
                        piece.with_owner(piece.owner, quoted=bool(piece.unknown))
                        for piece in field.pieces
                    ]
                )

    def _close(self) -> None:
        if self._open:
            pieces = tuple(self._pieces)
            single = self._single
            is_single = single is not None and single.pieces == pieces
            self._fields.append(single if is_single and single is not None else Field(pieces))
        self._single = None
        self._pieces = []
        self._open = False

    def done(self) -> list[Field]:
        """Return the complete fields."""
        self._close()
        return self._fields


def starts_home(parts: Sequence[Part]) -> bool:
    """True if a word starts with an unquoted `~`."""
    first = parts[0] if parts else None
    return isinstance(first, Literal) and not first.quoted and first.text.startswith("~")


def marked(pieces: tuple[WordPiece, ...], why: str) -> tuple[WordPiece, ...]:
    """Return the pieces of an unevaluated word, with the reason."""
    return tuple(replace(piece, unknown=piece.unknown or why) for piece in pieces)


def with_pattern(field: Field) -> Field:
    """Mark a file name pattern as unknown, because it is not expanded."""
    if field.unknown is None and any(
        not piece.quoted and piece.exact and ("*" in piece.text or "?" in piece.text)
        for piece in field.pieces
    ):
        why = "a file name pattern, which is not expanded"
        return replace(field, pieces=marked(field.pieces, why))
    return field


_SEPARATORS = frozenset(" \t\n\r")


def split(pieces: Sequence[WordPiece]) -> list[Field]:
    """Split pieces into words. Unknown pieces are not split, and a quote may remain open."""
    splitter = _Splitter()
    for piece in pieces:
        if piece.unknown:
            splitter.unsplit(piece)
        else:
            splitter.text(piece)
    return splitter.done()


class _Splitter:
    def __init__(self) -> None:
        self._words: list[Field] = []
        self._pieces: list[WordPiece] | None = None
        self._quote = ""
        self._escaped = False

    def unsplit(self, piece: WordPiece) -> None:
        self._pieces = [*(self._pieces or ()), piece]

    def text(self, piece: WordPiece) -> None:
        """Add a piece, interpreting its quotes and blanks."""
        start = 0
        for index, char in enumerate(piece.text):
            if self._escaped:
                self._escaped = False
                keeps_backslash = self._quote != '"' or char in '"\\'
                start = index if keeps_backslash else max(index - 1, 0)
            elif char == "\\" and self._quote != "'":
                self._take(piece, start, index)
                self._escaped = True
                start = index + 1
            elif (self._quote and char == self._quote) or (not self._quote and char in "'\""):
                self._take(piece, start, index)
                self._take(piece, index, index)  # `""` is also a word
                self._quote = "" if self._quote else char
                start = index + 1
            elif not self._quote and char in _SEPARATORS:
                self._take(piece, start, index)
                self._end()
                start = index + 1
        self._take(piece, start, len(piece.text))

    def _take(self, piece: WordPiece, start: int, end: int) -> None:
        if end > start or piece.text[start : start + 1] in ("'", '"'):
            if self._pieces is None:
                self._pieces = []
            self._pieces.append(piece.slice(start, end))

    def _end(self) -> None:
        if self._pieces is not None:
            filled = tuple(piece for piece in self._pieces if piece.text)
            self._words.append(Field(filled or tuple(self._pieces[:1])))
            self._pieces = None

    def done(self) -> list[Field]:
        self._end()
        return self._words
