"""Write plain data as YAML with comments, deterministically and in the data's order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

COMMENT = "#"
"""Prefix of keys that are comments. The value becomes a comment line above the next key."""
_LINE = re.compile(r"^(\s*)(- )?'#[^']*': \d+\n", re.MULTILINE)
_WIDTH = 96
"""Width of a line with a comment."""


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def yaml_text(data: Any) -> str:
    """Return one document without the line `---`."""
    comments: list[str] = []
    marked = _marked(data, comments)
    text: str = yaml.dump(
        marked,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=1 << 30,
    )
    found = iter(comments)
    return _LINE.sub(lambda match: _comment(next(found), len(match[1])), text)


def documents(header: Iterable[str], data: Iterable[Mapping[str, Any]]) -> str:
    """Return several documents below a header of comment lines."""
    head = "".join(_comment(line, 0) for line in header)
    return head + "---\n".join(yaml_text(document) for document in data)


def _comment(text: str, indent: int) -> str:
    """Return a text as lines that begin with `# `. Line breaks cannot end the comment."""
    words = " ".join(text.split()).split(" ")
    room = max(40, _WIDTH - indent - 2)
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + 1 + len(word) > room:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    printable = ("".join(char for char in line if char.isprintable()) for line in lines)
    return "".join(f"{' ' * indent}# {line}\n" for line in printable)


def _marked(data: Any, comments: list[str]) -> Any:
    """Return the data with a number for each comment, in the order of the text."""
    if isinstance(data, Mapping):
        found: dict[Any, Any] = {}
        for key, value in data.items():
            if isinstance(key, str) and key.startswith(COMMENT):
                comments.append(str(value))
                found[key] = len(comments)
            else:
                found[key] = _marked(value, comments)
        return found
    if isinstance(data, list | tuple):
        return [_marked(item, comments) for item in data]
    return str(data) if isinstance(data, str) else data
