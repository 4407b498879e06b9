"""Brace expansion (``{a,b}``, ``{1..8}``) in the way of bash: before anything else, on the text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from speclaunch.importer.syntax import Literal, OpaquePart, Parameter, Part
from speclaunch.patterns import lazy

MAX_WORDS = 10_000
"""What one word may expand to; more stays as it is written."""

_MAX_BRACES, _MAX_BRACED_TEXT = 60, 5_000
_NUMBERS = lazy(r"([+-]?[0-9]{1,18})\.\.([+-]?[0-9]{1,18})(?:\.\.([+-]?[0-9]{1,18}))?\Z")
_LETTERS = lazy(
    r"([a-z])\.\.([a-z])(?:\.\.([+-]?[0-9]{1,9}))?\Z|([A-Z])\.\.([A-Z])(?:\.\.([+-]?[0-9]{1,9}))?\Z"
)

Parts = tuple[Part, ...]


class TooMany(Exception):
    """An expansion of more than `MAX_WORDS` words."""


def expand_braces(parts: Parts) -> list[Parts]:
    """The words that a word stands for.  Raises `TooMany`."""
    if not any(
        isinstance(part, Literal) and not part.quoted and "{" in part.text for part in parts
    ):
        return [parts]
    unquoted = [p.text for p in parts if isinstance(p, Literal) and not p.quoted]
    if sum(text.count("{") for text in unquoted) > _MAX_BRACES:
        raise TooMany
    if sum(map(len, unquoted)) > _MAX_BRACED_TEXT:
        raise TooMany
    atoms: list[Part] = []
    for part in parts:
        if isinstance(part, Literal) and not part.quoted:
            atoms.extend(
                Literal(char, part.start + index if part.exact else part.start, exact=part.exact)
                for index, char in enumerate(part.text)
            )
        else:
            atoms.append(part)
    return [_merged(word) for word in _expand(atoms, 0)]


def _char(part: Part) -> str:
    return part.text if isinstance(part, Literal) and not part.quoted else ""


def _expand(atoms: Sequence[Part], depth: int) -> list[Parts]:
    if depth > 200:
        raise TooMany
    results: list[Parts] = [()]
    while True:
        start = _opening(atoms)
        if start is None:
            return _product(results, [tuple(atoms)])
        end = _find(atoms, start + 1, "}")
        if end is None:
            return _product(results, [tuple(atoms)])
        inside = atoms[start + 1 : end]
        items = _items(inside, atoms[start], depth)
        if items is None:
            if end + 1 == len(atoms):
                return _product(results, [tuple(atoms)])
            items = [tuple(atoms[start : end + 1])]
        results = _product(_product(results, [tuple(atoms[:start])]), items)
        atoms = atoms[end + 1 :]
        if not atoms:
            return results


def _items(inside: Sequence[Part], brace: Part, depth: int) -> list[Parts] | None:
    if any(_char(atom) == "," for atom in inside):
        items: list[Parts] = []
        start = 0
        while True:
            comma = _find(inside, start, ",")
            items.extend(_expand(inside[start:comma], depth + 1))
            if len(items) > MAX_WORDS:
                raise TooMany
            if comma is None:
                return items
            start = comma + 1
    if not all(isinstance(atom, Literal) and not atom.quoted for atom in inside):
        return None
    texts = _sequence("".join(_char(atom) for atom in inside))
    if texts is None:
        return None
    return [(Literal(text, brace.start, exact=False),) for text in texts]


def _opening(atoms: Sequence[Part]) -> int | None:
    """The first ``{`` that begins an expansion."""
    if not any(_char(atom) == "}" for atom in atoms):
        return None
    for index, atom in enumerate(atoms):
        if _char(atom) == "{" and _find(atoms, index + 1, "}") is not None:
            return index
    return None


def _find(atoms: Sequence[Part], start: int, wanted: str) -> int | None:
    level = 0
    separators = 0 if wanted == "}" else 1
    for index in range(start, len(atoms)):
        char = _char(atoms[index])
        if char == wanted and level == 0 and separators:
            return index
        if char == "{":
            level += 1
        elif char == "}" and level:
            level -= 1
        elif wanted == "}" and level == 0:
            if char == ",":
                separators += 1
            elif char == "." and index + 2 < len(atoms) and _char(atoms[index + 1]) == ".":
                separators += _char(atoms[index + 2]) != "}"
    return None


def _sequence(text: str) -> list[str] | None:
    numbers = _NUMBERS.match(text)
    if numbers is not None:
        first, last = int(numbers[1]), int(numbers[2])
        values = _range(first, last, int(numbers[3] or 0))
        if any(re.match(r"-?0[0-9]", part) for part in (numbers[1], numbers[2])):
            width = max(len(numbers[1]), len(numbers[2]))
            return [f"{value:0{width}d}" for value in values]
        return [str(value) for value in values]
    letters = _LETTERS.match(text)
    if letters is not None:
        low, high = letters[1] or letters[4], letters[2] or letters[5]
        step = int(letters[3] or letters[6] or 0)
        return [chr(code) for code in _range(ord(low), ord(high), step)]
    return None


def _range(first: int, last: int, step: int) -> range:
    step = abs(step) or 1
    values = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    if abs(last - first) // step >= MAX_WORDS:
        raise TooMany
    return values


def _product(left: list[Parts], right: list[Parts]) -> list[Parts]:
    if len(left) * len(right) > MAX_WORDS:
        raise TooMany
    return [a + b for a in left for b in right]


def _merged(parts: Parts) -> Parts:
    """Characters that stand side by side in the source become one piece again."""
    merged: list[Part] = []
    for part in parts:
        last = merged[-1] if merged else None
        if (
            isinstance(part, Literal)
            and isinstance(last, Literal)
            and not part.quoted
            and not last.quoted
            and part.exact
            and last.exact
            and last.start + len(last.text) == part.start
        ):
            merged[-1] = Literal(last.text + part.text, last.start)
        elif (
            isinstance(last, Parameter)
            and isinstance(part, Literal)
            and not (part.quoted or last.quoted)
            and last.end - last.start == len(last.name) + 1
            and re.match(r"[A-Za-z_]", last.name)
            and re.match(r"[A-Za-z0-9_]", part.text)
        ):  # `$V{1,2}` is `$V1 $V2`
            merged[-1] = OpaquePart("a name that braces put together", last.start, last.end)
            merged.append(part)
        else:
            merged.append(part)
    return tuple(merged)
