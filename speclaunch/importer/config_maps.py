"""Kubernetes' ConfigMaps: the variables that a container takes from one in the same file.

A container's `envFrom` comes first, in order, and its `env` wins (Kubernetes, API reference:
Container v1 core).  A value is taken as it is: `$(NAME)` is only substituted in `env`, `command`
and `args`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import yaml

from speclaunch.importer import nodes
from speclaunch.importer.fields import Field
from speclaunch.importer.interface import ConfigFile, Dropped
from speclaunch.importer.source_text import Document
from speclaunch.patterns import lazy
from speclaunch.record import record

_NAME = lazy(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
"""Other keys are no names of variables: Kubernetes leaves them out."""
_REFERENCES = {"configMapRef": "ConfigMap", "secretRef": "Secret"}


@record
class ConfigMaps:
    """The ConfigMaps of a file by namespace and name, as the objects of one namespace see them."""

    held: Mapping[tuple[str | None, str], Mapping[str, yaml.Node]]
    document: Document
    namespace: str | None = None

    def seen_from(self, root: yaml.Node) -> ConfigMaps:
        """The same for an object."""
        return ConfigMaps(self.held, self.document, _metadata(root)[0])

    def value(self, source: yaml.Node) -> Field | None:
        """What `valueFrom` says where a ConfigMap of this file holds it."""
        reference = nodes.entries(nodes.entries(source).get("configMapKeyRef"))
        data = self._data(nodes.text(reference.get("name")))
        node = (data or {}).get(nodes.text(reference.get("key")) or "")
        return nodes.field(node, self.document) if isinstance(node, yaml.ScalarNode) else None

    def variables(self, node: yaml.Node | None) -> dict[str, Field]:
        """What `envFrom` gives out of this file."""
        found: dict[str, Field] = {}
        for item in nodes.items(node):
            entry = nodes.entries(item)
            prefix = nodes.text(entry.get("prefix")) or ""
            data = self._data(nodes.text(nodes.entries(entry.get("configMapRef")).get("name")))
            for key, value in (data or {}).items():
                if isinstance(value, yaml.ScalarNode) and _NAME.fullmatch(prefix + key):
                    found[prefix + key] = nodes.field(value, self.document)
        return found

    def config(self, path: str) -> ConfigFile | None:
        """The file of `--config` that a ConfigMap of this file holds under its name.

        Its text has the lines of the whole file before it, so that places in it are exact.
        """
        name = path.rpartition("/")[2]
        found = [data[name] for data in self.held.values() if name in data]
        node = found[0] if len(found) == 1 else None
        if not isinstance(node, yaml.ScalarNode) or node.style not in ("|", "file"):
            return None
        start, end = nodes.offsets(node, self.document)
        place = self.document.place(start)
        if node.style == "file":  # a file of its own, out of which a ConfigMap is made
            return ConfigFile(place.path, str(node.value))
        held = self.document.text[start:end].split("\n")[1:]
        if held and not held[-1].strip():
            held.pop()
        return ConfigFile(place.path, "\n" * place.line + "\n".join(held) + "\n")

    def elsewhere(self, node: yaml.Node | None) -> Iterator[Dropped]:
        """What `envFrom` names and this file does not hold, in one remark."""
        missing: list[str] = []
        for item in nodes.items(node):
            entry = nodes.entries(item)
            for key, kind in _REFERENCES.items():
                name = nodes.text(nodes.entries(entry.get(key)).get("name"))
                if name is not None and (kind != "ConfigMap" or self._data(name) is None):
                    missing.append(f"{kind} {name}")
        if missing and node is not None:
            why = f"the variables of {', '.join(missing)} are not in this file"
            yield Dropped("envFrom", nodes.place(node, self.document), why)

    def _data(self, name: str | None) -> Mapping[str, yaml.Node] | None:
        """A ConfigMap; a namespace that only one of the two objects names may be the other's."""
        if name is None:
            return None
        exact = self.held.get((self.namespace, name))
        if exact is not None:
            return exact
        others = [data for (space, known), data in self.held.items() if known == name
                  and None in (space, self.namespace)]  # fmt: skip
        return others[0] if len(others) == 1 else None


def config_maps(roots: Sequence[yaml.Node], document: Document) -> ConfigMaps:
    """The ConfigMaps among the objects of a file, those of a `List` too."""
    held: dict[tuple[str | None, str], Mapping[str, yaml.Node]] = {}
    for root in roots:
        for one in (root, *nodes.items(nodes.entries(root).get("items"))):
            keys = nodes.entries(one)
            namespace, name = _metadata(one)
            if nodes.text(keys.get("kind")) == "ConfigMap" and name is not None:
                held[namespace, name] = nodes.entries(keys.get("data"))
    return ConfigMaps(held, document)


def _metadata(root: yaml.Node) -> tuple[str | None, str | None]:
    keys = nodes.entries(nodes.entries(root).get("metadata"))
    return nodes.text(keys.get("namespace")), nodes.text(keys.get("name"))
