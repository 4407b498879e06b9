"""Values of expressions in a Python program: texts with places, lists and dictionaries."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import lazy
from speclaunch.deployments.sources.fields import Field
from speclaunch.deployments.sources.interface import Word
from speclaunch.deployments.sources.source_text import (
    SourceSpan,
    WordPiece,
)

MAX_PIECES = 2000
UNKNOWN = object()
FROM_OUTSIDE = ", which comes from "
"""Part of the notes of defaults from outside the program, which decide no `if` statement."""
_TESTS: Mapping[type[ast.cmpop], Callable[[Any, Any], object]] = {
    **{ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le},
    **{ast.Gt: operator.gt, ast.GtE: operator.ge, ast.In: lambda left, right: left in right},
    ast.NotIn: lambda left, right: left not in right,
    ast.Is: lambda left, right: type(left) is type(right) and left == right,
    ast.IsNot: lambda left, right: type(left) is not type(right) or left != right,
}
CHANGES = frozenset(
    [
        *("append", "extend", "insert", "remove", "pop", "popitem", "clear", "sort", "reverse"),
        *("update", "setdefault", "add", "discard"),
    ]
)
"""Methods that change a list, a dictionary or a set."""
_TEMPLATE = lazy(
    r"\{(?:![rsa])?(?::(?:.?[<>=^])?[-+ #0]*\d{0,2}[,_]?(?:\.\d{1,2})?[a-zA-Z%]?)?\}"
    r"|%[-#0 +]*\d{0,2}(?:\.\d{1,2})?[a-zA-Z]"
)
"""Pattern of the templates that are evaluated: none makes a long text."""


def dotted(node: ast.AST) -> str | None:
    """Return the text of `a.b.c`, with `cls` as `self` and `super()` as `super`; else None."""
    names: list[str] = []
    while isinstance(node, ast.Attribute) and len(names) < 8:
        names.append(node.attr)
        node = node.value
    node = node.func if isinstance(node, ast.Call) and dotted(node.func) == "super" else node
    if not isinstance(node, ast.Name):
        return None
    names.append("self" if node.id == "cls" else node.id)
    return ".".join(reversed(names))


def last_name(node: ast.AST) -> str:
    """Return the last name of a dotted expression; "" for others."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


class PythonText(Struct):
    """Text, and the original constant if it is not a string (`8`, `True`, `None`)."""

    pieces: tuple[WordPiece, ...]
    constant: object = None
    is_text: bool = True
    used: SourceSpan | None = None

    @property
    def unknown(self) -> bool:
        """True if the text is one unknown expression."""
        return len(self.pieces) == 1 and self.pieces[0].unknown is not None

    @property
    def is_known(self) -> bool:
        """True if no part is unknown."""
        return not any(piece.unknown for piece in self.pieces)

    @property
    def text(self) -> str:
        """Text, with unknown parts as in the source."""
        return "".join(piece.text for piece in self.pieces)

    def field(self) -> Field:
        return Field(self.pieces, None, self.used)


class PythonList(Struct):
    """List that may grow. `consumed`: true once another list or a command contains its items."""

    items: list[PythonText] = []
    consumed: bool = False
    separator: str | None = None
    """Separator if the program joins the list into one text; else None."""
    made_in: tuple[int | None, int] = (None, 0)
    """Line of the condition, if any, and number of enclosing loops and branches at its creation."""
    values: list[PythonValue] = []
    """Elements at its creation, which may be lists or dictionaries."""

    def elements(self) -> list[PythonValue] | None:
        """Return its elements, which may be unknown; None if their number is."""
        pieces = [piece for item in self.items for piece in item.pieces]
        if self.separator or any(p.condition or (p.unknown and p.text[:1] == "*") for p in pieces):
            return None
        return [*(self.values if len(self.values) == len(self.items) else self.items)]

    def consume(self) -> list[PythonText]:
        self.consumed = True
        return list(self.items)


class PythonTable(Struct):
    """Dictionary with text keys; `rest` contains placeholders for its unknown entries."""

    entries: dict[str, tuple[PythonText, PythonValue]] = {}
    rest: list[PythonText] = []

    def item(self, key: str) -> PythonValue | None:
        """Return the value of a key; None if it is unknown."""
        return self.entries[key][1] if key in self.entries and not self.rest else None

    def words(self) -> dict[str, Word]:
        """Return the texts among its values as tokens."""
        found = ((name, value) for name, (_, value) in self.entries.items())
        return {name: v.field().word() for name, v in found if isinstance(v, PythonText)}


PythonValue = PythonText | PythonList | PythonTable
PythonMaker = ast.Call | ast.ListComp | ast.GeneratorExp
"""Expressions whose value depends on definitions or loops of the program."""


class PythonCall(Struct):
    """Call; `entries` contains its keyword arguments, and `rest` placeholders for unknown ones."""

    node: ast.Call
    args: list[PythonValue]
    entries: Mapping[str, tuple[PythonText, PythonValue]]
    rest: Sequence[PythonText]


class ScopeContents(Struct):
    """Contents of one function (or the module): calls in order, and possible commands."""

    calls: list[PythonCall] = []
    values: list[PythonValue] = []
    env: dict[str, Word] = {}
    gpus: str | None = None
    """GPUs that a decorator states, or None."""
    returned: list[PythonValue] = []
    passed: dict[int, list[dict[str, PythonValue]]] = {}
    """Known values of the parameters in calls of the program's functions, by the call's `id`."""

    def set_environment(self, arguments: Iterable[PythonValue]) -> None:
        """Apply `os.environ.update(table)` or `os.environ.setdefault(key, value)`."""
        match list(arguments):
            case [PythonTable() as table, *_]:
                self.env |= table.words()
            case [PythonText() as key, PythonText() as value]:
                self.env[key.text] = value.field().word()


def copied(value: PythonValue) -> PythonValue:
    """Return a shallow copy of a list or dictionary; other values unchanged."""
    if isinstance(value, PythonTable):
        return PythonTable(dict(value.entries), list(value.rest))
    return replace(value, items=list(value.items)) if isinstance(value, PythonList) else value


def set_item(listing: PythonList, at: PythonValue, value: PythonValue, unknown: PythonText) -> None:
    """Replace an item of a list; at an unknown index, any value is `unknown`."""
    index = at.constant if isinstance(at, PythonText) else None
    listing.values = []
    if type(index) is int and -len(listing.items) <= index < len(listing.items):
        listing.items[index] = value if isinstance(value, PythonText) else unknown
    else:
        spoil(listing, None, unknown)


def set_entries(
    table: PythonTable,
    entries: Mapping[str, tuple[PythonText, PythonValue]],
    unknown: PythonText,
    where: tuple[int | None, int],
) -> None:
    """Set entries. Under the condition of line `where[0]`, an existing entry becomes unknown."""
    line, loose = where
    for name, (key, value) in entries.items():
        if loose or (line and name in table.entries):
            table.entries[name] = (key, unknown)
        elif line:
            text = value if isinstance(value, PythonText) else unknown
            table.entries[name] = (under(key, line), under(text, line))
        else:
            table.entries[name] = (key, value)


def spoil(value: PythonValue | None, key: str | None, unknown: PythonText) -> None:
    """Mark a part of a list or dictionary as unknown; None for any part, with further parts.

    The program at the start of a command is unchanged.
    """
    if isinstance(value, PythonList):
        value.values = []
        first = next((i for i, item in enumerate(value.items) if item.text[:1] == "-"), None)
        value.items[first:] = [unknown]
    elif isinstance(value, PythonTable):
        value.rest += [] if key in value.entries else [unknown]
        for name in value.entries if key is None else {key} & value.entries.keys():
            value.entries[name] = (value.entries[name][0], unknown)


def shown(value: PythonValue, template: str = "{}") -> tuple[WordPiece, ...] | None:
    """Return a value in a template such as `{:.2f}` or `%d`; None if it is one unknown text."""
    is_plain = template in ("{}", "{!s}", "%s")
    if isinstance(value, PythonList) and value.separator is not None and is_plain:
        return joined(value).pieces
    if not isinstance(value, PythonText) or (value.unknown and value.text[:1] != "*"):
        return None
    if is_plain:
        return value.pieces
    if len(value.pieces) > 1 or not value.is_known or not _TEMPLATE.fullmatch(template):
        return None
    known = value.text if value.is_text else value.constant
    try:
        text = template % (known,) if template[0] == "%" else template.format(known)
    except (TypeError, ValueError):
        return None
    return (changed(value.pieces[0], text),)


def changed(piece: WordPiece, text: str) -> WordPiece:
    """Return the piece with a text that the program computes from it."""
    return piece if piece.text == text else replace(piece, text=text, exact=False, default_of=())


def joined(listing: PythonList) -> PythonText:
    """Return the items of a list as one text, separated as the program separates them."""
    pieces: list[WordPiece] = []
    for item in listing.items:
        if pieces:
            end = pieces[-1].slice(len(pieces[-1].text), len(pieces[-1].text))
            text = listing.separator or ""
            pieces.append(replace(end, text=text, exact=False, unknown=None, condition=None))
        pieces += item.pieces
    return PythonText(tuple(pieces[:MAX_PIECES]))


def path_of(parts: Sequence[PythonValue]) -> PythonText | None:
    """Return the path that `os.path.join(…)` makes; None unless its parts are known texts."""
    pieces: tuple[WordPiece, ...] = ()
    for part in parts:
        if not (isinstance(part, PythonText) and part.is_text and part.is_known and part.text):
            return None
        if not pieces or part.text[0] == "/":
            pieces = part.pieces
            continue
        slash = "" if pieces[-1].text.endswith("/") else "/"
        between = changed(pieces[-1].slice(0, 0), slash)
        own = (replace(p, default_of=()) for p in part.pieces)  # another value may be absolute
        pieces = (*pieces, between, *own)[:MAX_PIECES]
    return PythonText(pieces)


def plain(value: PythonValue | None) -> object:
    """Return a value as Python's, a dictionary as its keys; `UNKNOWN` if it is unknown."""
    if isinstance(value, PythonText) and not any(p.unknown or p.condition for p in value.pieces):
        return value.text if value.is_text else value.constant
    if isinstance(value, PythonTable) and not value.rest:
        keys = [plain(key) for key, _ in value.entries.values()]
        return UNKNOWN if UNKNOWN in keys else dict.fromkeys(keys)
    elements = value.elements() if isinstance(value, PythonList) else None
    return UNKNOWN if elements is None else [*map(plain, elements)]


def compared(test: ast.cmpop, left: object, right: object) -> bool | None:
    """Return the result of a comparison; None if unknown or unsupported."""
    is_known = UNKNOWN not in (left, right) and not (isinstance(right, list) and UNKNOWN in right)
    with suppress(KeyError, TypeError):
        return bool(_TESTS[type(test)](left, right)) if is_known else None
    return None


def note_of(value: PythonValue) -> str | None:
    """Return the assumption behind a value, or behind all items of a list, if any."""
    if isinstance(value, PythonList):
        notes = [note_of(item) for item in value.items]
        return notes[0] if notes and all(notes) else None
    pieces = value.pieces if isinstance(value, PythonText) else ()
    return next((piece.note for piece in pieces if piece.note), None)


def noted(value: PythonValue, note: str | None) -> PythonValue:
    """Return a value with the assumption behind it and its elements."""
    if isinstance(value, PythonText) and note:
        return replace(value, pieces=tuple(replace(p, note=p.note or note) for p in value.pieces))
    if isinstance(value, PythonList) and note:
        items = (noted(item, note) for item in value.items)
        value.items = [item for item in items if isinstance(item, PythonText)]
        value.values = [noted(element, note) for element in value.values]
    elif isinstance(value, PythonTable) and note:
        value.entries = {n: (key, noted(v, note)) for n, (key, v) in value.entries.items()}
    return value


def snapshot(
    values: Iterable[PythonValue | None], spend: Callable[[int], None]
) -> Callable[[str | None], None]:
    """Return a function that undoes later changes of dictionaries, under an assumption."""
    tables: dict[int, tuple[PythonTable, PythonTable]] = {}
    waiting = list(values)
    while waiting:
        table = waiting.pop()
        if isinstance(table, PythonTable) and id(table) not in tables:
            spend(1 + len(table.entries))
            tables[id(table)] = table, PythonTable(dict(table.entries), list(table.rest))
            waiting += [value for _, value in table.entries.values()]

    def undo(note: str | None) -> None:
        for table, before in tables.values():
            table.rest[:] = before.rest
            for name, entry in before.entries.items():
                if table.entries.get(name) is not entry:
                    table.entries[name] = (entry[0], noted(entry[1], note))

    return undo


CONVERSIONS: Mapping[str, Callable[[str], str]] = {
    "lower": str.lower,
    "upper": str.upper,
    "strip": str.strip,
    "lstrip": str.lstrip,
    "rstrip": str.rstrip,
}
"""Methods of a text without arguments that return a text."""


def converted(found: PythonValue, name: str) -> PythonText | None:
    """Return the result of a method in `CONVERSIONS`; None if unknown."""
    if not isinstance(found, PythonText) or len(found.pieces) != 1 or not found.is_known:
        return None
    return replace(found, pieces=(changed(found.pieces[0], CONVERSIONS[name](found.text)),))


def number(found: PythonText, kind: type[int] | type[float]) -> PythonText | None:
    """Return a known text or number as an `int` or a `float`; None if it is neither."""
    constant: Any = found.text if found.is_text else found.constant
    if not found.is_known or len(found.pieces) != 1:
        return None
    with suppress(TypeError, ValueError, OverflowError):
        known = kind(constant)
        return PythonText((changed(found.pieces[0], str(known)),), known, is_text=False)
    return None


def replaced(node: ast.Call, found: PythonValue) -> PythonText | None:
    """Return `text.replace("_", "-")`: a text in which single characters are replaced."""
    old, new = (str(getattr(part, "value", "")) for part in node.args)
    if isinstance(found, PythonText) and found.is_known and len(old) == len(new) == 1:
        pieces = (replace(p, text=p.text.replace(old, new), exact=False) for p in found.pieces)
        return replace(found, pieces=tuple(pieces))
    return None


def under(text: PythonText, line: int) -> PythonText:
    """Return the text, marked with the condition at `line`."""
    condition = f"only under the condition of line {line}"
    pieces = tuple(replace(piece, condition=piece.condition or condition) for piece in text.pieces)
    return replace(text, pieces=pieces)
