"""What a kustomization does to all of its objects: names, namespace, labels, replicas, images.

Source: kubernetes-sigs/kustomize, api/internal/target/kusttarget_configplugin.go (the order of the
transformers), api/internal/konfig/builtinpluginconsts (the fields of each).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import yaml

from speclaunch.importer import nodes
from speclaunch.importer.kustomize.patches import NotUnderstoodError
from speclaunch.importer.kustomize.resources import Entries, Resource
from speclaunch.importer.nodes import changed, mapping, scalar, sequence
from speclaunch.importer.source_text import Document

_KEPT_NAMES = frozenset({"ConfigMap", "Secret", "CustomResourceDefinition", "Namespace"})
"""References to the first two are changed with their names: here neither is."""
_TEMPLATED = frozenset({"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job"})
_SCALED = frozenset({"Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"})
_MAX_DEPTH = 60
_LISTS = frozenset({"containers", "initContainers"})


def names(keys: Entries, resources: Sequence[Resource]) -> None:
    """`namespace`, `namePrefix` and `nameSuffix`."""
    namespace = keys.get("namespace")
    before = {one.name: one for one in resources if one.kind == "Service"}
    prefix, suffix = (nodes.text(keys.get(key)) or "" for key in ("namePrefix", "nameSuffix"))
    for one in resources:
        values: dict[str, yaml.Node | None] = {}
        if namespace is not None:
            values["namespace"] = namespace
        old = one.metadata.get("name")
        if (prefix or suffix) and old is not None and one.kind not in _KEPT_NAMES:
            values["name"] = scalar(f"{prefix}{one.name}{suffix}", old)
        if values and "metadata" in nodes.entries(one.node):
            metadata = changed(nodes.entries(one.node)["metadata"], values)
            one.node = changed(one.node, {"metadata": metadata})
            one.names.add(one.name)
        if (prefix or suffix) and one.kind == "StatefulSet":
            _rename_service(one, {name: f"{prefix}{name}{suffix}" for name in before})


def _rename_service(one: Resource, renamed: dict[str, str]) -> None:
    spec = nodes.entries(one.node).get("spec")
    held = nodes.entries(spec).get("serviceName")
    new = renamed.get(nodes.text(held) or "")
    if spec is not None and held is not None and new is not None:
        one.node = changed(one.node, {"spec": changed(spec, {"serviceName": scalar(new, held)})})


def labels(keys: Entries, resources: Sequence[Resource]) -> None:
    """`labels` and `commonLabels`."""
    wanted: list[tuple[yaml.Node, bool, bool]] = []
    for item in nodes.items(keys.get("labels")):
        entry = nodes.entries(item)
        pairs = entry.get("pairs")
        selects = nodes.text(entry.get("includeSelectors")) == "true"
        templates = selects or nodes.text(entry.get("includeTemplates")) == "true"
        if isinstance(pairs, yaml.MappingNode):
            wanted.append((pairs, selects, templates))
    common = keys.get("commonLabels")
    if isinstance(common, yaml.MappingNode):
        wanted.append((common, True, True))
    for pairs, selects, templates in wanted:
        for one in resources:
            paths: list[tuple[str, ...]] = [("metadata", "labels")]
            if templates and one.kind in _TEMPLATED:
                paths.append(("spec", "template", "metadata", "labels"))
            if selects and one.kind == "Service":
                paths.append(("spec", "selector"))
            elif selects and one.kind in _TEMPLATED - {"Job"}:
                paths.append(("spec", "selector", "matchLabels"))
            for path in paths:
                one.node = _added(one.node, path, pairs)


def _added(node: yaml.Node, path: tuple[str, ...], pairs: yaml.Node) -> yaml.Node:
    """A mapping with more entries in the mapping at a path, which is made where it is not."""
    if not path:
        return changed(node, dict(nodes.entries(pairs)))
    held = nodes.entries(node).get(path[0]) or mapping([], pairs)
    return changed(node, {path[0]: _added(held, path[1:], pairs)})


def replicas(keys: Entries, resources: Sequence[Resource]) -> None:
    """`replicas` by name."""
    for item in nodes.items(keys.get("replicas")):
        entry = nodes.entries(item)
        name, count = nodes.text(entry.get("name")), entry.get("count")
        meant = [one for one in resources if one.kind in _SCALED and name in one.names]
        if not meant or count is None:
            raise NotUnderstoodError(f"no object `{name}` for `replicas`", item)
        for one in meant:
            spec = nodes.entries(one.node).get("spec") or mapping([], count)
            one.node = changed(one.node, {"spec": changed(spec, {"replicas": count})})


def images(keys: Entries, resources: Sequence[Resource], document: Document) -> None:
    """`images` by name: another name, tag or digest."""
    for item in nodes.items(keys.get("images")):
        entry = nodes.entries(item)
        name = nodes.text(entry.get("name"))
        if name is not None:
            for one in resources:
                one.node = _with_images(one.node, partial(_tagged, name, entry), document)


def _tagged(name: str, entry: Entries, node: yaml.ScalarNode) -> yaml.Node:
    """An image with the tag of an entry, where it is the one that the entry names."""
    repository, tag = _parts(str(node.value))
    if repository != name:
        return node
    written = next(
        (entry[key] for key in ("digest", "newTag", "newName") if nodes.text(entry.get(key))), None
    )
    if written is None:
        return node
    digest, new_tag = nodes.text(entry.get("digest")), nodes.text(entry.get("newTag"))
    ending = f"@{digest}" if digest else f":{new_tag}" if new_tag else tag
    return scalar((nodes.text(entry.get("newName")) or repository) + ending, written)


def _parts(image: str) -> tuple[str, str]:
    """The repository of an image, and its tag or digest with what divides them."""
    repository, at, digest = image.partition("@")
    folder, slash, last = repository.rpartition("/")
    name, colon, tag = last.partition(":")
    return folder + slash + name, (colon + tag) if not at else f"@{digest}"


def _with_images(
    node: yaml.Node,
    new: Callable[[yaml.ScalarNode], yaml.Node],
    document: Document,
    depth: int = 0,
) -> yaml.Node:
    document.spend()
    if depth > _MAX_DEPTH:  # an alias to what is around it
        return node
    if isinstance(node, yaml.SequenceNode):
        items = [_with_images(item, new, document, depth + 1) for item in node.value]
        same = all(a is b for a, b in zip(items, node.value, strict=True))
        return node if same else sequence(items, node)
    if not isinstance(node, yaml.MappingNode):
        return node
    values: dict[str, yaml.Node | None] = {}
    for key, value in nodes.entries(node).items():
        if key in _LISTS and isinstance(value, yaml.SequenceNode):
            items = [_container(item, new) for item in value.value]
            if any(a is not b for a, b in zip(items, value.value, strict=True)):
                values[key] = sequence(items, value)
            continue
        inner = _with_images(value, new, document, depth + 1)
        if inner is not value:
            values[key] = inner
    return changed(node, values) if values else node


def _container(item: yaml.Node, new: Callable[[yaml.ScalarNode], yaml.Node]) -> yaml.Node:
    image = nodes.entries(item).get("image")
    if not isinstance(image, yaml.ScalarNode):
        return item
    found = new(image)
    return item if found is image else changed(item, {"image": found})
