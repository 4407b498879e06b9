"""Escapes output that could control a terminal or a CI service's log."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache

_STEERING = (
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff"
    r"\ud800-\udfff]|\r(?!\n)"
)
"""Control characters except tabs and newlines; characters that change the direction of text, have
no width or end a line for some readers; and surrogates, which represent undecodable bytes."""
_COLORS = r"\x1b\[[0-9;:]*m"
_COMMAND = r"(?m:(^[^\S\n]*:)(:))|(##(?:vso)?)(\[)"
"""A workflow command: `::` at the beginning of a line, or `##[` or `##vso[` anywhere in it."""
_OBEYING = ("GITHUB_ACTIONS", "TF_BUILD", "GITLAB_CI", "CI")
_LONGEST_BEGUN = 200


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def printable(text: str) -> str:
    r"""Return the text with control characters, except tabs and newlines, as `\u001b` escapes.

    The escape means the same character inside a JSON string.
    """
    return _compiled(_STEERING).sub(_escaped, text)


def single_line(name: str) -> str:
    """Return a name on one line, with control characters escaped."""
    return printable(name).translate(_ENDS)


_ENDS = {ord(character): f"\\u{ord(character):04x}" for character in "\t\n\r"}


def without_colors(line: str) -> str:
    """Return a line without terminal color codes."""
    return _compiled(_COLORS).sub("", line) if "\x1b" in line else line


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def obeys_commands(environment: Mapping[str, str] = os.environ) -> bool:
    """True if the reader of the output streams may execute workflow commands, as CI services do."""
    return any(environment.get(name) for name in _OBEYING)


class CommandGuard:
    """Disables workflow commands in a stream that is written in pieces."""

    def __init__(self) -> None:
        self._begun = ""
        """The unfinished line at the end of the last piece."""

    def text(self, text: str) -> str:
        """Return the next piece, with one character of each command escaped."""
        if "::" in text or "[" in text or self._begun:
            both = self._begun + text
            guarded = _compiled(_COMMAND).sub(_broken, both)[len(self._begun) :]
        else:
            both = guarded = text
        begun = both[both.rfind("\n") + 1 :]
        if len(begun) > _LONGEST_BEGUN and not begun.isspace():
            begun = f".{begun[-5:]}"
        self._begun = begun
        return guarded


def _broken(found: re.Match[str]) -> str:
    prefix, last = (found[1], found[2]) if found[1] else (found[3], found[4])
    return f"{prefix}\\u{ord(last):04x}"
