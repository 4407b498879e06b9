"""Words after expansion, and the variables of a script.

A word is a sequence of text pieces with their places. This module joins and splits words, and
merges the variables of branches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import Place, lazy
from speclaunch.deployments.sources.interface import (
    ANOTHER_WAY,
    DIFFERS,
    NOT_BY_DEFAULT,
    OTHERS_INSTEAD,
    SERVER,
    Default,
    Word,
)
from speclaunch.deployments.sources.shell_syntax import Function, Literal, Part
from speclaunch.deployments.sources.source_text import (
    PLACEHOLDER_STARTS,
    DefaultOf,
    SourceSpan,
    WordPiece,
    why_placeholder,
)


class Field(Struct, frozen=True):
    """One word after expansion.

    `span` is its range in the file, if contiguous (a word, an array element, a variable's value).
    `used` is the range of the expansion, if that is elsewhere.
    """

    pieces: tuple[WordPiece, ...]
    span: SourceSpan | None = None
    used: SourceSpan | None = None

    @property
    def unknown(self) -> str | None:
        """Reason why the word could not be evaluated, or None."""
        return next((piece.unknown for piece in self.pieces if piece.unknown), None)

    @property
    def text(self) -> str:
        """Text of the word, with its unknown parts unchanged.

        The text includes the file's quotes if it is ambiguous without them (a literal `$` next to
        a variable).
        """
        if len(self.pieces) == 1 and not self.pieces[0].unknown:
            return self.pieces[0].text
        if self._is_raw and self.span is not None:
            return self.span.text
        return "".join(piece.text for piece in self.pieces)

    @property
    def _is_raw(self) -> bool:
        """True if `text` includes the file's quotes."""
        dollar = any("$" in piece.text for piece in self.pieces if not piece.unknown)
        return dollar and self.span is not None and self.unknown is not None

    @property
    def place(self) -> Place:
        if self.span is not None:
            return self.span.place
        first, last = self.pieces[0], self.pieces[-1]
        start = first.offset(0)
        length = last.offset(max(len(last.text) - 1, 0)) - start + 1
        return first.source.document.place(start, max(length, 1))

    @property
    def stretch(self) -> SourceSpan:
        """Range in the file; the range of the first piece if `span` is None."""
        if self.span is not None:
            return self.span
        first = self.pieces[0]
        return SourceSpan(
            first.source, first.start, first.start + (len(first.text) if first.exact else 1)
        )

    def word(self) -> Word:
        used = self.used.place if self.used is not None else None
        if self._is_plain():
            return Word(self.pieces[0].text, self.place, True, None, used)
        unknown, text = self.unknown, self.text
        condition = next((piece.condition for piece in self.pieces if piece.condition), None)
        why = unknown or next((piece.note for piece in self.pieces if piece.note), condition)
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
        piece = self.pieces[0] if len(self.pieces) == 1 else None
        if piece is None or piece.unknown or piece.condition or piece.note or piece.default_of:
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
    """Range of a piece in its word; `written` is the start of the piece in its source."""

    start: int
    end: int
    written: int
    default_of: tuple[DefaultOf, ...]

    def continues(self, other: _Stretch) -> bool:
        """True if both pieces come from one expansion of a default, and `other` is earlier."""
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
    """Builder that joins and splits pieces into fields, as a shell does."""

    def __init__(self) -> None:
        self._fields: list[Field] = []
        self._pieces: list[WordPiece] = []
        self._open = False
        self._single: Field | None = None

    def add(self, pieces: Sequence[WordPiece], *, quoted: bool) -> None:
        """Add text without splitting; quoted text makes a word even if it is empty."""
        for piece in pieces:
            if piece.text or (quoted and (piece.default_of or piece.note)):
                must_quote = quoted and not piece.quoted
                own = piece.with_owner(piece.owner, quoted=True) if must_quote else piece
                self._pieces.append(own)
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
            elif (piece.default_of or piece.note) and not piece.text and self._open:
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
                self.split([p.with_owner(p.owner, quoted=bool(p.unknown)) for p in field.pieces])

    def _close(self) -> None:
        if self._open:
            pieces, single = tuple(self._pieces), self._single
            is_same = single is not None and single.pieces == pieces
            self._fields.append(single if is_same and single is not None else Field(pieces))
        self._single = None
        self._pieces = []
        self._open = False

    def done(self) -> list[Field]:
        self._close()
        return self._fields


def starts_home(parts: Sequence[Part]) -> bool:
    """True if a word starts with an unquoted `~`."""
    first = parts[0] if parts else None
    return isinstance(first, Literal) and not first.quoted and first.text.startswith("~")


def marked(pieces: tuple[WordPiece, ...], why: str) -> tuple[WordPiece, ...]:
    """Return `pieces` as unknown; `why` is the reason for pieces that have no reason yet."""
    return tuple(replace(piece, unknown=piece.unknown or why) for piece in pieces)


def with_pattern(field: Field) -> Field:
    """Return the field, marked as unknown if it contains a file name pattern."""
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
            splitter.pieces.append(piece)
        else:
            splitter.text(piece)
    splitter.end()
    return splitter.words


class _Splitter:
    def __init__(self) -> None:
        self.words: list[Field] = []
        self.pieces: list[WordPiece] = []
        self._quote = ""
        self._escaped = False

    def text(self, piece: WordPiece) -> None:
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
                self.end()
                start = index + 1
        self._take(piece, start, len(piece.text))

    def _take(self, piece: WordPiece, start: int, end: int) -> None:
        if end > start or piece.text[start : start + 1] in ("'", '"'):
            self.pieces.append(piece.slice(start, end))

    def end(self) -> None:
        if self.pieces:
            filled = tuple(piece for piece in self.pieces if piece.text)
            self.words.append(Field(filled or tuple(self.pieces[:1])))
            self.pieces = []


_TESTED = lazy(r"\$\{?([A-Za-z_]\w*)")
_EMPTY_TEST = lazy(r"(?<!!)\s-([nz])\s+\"?\$\{?([A-Za-z_]\w*)")
_NOT_EMPTY = "its default does not satisfy the condition"
_SHOWN = 120
"""Maximum number of characters to show of a variable's possible values."""


class Value(Struct, frozen=True):
    """Value of a variable: pieces of text or array fields; neither if unknown.

    `why` is the reason for an unknown value. `span` is its range in the script.
    """

    span: SourceSpan
    pieces: tuple[WordPiece, ...] | None = None
    items: tuple[Field, ...] | None = None
    exported: bool = False
    why: str | None = None

    @property
    def size(self) -> int:
        return len(self.items or ()) + len(self.pieces or ())

    @property
    def conditions(self) -> set[str | None]:
        fields = self.items or (Field(self.pieces or ()),)
        return {None, *(piece.condition for field in fields for piece in field.pieces)}

    def texts(self) -> tuple[str, ...] | None:
        """Return the value as plain texts for comparison; None if unknown."""
        if self.items is not None:
            return ("(", *(item.text for item in self.items))
        if self.pieces is not None:
            return ("".join(piece.text for piece in self.pieces),)
        return None

    def under(self, condition: str, after: int = 0) -> Value:
        """Return the value with a condition on all but its first `after` elements or characters."""
        return self.each(
            lambda piece: replace(piece, condition=piece.condition or condition), after
        )

    def noted(self, note: str | None) -> Value:
        """Return the value with an assumption."""
        return self.each(lambda piece: replace(piece, note=piece.note or note))

    def each(self, put: Callable[[WordPiece], WordPiece], after: int = 0) -> Value:
        """Return the value with `put` applied to all but its first elements or characters."""
        empty = (WordPiece("", self.span.source, self.span.start, exact=False),)
        if self.items is not None:
            rest = tuple(
                replace(i, pieces=tuple(map(put, i.pieces or empty))) for i in self.items[after:]
            )
            return replace(self, items=(*self.items[:after], *rest))
        if self.pieces is None:
            return self
        pieces: list[WordPiece] = []
        for piece in self.pieces or empty:
            length = len(piece.text)
            if 0 < after < length:
                pieces += [piece.slice(0, after), put(piece.slice(after, length))]
            else:
                pieces.append(put(piece) if after <= 0 else piece)
            after -= length
        return replace(self, pieces=tuple(pieces))


Changes = Mapping[str, Value | None]


class ShellScope(Struct):
    """Variables at one point of a script. `positional` is None if unknown."""

    variables: dict[str, Value] = {}
    functions: dict[str, Function] = {}
    positional: tuple[Field, ...] | None = None
    sourced: list[str] = []
    export_all: bool = False
    passed: frozenset[str] = frozenset()
    """Variables that another program replaces before the shell runs; always unknown."""
    locals: list[dict[str, Value | None]] = []
    """Previous values of local variables, for each function being read."""
    _journals: list[dict[str, Value | None]] = []

    def get(self, name: str) -> Value | None:
        """Return the value of a variable; None if this file does not set it."""
        return self.variables.get(name)

    def set(self, name: str, value: Value | None) -> None:
        if self._journals:
            self._journals[-1].setdefault(name, self.variables.get(name))
        if value is None:
            self.variables.pop(name, None)
        else:
            self.variables[name] = value

    @contextmanager
    def isolated(self) -> Iterator[dict[str, Value | None]]:
        """Undo changes at the end of the context; the yielded mapping then contains them."""
        journal: dict[str, Value | None] = {}
        changes: dict[str, Value | None] = {}
        saved = self.positional, self.export_all
        self._journals.append(journal)
        try:
            yield changes
        finally:
            self._journals.pop()
            self.positional, self.export_all = saved
            for name, before in journal.items():
                changes[name] = self.variables.get(name)
                if before is None:
                    self.variables.pop(name, None)
                else:
                    self.variables[name] = before

    @contextmanager
    def filled(self, condition: str, *, excludes: bool = False) -> Iterator[None]:
        """Inside the context, mark as unknown the empty variables that a condition tests.

        A branch under `[ -n "$X" ]` runs only if the environment sets a nonempty X. `excludes`: the
        condition does not hold for the defaults of its variables; these are unknown, too.
        """
        empty = self.require(condition, excludes=excludes)
        try:
            yield
        finally:
            for name, value in empty.items():
                self.set(name, value)

    def require(
        self, condition: str, test: str = "", *, excludes: bool = False
    ) -> dict[str, Value]:
        """Mark the empty variables of a condition as unknown. Return their old values.

        `test`: "n" or "z" selects the variables after `-n` or `-z`, "" all but those after `-z`.
        `excludes`: see `filled`.
        """
        tests = _EMPTY_TEST.findall(condition)
        names = {name for kind, name in tests if kind == (test or "z")}
        empty = {
            name: value
            for name in sorted(names if test else {*_TESTED.findall(condition)} - names)
            if (value := self.variables.get(name)) is not None
            and (value.texts() == ("",) or (excludes and any(p.note for p in value.pieces or ())))
        }
        for name, value in empty.items():
            self.set(name, replace(value, pieces=None, why=_NOT_EMPTY))
        return empty

    def merge(
        self,
        alternatives: list[Changes],
        condition: str,
        *,
        complete: bool,
        taken: int | None = None,
        note: str | None = None,
    ) -> None:
        """Merge the variables of an `if`'s branches.

        A value of only one branch, a value that extends all others, and the first of several
        arrays get `condition`. Others become unknown. `complete`: true if a branch always runs.
        `taken`: the branch that runs (the number of branches: none), under the assumption `note`.
        """
        names = dict.fromkeys(name for changes in alternatives for name in changes)
        for name in names:
            before = self.variables.get(name)
            values = [changes.get(name, before) for changes in alternatives]
            if not complete:
                values.append(before)
            merged = _either(values, condition)
            chosen = values[taken] if taken is not None else None
            if note and merged is not None and chosen is None:
                self.set(f"{name}?", replace(merged, why=note, exported=False))
            self.set(name, merged if chosen is None else _decided(chosen, merged, note))


def is_any_number(field: Field) -> bool:
    """True for `"$@"` or `"${array[@]}"` whose elements are unknown."""
    return field.unknown is not None and "@" in field.text and "${#" not in field.text


def from_argument(positional: tuple[Field, ...], number: int) -> tuple[Field, ...] | None:
    """Return the arguments from `number` on; None if the number of earlier ones is unknown."""
    return None if any(map(is_any_number, positional[: number - 1])) else positional[number - 1 :]


def _either(values: list[Value | None], condition: str) -> Value | None:
    known = [value for value in values if value is not None]
    if not known or (len(known) < len(values) and all(value.texts() == ("",) for value in known)):
        return None  # the environment may set it
    exported = any(value.exported for value in known)
    texts = [value.texts() for value in known]
    if len(known) == len(values) and all(text == texts[0] and text for text in texts):
        return replace(max(known, key=lambda value: len(value.conditions)), exported=exported)
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
        return replace(first.under(f"{condition}{OTHERS_INSTEAD}", common), exported=exported)
    if len(known) == len(values) and not any(arrays):
        partly = _begun(known, condition)
        all_servers = all(text and SERVER.search(text[0]) for text in texts)
        held = partly.pieces if partly is not None else None
        if all_servers and not SERVER.search(
            "".join(p.text for p in held or () if not p.condition)
        ):
            least = min(range(len(known)), key=lambda index: _size(known[index]))
            limited = f"{condition}{ANOTHER_WAY}"
            partly = known[least].under(limited)
        if partly is not None:
            return replace(partly, exported=exported)
    choices = [" ".join(text) for text in texts if text]
    shown = f" ({', '.join(dict.fromkeys(choices))})" if 0 < sum(map(len, choices)) < _SHOWN else ""
    why = next((value.why for value in known if value.why), None)
    why = why or f"its value depends on a condition{shown}"
    return Value(known[0].span, exported=exported, why=why)


def present(pieces: Sequence[WordPiece]) -> tuple[WordPiece, ...]:
    """Return the pieces without those of branches that do not run."""
    return tuple(p for p in pieces if not (p.condition or "").endswith(NOT_BY_DEFAULT))


def _decided(chosen: Value, merged: Value | None, note: str | None) -> Value:
    """Return the value of the branch that runs, or `merged` if other branches only extend it."""
    its = chosen.conditions

    def put(piece: WordPiece) -> WordPiece:
        condition = str(piece.condition)
        is_new = piece.condition not in its and not condition.endswith(NOT_BY_DEFAULT)
        return replace(piece, condition=f"{condition}{NOT_BY_DEFAULT}") if is_new else piece

    if merged is not None:
        chosen = replace(chosen, exported=merged.exported)
        own, longer = chosen.texts(), merged.texts()
        if own != longer and _begins(own, longer):
            found, empty = merged.each(put), chosen.noted(note).pieces or ()
            pieces = (*empty, *(found.pieces or ()))
            return replace(found, pieces=pieces) if own == ("",) else found
    return chosen.noted(note)


def _begun(known: list[Value], condition: str) -> Value | None:
    """Return the first value if all values begin with the same tokens; else None.

    The shared tokens are certain; the remainder depends on `condition`. A remainder that does not
    begin with a flag is unknown.
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
    rows = zip(*(text[1:] for text in texts if text), strict=False)
    return sum(1 for _ in takewhile(lambda row: len(set(row)) == 1, rows))


def _size(value: Value) -> int:
    texts = value.texts()
    return -1 if texts is None else len(texts if value.items is not None else texts[0])


def _begins(text: tuple[str, ...] | None, longest: tuple[str, ...] | None) -> bool:
    if text is None or longest is None:
        return False
    if longest[0] == "(" and len(longest) >= len(text):
        return text == longest[: len(text)]
    if len(text) != 1 or len(longest) != 1:
        return False
    longer, start = longest[0], text[0]
    # only more words after the same words; "16" is not a longer version of "1"
    return (
        not start or longer == start or (longer.startswith(start) and longer[len(start)].isspace())
    )
