"""Assignments, and the builtins of the shell that change variables or the directory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from speclaunch.importer.expand import MAX_TEXT, MAX_WORDS, Expander
from speclaunch.importer.parser import DECLARING
from speclaunch.importer.scope import Field, ShellScope, Value
from speclaunch.importer.source_text import SourceSpan
from speclaunch.importer.syntax import Assignment, Simple
from speclaunch.patterns import lazy

Assigned = tuple[str, Value, bool]
"""Name, value, and whether it was appended."""

_READING = frozenset({"read", "mapfile", "readarray", "getopts"})


def assign(
    expander: Expander,
    assignment: Assignment,
    *,
    exported: bool | None = None,
    temporary: bool = False,
) -> Assigned:
    """Carry out an assignment; a `temporary` one (before a command) sets nothing."""
    scope = expander.scope
    before = scope.get(assignment.name)
    value = _value(expander, assignment, before)
    if exported is None:
        exported = scope.export_all or (before is not None and before.exported)
    value = replace(value, exported=exported or temporary)
    if not temporary:
        scope.set(assignment.name, value)
    return assignment.name, value, assignment.append


def _value(expander: Expander, assignment: Assignment, before: Value | None) -> Value:  # noqa: PLR0911
    written = assignment.value
    if isinstance(written, tuple):
        items = tuple(expander.words(written))
        if assignment.append and before is not None and before.items is not None:
            items = (*before.items, *items)
        elif assignment.append and before is not None and before.pieces:
            items = (Field(before.pieces, before.span), *items)
        if len(items) > MAX_WORDS:
            return Value(assignment.span, why=f"it has more than {MAX_WORDS} elements")
        expander.document.spend(len(items))
        return Value(assignment.span, items=items)
    if assignment.index is not None:
        return Value(assignment.span, why="single elements of it are set")
    pieces = expander.text(written)
    if assignment.append and before is not None:
        if before.items is not None or before.pieces is None:
            return Value(assignment.span, why=before.why or "it is appended to in a way not read")
        owned = tuple(
            piece if piece.owner is not None else replace(piece, owner=before.span)
            for piece in before.pieces
        )
        pieces = (*owned, *pieces)
        expander.document.spend(len(pieces))
        if sum(len(piece.text) for piece in pieces) > MAX_TEXT:
            return Value(assignment.span, why=f"it is longer than {MAX_TEXT} characters")
        return Value(assignment.span, pieces)
    return Value(written.span, pieces)


def builtin(expander: Expander, node: Simple, fields: Sequence[Field]) -> list[Assigned] | None:
    """Carry out a builtin that changes variables; None when the command is something else.

    Gives what was assigned.
    """
    scope = expander.scope
    name = fields[0].text
    if name in DECLARING:
        return _declare(expander, node, fields)
    match name:
        case "unset":
            for field in fields[1:]:
                scope.set(field.text, None)
        case "set":
            _set(expander, fields[1:])
        case "shift":
            count = fields[1].text if len(fields) > 1 else "1"
            if scope.positional is not None:
                known = count.isdecimal() and len(count) < 5
                scope.positional = scope.positional[int(count) :] if known else None
        case "source" | ".":
            scope.sourced.extend(field.text for field in fields[1:2])
        case "printf" if len(fields) > 2 and fields[1].text == "-v":
            _unknown(expander, node, fields[2].text, "`printf -v` sets it")
        case _ if name in _READING:
            for field in fields[1:]:
                if field.text.isidentifier():
                    _unknown(expander, node, field.text, f"`{name}` sets it when it runs")
        case _:
            return None
    return []


def _declare(expander: Expander, node: Simple, fields: Sequence[Field]) -> list[Assigned]:
    scope = expander.scope
    options = [field.text for field in fields[1:] if field.text.startswith(("-", "+"))]
    exports = fields[0].text == "export" or any("x" in o for o in options if o[0] == "-")
    if fields[0].text == "export" and "-n" in options:
        exports = False
    if scope.locals and fields[0].text != "export" and "-g" not in options:
        for name in (*(a.name for a in node.declared), *(field.text for field in fields[1:])):
            scope.locals[-1].setdefault(name, scope.get(name))
    done = [assign(expander, assignment, exported=exports or None) for assignment in node.declared]
    for field in fields[1:]:
        value = scope.get(field.text)
        if value is not None and (exports or "-n" in options):
            scope.set(field.text, replace(value, exported=exports))
    return done


def _set(expander: Expander, arguments: Sequence[Field]) -> None:
    scope = expander.scope
    for index, field in enumerate(arguments):
        text = field.text
        if text == "--":
            scope.positional = tuple(arguments[index + 1 :])
            return
        if text in ("-a", "+a"):
            scope.export_all = text == "-a"
        elif text == "allexport" and index and arguments[index - 1].text in ("-o", "+o"):
            scope.export_all = arguments[index - 1].text == "-o"


def _unknown(expander: Expander, node: Simple, name: str, why: str) -> None:
    expander.scope.set(
        name, Value(SourceSpan(node.span.source, node.span.start, node.span.end), why=why)
    )


# -- where the script is

_DIRECTORY = "cd "
"""No variable has such a name; branches, subshells and functions treat it as one."""
_CHANGING = frozenset({"cd", "pushd", "popd"})
_OWN = lazy(
    r"""\$\(\s*dirname\s+(?:--\s+)?"?\$(?:0|\{?BASH_SOURCE(?:\[0\])?\}?|\{0\})"?\s*\)(?=/|\Z)/?"""
)
"""The directory of the script itself."""


def changed(scope: ShellScope, span: SourceSpan, fields: Sequence[Field]) -> bool:
    """Carry out `cd` and its like; False for another command."""
    if fields[0].text not in _CHANGING:
        return False
    scope.set(_DIRECTORY, _after(scope, span, fields))
    return True


def _after(scope: ShellScope, span: SourceSpan, fields: Sequence[Field]) -> Value | None:
    where = [one for one in fields[1:] if not (one.text.startswith("-") and len(one.text) > 1)]
    unknown = Value(span, why="the directory that this leads to is not known")
    if fields[0].text == "popd" or len(where) != 1:
        return unknown
    (field,) = where
    own = _OWN.match(field.text)
    if own is not None and "$" not in (rest := field.text[own.end() :]):
        whole = field.pieces[0].slice(0, 0)
        return Value(span, (replace(whole, text=rest or ".", exact=False),))
    if field.unknown or field.text.startswith(("~", "-")) or not field.text:
        return unknown
    before = scope.get(_DIRECTORY)
    if PurePosixPath(field.text).is_absolute() or before is None:
        return Value(span, tuple(field.pieces))
    if before.pieces is None:
        return unknown
    slash = replace(before.pieces[-1].slice(0, 0), text="/", exact=False)
    return Value(span, (*before.pieces, slash, *field.pieces))


def directory(scope: ShellScope) -> str | None:
    """Where the script is, seen from where it was started; None: there, or nobody knows."""
    value = scope.get(_DIRECTORY)
    if value is None or value.pieces is None or any(one.condition for one in value.pieces):
        return None
    return "".join(one.text for one in value.pieces)


def handed_on(scope: ShellScope) -> dict[str, Value]:
    """What a shell inside of this one knows of it."""
    value = scope.get(_DIRECTORY)
    return {} if value is None else {_DIRECTORY: value}
