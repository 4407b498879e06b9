"""Read the recipes of a Makefile as one script, as make passes them to a shell.

The file's variables are replaced with their values. `NAME ?= value` becomes `${NAME-value}`.
Functions (`$(if …)`, `$(shell …)`) and automatic variables are not evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import lazy
from speclaunch.deployments.sources.interface import Reading
from speclaunch.deployments.sources.interpret import run
from speclaunch.deployments.sources.source_text import Document, SourceBuilder
from speclaunch.deployments.sources.templates import Masks

_READ_ONLY = "make replaces variables in it"
_COMPUTED = "make computes it"
_MAX_DEPTH = 12
_LINE = lazy(r"(?:[^\n\\]|\\[\s\S])*\\?")
"""Line and its continuation lines."""
_ASSIGNMENT = lazy(
    r"(?:[^\s:#=][^:#=\n]*:[ \t]*)?(?:(?:export|override|private)[ \t]+)*"
    r"([A-Za-z_][\w.-]*)[ \t]*(\?|\+|:{0,3}|!)=[ \t]*"
)
_CONTINUED = lazy(r"[ \t]*\\\n[ \t]*")
_COMMENT = lazy(r"(?:^|[ \t])#")
_NAME = lazy(r"[A-Za-z_]\w*")
_OR = lazy(r"or[ \t]+\$[({]([A-Za-z_]\w*)[)}],[ \t]*(.*)", 16)
_CLOSING = {"(": ")", "{": "}"}


class _Variable(Struct, frozen=True):
    """Definition of a variable; `start` is the offset of its text."""

    text: str
    start: int
    is_default: bool = False


def read_makefile(document: Document) -> Reading:
    """Return the server commands in the recipes of a Makefile."""
    return _Makefile(document).reading()


class _Makefile:
    def __init__(self, document: Document) -> None:
        self._document = document
        self._masks = Masks(_COMPUTED)
        self._variables: dict[str, _Variable | None] = {}
        """Variables by name; None if defined several times, so that a condition decides."""
        self._source = SourceBuilder(document)
        self._quote = ""
        self._is_expanded = False

    def reading(self) -> Reading:
        lines = list(self._lines())
        for start, line in lines:
            if not line.startswith("\t"):
                self._define(start, line)
        for start, line in lines:
            if line.startswith("\t"):
                self._quote = ""
                bare = line.lstrip("\t @+-")
                self._expand(bare, start + len(line) - len(bare))
                self._source.put_straight("\n", start + len(line))
        found = self._masks.reading(run(self._source.source()), lambda _: None)
        if not self._is_expanded:
            return found
        shown = tuple(replace(invocation, read_only=_READ_ONLY) for invocation in found.invocations)
        return replace(found, invocations=shown)

    def _lines(self) -> Iterator[tuple[int, str]]:
        at, text = 0, self._document.text
        is_defined = False
        while at < len(text):
            line = _LINE.match(text, at)
            end = max(line.end() if line is not None else at, at)
            bare = text[at:end].strip()
            is_defined = (is_defined or bare.startswith("define ")) and bare != "endef"
            if bare and not is_defined:
                self._document.spend()
                yield at, text[at:end]
            at = end + 1

    def _define(self, start: int, line: str) -> None:
        found = _ASSIGNMENT.match(line)
        if found is None:
            return
        comment = _COMMENT.search(line, found.end())
        end = comment.start() if comment is not None else len(line)
        name, sign = found[1], found[2]
        value = _Variable(line[found.end() : end].rstrip(), start + found.end(), sign == "?")
        known = name in self._variables or sign in ("+", "!")
        self._variables[name] = None if known else value

    # -- expansion ----------------------------------------------------------------------

    def _hide(self, written: str, at: int) -> None:
        self._is_expanded = True
        self._source.stand_in(self._masks.mark(written), at, at + len(written) - 1)

    def _expand(self, text: str, start: int, depth: int = 0) -> None:
        """Add a text with its variables expanded; `start` is its offset."""
        at = 0
        while at < len(text):
            char = text[at]
            if char == "$" and at + 1 < len(text):
                end = self._reference(text, at, start, depth)
                at = end
                continue
            if char == "\\" and depth and (gap := _CONTINUED.match(text, at)):
                self._source.put_straight(" ", start + at)
                at = gap.end()
                continue
            if char == "\\" and self._quote != "'":
                self._source.put_straight(text[at : at + 2], start + at)
                at += 2
                continue
            if char in "'\"":
                self._quote = "" if char == self._quote else self._quote or char
            self._source.put_straight(char, start + at)
            at += 1

    def _reference(self, text: str, at: int, start: int, depth: int) -> int:
        """Add the value of a `$…` reference. Return the offset after it."""
        self._document.spend()
        follows = text[at + 1]
        if follows == "$":
            self._is_expanded = True
            self._source.put_straight("$", start + at)
            return at + 2
        end = _end(text, at + 1) if follows in _CLOSING else at + 2
        inner = text[at + 2 : end - 1]
        chosen = _OR.fullmatch(inner)
        if chosen is not None and chosen[1] not in self._variables and self._quote != "'":
            self._default(
                chosen[1], ":-", _Variable(chosen[2], start + at + 2 + chosen.start(2)), depth
            )
        elif follows not in _CLOSING or not _NAME.fullmatch(inner) or depth > _MAX_DEPTH:
            self._hide(text[at:end], start + at)
        else:
            self._variable(inner, text[at:end], start + at, depth)
        return end

    def _variable(self, name: str, written: str, at: int, depth: int) -> None:
        value = self._variables.get(name)
        if value is None:
            if name in self._variables or self._quote == "'":
                self._hide(written, at)
            else:
                self._is_expanded = True
                self._source.stand_in(f"${{{name}}}", at, at + len(written) - 1)
        elif value.is_default and self._quote != "'":
            self._default(name, "-", value, depth)
        else:
            self._is_expanded = True
            self._expand(value.text, value.start, depth + 1)

    def _default(self, name: str, sign: str, value: _Variable, depth: int) -> None:
        """Add `${NAME-value}`, or only the value if a shell would misread its end."""
        self._is_expanded = True
        plain = not any(char in value.text for char in "{}'\"`\\")
        if plain:
            self._source.stand_in(f"${{{name}{sign}", value.start, value.start)
        self._expand(value.text, value.start, depth + 1)
        if plain:
            self._source.put_straight("}", value.start + len(value.text))


def _end(text: str, at: int) -> int:
    """Return the end of a `(…)` or `{…}` that begins at `at`."""
    opening, depth = text[at], 0
    for index in range(at, len(text)):
        depth += (text[index] == opening) - (text[index] == _CLOSING[opening])
        if depth == 0:
            return index + 1
    return len(text)
