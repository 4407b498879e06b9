"""The shell blocks of a Markdown document."""

from __future__ import annotations

import re

from speclaunch.errors import InputError, Problem
from speclaunch.importer import slime
from speclaunch.importer.expand import Expander
from speclaunch.importer.interface import Invocation, InvocationKind, Reading
from speclaunch.importer.interpret import Interpreter
from speclaunch.importer.parser import parse
from speclaunch.importer.scope import Field, ShellScope
from speclaunch.importer.source_text import Document, SourceText
from speclaunch.importer.syntax import Script, Simple
from speclaunch.patterns import lazy

_FENCE = lazy(r"^([ \t>]*)(`{3,}|~{3,})[ \t]*([^\n`]*)$", re.MULTILINE)
_LANGUAGES = frozenset({"", "bash", "sh", "shell", "zsh", "console", "shell-session", "text"})
_SCRIPTS = frozenset({"bash", "sh", "shell", "zsh"})
_PROMPT = lazy(r"^[ \t]*(?:\([\w.-]+\)[ \t]*)?[$%][ \t]+(?=\S)", re.MULTILINE)
_MAX_BLOCKS = 5_000


def read_markdown(document: Document) -> Reading:
    """The server commands in the fenced shell blocks, each block a script of its own."""
    invocations: list[Invocation] = []
    problems: list[Problem] = []
    options: list[Field] = []
    unread: list[Problem] = []
    for block, is_script in _blocks(document):
        try:
            script = parse(block)
            reading = Interpreter(script, ShellScope(), None).read()
        except InputError as error:
            (unread if is_script else problems).extend(error.problems)
            continue
        # a block that is not said to be a script may show what a command printed
        (unread if is_script else problems).extend(reading.unread)
        if not reading.invocations:
            options.extend(_options(script))
        invocations.extend(reading.invocations)
        problems.extend(reading.problems)
    if any(found.kind is InvocationKind.SLIME for found in invocations):
        problems.extend(slime.unprefixed(word) for word in options)
    return Reading(tuple(invocations), tuple(problems), tuple(unread))


def _options(script: Script) -> list[Field]:
    """The `--speculative-…` lines of a block that has no command."""
    expander = Expander(script.source.document, ShellScope())
    return [
        field
        for node in script.nodes
        if isinstance(node, Simple)
        and node.words
        and (node.words[0].plain or "").startswith("--speculative-")
        for field in expander.fields(node.words[0])
    ]


def _blocks(document: Document) -> list[tuple[SourceText, bool]]:
    """The shell blocks, and whether each says that it is a script."""
    found: list[tuple[SourceText, bool]] = []
    opening: re.Match[str] | None = None
    for fence in _FENCE.finditer(document.text):
        if opening is None:
            opening = fence
        elif (
            fence[2][0] == opening[2][0]
            and len(fence[2]) >= len(opening[2])
            and not fence[3].strip()
        ):
            _block(document, opening, fence.start(), found)
            opening = None
        if len(found) > _MAX_BLOCKS:
            break
    if opening is not None:
        _block(document, opening, len(document.text), found)
    return found


def _block(
    document: Document, opening: re.Match[str], end: int, found: list[tuple[SourceText, bool]]
) -> None:
    words = opening[3].strip().split()
    language = words[0].lower().strip("{}.") if words else ""
    start = min(opening.end() + 1, end)
    if language not in _LANGUAGES:
        return
    text = document.text[start:end]
    if language in ("console", "shell-session") or _PROMPT.match(text):
        text = _PROMPT.sub(lambda match: " " * len(match[0]), text)
    if ">" in opening[1]:
        text = re.sub(r"^[ \t]*>", lambda match: " " * len(match[0]), text, flags=re.MULTILINE)
    if "sglang" not in text and "--speculative-" not in text:
        return
    found.append((SourceText(document, text, start), language in _SCRIPTS))
