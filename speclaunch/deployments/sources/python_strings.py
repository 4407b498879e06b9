"""Positions of a Python program's expressions, and of each character of its strings."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from speclaunch.core import lazy
from speclaunch.deployments.sources.source_text import Document

_TOKEN = lazy(r"(?P<prefix>[A-Za-z]{0,2})(?P<quote>\"\"\"|'''|\"|')")
_BETWEEN = lazy(r"(?:[\s()\\]|#[^\n]*)*")
_ESCAPE = lazy(r"\\(?:\n|[0-7]{1,3}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|N\{[^}]*\}|.)")
_PLAIN = {
    **{"\\": "\\", "'": "'", '"': '"', "n": "\n", "t": "\t", "r": "\r", "\n": ""},
    **{"a": "\a", "b": "\b", "f": "\f", "v": "\v"},
}
_KEY = lazy(r"setdefault\(\s*(?:'([\w.-]+)'|\"([\w.-]+)\")|['\"]([\w.-]+)['\"]\s*(?:\]\s*=(?!=)|:)")
"""Pattern of a key that a program sets in a dictionary."""
_MAX_FIELD = 4000
_MAX_PARTS = 4000


class StringPart(NamedTuple):
    """Part of a string: text with the offset of each character, or a `{field}`."""

    text: str
    where: list[int]
    is_field: bool = False


class ProgramPositions:
    """Conversion of `ast` lines and columns (in bytes of UTF-8) to offsets in the document."""

    def __init__(self, document: Document) -> None:
        self._text = document.text
        self._lines = document.text.split("\n")
        self._starts = list(accumulate((len(line) + 1 for line in self._lines), initial=0))

    @cached_property
    def set_keys(self) -> frozenset[str]:
        """Keys that the program sets in any dictionary."""
        return frozenset(match[match.lastindex or 0] for match in _KEY.finditer(self._text))

    def offset(self, line: int, column: int) -> int:
        if not 1 <= line <= len(self._lines):
            return 0
        text = self._lines[line - 1]
        if not text.isascii():
            column = len(text.encode()[:column].decode("utf-8", "ignore"))
        return self._starts[line - 1] + column

    def span(self, node: ast.AST) -> tuple[int, int]:
        start = self.offset(getattr(node, "lineno", 1), getattr(node, "col_offset", 0))
        line, column = (getattr(node, name, None) for name in ("end_lineno", "end_col_offset"))
        return start, max(start, self.offset(line or 1, column or 0))

    def parts(self, node: ast.AST) -> list[StringPart]:
        """Return the parts of a string; empty if their offsets cannot be determined."""
        return _parts(self._text, *self.span(node))


def _parts(text: str, start: int, end: int) -> list[StringPart]:
    found: list[StringPart] = []
    at = start
    while at < end:
        between = _BETWEEN.match(text, at, end)
        at = between.end() if between else at
        if at >= end:
            break
        token = _TOKEN.match(text, at, end)
        if token is None:
            return []
        quote = token["quote"]
        close = _close(text, token.end(), end, quote)
        if close is None:
            return []
        if not _body(text, token.end(), close, token["prefix"].lower(), found):
            return []
        at = close + len(quote)
    return found


def _close(text: str, at: int, end: int, quote: str) -> int | None:
    """Return the end of a string; None if it is not closed.

    Fields that contain the string's own quotes (Python 3.12) are unsupported.
    """
    while at < end:
        if text.startswith(quote, at):
            return at
        at += 2 if text[at] == "\\" else 1
    return None


def _body(text: str, at: int, end: int, prefix: str, found: list[StringPart]) -> bool:
    raw, formatted = "r" in prefix, "f" in prefix
    while at < end:
        if len(found) > _MAX_PARTS:
            return False
        char = text[at]
        if formatted and char in "{}":
            if text.startswith(char * 2, at):
                _add(found, char, at)
                at += 2
                continue
            stop = _field(text, at, end)
            if stop is None:
                return False
            found.append(StringPart(text[at:stop], [at], is_field=True))
            at = stop
        elif char == "\\" and not raw:
            escape = _ESCAPE.match(text, at, end)
            if escape is None:
                return False
            value = _unescaped(escape[0])
            if value is None:
                return False
            for item in value:
                _add(found, item, at)
            at = escape.end()
        else:
            _add(found, char, at)
            at += 1
    return True


def _add(found: list[StringPart], char: str, at: int) -> None:
    if not found or found[-1].is_field or len(found[-1].where) >= _MAX_FIELD:
        found.append(StringPart(char, [at]))
        return
    last = found[-1]
    last.where.append(at)
    found[-1] = StringPart(last.text + char, last.where)


def _unescaped(escape: str) -> str | None:
    rest = escape[1:]
    if rest in _PLAIN:
        return _PLAIN[rest]
    if rest[0] not in "01234567xuUN":
        return escape  # Python leaves unknown escapes unchanged
    try:
        return str(ast.literal_eval(f'"{escape}"'))
    except (SyntaxError, ValueError):
        return None


def _field(text: str, at: int, end: int) -> int | None:
    depth, quote = 0, ""
    for index in range(at, min(end, at + _MAX_FIELD)):
        char = text[index]
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "{[(":
            depth += 1
        elif char in "}])":
            depth -= 1
            if depth == 0:
                return index + 1
    return None


def straight(where: Sequence[int]) -> int | list[int]:
    """Return one offset if the characters are contiguous, else all offsets."""
    if where and where[-1] - where[0] == len(where) - 1:
        return where[0]
    return list(where)
