"""Read SGLang's ``--config`` files exactly as the engine does."""

from __future__ import annotations

from typing import Any

import yaml

from speclaunch.core import InputError, Place, Problem
from speclaunch.deployments.recipe.source import MAX_NODES
from speclaunch.deployments.sources import nodes
from speclaunch.deployments.sources.interface import (
    Comment,
    ConfigFile,
    Dropped,
    Invocation,
    InvocationKind,
    Reading,
    Word,
)
from speclaunch.deployments.sources.source_text import Document, why_placeholder
from speclaunch.engine import catalogue, config_is_switch, config_mapping, config_refuses

_MAX_EXPANDED_DEPTH = 60


def read_sglang_yaml(text: str, shown: str, version: str | None = None) -> Reading:
    """Return the arguments that engine `version` (default: the newest) reads from ``--config``.

    A true switch becomes a flag; a false switch is omitted. Other booleans become ``true`` and
    ``false``. A list becomes one token per item; an empty list is omitted. A mapping becomes JSON,
    and null becomes the text "None". Effects that the engine does not report become problems.
    """
    document = Document(text, shown)
    roots = nodes.load(document)
    if len(roots) > 1:
        raise InputError("a --config file must be a single YAML document", Place(shown))
    return read_root(roots[0], document, version) if roots else Reading()


def looks_like(root: yaml.Node) -> bool:
    """True if a mapping looks like server arguments.

    Only complete names of any release are recognized: `image` abbreviates a flag but is common in
    YAML. The engine accepts no mapping below an unknown key (`resources:`).
    """
    pairs = nodes.pairs(root)
    known = catalogue.load("newest")
    others = [
        value
        for key, _, value in pairs
        if known.by_name(key) is None and catalogue.history(key) is None
    ]
    if any(isinstance(value, yaml.MappingNode) for value in others):
        return False
    return len(others) * 2 < len(pairs)


def read_root(root: yaml.Node, document: Document, version: str | None = None) -> Reading:
    """Return the arguments of a parsed ``--config`` document."""
    if not isinstance(root, yaml.MappingNode):
        where = nodes.place(root, document)
        raise InputError("a --config file must contain `key: value` lines", where)
    _refuse_large(root, document)
    known = catalogue.load(version or "newest")
    arguments = _Arguments(document, known)
    seen: dict[str, yaml.ScalarNode] = {}
    values: dict[str, tuple[yaml.ScalarNode, yaml.Node]] = {}
    for key, node, value in _pairs(root, arguments):
        if key in seen:
            arguments.problem(
                f"`{key}` appears twice: the engine silently uses the last value",
                node,
                f"remove one; the first is on line {seen[key].start_mark.line + 1}",
            )
        seen[key] = node
        values[key] = (values[key][0] if key in values else node, value)
    for key, (node, value) in values.items():
        arguments.add(key, node, value)
    invocation = Invocation(
        InvocationKind.CONFIG,
        tuple(arguments.words),
        nodes.place(root, document),
        dropped=tuple(arguments.dropped),
        comments=_comments(document, root),
        config=ConfigFile(document.shown, document.text),
        refused=tuple(arguments.refused),
    )
    return Reading((invocation,) if seen else (), tuple(arguments.problems))


class _Arguments:
    def __init__(self, document: Document, known: catalogue.Catalogue) -> None:
        self.document = document
        self.known = known
        self.words: list[Word] = []
        self.dropped: list[Dropped] = []
        self.problems: list[Problem] = []
        self.refused: list[Problem] = []

    def problem(self, message: str, node: yaml.Node, help_: str | None = None) -> None:
        self.problems.append(Problem(message, nodes.place(node, self.document), help_))

    def add(self, key: str, node: yaml.ScalarNode, written: yaml.Node) -> None:
        if config_refuses(key, self.known):
            message = f"argument --{key}: not supported in a --config file"
            help_ = f"pass --{key} on the command line"
            self.refused.append(Problem(message, nodes.place(node, self.document), help_))
            return
        place = nodes.place(written, self.document)
        try:
            value = _construct(written)
            mapping = config_mapping(value, self.known) if isinstance(value, dict) else ""
        except (TypeError, ValueError, RecursionError, OverflowError, yaml.YAMLError):
            self.problem(f"SGLang fails on the value of `{key}`", written, "write it as text")
            return
        if isinstance(value, bool):
            self._boolean(key, node, value, place)
        elif isinstance(value, list):
            if not value:
                self.dropped.append(Dropped(f"{key}: []", place, "the engine skips an empty list"))
                return
            self._flag(key, node)
            for item, shown in zip(value, nodes.items(written), strict=False):
                self.words.append(Word(str(item), nodes.place(shown, self.document)))
        else:
            if value is None:
                self.problem(
                    f"`{key}: null` reaches the engine as the text None",
                    node,
                    f"remove `{key}` to get the engine's default",
                )
                place = nodes.place(node, self.document)
            self._flag(key, node)
            text = mapping or str(value)
            why = why_placeholder(text, lenient=self.document.lenient, quoted=True)
            self.words.append(Word(text, place, why is None, why, placeholder=why is not None))

    def _boolean(self, key: str, node: yaml.ScalarNode, value: bool, place: Place) -> None:
        if not config_is_switch(key, self.known):
            self._flag(key, node)
            self.words.append(Word(str(value).lower(), place))
        elif value:
            self._flag(key, node)
        else:
            why = "the engine ignores a switch that is false"
            self.dropped.append(Dropped(f"{key}: false", place, why))

    def _flag(self, key: str, node: yaml.ScalarNode) -> None:
        self.words.append(Word(f"--{key}", nodes.place(node, self.document)))


def _pairs(
    root: yaml.MappingNode, arguments: _Arguments
) -> list[tuple[str, yaml.ScalarNode, yaml.Node]]:
    """Return every entry, including duplicates. Merged entries come first, as in PyYAML."""
    own: list[tuple[str, yaml.ScalarNode, yaml.Node]] = []
    for key, value in root.value:
        if isinstance(key, yaml.ScalarNode) and key.tag == "tag:yaml.org,2002:merge":
            continue
        if not _is_text(key):
            arguments.problem("the engine fails on a key that is not text", key)
            continue
        own.append((key.value, key, value))
    names = {key for key, _, _ in own}
    merged = [pair for pair in nodes.pairs(root) if pair[0] not in names]
    merged = [pair for pair in merged if _is_text(pair[1])]
    return [*merged, *own]


def _is_text(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:str"


def _construct(node: yaml.Node) -> Any:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node, deep=True)
    finally:
        loader.dispose()


def _refuse_large(root: yaml.Node, document: Document) -> None:
    """Raise InputError for aliases that expand to too many values or contain themselves."""
    sizes: dict[int, tuple[int, int]] = {}
    open_: set[int] = set()
    waiting: list[tuple[yaml.Node, bool]] = [(root, False)]
    while waiting:
        node, done = waiting.pop()
        if id(node) in sizes:
            continue
        children: list[yaml.Node] = []
        if isinstance(node, yaml.SequenceNode):
            children = list(node.value)
        elif isinstance(node, yaml.MappingNode):
            children = [part for pair in node.value for part in pair]
        if not done:
            open_.add(id(node))
            waiting.append((node, True))
            for child in children:
                if id(child) in open_:
                    where = nodes.place(child, document)
                    raise InputError("an alias contains itself", where)
                if id(child) not in sizes:
                    waiting.append((child, False))
            continue
        open_.discard(id(node))
        size = 1 + sum(sizes[id(child)][0] for child in children)
        depth = 1 + max((sizes[id(child)][1] for child in children), default=0)
        if size > MAX_NODES or depth > _MAX_EXPANDED_DEPTH:
            where = nodes.place(node, document)
            raise InputError("the aliases expand to too many values", where)
        sizes[id(node)] = (size, depth)


def _comments(document: Document, root: yaml.Node) -> tuple[Comment, ...]:
    texts = [
        nodes.offsets(node, document)
        for node in nodes.walk(root)
        if isinstance(node, yaml.ScalarNode)
    ]
    found: list[Comment] = []
    at = 0
    for line in document.text.split("\n"):
        start = line.find("#")
        blank_before = start == 0 or (start > 0 and line[start - 1] in " \t")
        if start >= 0 and blank_before and not any(a <= at + start < b for a, b in texts):
            place = document.place(at + start, len(line) - start)
            found.append(Comment(line[start:].lstrip("#").strip(), place))
        at += len(line) + 1
        if len(found) > 10_000:
            break
    return tuple(found)
