"""Track the variables of a script, and merge the variables of its branches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import lazy
from speclaunch.deployments.sources.fields import Field
from speclaunch.deployments.sources.interface import ANOTHER_WAY, DIFFERS, OTHERS_INSTEAD, SERVER
from speclaunch.deployments.sources.shell_syntax import Function
from speclaunch.deployments.sources.source_text import SourceSpan, WordPiece

_TESTED = lazy(r"\$\{?([A-Za-z_]\w*)")
_EMPTY = lazy(r"(?<!!)\s-z\s+\"?\$\{?([A-Za-z_]\w*)")
_NOT_EMPTY = "it is empty unless the environment sets it, as the condition requires"
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
        """Cost of iterating over the value."""
        return len(self.items or ()) + len(self.pieces or ())

    def texts(self) -> tuple[str, ...] | None:
        """Return the value as plain texts for comparison; None if unknown."""
        if self.items is not None:
            return ("(", *(item.text for item in self.items))
        if self.pieces is not None:
            return ("".join(piece.text for piece in self.pieces),)
        return None

    def under(self, condition: str, after: int = 0) -> Value:
        """Return the value with a condition after its first `after` elements or characters."""

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


class ShellScope(Struct):
    """Variables at one point of a script. `positional` is None if unknown."""

    variables: dict[str, Value] = {}
    functions: dict[str, Function] = {}
    positional: tuple[Field, ...] | None = None
    sourced: list[str] = []
    export_all: bool = False
    passed: frozenset[str] = frozenset()
    """Names that another program replaces before the shell runs; always unknown."""
    locals: list[dict[str, Value | None]] = []
    """Previous values of local variables, for each function being read."""
    _journals: list[dict[str, Value | None]] = []

    def get(self, name: str) -> Value | None:
        """Return the value of a variable; None if this file does not set it."""
        return self.variables.get(name)

    def set(self, name: str, value: Value | None) -> None:
        """Set a variable; None unsets it."""
        if self._journals:
            self._journals[-1].setdefault(name, self.variables.get(name))
        if value is None:
            self.variables.pop(name, None)
        else:
            self.variables[name] = value

    @contextmanager
    def isolated(self) -> Iterator[dict[str, Value | None]]:
        """Undo changes at the end of the context and leave them in the yielded mapping."""
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
    def filled(self, condition: str) -> Iterator[None]:
        """Inside the context, make variables unknown that are empty and tested by a condition.

        A branch under `[ -n "$X" ]` runs only if the environment sets X to a text.
        """
        names = {*_TESTED.findall(condition)} - {*_EMPTY.findall(condition)}
        empty = {
            name: value
            for name in sorted(names)
            if (value := self.variables.get(name)) is not None and value.texts() == ("",)
        }
        for name, value in empty.items():
            self.set(name, replace(value, pieces=None, why=_NOT_EMPTY))
        try:
            yield
        finally:
            for name, value in empty.items():
                self.set(name, value)

    def merge(self, alternatives: list[Changes], condition: str, *, complete: bool) -> None:
        """Merge the variables of branches after an `if`.

        These values get `condition`: a single value, a value that begins with every other value,
        and the first of several arrays. Other values are unknown. `complete`: true if one of
        the branches certainly runs.
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
        limited = f"{condition}{OTHERS_INSTEAD}"
        return replace(first.under(limited, common), exported=exported)
    if len(known) == len(values) and not any(arrays):
        partly = _begun(known, condition)
        all_servers = all(text and SERVER.search(text[0]) for text in texts)
        if all_servers and not (partly is not None and SERVER.search(_certain(partly))):
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


def _certain(value: Value) -> str:
    return "".join(piece.text for piece in value.pieces or () if not piece.condition)


def _begun(known: list[Value], condition: str) -> Value | None:
    """Return the first text: its leading tokens shared by all are certain, the rest depends on
    `condition`. A rest that is not arguments is unknown.
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
    """Return the number of leading elements that arrays share."""
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
    longer, start = longest[0], text[0]
    # only more words after the same words; "16" is not a longer version of "1"
    return (
        not start or longer == start or (longer.startswith(start) and longer[len(start)].isspace())
    )
