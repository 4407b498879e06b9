"""The objects that a kustomization composes, and which of them a patch is for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field

import yaml

from speclaunch.importer import nodes
from speclaunch.record import record

Entries = Mapping[str, yaml.Node]


@record(frozen=False)
class Resource:
    """An object, and the names that it has had: a patch may call it by any of them."""

    node: yaml.Node
    names: set[str] = field(default_factory=set)

    @property
    def kind(self) -> str:
        """What it is."""
        return nodes.text(nodes.entries(self.node).get("kind")) or ""

    @property
    def metadata(self) -> Entries:
        """Its `metadata`."""
        return nodes.entries(nodes.entries(self.node).get("metadata"))

    @property
    def name(self) -> str:
        """What it is called now."""
        return nodes.text(self.metadata.get("name")) or ""

    @property
    def is_custom(self) -> bool:
        """Whether its kind is none of Kubernetes' own: its lists are then replaced as a whole."""
        version = nodes.text(nodes.entries(self.node).get("apiVersion")) or ""
        group = version.rpartition("/")[0]
        return "." in group and not group.endswith(".k8s.io")

    def group_version(self) -> tuple[str, str]:
        """The two parts of its `apiVersion`."""
        version = nodes.text(nodes.entries(self.node).get("apiVersion")) or ""
        group, _, last = version.rpartition("/")
        return group, last


def resource(node: yaml.Node) -> Resource:
    """An object of a file."""
    found = Resource(node)
    found.names.add(found.name)
    return found


def is_meant(target: Entries, one: Resource) -> bool:
    """Whether a patch's `target` means an object: names, kinds and namespaces are patterns."""
    group, version = one.group_version()
    exact = {"group": group, "version": version}
    for key, has in exact.items():
        said = nodes.text(target.get(key))
        if said and said != has:
            return False
    if not _matches(target, "kind", {one.kind}) or not _matches(target, "name", one.names):
        return False
    namespace = nodes.text(one.metadata.get("namespace")) or "default"
    if not _matches(target, "namespace", {namespace}):
        return False
    for key, labels in (("labelSelector", "labels"), ("annotationSelector", "annotations")):
        said = nodes.text(target.get(key))
        if said and not _selected(said, nodes.entries(one.metadata.get(labels))):
            return False
    return True


def _matches(target: Entries, key: str, has: set[str]) -> bool:
    said = nodes.text(target.get(key))
    if not said:
        return True
    try:
        pattern = re.compile(said[:200])
    except re.error:
        return said in has
    return any(pattern.fullmatch(one[:300]) for one in has)


def _selected(selector: str, labels: Entries) -> bool:
    """`a=b,c==d,e!=f,g`: the equality-based selectors."""
    for part in selector.split(","):
        key, equals, value = part.strip().replace("==", "=").partition("=")
        has = nodes.text(labels.get(key.rstrip("!").strip()))
        if key.endswith("!"):
            if has == value.strip():
                return False
        elif has is None or (equals and has != value.strip()):
            return False
    return True
