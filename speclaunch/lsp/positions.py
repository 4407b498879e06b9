"""Places of ours and positions of editors.

Ours count lines and code points from 1; an editor counts both from 0, the characters in the units
that it agreed on with the server (UTF-16, if it said nothing). Lines end as the protocol has it.
"""

from __future__ import annotations

import re

from lsprotocol.types import Position, Range
from pygls.workspace import PositionCodec

from speclaunch.errors import Place
from speclaunch.patterns import lazy

_LINE = lazy(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")


class Positions:
    """Translates for one text."""

    def __init__(self, text: str, codec: PositionCodec) -> None:
        self.lines = [line.rstrip("\r\n") for line in re.findall(_LINE.pattern, text)]
        self._codec = codec

    def position(self, line: int, column: int) -> Position:
        """Of a line and column of ours; what lies outside of the text is brought in."""
        if line > len(self.lines):
            line, column = len(self.lines), len(self.lines[-1]) + 1
        number = max(line, 1)
        before = self.lines[number - 1][: max(column - 1, 0)]
        return Position(number - 1, self._codec.client_num_units(before))

    def range(self, place: Place) -> Range:
        """What a place underlines, at least one character where there is one."""
        end = place.column + max(place.length, 1)
        return Range(self.position(place.line, place.column), self.position(place.line, end))

    def place(self, position: Position) -> tuple[int, int]:
        """The line and column of ours, from 1, of an editor's position."""
        number = min(max(position.line, 0), len(self.lines) - 1)
        units = 0
        for column, character in enumerate(self.lines[number], 1):
            if units >= position.character:
                return number + 1, column
            units += self._codec.client_num_units(character)
        return number + 1, len(self.lines[number]) + 1
