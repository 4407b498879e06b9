"""Read templates without rendering them. Values that rendering fills in are unknown.

Every mark (`{{ … }}`, `{% … %}`) is replaced with a text of the same length, so places remain
correct. A word in a branch or loop of the template is unknown if its command is outside. Every
command may get more arguments than the template shows.

Readers of shell or YAML must not parse a template's `{{ value }}` or an f-string's `{value}`. A
placeholder of ordinary characters replaces it (`Masks`). Afterwards every word that contains a
placeholder becomes unknown and gets its original text back.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from types import MappingProxyType

from msgspec.structs import replace

from speclaunch.core import InputError, lazy
from speclaunch.deployments.sources.interface import (
    Comment,
    Dropped,
    Invocation,
    InvocationKind,
    Reading,
    Word,
)
from speclaunch.deployments.sources.interpret import run
from speclaunch.deployments.sources.source_text import Document

_FIRST, _LAST = "\ue000", "\ue001"
_BASE = 0xE100
_DIGITS = 1000
SHORTEST = 4
"""Minimum length of a placeholder, and of a text that it replaces at equal length."""
MARK = lazy("\ue000[\ue100-\ue4e7]+\ue001")


class Masks:
    """Placeholders in one text. `why` states what fills them in."""

    def __init__(self, why: str) -> None:
        self._why = why
        self._texts: list[str] = []

    def mark(self, text: str, length: int | None = None) -> str:
        """Return a placeholder for a text; `length` is the required number of characters."""
        number = len(self._texts)
        self._texts.append(text)
        digits = ""
        while number or not digits:
            number, digit = divmod(number, _DIGITS)
            digits = chr(_BASE + digit) + digits
        if length is not None:
            digits = digits.rjust(length - 2, chr(_BASE))
        return f"{_FIRST}{digits}{_LAST}"

    def __bool__(self) -> bool:
        return bool(self._texts)

    def shown(self, text: str) -> str:
        """Return a text with its placeholders replaced with the originals."""
        if _FIRST not in text:
            return text
        return MARK.sub(lambda found: self._text(found[0]), text)

    def _text(self, mark: str) -> str:
        number = 0
        for char in mark[1:-1]:
            number = number * _DIGITS + ord(char) - _BASE
        return self._texts[number] if number < len(self._texts) else mark

    def reading(self, reading: Reading, unknown: Callable[[Word], str | None]) -> Reading:
        """Return a reading with its original texts.

        `unknown` returns why a word without a placeholder is unknown.
        """
        return replace(
            reading,
            invocations=tuple(
                self._invocation(invocation, unknown) for invocation in reading.invocations
            ),
        )

    def _invocation(self, found: Invocation, unknown: Callable[[Word], str | None]) -> Invocation:
        def word(source_word: Word) -> Word:
            return self._word(source_word, unknown)

        return replace(
            found,
            words=tuple(map(word, found.words)),
            program=tuple(map(word, found.program)),
            env={self.shown(name): value for name, value in _each(found.env, word).items()},
            extras=_each(found.extras, word),
            dropped=tuple(Dropped(self.shown(d.text), d.place, d.why) for d in found.dropped),
            comments=tuple(Comment(self.shown(c.text), c.place) for c in found.comments),
            name=None if found.name is None else self.shown(found.name),
            image=None if found.image is None else self.shown(found.image),
        )

    def _word(self, word: Word, unknown: Callable[[Word], str | None]) -> Word:
        why = self._why if _FIRST in word.text else unknown(word)
        if why is None:
            return word
        return replace(
            word, text=self.shown(word.text), evaluated=False, why=why, inside=True, defaults=()
        )


def _each(words: Mapping[str, Word], change: Callable[[Word], Word]) -> Mapping[str, Word]:
    return MappingProxyType({name: change(word) for name, word in words.items()})


_MARK = lazy(
    r"\{#.{0,2000}?#\}|\{%.{0,2000}?%\}|\{\{.{0,2000}?\}\}",
    re.DOTALL,
)
_MOST_MARKS = 3000
_MOST = 1 << 20
_DEEPEST = 60
"""Limits that no handwritten template exceeds: marks, characters, nested branches."""
_KEYWORD = lazy(r"\{[{%][-~+]?\s*(?P<word>/\*|[A-Za-z]+)")
_OPENING = frozenset(
    {"if", "with", "range", "for", "define", "block", "macro", "call", "filter", "raw"}
)
_MIDDLE = frozenset({"else", "elif"})
_CLOSING = frozenset({"end"})
_WHY = "a template fills it in"
_BRANCH = "it depends on a branch of the template"
_READ_ONLY = "it is a template"

Path = tuple[int, ...]


def read_template(text: str, shown: str, *, is_yaml: bool) -> Reading:
    """Return the commands that a template shows; empty if it is unreadable before rendering."""
    marks = sum(text.count(begin) for begin in ("{{", "{%", "{#"))
    if "sglang" not in text or marks > _MOST_MARKS or len(text) > _MOST:
        return Reading()
    masked = _Masked(text)
    document = Document(masked.text, shown, lenient=True)
    reading = _yaml(document) if is_yaml else None
    if reading is None:
        try:
            reading = run(document.source())
        except InputError:
            return Reading()
    return _opened(masked.reading(reading, document))


def _yaml(document: Document) -> Reading | None:
    """Return the reading of a YAML template; None if it is not YAML before rendering."""
    from speclaunch.deployments.sources.yaml_files import read_yaml_document  # noqa: PLC0415  YAML

    try:
        return read_yaml_document(document)
    except InputError:
        return None


class _Masked:
    """Template with its marks replaced."""

    def __init__(self, text: str) -> None:
        self._masks = Masks(_WHY)
        self._starts = [0]
        self._paths: list[Path] = [()]
        self._count = 0
        self._continued = False
        """True if the last mark on a separate line was inside a multi-line command."""
        text = text.replace("\r\n", "\n")
        parts: list[str] = []
        at = 0
        for mark in _MARK.finditer(text):
            parts.append(text[at : mark.start()])
            parts.append(self._covered(text, mark))
            at = mark.end()
        parts.append(text[at:])
        self.text = "".join(parts)

    def _covered(self, text: str, mark: re.Match[str]) -> str:
        alone = _is_alone(text, mark)
        if alone:
            self._continued = _is_continued(text, mark.start(), self._continued)
        if self._control(mark) or alone or "\n" in mark[0]:
            blank = re.sub(r"[^\n]", " ", mark[0])
            return f"{blank[:-1]}\\" if alone and self._continued else blank
        return self._masks.mark(mark[0], max(len(mark[0]), SHORTEST))

    def _control(self, mark: re.Match[str]) -> bool:
        """Update the open branches. Return True for a control mark."""
        if mark[0].startswith("{#"):
            return True
        found = _KEYWORD.match(mark[0])
        word = found["word"] if found is not None else ""
        path = self._paths[-1]
        if word.startswith("end"):
            path = path[:-1]
        elif word in _MIDDLE:
            path = (*path[:-1], self._next())
        elif word in _OPENING and len(path) < _DEEPEST:
            path = (*path, self._next())
        else:
            return word == "/*" or mark[0].startswith("{%")
        self._starts.append(mark.end())
        self._paths.append(path)
        return True

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _path(self, offset: int) -> Path:
        return self._paths[bisect_right(self._starts, offset) - 1]

    def reading(self, reading: Reading, document: Document) -> Reading:
        """Return a reading with the template's original texts."""

        def path(word: Word) -> Path:
            place = word.used_at or word.place
            return self._path(document.offset(place.line - 1, place.column - 1))

        shown: list[Invocation] = []
        for found in reading.invocations:
            if found.kind is InvocationKind.CONFIG:  # its text would contain marks
                continue
            own = self._path(document.offset(found.place.line - 1, found.place.column - 1))

            def unknown(word: Word, own: Path = own) -> str | None:
                there = path(word)
                return None if own[: len(there)] == there else _BRANCH

            unmasked = self._masks.reading(Reading((found,)), unknown)
            shown += unmasked.invocations
        return Reading(tuple(shown))


def _is_continued(text: str, at: int, before: bool) -> bool:
    """True if the previous line continues on the line of `at`.

    `before` is the result for the previous mark's line, returned again if that line is a mark.
    """
    end = max(text.rfind("\n", 0, at), 0)
    above = text[text.rfind("\n", 0, end) + 1 : end].strip()
    if above.startswith(("{%", "{{", "{#")) and above.endswith(("%}", "}}", "#}")):
        return before
    return above.endswith("\\")


def _is_alone(text: str, mark: re.Match[str]) -> bool:
    """True if a mark's lines contain no other text."""
    before = text[text.rfind("\n", 0, mark.start()) + 1 : mark.start()]
    end = text.find("\n", mark.end())
    after = text[mark.end() : len(text) if end < 0 else end]
    return not before.strip() and not after.strip()


def _opened(reading: Reading) -> Reading:
    """Add an unknown argument to each command, because the template may add arguments."""
    return replace(
        reading,
        invocations=tuple(
            replace(
                found,
                words=(Word("*", found.place, evaluated=False, why=_WHY), *found.words),
                read_only=found.read_only or _READ_ONLY,
            )
            for found in reading.invocations
        ),
    )
