"""``${NAME:-word}``, ``${NAME##*/}`` and the other forms with an operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from speclaunch.importer.scope import Field, Value
from speclaunch.importer.source_text import DefaultOf, SourceSpan, SourceText, WordPiece
from speclaunch.importer.syntax import Parameter
from speclaunch.patterns import lazy

if TYPE_CHECKING:
    from speclaunch.importer.expand import Expander, Result

_MAX_PATTERN = 200
_MAX_TEXT = 1 << 16
_SLICE = lazy(r"\s*(-?[0-9]{1,9})?\s*(?::\s*(-?[0-9]{1,9})\s*)?\Z")


def expand(  # noqa: PLR0911
    expander: Expander, part: Parameter, source: SourceText, value: Value | None
) -> Result:
    """What the form stands for; `value` is None for a variable that is not set."""
    if part.prefix == "#":
        return _length(expander, part, source, value)
    if part.operator in (":-", "-", ":=", "=", ":+", "+", ":?", "?"):
        return _conditional(expander, part, source, value)
    if value is None:
        return expander.unset(part, source)
    why = f"`{source.text[part.start : part.end]}` is not evaluated"
    if value.items is not None and part.index in ("@", "*"):
        if part.operator == ":" and part.operand is not None:
            wanted = _SLICE.match(expander.plain(part.operand) or "x")
            if wanted is not None and not (wanted[2] or "").startswith("-"):
                start = int(wanted[1] or 0)
                end = start + int(wanted[2]) if wanted[2] else len(value.items)
                if start >= 0:
                    return list(value.items[start:end])
        return expander.unknown(part, source, why)
    chosen = expander.chosen(part, source, value)
    if isinstance(chosen, list) or any(piece.unknown for piece in chosen):
        return expander.unknown(part, source, why)
    text = "".join(piece.text for piece in chosen)
    changed = _changed(expander, part, text)
    if changed is None or len(changed) > _MAX_TEXT:
        return expander.unknown(part, source, why)
    expander.document.spend(1 + (len(text) + len(changed)) // 100)
    return (WordPiece(changed, source, part.start, exact=False),)


def default(expander: Expander, part: Parameter, source: SourceText) -> tuple[WordPiece, ...]:
    """The word after ``:-``: what holds when the variable is not set."""
    variable = None if part.name.isdigit() or part.name in "@*" else part.name
    filled = part.operator.startswith(":")
    note = f"the default of `{part.name}`, which this file does not set"
    if part.name.isdigit():
        note = f"the default of argument {part.name} of the script"
    written = expander.text(part.operand) if part.operand is not None else ()
    if not written and variable is not None:  # no text, but a place for one
        around = (DefaultOf(variable, filled, part.start, 0),)
        return (WordPiece("", source, part.start, exact=False, note=note, around=around),)
    if any(piece.unknown for piece in written):
        return expander.unknown(part, source, f"the default of `{part.name}` cannot be evaluated")
    noted = [replace(piece, note=piece.note or note) for piece in written]
    return tuple(noted) if variable is None else _within(noted, variable, part, filled=filled)


def _within(
    pieces: Sequence[WordPiece], variable: str, part: Parameter, *, filled: bool
) -> tuple[WordPiece, ...]:
    """The pieces as the default of a variable."""
    return tuple(
        replace(piece, around=(DefaultOf(variable, filled, part.start, number), *piece.around))
        for number, piece in enumerate(pieces)
    )


def _conditional(
    expander: Expander, part: Parameter, source: SourceText, value: Value | None
) -> Result:
    colon, sign = part.operator.startswith(":"), part.operator[-1]
    empty = value is None or (colon and _is_empty(expander, part, source, value))
    if sign == "+":
        if empty and value is None and part.name not in expander.scope.variables:
            return expander.unset(part, source) if not part.name.isdigit() else ()
        return () if empty or part.operand is None else expander.text(part.operand)
    if not empty and value is not None:
        return expander.chosen(part, source, value)
    if sign == "?":
        return expander.unset(part, source)
    pieces = default(expander, part, source)
    if value is not None:  # set in the file, to nothing or to what is nothing by default
        pieces = _for_empty(expander, part, source, value, pieces)
    if sign == "=" and part.operand is not None and not any(piece.unknown for piece in pieces):
        span = SourceSpan(source, part.operand.start, part.operand.end)
        exported = value is not None and value.exported
        expander.scope.set(part.name, Value(span, pieces, exported=exported))
    if sign == "=":  # what is substituted is the variable: quotes of the default are gone
        return tuple(replace(piece, quoted=bool(piece.unknown)) for piece in pieces)
    return pieces


def _is_empty(expander: Expander, part: Parameter, source: SourceText, value: Value) -> bool:
    chosen = expander.chosen(part, source, value)
    fields: list[Field] = chosen if isinstance(chosen, list) else [Field(chosen)]
    return not any(piece.text for field in fields for piece in field.pieces)


def _for_empty(
    expander: Expander,
    part: Parameter,
    source: SourceText,
    value: Value,
    pieces: tuple[WordPiece, ...],
) -> tuple[WordPiece, ...]:
    """The default of a variable that the file itself leaves empty; `X=${A:-}` does so only where
    the environment says nothing of A."""
    chosen = expander.chosen(part, source, value)
    empty = () if isinstance(chosen, list) else chosen
    names = [one.name for piece in empty for one in piece.around]
    if len(names) > 1:
        why = f"`{part.name}` is empty only by default"
        return expander.unknown(part, source, why, inside=True)
    found = tuple(
        replace(piece, note=piece.note if names else None, around=piece.around[1:])
        for piece in pieces
    )
    return _within(found, names[0], part, filled=True) if names else found


def _length(expander: Expander, part: Parameter, source: SourceText, value: Value | None) -> Result:
    if value is None:
        return expander.unset(part, source)
    chosen = expander.chosen(part, source, value)
    if isinstance(chosen, list):
        return (WordPiece(str(len(chosen)), source, part.start, exact=False),)
    if any(piece.unknown for piece in chosen):
        return expander.unknown(part, source, f"the length of `{part.name}` is not known")
    size = sum(len(piece.text) for piece in chosen)
    return (WordPiece(str(size), source, part.start, exact=False),)


def _changed(expander: Expander, part: Parameter, text: str) -> str | None:  # noqa: PLR0911
    operand = expander.plain(part.operand) if part.operand is not None else ""
    if operand is None:
        return None
    match part.operator:
        case "#" | "##" | "%" | "%%":
            return _trimmed(text, operand, part.operator)
        case "/" | "//":
            old, _, new = operand.partition("/")
            if not old or any(char in old for char in "*?[\\"):
                return None
            return text.replace(old, new, -1 if part.operator == "//" else 1)
        case ":":
            wanted = _SLICE.match(operand)
            if wanted is None or (wanted[1] is None and wanted[2] is None):
                return None
            start = int(wanted[1] or 0)
            if start < 0:
                start = max(len(text) + start, 0)
            if wanted[2] is None:
                return text[start:]
            count = int(wanted[2])
            return text[start : start + count] if count >= 0 else text[start:count]
        case ",," if not operand:
            return text.lower()
        case "^^" if not operand:
            return text.upper()
        case _:
            return None


def _trimmed(text: str, pattern: str, operator: str) -> str | None:  # noqa: PLR0911
    """The text without the shortest or longest start or end that the pattern matches."""
    if any(char in pattern for char in "?[\\") or len(pattern) > _MAX_PATTERN:
        return None
    front, longest = operator[0] == "#", len(operator) == 2
    if "*" not in pattern:
        return text.removeprefix(pattern) if front else text.removesuffix(pattern)
    if pattern.count("*") > 1:
        return None
    before, after = pattern.split("*")
    if front:
        if not text.startswith(before):
            return text
        find = text.rfind if longest else text.find
        at = find(after, len(before)) if after else (len(text) if longest else len(before))
        return text if at < 0 else text[at + len(after) :]
    if not text.endswith(after):
        return text
    end = len(text) - len(after)
    if not before:
        return "" if longest else text[:end]
    at = text.find(before, 0, end) if longest else text.rfind(before, 0, end)
    return text if at < 0 else text[:at]
