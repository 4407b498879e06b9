"""Escapes what would steer a terminal or the log of a CI service, where text leaves the process."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache

_STEERING = (
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff"
    r"\ud800-\udfff]|\r(?!\n)"
)
"""Control characters but for tabs and ends of lines; what changes the direction of text, has no
width or ends a line for some readers; surrogates, which stand for bytes that are no text."""
_COLORS = r"\x1b\[[0-9;:]*m"
_COMMAND = r"(?m:(^[^\S\n]*:)(:))|(##(?:vso)?)(\[)"
"""A workflow command: `::` begins a line, `##[` and `##vso[` are anywhere in it."""
_OBEYING = ("GITHUB_ACTIONS", "TF_BUILD", "GITLAB_CI", "CI")
_LONGEST_BEGUN = 200


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def printable(text: str) -> str:
    r"""Return the text with `\u001b` for control characters but tabs and ends of lines.

    The escape means the same character inside a JSON string.
    """
    return _compiled(_STEERING).sub(_escaped, text)


def one_line_name(name: str) -> str:
    """Return a name in one line, its control characters escaped."""
    return printable(name).translate(_ENDS)


_ENDS = {ord(one): f"\\u{ord(one):04x}" for one in "\t\n\r"}


def without_colors(line: str) -> str:
    """Return a line without the codes that color it on a terminal."""
    return _compiled(_COLORS).sub("", line) if "\x1b" in line else line


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def obeys_commands(environment: Mapping[str, str] = os.environ) -> bool:
    """True if the reader of our streams may execute workflow commands in them."""
    return any(environment.get(name) for name in _OBEYING)


class CommandGuard:
    """Takes the effect from workflow commands in a stream that is written in pieces."""

    def __init__(self) -> None:
        self._begun = ""
        """The line that the last piece did not end."""

    def text(self, text: str) -> str:
        """Return the next piece; a command in it has one of its characters escaped."""
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
    kept, last = (found[1], found[2]) if found[1] else (found[3], found[4])
    return f"{kept}\\u{ord(last):04x}"
