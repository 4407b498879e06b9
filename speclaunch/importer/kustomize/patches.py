"""Patches of a kustomization: strategic merge patches and JSON patches (RFC 6902)."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from speclaunch.importer import nodes
from speclaunch.importer.kustomize.resources import Entries, Resource, is_meant, resource
from speclaunch.importer.nodes import changed, mapping, sequence, strategic
from speclaunch.importer.source_text import Document

_MAX_DEPTH = 40


class NotUnderstoodError(Exception):
    """A part of a kustomization cannot be followed; `node` is where it says so."""

    def __init__(self, message: str, node: yaml.Node | None = None) -> None:
        super().__init__(message)
        self.node = node


def apply_patch(
    patches: Sequence[yaml.Node],
    target: Entries | None,
    resources: list[Resource],
    where: yaml.Node,
    document: Document,
) -> None:
    """Patch the objects that a target means, or that the patch itself names."""
    for patch in patches:
        document.spend()
        if isinstance(patch, yaml.SequenceNode):
            if target is None:
                raise NotUnderstoodError("a JSON patch without a target", where)
            for one in [r for r in resources if is_meant(target, r)]:
                for operation in patch.value:
                    one.node = _operated(one.node, operation, document)
        elif target is None:
            _by_name(patch, resources, where, document)
        else:
            for one in [r for r in resources if is_meant(target, r)]:
                _merge(one, patch, resources, document)


def _by_name(
    patch: yaml.Node, resources: list[Resource], where: yaml.Node, document: Document
) -> None:
    wanted = resource(patch)
    group, _ = wanted.group_version()
    meant = [
        one
        for one in resources
        if one.kind == wanted.kind and one.group_version()[0] == group and wanted.name in one.names
    ]
    if not meant:
        said = f"no {wanted.kind or 'object'} `{wanted.name}` for a patch"
        raise NotUnderstoodError(said, where)
    for one in meant:
        _merge(one, patch, resources, document)


def _merge(one: Resource, patch: yaml.Node, resources: list[Resource], document: Document) -> None:
    held = nodes.entries(one.node)
    kept: dict[str, yaml.Node | None] = {key: held.get(key) for key in ("kind", "apiVersion")}
    metadata = nodes.entries(one.node).get("metadata")
    new = strategic(one.node, patch, document, lists=not one.is_custom)
    if new is None:
        resources.remove(one)
        return
    if metadata is not None and one.name:
        merged = nodes.entries(new).get("metadata", metadata)
        kept["metadata"] = changed(merged, {"name": nodes.entries(metadata)["name"]})
    one.node = changed(new, kept)


def _operated(root: yaml.Node, operation: yaml.Node, document: Document) -> yaml.Node:
    keys = nodes.entries(operation)
    op, path = nodes.text(keys.get("op")), nodes.text(keys.get("path"))
    if op is None or path is None or (path and not path.startswith("/")):
        raise NotUnderstoodError("an operation of a JSON patch without `op` and `path`", operation)
    steps = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
    document.spend(1 + len(steps))
    if op == "test":
        return root
    if op in ("move", "copy"):
        source = nodes.text(keys.get("from")) or ""
        held = [part.replace("~1", "/").replace("~0", "~") for part in source.split("/")[1:]]
        value = _at(root, held, operation)
        if op == "move":
            root = _set(root, held, None, "remove", operation)
        return _set(root, steps, value, "add", operation)
    if op not in ("add", "replace", "remove"):
        raise NotUnderstoodError(f"the operation `{op}` of a JSON patch", operation)
    given = keys.get("value")
    if op != "remove" and given is None:
        raise NotUnderstoodError(f"`{op}` of a JSON patch without a value", operation)
    return _set(root, steps, given, op, operation)


def _at(node: yaml.Node, steps: Sequence[str], where: yaml.Node) -> yaml.Node:
    for step in steps:
        if isinstance(node, yaml.SequenceNode):
            index = _index(step, len(node.value), where)
            node = node.value[index]
        else:
            held = nodes.entries(node)
            if step not in held:
                raise NotUnderstoodError(f"a JSON patch for `{step}`, which does not exist", where)
            node = held[step]
    return node


def _index(step: str, count: int, where: yaml.Node) -> int:
    if not step.isascii() or not step.isdecimal() or len(step) > 6 or int(step) >= count:
        raise NotUnderstoodError(f"a JSON patch for item `{step}` of {count}", where)
    return int(step)


def _set(
    node: yaml.Node,
    steps: Sequence[str],
    value: yaml.Node | None,
    op: str,
    where: yaml.Node,
    depth: int = 0,
) -> yaml.Node:
    """The node with one value added, replaced or removed."""
    if not steps:
        return value if value is not None else mapping([], node)
    if depth > _MAX_DEPTH:
        raise NotUnderstoodError("a JSON patch that goes too deep", where)
    step, rest = steps[0], steps[1:]
    if isinstance(node, yaml.SequenceNode):
        items = list(node.value)
        if not rest and op == "add":
            at = len(items) if step == "-" else _index(step, len(items) + 1, where)
            items.insert(at, value)
            return sequence(items, node)
        at = _index(step, len(items), where)
        if rest:
            items[at] = _set(items[at], rest, value, op, where, depth + 1)
        elif value is None or op == "remove":
            del items[at]
        else:
            items[at] = value
        return sequence(items, node)
    held = nodes.entries(node)
    if not isinstance(node, yaml.MappingNode) or (step not in held and (rest or op == "remove")):
        raise NotUnderstoodError(f"a JSON patch for `{step}`, which does not exist", where)
    if rest:
        return changed(node, {step: _set(held[step], rest, value, op, where, depth + 1)})
    return changed(node, {step: None if op == "remove" else value})
