"""Parts of a text that another program fills in, hidden from the readers and shown again.

A reader of shell or YAML must not look into `{{ value }}` of a template or `{value}` of an
f-string: a mark stands for it, which is an ordinary character everywhere. Afterwards every word
with a mark in it is a word that is not known, with the text that was written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from speclaunch.importer.interface import Comment, Dropped, Invocation, Reading, Word
from speclaunch.patterns import lazy

_FIRST, _LAST = "\ue000", "\ue001"
_BASE = 0xE100
_DIGITS = 1000
SHORTEST = 4
"""No mark has fewer characters: one that has the length of a text needs so many in it."""
MARK = lazy("\ue000[\ue100-\ue4e7]+\ue001")


class Masks:
    """The marks of one text. `why` says what fills them in."""

    def __init__(self, why: str) -> None:
        self._why = why
        self._texts: list[str] = []

    def mark(self, text: str, length: int | None = None) -> str:
        """A mark for a text; `length` where it has to have as many characters."""
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
        """The text as it was written."""
        if _FIRST not in text:
            return text
        return MARK.sub(lambda found: self._text(found[0]), text)

    def _text(self, mark: str) -> str:
        number = 0
        for char in mark[1:-1]:
            number = number * _DIGITS + ord(char) - _BASE
        return self._texts[number] if number < len(self._texts) else mark

    def reading(self, reading: Reading, unknown: Callable[[Word], str | None]) -> Reading:
        """A reading as it was written; `unknown` says why a word without a mark is not known."""
        return replace(
            reading,
            invocations=tuple(self._invocation(one, unknown) for one in reading.invocations),
        )

    def _invocation(self, found: Invocation, unknown: Callable[[Word], str | None]) -> Invocation:
        def word(one: Word) -> Word:
            return self._word(one, unknown)

        return replace(
            found,
            words=tuple(map(word, found.words)),
            program=tuple(map(word, found.program)),
            env={self.shown(name): one for name, one in _each(found.env, word).items()},
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
