"""Several files as one document, whose places are those of the files."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import yaml

from speclaunch.errors import Place
from speclaunch.importer import nodes
from speclaunch.importer.source_text import Document
from speclaunch.record import record


@record
class Mark:
    """Where a node stands, as PyYAML says it: all that the readers ask of it."""

    index: int
    line: int
    column: int


class JoinedDocument(Document):
    """The texts of files one after the other; `shown` is the first of them."""

    def __init__(self, shown: str) -> None:
        super().__init__("", shown)
        self._parts: list[Document] = []
        self._starts: list[int] = []

    def add(self, text: str, shown: str) -> tuple[Document, int]:
        """Add a file: the file alone, and where it begins."""
        part = Document(text, shown)
        start = len(self.text)
        self._parts.append(part)
        self._starts.append(start)
        self.text += part.text + "\n"
        return part, start

    def _part(self, at: int) -> int:
        return max(bisect_right(self._starts, at) - 1, 0)

    def place(self, at: int, length: int = 1) -> Place:
        """The place in the file that the character belongs to."""
        if not self._parts:
            return Place(self.shown)
        index = self._part(at)
        return self._parts[index].place(at - self._starts[index], length)

    def at(self, place: Place) -> int:
        """Where a place of one of the files stands, as an offset."""
        for part, start in zip(self._parts, self._starts, strict=True):
            if part.shown == place.path:
                return start + part.at(place)
        return 0

    def stretch(self, at: int) -> tuple[int, int]:
        """The file that the character belongs to: from where to where."""
        if not self._parts:
            return super().stretch(at)
        index = self._part(at)
        return self._starts[index], self._starts[index] + len(self._parts[index].text)

    def excerpt(self, start: int, text: str) -> Document:
        """What stands from the beginning of a line on, in the file that it belongs to."""
        index = self._part(start)
        found = self._parts[index].excerpt(start - self._starts[index], text)
        found._whole = self
        found._chars_above = start
        return found


def moved(roots: Sequence[yaml.Node], where: Sequence[int] | int) -> None:
    """Give nodes the marks that they have in the joined document.

    `where` is where their text begins in it, or the offset of each of its characters.
    """
    for root in roots:
        for node in nodes.walk(root):
            _move(node, where)
            if isinstance(node, yaml.MappingNode):
                for key, _ in node.value:
                    _move(key, where)


def _move(node: yaml.Node, where: Sequence[int] | int) -> None:
    start, end = node.start_mark, node.end_mark
    if isinstance(start, Mark):
        return
    if isinstance(where, int):
        first, last = where + start.index, where + end.index
    else:
        first = where[min(start.index, len(where) - 1)] if where else 0
        last = where[min(end.index, len(where)) - 1] + 1 if where and end.index else first
    node.start_mark = Mark(first, start.line, start.column)
    node.end_mark = Mark(max(last, first), end.line, end.column)
