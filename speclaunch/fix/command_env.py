"""An environment variable of a server command set, or taken away, where it is written."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator

import yaml

from speclaunch.errors import InputError, Place
from speclaunch.fix.command_words import Text, replaced
from speclaunch.fix.edits import Edit
from speclaunch.fix.rewrite import with_variable
from speclaunch.fix.yaml_edits import (
    NotFixableError,
    Yaml,
    added_item,
    added_key,
    dumped,
    quoted_text,
    removed_item,
    removed_key,
)
from speclaunch.importer import nodes
from speclaunch.importer.file_kinds import looks_like_yaml
from speclaunch.importer.interface import Invocation, InvocationKind, Word
from speclaunch.importer.source_text import Document

_OPTION = r"(?:-e|--env)(?:\s+|=)"
"""Of Docker and its like, before an assignment."""


def env_ways(invocation: Invocation, name: str, value: str | None, text: str) -> list[list[Edit]]:
    """The ways to give a variable another value, or none; the best first."""
    word = invocation.env.get(name)
    if word is not None and word.place.path != invocation.place.path:
        raise NotFixableError(f"{name} is set in {word.place.path}")
    if value is None:
        return [[]] if word is None else list(_removed(word, name, text))
    if word is None:
        return list(_set(invocation, name, value, text))
    own = replaced(Text(text), [word], word, word.text, value)
    return [[edit] for edit in own]


def _removed(word: Word, name: str, text: str) -> Iterator[list[Edit]]:
    if re.search(rf"\$\{{?{name}\b|\$\({name}\)", text):
        raise NotFixableError(f"{name} is used elsewhere in the file")
    document = Document(text, word.place.path)
    if looks_like_yaml(text, _suffix(word.place.path)):
        with contextlib.suppress(NotFixableError, InputError):  # it may be in a script inside
            yield from _out_of_yaml(document, word.place, name)
    yield from _out_of_shell(Text(text), word.place, name)


def _suffix(path: str) -> str:
    return "." + path.rpartition(".")[2].lower()


def _out_of_shell(text: Text, place: Place, name: str) -> Iterator[list[Edit]]:
    line, start = text.line(place.line), place.column - 1
    end = start + place.length
    head = line[:start]
    quote = ""
    if head.endswith(f"{name}="):
        begin = start - len(name) - 1
    elif head.endswith((f'{name}="', f"{name}='")):
        begin, quote = start - len(name) - 2, head[-1]
        end += len(quote)
    else:
        return
    if begin and line[begin - 1] in "\"'" and line[end : end + 1] == line[begin - 1]:
        begin, end = begin - 1, end + 1  # "NAME=value"
    before, behind = line[:begin], line[end:]
    alone = re.match(r"\s*(?:export|declare\s+-x|typeset\s+-x|ENV)\s+\Z", before)
    whole = alone is not None or not before.strip()
    if whole and re.match(r"\s*(?:[;#].*)?\Z", behind):
        yield [Edit(place.line, 1, len(line), "")]
    stated = re.search(r"(?:\bexport|\bdeclare\s+-x)\s+\Z", before)
    if stated is not None:
        ended = re.match(r"\s*(?:;|&&)\s*", behind)
        if ended is not None:
            length = end + ended.end() - stated.start()
            yield [Edit(place.line, stated.start() + 1, length, "")]
    option = re.search(rf"[\"']?{_OPTION}[\"']?\Z", before)
    if option is not None:
        yield [Edit(place.line, option.start() + 1, end - option.start(), "")]
    if alone is None or behind.strip():
        yield [Edit(place.line, begin + 1, end - begin, "")]


def _out_of_yaml(document: Document, place: Place, name: str) -> Iterator[list[Edit]]:
    """A key of `environment:`, an item `NAME=value`, an item with `name:` and `value:`."""
    found = Yaml(document)
    for root in nodes.load(document):
        for node in nodes.walk(root):
            if isinstance(node, yaml.MappingNode):
                for key, value in node.value:
                    if key.value == name and _is_at(value, place, document):
                        yield removed_key(found, node, key)
            elif isinstance(node, yaml.SequenceNode):
                for item in node.value:
                    if _is_item(item, name, place, document):
                        yield removed_item(found, node, item)


def _is_item(item: yaml.Node, name: str, place: Place, document: Document) -> bool:
    if isinstance(item, yaml.ScalarNode):
        return str(item.value).startswith(f"{name}=") and _is_at(item, place, document)
    entries = nodes.entries(item)
    value = entries.get("value")
    return nodes.text(entries.get("name")) == name and _is_at(value, place, document)


def _is_at(node: yaml.Node | None, place: Place, document: Document) -> bool:
    if node is None:
        return False
    start, end = nodes.offsets(node, document)
    at = document.offset(place.line - 1, place.column - 1)
    return start <= at <= end


def _set(invocation: Invocation, name: str, value: str, text: str) -> Iterator[list[Edit]]:
    if invocation.kind in (InvocationKind.SLIME, InvocationKind.CONFIG):
        raise NotFixableError(f"set {name}={value} where its server is started")
    own = with_variable(invocation, name, shlex.quote(value))
    if own is not None:
        yield [own]
    if looks_like_yaml(text, _suffix(invocation.place.path)):
        yield from _into_yaml(invocation, name, value, text)


def _into_yaml(invocation: Invocation, name: str, value: str, text: str) -> Iterator[list[Edit]]:
    """A variable more in the container whose command stands at the place of the invocation."""
    document = Document(text, invocation.place.path)
    found = Yaml(document, Text(text).end)
    for root in nodes.load(document):
        for node in nodes.walk(root):
            if not isinstance(node, yaml.MappingNode):
                continue
            for key, around in node.value:
                if key.value not in ("command", "args", "entrypoint"):
                    continue
                if not _is_at(around, invocation.place, document):
                    continue
                entries = nodes.entries(node)
                for section in ("environment", "env"):
                    if section in entries:
                        yield from _into_section(found, entries[section], name, value)
                column = key.start_mark.column
                lead = found.lines[key.start_mark.line][:column]
                if not lead.strip():
                    last = found.last_line(key, around)
                    yield [_section(found, last, lead, name, value, kubernetes=False)]
                    yield [_section(found, last, lead, name, value, kubernetes=True)]


def _section(found: Yaml, last: int, lead: str, name: str, value: str, *, kubernetes: bool) -> Edit:
    text = quoted_text(value)
    if kubernetes:
        lines = [f"{lead}env:", f"{lead}- name: {name}", f"{lead}  value: {text}"]
    else:
        lines = [f"{lead}environment:", f"{lead}  {name}: {text}"]
    return found.after(last, lines)


def _into_section(found: Yaml, node: yaml.Node, name: str, value: str) -> Iterator[list[Edit]]:
    if isinstance(node, yaml.MappingNode) and node.value:
        yield added_key(found, node, {name: quoted_text(value)})
    elif isinstance(node, yaml.SequenceNode) and node.value:
        if isinstance(node.value[0], yaml.ScalarNode):
            yield added_item(found, node, [dumped(f"{name}={value}", text=True)])
        elif node.flow_style or node.value[0].flow_style:
            yield added_item(found, node, [f'{{name: {name}, value: "{value}"}}'])
        else:
            yield added_item(found, node, [f'name: {name}\nvalue: "{value}"'])
