"""Puts the pieces of an expansion together to words, splitting what was not quoted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from speclaunch.importer.scope import Field
from speclaunch.importer.source_text import WordPiece
from speclaunch.importer.syntax import Literal, Part
from speclaunch.patterns import lazy

_BLANKS = lazy(r"[ \t\n]+")


class FieldBuilder:
    """Puts pieces together to fields."""

    def __init__(self) -> None:
        self._fields: list[Field] = []
        self._pieces: list[WordPiece] = []
        self._open = False
        self._whole: Field | None = None

    def add(self, pieces: Sequence[WordPiece], *, quoted: bool) -> None:
        """Text that is not split; what is quoted makes a word even when it is empty."""
        for piece in pieces:
            if piece.text or (quoted and piece.around):
                wanted = quoted and not piece.quoted
                self._pieces.append(piece.with_owner(piece.owner, quoted=True) if wanted else piece)
        self._open = self._open or quoted or bool(self._pieces)

    def split(self, pieces: Sequence[WordPiece]) -> None:
        """The text of an expansion that was not quoted."""
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
            elif piece.around and not piece.text and self._open:
                self._pieces.append(piece)

    def several(self, fields: Sequence[Field], *, quoted: bool) -> None:
        """The elements of an array: each a word, the first and last joined to their neighbours."""
        for number, field in enumerate(fields):
            if number:
                self._close()
            if quoted or (field.unknown is None and not _BLANKS.search(field.text) and field.text):
                if not self._open:
                    self._whole = field
                self._pieces.extend(field.pieces)
                self._open = True
            else:
                self.split(
                    [one.with_owner(one.owner, quoted=bool(one.unknown)) for one in field.pieces]
                )

    def _close(self) -> None:
        if self._open:
            pieces = tuple(self._pieces)
            whole = self._whole
            keep = whole is not None and whole.pieces == pieces
            self._fields.append(whole if keep and whole is not None else Field(pieces))
        self._whole = None
        self._pieces = []
        self._open = False

    def done(self) -> list[Field]:
        """The fields, complete."""
        self._close()
        return self._fields


def starts_home(parts: Sequence[Part]) -> bool:
    """Whether a word starts with an unquoted `~`."""
    first = parts[0] if parts else None
    return isinstance(first, Literal) and not first.quoted and first.text.startswith("~")


def marked(pieces: tuple[WordPiece, ...], why: str) -> tuple[WordPiece, ...]:
    """The pieces of a word that is not evaluated."""
    return tuple(replace(piece, unknown=piece.unknown or why) for piece in pieces)


def with_pattern(field: Field) -> Field:
    """A pattern of file names stays, marked: which files there are is not looked up."""
    if field.unknown is None and any(
        not piece.quoted and piece.exact and ("*" in piece.text or "?" in piece.text)
        for piece in field.pieces
    ):
        why = "a pattern of file names; which files match is not looked up"
        return replace(field, pieces=marked(field.pieces, why))
    return field
