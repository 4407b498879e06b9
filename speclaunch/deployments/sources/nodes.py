"""YAML nodes with exact places. Aliases and merge keys are followed; no objects are constructed.

Nodes can be created and patched like Kubernetes objects; every value keeps its place. `strategic`
applies the strategic merge patch of pods (Kubernetes, "Update API Objects in Place Using kubectl
patch"; the merge keys are from the API's types). Without `lists` it applies the JSON merge patch
(RFC 7386), which other objects use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress

import yaml
from msgspec.structs import replace

from speclaunch.core import InputError, Place, lazy
from speclaunch.deployments.recipe.source import compose_nodes, yaml_problem
from speclaunch.deployments.sources.fields import Field
from speclaunch.deployments.sources.source_text import Document, SourceText, WordPiece

Entries = Mapping[str, yaml.Node]
_MAX_MERGES = 20


class StringDocument(Document):
    """Text from one or more strings in a file, as a document with the file's places."""

    def __init__(self, source: SourceText) -> None:
        super().__init__(source.text, source.document.shown, lenient=True)
        self._source = source
        self._parent = source.document

    def place(self, at: int, length: int = 1) -> Place:
        return self._source.place(at, at + length)

    def note_comment(self, start: int, end: int) -> None:
        """Ignore a comment, because no shell reads the file."""


_ANY = lazy(r"[^\n]")
_JSON_COMMENT = lazy(r'("(?:[^"\\\n]|\\.)*"?)|//[^\n]*|/\*.*?(?:\*/|\Z)|\t', re.DOTALL)


def load(document: Document) -> list[yaml.Node]:
    """Return the documents of a YAML file, or of JSON, which may have comments and tabs.

    Raise InputError if it is invalid or too large.
    """
    try:
        return compose_nodes(document.text)
    except yaml.YAMLError as error:
        if document.text.lstrip().startswith(("{", "[", "//", "/*")):
            text = _JSON_COMMENT.sub(lambda m: m[1] or _ANY.sub(" ", m[0]), document.text)
            with suppress(yaml.YAMLError):
                return compose_nodes(text)
        problem = yaml_problem(error, document.shown, document.text)
        if problem.place is not None and document.lines_above:
            line = problem.place.line + document.lines_above
            problem = replace(problem, place=replace(problem.place, line=line))
        raise InputError(problem) from error


def entries(node: yaml.Node | None) -> dict[str, yaml.Node]:
    """Return the keys and values of a mapping, including its merge keys' entries."""
    return {key: value for key, _, value in pairs(node)}


def pairs(node: yaml.Node | None) -> list[tuple[str, yaml.ScalarNode, yaml.Node]]:
    """Return keys, key nodes and values of a mapping, including its merge keys' entries."""
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
                own[key.value] = (key.value, key, value)  # the last duplicate wins
        found = own | found
    return list(found.values())


def items(node: yaml.Node | None) -> list[yaml.Node]:
    """Return the items of a list; empty for any other node."""
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def text(node: yaml.Node | None) -> str | None:
    """Return the text of a scalar; None for null and for other nodes."""
    if not isinstance(node, yaml.ScalarNode) or node.tag == "tag:yaml.org,2002:null":
        return None
    return str(node.value)


def walk(node: yaml.Node) -> Iterator[yaml.Node]:
    """Yield every node once, even if aliases repeat it."""
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
    """Return the place of a node."""
    start, end = offsets(node, document)
    return document.place(start, max(end - start, 1))


def offsets(node: yaml.Node, document: Document) -> tuple[int, int]:
    """Return the start and end offsets of a node in the document."""
    shift = document.text.startswith("\ufeff")  # PyYAML does not count the BOM
    end = len(document.text)
    return min(node.start_mark.index + shift, end), min(node.end_mark.index + shift, end)


def source(node: yaml.ScalarNode, document: Document) -> SourceText:
    r"""Return the text of a scalar, with the place of each character.

    If the places cannot be determined (for escapes such as ``\x41``), all characters get the start
    of the scalar.
    """
    value = str(node.value)
    start, end = offsets(node, document)
    where = _align(value, document.text, start, end, node.style)
    return SourceText(document, value, where if where is not None else [start] * len(value))


def field(node: yaml.ScalarNode, document: Document) -> Field:
    """Return a scalar as one word."""
    traced = source(node, document)
    return Field((WordPiece(traced.text, traced, 0, quoted=True),), None)


def _align(  # noqa: PLR0912
    value: str, raw: str, start: int, end: int, style: str | None
) -> list[int] | None:
    """Return each value character's offset in the raw text; None if it cannot be determined."""
    at = start
    if style in ("|", ">"):
        at = raw.find("\n", start) + 1
    elif style in ("'", '"'):
        at = start + 1
    where: list[int] = []
    blanks = frozenset(" \t\n")
    for char in value:
        if char in blanks:
            # folding turns breaks and indentation into one blank, or into nothing
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


MERGE_KEYS: Mapping[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "imagePullSecrets": ("name",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "resourceClaims": ("name",),
    "ports": ("containerPort", "port"),
}
"""Lists in pods and Services that a patch merges item by item, with the keys that match items."""
_MAX_DEPTH = 40
_DIRECTIVE = "$patch"


def mapping(pairs: list[tuple[yaml.ScalarNode, yaml.Node]], like: yaml.Node) -> yaml.MappingNode:
    """Return a mapping of nodes with the place of `like`."""
    return yaml.MappingNode("tag:yaml.org,2002:map", pairs, like.start_mark, like.end_mark)


def sequence(items: list[yaml.Node], like: yaml.Node) -> yaml.SequenceNode:
    """Return a list of nodes with the place of `like`."""
    return yaml.SequenceNode("tag:yaml.org,2002:seq", items, like.start_mark, like.end_mark)


def scalar(text: str, like: yaml.Node) -> yaml.ScalarNode:
    """Return a scalar that the file does not contain, with the place of `like`."""
    return yaml.ScalarNode("tag:yaml.org,2002:str", text, like.start_mark, like.end_mark)


def changed(node: yaml.Node, values: Mapping[str, yaml.Node | None]) -> yaml.Node:
    """Return a copy of a mapping with `values` set; None removes a key."""
    held = {key: (key_node, value) for key, key_node, value in pairs(node)}
    found = [pair for key, pair in held.items() if key not in values]
    for key, new in values.items():
        if new is not None:
            found.append((held[key][0] if key in held else scalar(key, new), new))
    return mapping(found, node)


def strategic(
    base: yaml.Node,
    patch: yaml.Node,
    document: Document,
    key: str = "",
    *,
    lists: bool = True,
    depth: int = 0,
) -> yaml.Node | None:
    """Return `base` with a patch applied; None if the patch removes it.

    `lists`: merge the lists in `MERGE_KEYS` item by item, as for Kubernetes' own types.
    """
    document.spend()
    if depth > _MAX_DEPTH:
        return patch
    if isinstance(base, yaml.MappingNode) and isinstance(patch, yaml.MappingNode):
        return _mappings(base, patch, document, lists=lists, depth=depth)
    merges = MERGE_KEYS.get(key) if lists else None
    if merges and isinstance(base, yaml.SequenceNode) and isinstance(patch, yaml.SequenceNode):
        return _lists(base, patch, document, merges, depth)
    if isinstance(patch, yaml.MappingNode):
        # no base value: only drop the patch's directives and nulls
        return _mappings(mapping([], patch), patch, document, lists=lists, depth=depth)
    return patch


def _mappings(
    base: yaml.Node, patch: yaml.Node, document: Document, *, lists: bool, depth: int
) -> yaml.Node | None:
    directive = text(entries(patch).get(_DIRECTIVE))
    if directive == "delete":
        return None
    found = {} if directive == "replace" else {k: (n, v) for k, n, v in pairs(base)}
    for name, key, value in pairs(patch):
        document.spend()
        if name.startswith("$"):
            continue
        if isinstance(value, yaml.ScalarNode) and text(value) is None:
            found.pop(name, None)
            continue
        start: yaml.Node = mapping([], value) if isinstance(value, yaml.MappingNode) else value
        name_node, start = found.get(name, (key, start))
        new = strategic(start, value, document, name, lists=lists, depth=depth + 1)
        if new is None:
            found.pop(name, None)
        else:
            found[name] = name_node, new
    return mapping(list(found.values()), base)


def _lists(
    base: yaml.SequenceNode,
    patch: yaml.SequenceNode,
    document: Document,
    keys: tuple[str, ...],
    depth: int,
) -> yaml.Node:
    directives = [text(entries(item).get(_DIRECTIVE)) for item in patch.value]
    if "replace" in directives:
        remaining = [i for i, d in zip(patch.value, directives, strict=True) if d != "replace"]
        return sequence(remaining, patch)
    rest: list[tuple[tuple[str, str] | None, yaml.Node]] = [
        (_identity(item, keys), item) for item in base.value
    ]
    first: list[yaml.Node] = []
    for item in patch.value:
        document.spend(1 + len(rest) // 20)
        identity = _identity(item, keys)
        at = next((i for i, item in enumerate(rest) if identity and item[0] == identity), None)
        old = mapping([], item) if at is None else rest.pop(at)[1]
        new = strategic(old, item, document, depth=depth + 1)
        if new is not None:
            first.append(new)
    return sequence([*first, *(item for _, item in rest)], base)


def _identity(item: yaml.Node, keys: tuple[str, ...]) -> tuple[str, str] | None:
    found = ((key, text(entries(item).get(key))) for key in keys)
    return next(((key, value) for key, value in found if value is not None), None)
