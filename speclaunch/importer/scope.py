"""The variables of a script while it is read, and how alternatives come together again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from itertools import takewhile
from typing import NamedTuple

from speclaunch.errors import Place
from speclaunch.importer import placeholders
from speclaunch.importer.interface import ANOTHER_WAY, DIFFERS, OTHERS_INSTEAD, Default, Word
from speclaunch.importer.source_text import DefaultOf, SourceSpan, WordPiece
from speclaunch.importer.syntax import Function
from speclaunch.record import record

_SHOWN = 120
"""Characters of the values that a variable may have that are told."""


@record
class Field:
    """One word after expansion.

    `span` is where it is written, when that is one stretch (a word, an element of an array, the
    value of a variable); `used` where it is expanded, when that is somewhere else.
    """

    pieces: tuple[WordPiece, ...]
    span: SourceSpan | None = None
    used: SourceSpan | None = None

    @property
    def unknown(self) -> str | None:
        """Why it could not be evaluated."""
        for piece in self.pieces:
            if piece.unknown:
                return piece.unknown
        return None

    @property
    def text(self) -> str:
        """The word; what is not known in it stays as it is written.

        Where that could be taken for something else (a literal `$` beside a variable), the whole
        word is as it is written, with its quotes.
        """
        if len(self.pieces) == 1 and not self.pieces[0].unknown:
            return self.pieces[0].text
        if self._is_raw and self.span is not None:
            return self.span.text
        return "".join(piece.text for piece in self.pieces)

    @property
    def _is_raw(self) -> bool:
        """True if `text` has the quotes of the file."""
        dollar = any("$" in piece.text for piece in self.pieces if not piece.unknown)
        return dollar and self.span is not None and self.unknown is not None

    @property
    def place(self) -> Place:
        """Where the text is written."""
        if self.span is not None:
            return self.span.place
        first, last = self.pieces[0], self.pieces[-1]
        start = first.offset(0)
        length = last.offset(max(len(last.text) - 1, 0)) - start + 1
        return first.source.document.place(start, max(length, 1))

    @property
    def stretch(self) -> SourceSpan:
        """Where it is written, or as near as one stretch comes to it."""
        if self.span is not None:
            return self.span
        first = self.pieces[0]
        return SourceSpan(
            first.source, first.start, first.start + (len(first.text) if first.exact else 1)
        )

    def word(self) -> Word:
        """The word for users."""
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
            placeholder = placeholders.why(text, lenient=lenient, quoted=quoted)
            if placeholder is not None:
                return Word(text, self.place, False, placeholder, used, True, condition=condition)
        if unknown is not None:
            inside = self._is_raw or any(piece.inside for piece in self.pieces)
            return Word(text, self.place, False, why, used, inside=inside, condition=condition)
        defaults = self._defaults()
        return Word(text, self.place, True, why, used, defaults=defaults, condition=condition)

    def _is_plain(self) -> bool:
        """Whether it is one text with nothing to be said about it."""
        if len(self.pieces) != 1:
            return False
        piece = self.pieces[0]
        if piece.unknown or piece.condition or piece.note or piece.around:
            return False
        return not piece.source.document.lenient and not placeholders.MARKS.search(piece.text)

    def _defaults(self) -> tuple[Default, ...]:
        if not any(piece.around for piece in self.pieces):
            return ()
        stretches: list[_Stretch] = []
        at = 0
        for piece in self.pieces:
            stretches.append(_Stretch(at, at + len(piece.text), piece.start, piece.around))
            at += len(piece.text)
        return _nested(stretches)


class _Stretch(NamedTuple):
    """Where a piece is in its word, where it is written, and what it is a default of."""

    start: int
    end: int
    written: int
    around: tuple[DefaultOf, ...]

    def continues(self, other: _Stretch) -> bool:
        """Whether it goes on with the default that `other` is of; a second use begins anew."""
        if not self.around or not other.around:
            return False
        mine, its = self.around[0], other.around[0]
        return mine[:3] == its[:3] and (its.number, other.written) < (mine.number, self.written)


def _nested(stretches: Sequence[_Stretch]) -> tuple[Default, ...]:
    groups: list[list[_Stretch]] = []
    for one in stretches:
        if groups and one.continues(groups[-1][-1]):
            groups[-1].append(one)
        else:
            groups.append([one])
    return tuple(
        Default(
            group[0].start,
            group[-1].end,
            group[0].around[0].name,
            group[0].around[0].filled,
            _nested([one._replace(around=one.around[1:]) for one in group]),
        )
        for group in groups
        if group[0].around
    )


@record
class Value:
    """The value of a variable: pieces of text, or the fields of an array; neither: not known.

    `why` says why it is not known.  `span` is where it is written.
    """

    span: SourceSpan
    pieces: tuple[WordPiece, ...] | None = None
    items: tuple[Field, ...] | None = None
    exported: bool = False
    why: str | None = None

    @property
    def size(self) -> int:
        """What it costs to go through it."""
        return len(self.items or ()) + len(self.pieces or ())

    def texts(self) -> tuple[str, ...] | None:
        """The value as plain texts, to compare it with another; None when it is not known."""
        if self.items is not None:
            return ("(", *(item.text for item in self.items))
        if self.pieces is not None:
            return ("".join(piece.text for piece in self.pieces),)
        return None

    def under(self, condition: str, after: int = 0) -> Value:
        """The same value, a condition on all of it but its first elements or characters."""

        def put(piece: WordPiece) -> WordPiece:
            return replace(piece, condition=piece.condition or condition)

        if self.items is not None:
            rest = tuple(
                replace(item, pieces=tuple(map(put, item.pieces))) for item in self.items[after:]
            )
            return replace(self, items=(*self.items[:after], *rest))
        if self.pieces is None:
            return self
        pieces: list[WordPiece] = []
        for piece in self.pieces:
            length = len(piece.text)
            if 0 < after < length:
                pieces += [piece.slice(0, after), put(piece.slice(after, length))]
            else:
                pieces.append(put(piece) if after <= 0 else piece)
            after -= length
        return replace(self, pieces=tuple(pieces))


Changes = Mapping[str, Value | None]


@record(frozen=False)
class ShellScope:
    """What is set at this point of a script.  `positional` is None where it is not known."""

    variables: dict[str, Value] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    positional: tuple[Field, ...] | None = None
    sourced: list[str] = field(default_factory=list)
    export_all: bool = False
    passed: frozenset[str] = frozenset()
    """Names that another program replaces before a shell sees them: never known here."""
    locals: list[dict[str, Value | None]] = field(default_factory=list)
    """For each function that is being read: what its local variables were before."""
    _journals: list[dict[str, Value | None]] = field(default_factory=list)

    def get(self, name: str) -> Value | None:
        """The value of a variable, None when this file does not set it."""
        return self.variables.get(name)

    def set(self, name: str, value: Value | None) -> None:
        """Set or (None) unset a variable."""
        if self._journals:
            self._journals[-1].setdefault(name, self.variables.get(name))
        if value is None:
            self.variables.pop(name, None)
        else:
            self.variables[name] = value

    @contextmanager
    def apart(self) -> Iterator[dict[str, Value | None]]:
        """Changes made inside are undone at the end and left in the mapping that this gives."""
        journal: dict[str, Value | None] = {}
        changes: dict[str, Value | None] = {}
        around = self.positional, self.export_all
        self._journals.append(journal)
        try:
            yield changes
        finally:
            self._journals.pop()
            self.positional, self.export_all = around
            for name, before in journal.items():
                changes[name] = self.variables.get(name)
                if before is None:
                    self.variables.pop(name, None)
                else:
                    self.variables[name] = before

    def merge(self, alternatives: list[Changes], condition: str, *, complete: bool) -> None:
        """After an `if`: what holds whichever way it went.

        One value, or one that the others are the beginning of, is taken under `condition`, and so
        is the first of several arrays; anything else is not known.  `complete`: one of the
        alternatives was taken for certain.
        """
        names = dict.fromkeys(name for changes in alternatives for name in changes)
        for name in names:
            before = self.variables.get(name)
            values = [changes.get(name, before) for changes in alternatives]
            if not complete:
                values.append(before)
            self.set(name, _either(values, condition))


def _either(values: list[Value | None], condition: str) -> Value | None:
    known = [value for value in values if value is not None]
    may_be_set = len(known) < len(values)  # by the environment
    if not known or (may_be_set and all(value.texts() == ("",) for value in known)):
        return None
    exported = any(value.exported for value in known)
    texts = [value.texts() for value in known]
    if len(known) == len(values) and all(text == texts[0] and text for text in texts):
        return replace(known[0], exported=exported)
    arrays = [value.items is not None for value in known]
    if all(arrays) or not any(arrays):
        longest = max(range(len(known)), key=lambda index: _size(known[index]))
        if all(_begins(text, texts[longest]) for text in texts):
            shortest = min(map(_size, known)) if len(known) == len(values) else 0
            after = max(shortest - (1 if all(arrays) else 0), 0)
            return replace(known[longest].under(condition, after), exported=exported)
    if all(arrays):
        common = _common(texts) if len(known) == len(values) else 0
        first = next(value for value in known if _size(value) > common + 1)
        said = f"{condition}{OTHERS_INSTEAD}"
        return replace(first.under(said, common), exported=exported)
    if len(known) == len(values) and not any(arrays):
        partly = _begun(known, condition)
        whole = all(text and _starts_a_server(text[0]) for text in texts)
        if whole and not (partly is not None and _starts_a_server(_certain(partly))):
            least = min(range(len(known)), key=lambda index: _size(known[index]))
            said = f"{condition}{ANOTHER_WAY}"
            partly = known[least].under(said)
        if partly is not None:
            return replace(partly, exported=exported)
    choices = [" ".join(text) for text in texts if text]
    shown = f" ({', '.join(dict.fromkeys(choices))})" if 0 < sum(map(len, choices)) < _SHOWN else ""
    why = next((value.why for value in known if value.why), None)
    why = why or f"its value depends on a condition{shown}"
    return Value(known[0].span, exported=exported, why=why)


def _starts_a_server(text: str) -> bool:
    from speclaunch.importer.wrappers import SERVER  # noqa: PLC0415  it imports us

    return SERVER.search(text) is not None


def _certain(value: Value) -> str:
    return "".join(piece.text for piece in value.pieces or () if not piece.condition)


def _begun(known: list[Value], condition: str) -> Value | None:
    """What texts have in common at their beginning, words of it; the rest depends on a condition.

    The rest of the first is shown: as words under the condition where it is arguments, else as a
    value that is not known.
    """
    texts = ["".join(piece.text for piece in value.pieces or ()) for value in known]
    shared = takewhile(lambda chars: len(set(chars)) == 1, zip(*texts, strict=False))
    common = sum(1 for _ in shared)
    start = max((at + 1 for at in range(common) if texts[0][at].isspace()), default=0)
    if not texts[0][:start].strip() or start >= len(texts[0]):
        return None
    if texts[0].startswith("-", start):
        return known[0].under(f"{condition}{OTHERS_INSTEAD}", start)
    shown = ", ".join(dict.fromkeys(text[start:] for text in texts))
    why = DIFFERS + (f" ({shown})" if len(shown) < _SHOWN else "")
    pieces = list(known[0].under(condition, start).pieces or ())
    at = 0
    for index, piece in enumerate(pieces):
        if at >= start:
            pieces[index] = replace(piece, unknown=why, inside=True)
        at += len(piece.text)
    return replace(known[0], pieces=tuple(pieces))


def _common(texts: list[tuple[str, ...] | None]) -> int:
    """How many elements arrays have in common at their beginning."""
    rows = zip(*(text[1:] for text in texts if text), strict=False)
    return sum(1 for _ in takewhile(lambda row: len(set(row)) == 1, rows))


def _size(value: Value) -> int:
    texts = value.texts()
    if texts is None:
        return -1
    return len(texts) if value.items is not None else len(texts[0])


def _begins(text: tuple[str, ...] | None, longest: tuple[str, ...] | None) -> bool:
    if text is None or longest is None:
        return False
    if longest[0] == "(" and len(longest) >= len(text):
        return text == longest[: len(text)]
    if len(text) != 1 or len(longest) != 1:
        return False
    whole, start = longest[0], text[0]
    # more words after the same ones; "16" is no longer version of "1"
    return not start or whole == start or (whole.startswith(start) and whole[len(start)].isspace())
