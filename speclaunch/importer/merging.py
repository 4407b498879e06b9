"""YAML mappings laid over each other, as Kubernetes patches objects: every value keeps its place.

`strategic` is the strategic merge patch of pods (Kubernetes, "Update API Objects in Place Using
kubectl patch"; the merge keys are those of the API's types), `plain` the JSON merge patch
(RFC 7386) of everything else.
"""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from speclaunch.importer import nodes
from speclaunch.importer.source_text import Document

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
"""The lists of pods (and of Services) whose items are told apart, and by what."""
_MAX_DEPTH = 40
_DIRECTIVE = "$patch"


def mapping(pairs: list[tuple[yaml.ScalarNode, yaml.Node]], like: yaml.Node) -> yaml.MappingNode:
    """A mapping of nodes, which stands where `like` does."""
    return yaml.MappingNode("tag:yaml.org,2002:map", pairs, like.start_mark, like.end_mark)


def sequence(items: list[yaml.Node], like: yaml.Node) -> yaml.SequenceNode:
    """A list of nodes, which stands where `like` does."""
    return yaml.SequenceNode("tag:yaml.org,2002:seq", items, like.start_mark, like.end_mark)


def scalar(text: str, like: yaml.Node) -> yaml.ScalarNode:
    """A text that is not written so, which stands where `like` does."""
    return yaml.ScalarNode("tag:yaml.org,2002:str", text, like.start_mark, like.end_mark)


def changed(node: yaml.Node, values: Mapping[str, yaml.Node | None]) -> yaml.Node:
    """A mapping with other values below keys; None takes a key away."""
    pairs = [(key_node, value) for key, key_node, value in nodes.pairs(node) if key not in values]
    held = {key: key_node for key, key_node, _ in nodes.pairs(node)}
    for key, new in values.items():
        if new is not None:
            pairs.append((held.get(key, scalar(key, new)), new))
    return mapping(pairs, node)


def strategic(
    base: yaml.Node,
    patch: yaml.Node,
    document: Document,
    key: str = "",
    *,
    lists: bool = True,
    depth: int = 0,
) -> yaml.Node | None:
    """`base` with a patch over it; None where the patch takes it away.

    `lists`: lists with a merge key are merged item by item, as for the types of Kubernetes.
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
        return _cleaned(patch, document, lists=lists, depth=depth)
    return patch


def _cleaned(
    patch: yaml.MappingNode, document: Document, *, lists: bool, depth: int
) -> yaml.Node | None:
    """A part of a patch that meets nothing: without its directives and nulls."""
    empty = mapping([], patch)
    return _mappings(empty, patch, document, lists=lists, depth=depth)


def _mappings(
    base: yaml.Node, patch: yaml.Node, document: Document, *, lists: bool, depth: int
) -> yaml.Node | None:
    directive = nodes.text(nodes.entries(patch).get(_DIRECTIVE))
    if directive == "delete":
        return None
    found = {} if directive == "replace" else {k: (n, v) for k, n, v in nodes.pairs(base)}
    for name, name_node, value in nodes.pairs(patch):
        document.spend()
        if name.startswith("$"):
            continue
        if isinstance(value, yaml.ScalarNode) and nodes.text(value) is None:
            found.pop(name, None)
            continue
        old = found.get(name)
        if old is None:
            start = mapping([], value) if isinstance(value, yaml.MappingNode) else value
            new = strategic(start, value, document, name, lists=lists, depth=depth + 1)
        else:
            new = strategic(old[1], value, document, name, lists=lists, depth=depth + 1)
        if new is None:
            found.pop(name, None)
        else:
            found[name] = (name_node if old is None else old[0], new)
    return mapping(list(found.values()), base)


def _lists(
    base: yaml.SequenceNode,
    patch: yaml.SequenceNode,
    document: Document,
    keys: tuple[str, ...],
    depth: int,
) -> yaml.Node:
    directives = [nodes.text(nodes.entries(item).get(_DIRECTIVE)) for item in patch.value]
    if "replace" in directives:
        kept = [i for i, d in zip(patch.value, directives, strict=True) if d != "replace"]
        return sequence(kept, patch)
    rest: list[tuple[tuple[str, str] | None, yaml.Node]] = [
        (_identity(item, keys), item) for item in base.value
    ]
    first: list[yaml.Node] = []
    for item in patch.value:
        document.spend(1 + len(rest) // 20)
        identity = _identity(item, keys)
        at = next((i for i, one in enumerate(rest) if identity and one[0] == identity), None)
        old = mapping([], item) if at is None else rest.pop(at)[1]
        new = strategic(old, item, document, depth=depth + 1)
        if new is not None:
            first.append(new)
    return sequence([*first, *(one for _, one in rest)], base)


def _identity(item: yaml.Node, keys: tuple[str, ...]) -> tuple[str, str] | None:
    held = nodes.entries(item)
    for key in keys:
        text = nodes.text(held.get(key))
        if text is not None:
            return key, text
    return None
