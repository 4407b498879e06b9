"""Reader of a Jupyter notebook's servers: ``%%bash`` cells, ``!`` lines, commands in strings."""

from __future__ import annotations

import re
from collections.abc import Container

import yaml
from msgspec.structs import replace

from speclaunch.core import Place, lazy
from speclaunch.deployments.sources import markdown, nodes
from speclaunch.deployments.sources.interface import Invocation, Reading, ReadingBuilder
from speclaunch.deployments.sources.interpret import run
from speclaunch.deployments.sources.markdown import WHOLE_COMMAND
from speclaunch.deployments.sources.source_text import Document, SourceBuilder, SourceText, joined
from speclaunch.deployments.sources.wrappers import SERVER

_SHELL_CELL = lazy(r"\s*%%(?:bash|sh|script[ \t]+(?:ba)?sh)\b[^\n]*\n")
_SHELL_LINE = lazy(r"^[ \t]*!((?:[^\n\\]|\\\n|\\.)*)", re.MULTILINE)
_MARK = lazy(r"\\(?:\n|.)|\{\{|\}\}|\{[^{}\n]+\}", re.DOTALL)
_ESCAPES = {"\\": "\\", '"': '"', "'": "'", "n": "\n", "t": "\t"}
_STRING = lazy(r"(?<!\w)([rRfFuUbB]{0,2})(\"\"\"|'''|\"|')((?:(?!\2)[^\\]|\\.)*?)\2", re.DOTALL)


_MAGIC = lazy(r"^[ \t]*[!%](?:[^\n\\]|\\\n|\\.)*", re.MULTILINE)


def _start(found: Invocation) -> Place:
    """Return the place of a command's first option."""
    return next((word.place for word in found.words if word.text.startswith("-")), found.place)


def read_notebook(document: Document) -> Reading:
    """Return the servers that the cells of a notebook start."""
    reader = _Reader()
    for root in nodes.load(document):
        for cell in nodes.items(nodes.entries(root).get("cells")):
            keys = nodes.entries(cell)
            source = _source(keys.get("source"), document)
            if not SERVER.search(source.text):
                continue
            if nodes.text(keys.get("cell_type")) == "code":
                reader.code(source)
    return reader.reading()


def _source(node: yaml.Node | None, document: Document) -> SourceText:
    """Return the text of a cell: one string, or one string per line."""
    parts = [node] if isinstance(node, yaml.ScalarNode) else nodes.items(node)
    scalars = (part for part in parts if isinstance(part, yaml.ScalarNode))
    return joined((nodes.source(part, document) for part in scalars), document)


def _string_text(source: SourceText, string: re.Match[str]) -> SourceText:
    """Return the text of a Python string. The fields of an f-string become placeholders."""
    prefix, raw = string[1].lower(), string[3]
    builder = SourceBuilder(source.document)
    start = string.start(3)
    at = 0
    for mark in _MARK.finditer(raw):
        if mark[0][0] == "\\" and "r" not in prefix:
            meant = "" if mark[0][1] == "\n" else _ESCAPES.get(mark[0][1], mark[0])
        elif mark[0][0] == "{" and "f" in prefix:
            meant = mark[0][0] if mark[0] == "{{" else "<value>"
        elif mark[0] == "}}" and "f" in prefix:
            meant = "}"
        else:
            continue
        written = range(start + at, start + mark.start())
        builder.put(raw[at : mark.start()], map(source.offset, written))
        builder.put(meant, [source.offset(start + mark.start())] * len(meant))
        at = mark.end()
    builder.put(raw[at:], map(source.offset, range(start + at, string.end(3))))
    return builder.source()


class _Reader(ReadingBuilder):
    def code(self, source: SourceText) -> None:
        """Read the servers that a code cell starts."""
        cell = _SHELL_CELL.match(source.text)
        if cell is not None:
            self._script(source.part(cell.end(), len(source.text)))
            return
        for line in _SHELL_LINE.finditer(source.text):
            if SERVER.search(line[1]):
                self._script(source.part(line.start(1), line.end(1)))
        seen = {_start(found) for found in self._program(source)}
        for string in _STRING.finditer(source.text):
            if SERVER.search(string[3]):
                text = _string_text(source, string)
                if WHOLE_COMMAND.match(text.text, len(text.text) - len(text.text.lstrip())):
                    self._script(text, seen)

    def _program(self, source: SourceText) -> tuple[Invocation, ...]:
        """Read a cell as a program, without IPython's lines."""
        from speclaunch.deployments.sources.python_files import read_program  # noqa: PLC0415  `ast`

        text = _MAGIC.sub(lambda line: " " * len(line[0]), source.text)
        found = read_program(nodes.StringDocument(replace(source, text=text))).invocations
        self.invocations.extend(found)
        return found

    def _script(self, source: SourceText, seen: Container[Place] | None = None) -> None:
        """Read a script. If `seen` is set, skip incomplete commands and those already seen."""
        with self.tolerant():
            reading = run(source)
            commands = (
                invocation
                for invocation in reading.invocations
                if seen is None
                or (markdown.is_complete(invocation) and _start(invocation) not in seen)
            )
            self.add(replace(reading, invocations=tuple(commands), misread=()))
