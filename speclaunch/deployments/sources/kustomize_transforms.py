"""Transformations of a kustomization: patches, names, namespace, labels, replicas, images.

Patches are strategic merge patches and JSON patches (RFC 6902). Source of the other
transformations: kubernetes-sigs/kustomize, api/internal/target/kusttarget_configplugin.go (the
order of the transformers), api/internal/konfig/builtinpluginconsts (the fields of each).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

import yaml
from msgspec import Struct

from speclaunch.deployments.sources import nodes
from speclaunch.deployments.sources.nodes import (
    Entries,
    changed,
    mapping,
    scalar,
    sequence,
    strategic,
)
from speclaunch.deployments.sources.source_text import Document


class Resource(Struct):
    """Object with its current and former names. A patch may use any of them."""

    node: yaml.Node
    names: set[str] = set()

    @property
    def kind(self) -> str:
        return nodes.text(nodes.entries(self.node).get("kind")) or ""

    @property
    def metadata(self) -> Entries:
        return nodes.entries(nodes.entries(self.node).get("metadata"))

    @property
    def name(self) -> str:
        return nodes.text(self.metadata.get("name")) or ""

    @property
    def is_custom(self) -> bool:
        """True for a custom kind, whose lists a patch replaces completely."""
        group, _ = self.group_version()
        return "." in group and not group.endswith(".k8s.io")

    def group_version(self) -> tuple[str, str]:
        version = nodes.text(nodes.entries(self.node).get("apiVersion")) or ""
        group, _, last = version.rpartition("/")
        return group, last


def resource(node: yaml.Node) -> Resource:
    """Return an object of a file as a Resource with its current name."""
    found = Resource(node)
    found.names.add(found.name)
    return found


def is_meant(target: Entries, manifest: Resource) -> bool:
    """True if a patch's `target` selects an object. Names, kinds and namespaces are patterns."""
    for key, exact in zip(("group", "version"), manifest.group_version(), strict=True):
        expected = nodes.text(target.get(key))
        if expected and expected != exact:
            return False
    namespace = nodes.text(manifest.metadata.get("namespace")) or "default"
    has = {"kind": {manifest.kind}, "name": manifest.names, "namespace": {namespace}}
    if not all(_matches(target, key, values) for key, values in has.items()):
        return False
    for key, labels in (("labelSelector", "labels"), ("annotationSelector", "annotations")):
        expected = nodes.text(target.get(key))
        if expected and not _selected(expected, nodes.entries(manifest.metadata.get(labels))):
            return False
    return True


def _matches(target: Entries, key: str, has: set[str]) -> bool:
    expected = nodes.text(target.get(key))
    if not expected:
        return True
    try:
        pattern = re.compile(expected[:200])
    except re.error:
        return expected in has
    return any(pattern.fullmatch(value[:300]) for value in has)


def _selected(selector: str, labels: Entries) -> bool:
    """True if labels match an equality-based selector: `a=b,c==d,e!=f,g`."""
    for part in selector.split(","):
        key, equals, value = part.strip().replace("==", "=").partition("=")
        has = nodes.text(labels.get(key.rstrip("!").strip()))
        if key.endswith("!"):
            if has == value.strip():
                return False
        elif has is None or (equals and has != value.strip()):
            return False
    return True


_MAX_PATCH_DEPTH = 40


class NotUnderstoodError(Exception):
    """Unsupported part of a kustomization; `node` is that part."""

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
    """Patch the objects that `target` selects, or, if it is None, those that each patch names.

    Raise NotUnderstoodError for an unsupported patch, and for one whose object does not exist.
    """
    for patch in patches:
        document.spend()
        if target is not None:
            meant = [manifest for manifest in resources if is_meant(target, manifest)]
        elif isinstance(patch, yaml.SequenceNode):
            raise NotUnderstoodError("a JSON patch has no target", where)
        else:
            meant = _named_by(patch, resources, where)
        for manifest in meant:
            if isinstance(patch, yaml.SequenceNode):
                for operation in patch.value:
                    manifest.node = _operated(manifest.node, operation, document)
            else:
                _merge(manifest, patch, resources, document)


def _named_by(patch: yaml.Node, resources: Sequence[Resource], where: yaml.Node) -> list[Resource]:
    named = resource(patch)
    group, _ = named.group_version()
    meant = [
        manifest
        for manifest in resources
        if manifest.kind == named.kind
        and manifest.group_version()[0] == group
        and named.name in manifest.names
    ]
    if not meant:
        message = f"no {named.kind or 'object'} `{named.name}` for a patch"
        raise NotUnderstoodError(message, where)
    return meant


def _merge(
    manifest: Resource, patch: yaml.Node, resources: list[Resource], document: Document
) -> None:
    held = nodes.entries(manifest.node)
    unchanged: dict[str, yaml.Node | None] = {key: held.get(key) for key in ("kind", "apiVersion")}
    metadata = held.get("metadata")
    new = strategic(manifest.node, patch, document, lists=not manifest.is_custom)
    if new is None:
        resources.remove(manifest)
        return
    if metadata is not None and manifest.name:
        merged = nodes.entries(new).get("metadata", metadata)
        unchanged["metadata"] = changed(merged, {"name": nodes.entries(metadata)["name"]})
    manifest.node = changed(new, unchanged)


def _operated(root: yaml.Node, operation: yaml.Node, document: Document) -> yaml.Node:
    keys = nodes.entries(operation)
    op, path = nodes.text(keys.get("op")), nodes.text(keys.get("path"))
    if op is None or path is None or (path and not path.startswith("/")):
        raise NotUnderstoodError("a JSON patch operation needs `op` and `path`", operation)
    steps = _steps(path)
    document.spend(1 + len(steps))
    if op == "test":
        return root
    if op in ("move", "copy"):
        held = _steps(nodes.text(keys.get("from")) or "")
        value = _at(root, held, operation)
        if op == "move":
            root = _set(root, held, None, "remove", operation)
        return _set(root, steps, value, "add", operation)
    if op not in ("add", "replace", "remove"):
        raise NotUnderstoodError(f"the JSON patch operation `{op}` is not supported", operation)
    new_value = keys.get("value")
    if op != "remove" and new_value is None:
        raise NotUnderstoodError(f"the JSON patch operation `{op}` has no value", operation)
    return _set(root, steps, new_value, op, operation)


def _steps(pointer: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _at(node: yaml.Node, steps: Sequence[str], where: yaml.Node) -> yaml.Node:
    for step in steps:
        if isinstance(node, yaml.SequenceNode):
            node = node.value[_index(step, len(node.value), where)]
        else:
            held = nodes.entries(node)
            if step not in held:
                raise NotUnderstoodError(
                    f"a JSON patch changes `{step}`, which does not exist", where
                )
            node = held[step]
    return node


def _index(step: str, count: int, where: yaml.Node) -> int:
    if not step.isascii() or not step.isdecimal() or len(step) > 6 or int(step) >= count:
        raise NotUnderstoodError(
            f"a JSON patch changes item `{step}` of a list of length {count}", where
        )
    return int(step)


def _set(
    node: yaml.Node,
    steps: Sequence[str],
    value: yaml.Node | None,
    op: str,
    where: yaml.Node,
    depth: int = 0,
) -> yaml.Node:
    """Return a node after one JSON patch operation: add, replace or remove."""
    if not steps:
        return value if value is not None else mapping([], node)
    if depth > _MAX_PATCH_DEPTH:
        raise NotUnderstoodError("a JSON patch is nested too deeply", where)
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
        raise NotUnderstoodError(f"a JSON patch changes `{step}`, which does not exist", where)
    if rest:
        return changed(node, {step: _set(held[step], rest, value, op, where, depth + 1)})
    return changed(node, {step: None if op == "remove" else value})


_UNRENAMED = frozenset({"ConfigMap", "Secret", "CustomResourceDefinition", "Namespace"})
"""Kinds that are not renamed.

kustomize renames ConfigMaps, Secrets and references to them. Here, all remain unchanged.
"""
_TEMPLATED = frozenset({"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job"})
_SCALED = frozenset({"Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"})
_MAX_IMAGE_DEPTH = 60
_LISTS = frozenset({"containers", "initContainers"})


def names(keys: Entries, resources: Sequence[Resource]) -> None:
    """Apply `namespace`, `namePrefix` and `nameSuffix`."""
    namespace = keys.get("namespace")
    before = {manifest.name: manifest for manifest in resources if manifest.kind == "Service"}
    prefix, suffix = (nodes.text(keys.get(key)) or "" for key in ("namePrefix", "nameSuffix"))
    for manifest in resources:
        values: dict[str, yaml.Node | None] = {}
        if namespace is not None:
            values["namespace"] = namespace
        old = manifest.metadata.get("name")
        if (prefix or suffix) and old is not None and manifest.kind not in _UNRENAMED:
            values["name"] = scalar(f"{prefix}{manifest.name}{suffix}", old)
        if values and "metadata" in nodes.entries(manifest.node):
            metadata = changed(nodes.entries(manifest.node)["metadata"], values)
            manifest.node = changed(manifest.node, {"metadata": metadata})
            manifest.names.add(manifest.name)
        if (prefix or suffix) and manifest.kind == "StatefulSet":
            _rename_service(manifest, {name: f"{prefix}{name}{suffix}" for name in before})


def _rename_service(manifest: Resource, renamed: dict[str, str]) -> None:
    spec = nodes.entries(manifest.node).get("spec")
    held = nodes.entries(spec).get("serviceName")
    new = renamed.get(nodes.text(held) or "")
    if spec is not None and held is not None and new is not None:
        spec = changed(spec, {"serviceName": scalar(new, held)})
        manifest.node = changed(manifest.node, {"spec": spec})


def labels(keys: Entries, resources: Sequence[Resource]) -> None:
    """Apply `labels` and `commonLabels`."""
    label_sets: list[tuple[yaml.Node, bool, bool]] = []
    for item in nodes.items(keys.get("labels")):
        entry = nodes.entries(item)
        pairs = entry.get("pairs")
        selects = nodes.text(entry.get("includeSelectors")) == "true"
        templates = selects or nodes.text(entry.get("includeTemplates")) == "true"
        if isinstance(pairs, yaml.MappingNode):
            label_sets.append((pairs, selects, templates))
    common = keys.get("commonLabels")
    if isinstance(common, yaml.MappingNode):
        label_sets.append((common, True, True))
    for pairs, selects, templates in label_sets:
        for manifest in resources:
            paths: list[tuple[str, ...]] = [("metadata", "labels")]
            if templates and manifest.kind in _TEMPLATED:
                paths.append(("spec", "template", "metadata", "labels"))
            if selects and manifest.kind == "Service":
                paths.append(("spec", "selector"))
            elif selects and manifest.kind in _TEMPLATED - {"Job"}:
                paths.append(("spec", "selector", "matchLabels"))
            for path in paths:
                manifest.node = _added(manifest.node, path, pairs)


def _added(node: yaml.Node, path: tuple[str, ...], pairs: yaml.Node) -> yaml.Node:
    """Return a mapping with entries added at a path, which is created if missing."""
    if not path:
        return changed(node, dict(nodes.entries(pairs)))
    held = nodes.entries(node).get(path[0]) or mapping([], pairs)
    return changed(node, {path[0]: _added(held, path[1:], pairs)})


def replicas(keys: Entries, resources: Sequence[Resource]) -> None:
    """Apply `replicas`. Raise NotUnderstoodError if it names an object that does not exist."""
    for item in nodes.items(keys.get("replicas")):
        entry = nodes.entries(item)
        name, count = nodes.text(entry.get("name")), entry.get("count")
        meant = [found for found in resources if found.kind in _SCALED and name in found.names]
        if not meant or count is None:
            raise NotUnderstoodError(f"`replicas` names `{name}`, which does not exist", item)
        for manifest in meant:
            spec = nodes.entries(manifest.node).get("spec") or mapping([], count)
            manifest.node = changed(manifest.node, {"spec": changed(spec, {"replicas": count})})


def images(keys: Entries, resources: Sequence[Resource], document: Document) -> None:
    """Apply `images`: change the names, tags or digests of images."""
    for item in nodes.items(keys.get("images")):
        entry = nodes.entries(item)
        name = nodes.text(entry.get("name"))
        if name is not None:
            for manifest in resources:
                manifest.node = _with_images(manifest.node, partial(_tagged, name, entry), document)


def _tagged(name: str, entry: Entries, node: yaml.ScalarNode) -> yaml.Node:
    """Return an image with an entry's new name, tag or digest; other images are unchanged."""
    repository, tag = _parts(str(node.value))
    if repository != name:
        return node
    changes = ("digest", "newTag", "newName")
    written = next((entry[key] for key in changes if nodes.text(entry.get(key))), None)
    if written is None:
        return node
    digest, new_tag = nodes.text(entry.get("digest")), nodes.text(entry.get("newTag"))
    ending = f"@{digest}" if digest else f":{new_tag}" if new_tag else tag
    return scalar((nodes.text(entry.get("newName")) or repository) + ending, written)


def _parts(image: str) -> tuple[str, str]:
    repository, at, digest = image.partition("@")
    folder, slash, last = repository.rpartition("/")
    name, colon, tag = last.partition(":")
    return folder + slash + name, (colon + tag) if not at else f"@{digest}"


def _with_images(
    node: yaml.Node, new: Callable[[yaml.ScalarNode], yaml.Node], document: Document, depth: int = 0
) -> yaml.Node:
    document.spend()
    if depth > _MAX_IMAGE_DEPTH:  # an alias to an enclosing node
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
