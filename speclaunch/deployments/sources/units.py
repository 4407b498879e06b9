"""Read the lines of a systemd unit that a shell would misread: its environment and programs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from speclaunch.core import lazy
from speclaunch.deployments.sources.fields import Field, ShellScope, Value
from speclaunch.deployments.sources.interface import Dropped
from speclaunch.deployments.sources.shell_syntax import Literal, Node, ShellWord, Simple
from speclaunch.deployments.sources.source_text import SourceSpan, SourceText, WordPiece
from speclaunch.deployments.sources.wrappers import cut

_EXEC = lazy(r"Exec(?:Condition|(?:Start|Stop)(?:Pre|Post)?|Reload)\Z")
_PREFIXES = "-@:+!|"
"""Characters before a program that change how systemd runs it."""
_NAME = lazy(r"[A-Za-z_]\w*=")
_WORD = lazy(r"(?:\"(?:[^\"\\]|\\[\s\S])*\"|'(?:[^'\\]|\\[\s\S])*'|[^\s\"'\\]|\\[^\n])+")
_PART = lazy(r"(\"|')((?:(?!\1)[^\\]|\\[\s\S])*)\1|(?:[^\"'\\]|\\.)+")
_LINE = lazy(r"(?:[^\n\\]|\\[\s\S])*")
_ESCAPE = lazy(r"\\([\\\"'])|%(%)")
_OPEN = lazy(r"[\\%]")


def read_settings(
    nodes: Sequence[Node], scope: ShellScope
) -> tuple[Sequence[Node], Sequence[Dropped]]:
    """Return a unit's programs as commands, and its unread files; `nodes` if it is not a unit.

    `scope` gets the variables of ``Environment=``, which apply to all programs in any order.
    """
    if not any(_EXEC.match(_setting(node)) for node in nodes):
        return nodes, ()
    commands: list[Node] = []
    dropped: list[Dropped] = []
    variables: dict[str, Value | None] = {}
    for node in nodes:
        setting = _setting(node)
        if setting == "Environment":
            if node.span.text == "Environment=":  # an empty value clears the list
                variables = dict.fromkeys(variables)
            else:
                variables |= _variables(node.span)
        elif setting == "EnvironmentFile":
            dropped.append(Dropped(node.span.text, node.span.place, "its variables are not read"))
        elif not _EXEC.match(setting):
            commands.append(node)
        elif isinstance(node, Simple) and (program := _program(node.assignments[0].value)):
            words = (program, *node.words)
            commands.append(replace(node, assignments=node.assignments[1:], words=words))
    for name, value in variables.items():
        scope.set(name, value)
    return commands, dropped


def _setting(node: Node) -> str:
    return node.assignments[0].name if isinstance(node, Simple) and node.assignments else ""


def _program(word: ShellWord | tuple[ShellWord, ...]) -> ShellWord | None:
    """Return a program without its prefixes; None if systemd runs nothing (``NAME=value``)."""
    if isinstance(word, tuple) or not word.parts or _NAME.match(word.span.text):
        return None
    first = word.parts[0]
    if not isinstance(first, Literal):
        return word
    text = first.text.lstrip(_PREFIXES)
    count = len(first.text) - len(text)
    first = replace(first, text=text, start=first.start + count)
    return replace(word, parts=(first, *word.parts[1:]), start=word.start + count)


def _variables(line: SourceSpan) -> Iterator[tuple[str, Value]]:
    """Yield the variables of an ``Environment=`` line. systemd expands no ``$`` in them."""
    source = line.source
    start = source.text.index("=", line.start) + 1
    end = _LINE.search(source.text, start)
    for word in _WORD.finditer(source.text, start, end.end() if end else line.end):
        parts = _PART.finditer(source.text, word.start(), word.end())
        pieces = tuple(_piece(source, part) for part in parts)
        name = _NAME.match("".join(piece.text for piece in pieces))
        if name is not None:
            value = cut(Field(pieces, SourceSpan(source, word.start(), word.end())), name.end())
            yield name[0][:-1], Value(value.stretch, value.pieces, exported=True)


def _piece(source: SourceText, part: re.Match[str]) -> WordPiece:
    raw, start = (part[0], part.start()) if part[1] is None else (part[2], part.start(2))
    if "\\" not in raw and "%" not in raw:
        return WordPiece(raw, source, start, quoted=True)
    if _OPEN.search(_ESCAPE.sub("", raw)):
        why = "systemd replaces its escapes and specifiers"
        return WordPiece(raw, source, start, True, True, why)
    return WordPiece(_ESCAPE.sub(r"\1\2", raw), source, start, quoted=True, exact=False)
