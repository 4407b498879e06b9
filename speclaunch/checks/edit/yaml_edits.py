"""Edits that set, add or remove YAML keys and items, and leave all other text unchanged.

Blocks are edited by lines, and flow collections only if they are on one line. Other values raise
`NotFixableError`. The round-trip check verifies the result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from speclaunch.checks.edit.edits import Edit, NotFixableError
from speclaunch.core import lazy
from speclaunch.deployments import Document, nodes

_PLAIN = lazy(r"-{0,2}[A-Za-z0-9_./][A-Za-z0-9_./@+=%-]*\Z")
_VALUE = lazy(
    r"\s*:(?P<blank>[ \t]*+)(?P<value>(?:[^ \t\n]++(?:[ \t]++(?!#|\Z)[^ \t\n]++)*+)?)"
    r"(?P<rest>[ \t]+#.*|[ \t]*)\Z"
)
"""Text that follows a key on its line."""
_ALIAS = lazy(r"\*[^\s,\]}]+")


class Yaml:
    """YAML text with its nodes; `end` is its line ending."""

    def __init__(self, document: Document, end: str = "\n") -> None:
        self.document = document
        self.end = end
        self.lines = document.text.split("\n")

    def root(self) -> yaml.Node | None:
        """Return the root of the first document; None for an empty text. Raises InputError."""
        roots = nodes.load(self.document)
        return roots[0] if roots else None

    def after(self, line: int, new: Sequence[str]) -> Edit:
        """Return the edit that inserts complete lines after line `line` (from 1)."""
        text = "".join(f"{self.end}{added}" for added in new)
        return Edit(line, len(self.lines[line - 1]) + 1, 0, text)

    def last_line(self, key: yaml.Node, value: yaml.Node | None = None) -> int:
        """Return the last line (from 1) of a key with its value, or of a block item.

        The value includes all lines with deeper indentation, the items of a key's list, and lines
        within brackets or quotes.
        """
        first = key.start_mark.line
        column = key.start_mark.column
        lead = self.lines[first][:column].rstrip(" ")
        is_key = not lead.endswith("-")
        if not is_key:
            column = len(lead) - 1  # the dash: the keys of an item are in the item's column
        last = first
        for number in range(first + 1, len(self.lines)):
            line = self.lines[number]
            body = line.strip()
            if not body or body.startswith("#"):
                continue
            indent = len(line) - len(line.lstrip())
            inside = is_key and indent == column and re.match(r"-(\s|$)", body) is not None
            if indent <= column and not inside:
                break
            last = number
        if value is not None and _is_enclosed(value) and value.start_mark.line >= first:
            last = max(last, value.end_mark.line)
        return last + 1


def _is_enclosed(node: yaml.Node) -> bool:
    if isinstance(node, yaml.ScalarNode):
        return node.style in ("'", '"')
    return isinstance(node, yaml.CollectionNode) and bool(node.flow_style)


def dumped(value: Any, *, text: bool = False) -> str:
    """Return a value as one line of YAML. `text`: YAML must read it as a string."""
    if text:
        value = str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, str):
        plain = _PLAIN.match(value) is not None and yaml.safe_load(value) == value
        return value if plain else json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | tuple):
        return f"[{', '.join(dumped(item) for item in value)}]"
    return json.dumps(value, ensure_ascii=False)


def quoted_text(value: str) -> str:
    """Return a string as a double-quoted YAML value."""
    text = dumped(value, text=True)
    return text if text[:1] == '"' else f'"{text}"'


def set_value(found: Yaml, key: yaml.Node, value: yaml.Node, new: str) -> list[Edit]:
    """Return the edits that change a key's value and preserve its comment."""
    at = key.end_mark
    line = found.lines[at.line]
    start, end = nodes.offsets(value, found.document)
    key_start, _ = nodes.offsets(key, found.document)
    here = value.start_mark.line == at.line and start >= key_start
    if isinstance(value, yaml.ScalarNode) and not value.value and not value.style:
        matched = _VALUE.match(line[at.column :])  # `key:` alone
        if matched is None or matched["value"]:
            raise NotFixableError("its value cannot be edited")
        column = at.column + matched.end("blank") + 1
        blank = "" if matched["blank"] else " "
        return [Edit(at.line + 1, column, 0, f"{blank}{new}")]
    if start < key_start:  # an alias: its node is at the anchor
        matched = _VALUE.match(line[at.column :])
        alias = matched and _ALIAS.match(matched["value"])
        if matched is None or alias is None:
            raise NotFixableError("its value is an alias that cannot be edited")
        column = at.column + matched.start("value") + 1
        return [Edit(at.line + 1, column, len(alias[0]), new)]
    raw = found.document.text[start:end]
    if raw.startswith(("&", "!")):
        raise NotFixableError("its value has an anchor or a tag")
    if value.start_mark.line == value.end_mark.line and here:
        return [Edit(at.line + 1, value.start_mark.column + 1, end - start, new)]
    if isinstance(value, yaml.CollectionNode) and value.flow_style:
        raise NotFixableError("its value spans several lines")
    matched = _VALUE.match(line[at.column :])
    if matched is None:
        raise NotFixableError("its value cannot be edited")
    column, length = at.column + matched.start("value") + 1, len(matched["value"])
    blank = "" if matched["blank"] else " "
    below = _removed_lines(found, at.line + 2, found.last_line(key, value))
    return [Edit(at.line + 1, column, length, f"{blank}{new}"), *below]


def removed_key(found: Yaml, mapping: yaml.MappingNode, key: yaml.Node) -> list[Edit]:
    """Return the edits that remove a key and its value from a mapping."""
    pairs = mapping.value
    index = next(at for at, (node, _) in enumerate(pairs) if node is key)
    if mapping.flow_style:
        return _out_of_flow(found, pairs, index)
    first = key.start_mark.line + 1
    if found.lines[first - 1][: key.start_mark.column].strip():
        raise NotFixableError("the key is on the line of a list item")
    if len(pairs) == 1:
        raise NotFixableError("it is the only key of its section")
    return _removed_lines(found, first, found.last_line(key, pairs[index][1]))


def removed_item(found: Yaml, sequence: yaml.SequenceNode, item: yaml.Node) -> list[Edit]:
    """Return the edits that remove an item from a list."""
    index = next(at for at, node in enumerate(sequence.value) if node is item)
    if sequence.flow_style:
        return _out_of_flow(found, [(node, node) for node in sequence.value], index)
    first = item.start_mark.line
    before = found.lines[first][: item.start_mark.column]
    if before.strip() != "-":
        raise NotFixableError("its item does not start a line")
    if len(sequence.value) == 1:
        raise NotFixableError("it is the only item of its list")
    return _removed_lines(found, first + 1, found.last_line(item, item))


def added_key(found: Yaml, mapping: yaml.MappingNode, pairs: Mapping[str, str]) -> list[Edit]:
    """Return the edits that append keys, each with a YAML value."""
    named = [f"{key}: {value}" for key, value in pairs.items()]
    if mapping.flow_style:
        return [_into_flow(found, mapping, named)]
    key, value = mapping.value[-1]
    indent = " " * mapping.value[0][0].start_mark.column
    return [found.after(found.last_line(key, value), [f"{indent}{pair}" for pair in named])]


def added_item(found: Yaml, sequence: yaml.SequenceNode, items: Sequence[str]) -> list[Edit]:
    """Return the edits that append items, written as YAML without indentation."""
    if sequence.flow_style:
        return [_into_flow(found, sequence, items)]
    last = sequence.value[-1]
    line = found.lines[last.start_mark.line]
    dash = line[: last.start_mark.column].rfind("-")
    if dash < 0 or line[:dash].strip():
        raise NotFixableError("its list cannot be extended")
    gap = " " * (last.start_mark.column - dash - 1)
    indent = " " * dash
    new: list[str] = []
    for item in items:
        head, *rest = item.split("\n")
        new += [f"{indent}-{gap}{head}", *(f"{indent} {gap}{more}" for more in rest)]
    return [found.after(found.last_line(last, last), new)]


def _into_flow(found: Yaml, node: yaml.CollectionNode, parts: Sequence[str]) -> Edit:
    end = node.end_mark
    line = found.lines[end.line]
    at = end.column - 1  # the closing bracket
    if node.start_mark.line != end.line or line[at : at + 1] not in "]}":
        raise NotFixableError("its list or section spans several lines")
    body = line[:at].rstrip()
    comma = "" if not node.value or body.endswith(",") else ","
    blank = " " if node.value else ""
    return Edit(end.line + 1, len(body) + 1, 0, f"{comma}{blank}{', '.join(parts)}")


def _out_of_flow(
    found: Yaml, parts: Sequence[tuple[yaml.Node, yaml.Node]], index: int
) -> list[Edit]:
    first, last = parts[index][0].start_mark, parts[index][1].end_mark
    if first.line != last.line:
        raise NotFixableError("its entry spans several lines")
    line = found.lines[first.line]
    start, end = first.column, last.column
    behind = re.match(r"\s*,\s*", line[end:])
    before = re.search(r",\s*\Z", line[:start])
    if index + 1 < len(parts) and behind is not None:
        end += behind.end()
    elif index and before is not None:
        start = before.start()
    elif len(parts) > 1:
        raise NotFixableError("its comma is on another line")
    return [Edit(first.line + 1, start + 1, end - start, "")]


def _removed_lines(found: Yaml, first: int, last: int) -> list[Edit]:
    lines = enumerate(found.lines[first - 1 : last], first)
    return [Edit(number, 1, len(line), "") for number, line in lines if line]
