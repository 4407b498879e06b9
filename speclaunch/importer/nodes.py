"""YAML nodes with exact places: aliases and merge keys followed, nothing constructed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import yaml

from speclaunch.errors import InputError, Place
from speclaunch.importer.scope import Field
from speclaunch.importer.source_text import Document, SourceText, WordPiece
from speclaunch.recipe.bounded_yaml import compose_all
from speclaunch.recipe.source import yaml_problem

_MAX_MERGES = 20


def load(document: Document) -> list[yaml.Node]:
    """The documents of a YAML file.  Raises InputError for what is not YAML, or is hostile."""
    try:
        return compose_all(document.text)
    except yaml.YAMLError as error:
        problem = yaml_problem(error, document.shown, document.text)
        if problem.place is not None and document.lines_above:
            line = problem.place.line + document.lines_above
            problem = replace(problem, place=replace(problem.place, line=line))
        raise InputError(problem) from error


def entries(node: yaml.Node | None) -> dict[str, yaml.Node]:
    """The keys and values of a mapping, with what its merge keys bring."""
    return {key: value for key, _, value in pairs(node)}


def pairs(node: yaml.Node | None) -> list[tuple[str, yaml.ScalarNode, yaml.Node]]:
    """The keys (with their nodes) and values of a mapping, with what its merge keys bring."""
    if not isinstance(node, yaml.MappingNode):
        return []
    found: dict[str, tuple[str, yaml.ScalarNode, yaml.Node]] = {}
    waiting: list[yaml.Node] = [node]
    seen: set[int] = set()
    while waiting and len(seen) < _MAX_MERGES:
        mapping = waiting.pop(0)
        if isinstance(mapping, yaml.SequenceNode):  # `<<: [*one, *two]`: the first wins
            waiting[:0] = mapping.value[:_MAX_MERGES]
        if id(mapping) in seen or not isinstance(mapping, yaml.MappingNode):
            continue
        seen.add(id(mapping))
        own: dict[str, tuple[str, yaml.ScalarNode, yaml.Node]] = {}
        for key, value in mapping.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.tag == "tag:yaml.org,2002:merge":
                waiting.append(value)
            else:
                own[key.value] = (key.value, key, value)  # the last of two wins
        found = own | found
    return list(found.values())


def items(node: yaml.Node | None) -> list[yaml.Node]:
    """The items of a list."""
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def text(node: yaml.Node | None) -> str | None:
    """The text of a scalar; None for anything else, and for null."""
    if not isinstance(node, yaml.ScalarNode) or node.tag == "tag:yaml.org,2002:null":
        return None
    return str(node.value)


def walk(node: yaml.Node) -> Iterator[yaml.Node]:
    """Every node once, however often an alias repeats it."""
    seen: set[int] = set()
    waiting = [node]
    while waiting:
        found = waiting.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        if isinstance(found, yaml.SequenceNode):
            waiting.extend(reversed(found.value))
        elif isinstance(found, yaml.MappingNode):
            waiting.extend(value for _, value in reversed(found.value))


def place(node: yaml.Node, document: Document) -> Place:
    """Where a node stands."""
    start, end = offsets(node, document)
    return document.place(start, max(end - start, 1))


def offsets(node: yaml.Node, document: Document) -> tuple[int, int]:
    """The stretch of the document that a node takes."""
    shift = document.text.startswith("\ufeff")  # which YAML does not count
    end = len(document.text)
    return min(node.start_mark.index + shift, end), min(node.end_mark.index + shift, end)


def source(node: yaml.ScalarNode, document: Document) -> SourceText:
    """The text of a scalar, with the place of each character.

    Exact for plain, quoted and block scalars; where the text cannot be followed (an escape such
    as ``\\x41``), everything stands at the start of the scalar.
    """
    value = str(node.value)
    start, end = offsets(node, document)
    where = _align(value, document.text, start, end, node.style)
    return SourceText(document, value, where if where is not None else [start] * len(value))


def field(node: yaml.ScalarNode, document: Document) -> Field:
    """A scalar as one word."""
    traced = source(node, document)
    return Field((WordPiece(traced.text, traced, 0, quoted=True),), None)


def _align(  # noqa: PLR0912
    value: str, raw: str, start: int, end: int, style: str | None
) -> list[int] | None:
    """The offset of each character of a scalar's value in the raw text."""
    at = start
    if style in ("|", ">"):
        at = raw.find("\n", start) + 1
    elif style in ("'", '"'):
        at = start + 1
    where: list[int] = []
    blanks = frozenset(" \t\n")
    for char in value:
        if char in blanks:
            # folding turns breaks and indentation into one blank, or into none
            where.append(min(at, end))
            if at < end and raw[at] == char:
                at += 1
            elif style == '"' and raw[at : at + 2] in ("\\n", "\\t", "\\ "):
                at += 2
            continue
        while at < end and raw[at] in blanks:
            at += 1
        begin = at
        if style == '"' and raw[at : at + 1] == "\\":
            if raw[at + 1 : at + 2] == "\n":  # a line continued without a blank
                at += 2
                while at < end and raw[at] in blanks:
                    at += 1
                begin = at
            elif raw[at + 1 : at + 2] == char:
                at += 1
        elif style == "'" and char == "'" and raw[at : at + 2] == "''":
            at += 1
        if at >= end or raw[at] != char:
            return None
        where.append(begin)
        at += 1
    return where
