"""Syntax tree of a shell script, as far as finding commands requires."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

from speclaunch.core import Problem
from speclaunch.deployments.sources.source_text import SourceSpan, SourceText


class Literal(Struct, frozen=True):
    """Literal characters; `exact` if the file has exactly these characters."""

    text: str
    start: int
    quoted: bool = False
    exact: bool = True


class Parameter(Struct, frozen=True):
    """``$NAME`` or ``${NAME…}``.

    `operator` follows the name (``:-``, ``##``, ``/`` …) and `operand` is the word after it.
    `index` is the text between brackets.  `prefix` is ``#`` or ``!``
    for ``${#NAME}``, ``${!NAME}``.
    """

    name: str
    start: int
    end: int
    quoted: bool = False
    operator: str = ""
    operand: ShellWord | None = None
    index: str | None = None
    prefix: str = ""

    @property
    def list_like(self) -> bool:
        """True for ``$@`` and ``${A[@]}``: they expand to any number of words, even in quotes."""
        return self.prefix != "#" and (self.name == "@" or self.index == "@")


class Substitution(Struct, frozen=True):
    """``$(…)`` or backticks."""

    body: tuple[Node, ...]
    start: int
    end: int
    quoted: bool = False
    source: SourceText | None = None
    """Source of `body` if it differs (backticks)."""


class Arithmetic(Struct, frozen=True):
    """``$((…))``; `text` is the expression between the parentheses."""

    text: str
    start: int
    end: int
    quoted: bool = False


class OpaquePart(Struct, frozen=True):
    """Part that remains unchanged: ``<(…)`` and similar forms."""

    why: str
    start: int
    end: int
    quoted: bool = False


Part: TypeAlias = Literal | Parameter | Substitution | Arithmetic | OpaquePart


class ShellWord(Struct, frozen=True):
    """One word of the script, before expansion."""

    parts: tuple[Part, ...]
    source: SourceText
    start: int
    end: int

    @property
    def span(self) -> SourceSpan:
        """Range in the file."""
        return SourceSpan(self.source, self.start, self.end)

    @property
    def plain(self) -> str | None:
        """Text of a word without quotes and expansions, else None."""
        text = ""
        for part in self.parts:
            if not isinstance(part, Literal) or part.quoted:
                return None
            text += part.text
        return text


class Assignment(Struct, frozen=True):
    """``NAME=value``, ``NAME+=value``, ``NAME=( … )``."""

    name: str
    value: ShellWord | tuple[ShellWord, ...]
    span: SourceSpan
    append: bool = False
    index: str | None = None


class Redirect(Struct):
    """``2>&1``, ``> log``, ``<<EOF`` (with the range of its text)."""

    operator: str
    span: SourceSpan
    target: ShellWord | None = None
    body: SourceSpan | None = None
    literal: bool = False
    """True if the here-document is not expanded (its delimiter was quoted)."""


class Simple(Struct):
    """Simple command. `declared` are assignments after ``export``, ``local`` and the like."""

    span: SourceSpan
    assignments: tuple[Assignment, ...] = ()
    words: tuple[ShellWord, ...] = ()
    declared: tuple[Assignment, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    end: str = ""
    """Its terminator: ``;``, ``&``, ``&&``, ``||``, ``|``, a newline or nothing."""
    end_at: int = 0


class Branch(Struct):
    """Alternative of an ``if`` or ``case``, or body of a loop; `label` is its condition."""

    label: SourceSpan
    condition: tuple[Node, ...]
    body: tuple[Node, ...]
    certain: bool = False
    """True for ``else`` and ``*)``, which run if no other branch does."""


class Compound(Struct):
    """``if``, ``case``, ``while``, ``until``, ``for``, ``select``, ``( … )``, ``{ … }``."""

    kind: str
    span: SourceSpan
    branches: tuple[Branch, ...]
    variable: str | None = None
    items: tuple[ShellWord, ...] | None = None
    redirects: tuple[Redirect, ...] = ()
    end: str = ""
    end_at: int = 0


class Function(Struct):
    """``name() { … }``."""

    name: str
    span: SourceSpan
    body: tuple[Node, ...]
    end: str = ""
    end_at: int = 0


Node: TypeAlias = Simple | Compound | Function


class Script(Struct):
    """Parsed script and its comments (their offsets, in order)."""

    source: SourceText
    nodes: tuple[Node, ...]
    comments: list[SourceSpan] = []
    unread: list[Problem] = []
    """Commands that were skipped because they cannot be read."""
    misread: list[Problem] = []
    strict: bool = False
    """True if bash gets the text unchanged; False for a fragment or part of a document."""


_QUESTIONS = frozenset(
    ("[", "test", "grep", "egrep", "pgrep", "command", "which", "type", "hash", "cmp", "diff")
)
"""Commands that are run for their exit status. Others before `&&` are assumed to succeed."""


def asks(node: Node) -> bool:
    """True if the next command of a list depends on this command's uncertain exit status."""
    if node.end == "||":
        return True
    if node.end != "&&" or not isinstance(node, Simple):
        return False
    if not node.words:  # `[[ … ]]` and `(( … ))`
        return not node.assignments
    return node.words[0].plain in _QUESTIONS


def pipeline(nodes: Sequence[Node], index: int) -> SourceSpan | None:
    """Return the rest of a pipeline after the command at `index`; None for the last command."""
    node = nodes[index]
    if node.end not in ("|", "|&"):
        return None
    last = index + 1
    while last + 1 < len(nodes) and nodes[last].end in ("|", "|&"):
        last += 1
    if last >= len(nodes):
        return None
    return SourceSpan(node.span.source, node.end_at, nodes[last].span.end)
