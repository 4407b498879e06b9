"""What stands under the cursor: a key of a recipe, a flag of a command, and the word so far.

Read line by line, because a document is seldom whole while somebody types.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum

from speclaunch.patterns import lazy
from speclaunch.recipe.find_recipe import group_options
from speclaunch.record import record

_KEY = lazy(
    r"(?P<indent>[ ]*)(?P<dashes>(?:-[ ]+)*)"
    r"(?P<key>[^\s:#'\"\-][^:#]*?|'[^']*'|\"[^\"]*\")[ ]*:(?=\s|$)"
)
_ITEM = lazy(r"(?P<indent>[ ]*)-(?:[ ]+|$)")
_PACKAGE = lazy(r"^#\s*@package\s+(\S+)", re.M)
_RECIPE = lazy(r"^(?:defaults|args)\s*:", re.M)
_MANIFEST = lazy(r"^(?:services|apiVersion)\s*:", re.M)
_FLAG = lazy(r"--[A-Za-z][\w-]*")
_WORD_END = lazy(r"[^\s'\"`,;|&()<>\[\]{}]*\Z")


class Kind(StrEnum):
    """What a document is to somebody who writes it."""

    RECIPE = "recipe"
    OPTION = "option"
    """An option of a group."""
    COMMANDS = "commands"
    """Anything with commands in it."""


@record
class InYaml:
    """A place in a recipe: the keys above it, and what is being written.

    `key` None: a key is being written (`word` is its beginning), else the value of that key.
    `start` is the column, from 1, where `word` begins.
    """

    above: tuple[str, ...]
    key: str | None
    word: str
    start: int
    in_list: bool = False


def kind(text: str, path: str) -> tuple[Kind, tuple[str, ...]]:
    """What a document is, and the section of a recipe that its first level fills."""
    if not path.endswith((".yaml", ".yml")):
        return Kind.COMMANDS, ()
    found = _PACKAGE.search(text)
    if found is not None:
        section = found[1]
        return Kind.OPTION, () if section == "_global_" else tuple(section.split("."))
    if _RECIPE.search(text) and not _MANIFEST.search(text):
        return Kind.RECIPE, ()
    parts = path.replace("\\", "/").split("/")
    folder = parts[-2] if len(parts) > 1 else ""
    if folder in group_options() and not _MANIFEST.search(text):
        return Kind.OPTION, (folder,)
    return Kind.COMMANDS, ()


def in_yaml(lines: Sequence[str], line: int, column: int, base: tuple[str, ...]) -> InYaml | None:
    """The place at a line and column (from 1) of block YAML; None in a comment."""
    current = lines[line - 1]
    before = current[: column - 1]
    if re.search(r"(?:^|\s)#", before):
        return None
    matched = _KEY.match(current)
    if matched is not None and column - 1 > matched.end():
        above = base + _above(lines, line, len(matched["indent"]) + len(matched["dashes"]))
        value = before[matched.end() :]
        word = re.split(r"[\s\[,]", value)[-1].lstrip("'\"")
        in_list = "[" in value
        return InYaml(above, _bare(matched["key"]), word, column - len(word), in_list)
    item = _ITEM.match(current)
    stripped = before.lstrip(" ")
    if item is not None and len(before) >= len(item["indent"]) + 1:
        stripped = re.sub(r"^(?:-\s*)+", "", stripped)
    indent = len(before) - len(stripped)
    above = base + _above(
        lines, line, indent if item is None else len(item["indent"]), item is not None
    )
    return InYaml(above, None, stripped, indent + 1, item is not None)


def key_at(
    lines: Sequence[str], line: int, column: int, base: tuple[str, ...]
) -> tuple[tuple[str, ...], str, int] | None:
    """The keys above, the key, and its column, of the key or value under the cursor."""
    matched = _KEY.match(lines[line - 1])
    if matched is None or column - 1 < matched.start("key"):
        return None
    above = base + _above(lines, line, matched.start("key"))
    return above, _bare(matched["key"]), matched.start("key") + 1


def _above(lines: Sequence[str], line: int, indent: int, item: bool = False) -> tuple[str, ...]:
    """The keys that a line lies below, by its indentation. An item of a list may stand as far
    left as the key that it belongs to."""
    found: list[str] = []
    for number in range(line - 1, 0, -1):
        text = lines[number - 1]
        if not text.strip() or text.lstrip().startswith("#"):
            continue
        matched = _KEY.match(text)
        here = len(text) - len(text.lstrip(" "))
        is_above = here < indent or (item and here == indent and not text.lstrip().startswith("-"))
        if matched is not None and is_above:
            found.append(_bare(matched["key"]))
            indent, item = here, False
        if here == 0 and indent == 0:
            break
    return tuple(reversed(found))


def _bare(key: str) -> str:
    return key.strip().strip("'\"")


def flag_at(line: str, column: int) -> tuple[str, int, int] | None:
    """The flag under the cursor, where it begins and ends (columns from 1, the end left out)."""
    for found in _FLAG.finditer(line):
        if found.start() <= column - 1 <= found.end():
            return found[0], found.start() + 1, found.end() + 1
    return None


@record
class InCommand:
    """A word of a command: a flag being written, or the value of `flag`."""

    flag: str | None
    word: str
    start: int


def in_command(lines: Sequence[str], line: int, column: int) -> InCommand | None:
    """The flag, or the value of a flag, that ends at a line and column; None for other words."""
    before = lines[line - 1][: column - 1]
    matched = _WORD_END.search(before)
    word = matched[0] if matched is not None else ""
    start = column - len(word)
    if word.startswith("--"):
        flag, equals, value = word.partition("=")
        if equals:
            return InCommand(flag, value, column - len(value))
        return InCommand(None, word, start)
    rest = before[: start - 1].rstrip(" \t'\"`,[")
    if not rest.strip(" -") and line > 1:  # a word of a list that begins a line
        rest = lines[line - 2].rstrip().rstrip("\\").rstrip(" '\",")
    last = re.search(r"(--[A-Za-z][\w-]*)\Z", rest)
    return InCommand(last[1], word, start) if last is not None else None
