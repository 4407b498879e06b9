"""Objects of a Kubernetes manifest: ConfigMaps, containers, the templates of roles.

RoleBasedGroup: the pod templates of its roles are composed as its controller composes them. A role
has its own template, or one of `roleTemplates` with a patch. A leader-worker pattern applies one
more patch to the leader and one to the workers. All are strategic merge patches of a pod template.
Source: sgl-project/rbg, api/workloads/v1alpha1 and v1alpha2/rolebasedgroup_types.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import yaml
from msgspec import Struct

from speclaunch.core import lazy
from speclaunch.deployments.sources import nodes
from speclaunch.deployments.sources.fields import Field
from speclaunch.deployments.sources.interface import ConfigFile, Dropped
from speclaunch.deployments.sources.nodes import Entries, changed, mapping, sequence, strategic
from speclaunch.deployments.sources.source_text import Document

_VARIABLE_NAME = lazy(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
"""Valid names of variables; Kubernetes skips other keys."""
_REFERENCES = {"configMapRef": "ConfigMap", "secretRef": "Secret"}


class ConfigMaps(Struct, frozen=True):
    """ConfigMaps of a file by namespace and name, as visible to the objects of one namespace."""

    held: Mapping[tuple[str | None, str], Entries]
    document: Document
    namespace: str | None = None

    def seen_from(self, root: yaml.Node) -> ConfigMaps:
        """Return the ConfigMaps as visible to an object."""
        return ConfigMaps(self.held, self.document, _metadata(root)[0])

    def value(self, source: yaml.Node) -> Field | None:
        """Return the value of `valueFrom` if a ConfigMap in this file contains it."""
        reference = nodes.entries(nodes.entries(source).get("configMapKeyRef"))
        data = self._data(nodes.text(reference.get("name")))
        node = (data or {}).get(nodes.text(reference.get("key")) or "")
        return nodes.field(node, self.document) if isinstance(node, yaml.ScalarNode) else None

    def variables(self, node: yaml.Node | None) -> dict[str, Field]:
        """Return the `envFrom` variables that this file contains."""
        found: dict[str, Field] = {}
        for item in nodes.items(node):
            entry = nodes.entries(item)
            prefix = nodes.text(entry.get("prefix")) or ""
            data = self._data(nodes.text(nodes.entries(entry.get("configMapRef")).get("name")))
            for key, value in (data or {}).items():
                if isinstance(value, yaml.ScalarNode) and _VARIABLE_NAME.fullmatch(prefix + key):
                    found[prefix + key] = nodes.field(value, self.document)
        return found

    def config(self, path: str) -> ConfigFile | None:
        """Return the `--config` file that a ConfigMap in this file holds under its name.

        Blank lines replace the manifest's preceding lines, so places in the text are exact.
        """
        name = path.rpartition("/")[2]
        found = [data[name] for data in self.held.values() if name in data]
        node = found[0] if len(found) == 1 else None
        if not isinstance(node, yaml.ScalarNode) or node.style not in ("|", "file"):
            return None
        start, end = nodes.offsets(node, self.document)
        place = self.document.place(start)
        if node.style == "file":  # a separate file, from which a ConfigMap is made
            return ConfigFile(place.path, str(node.value))
        held = self.document.text[start:end].split("\n")[1:]
        if held and not held[-1].strip():
            held.pop()
        return ConfigFile(place.path, "\n" * place.line + "\n".join(held) + "\n")

    def elsewhere(self, node: yaml.Node | None) -> Iterator[Dropped]:
        """Yield one remark on the `envFrom` references that this file does not contain."""
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

    def _data(self, name: str | None) -> Entries | None:
        """Return a ConfigMap's data. An unset namespace matches any namespace."""
        if name is None:
            return None
        exact = self.held.get((self.namespace, name))
        if exact is not None:
            return exact
        others = [data for (space, known), data in self.held.items() if known == name
                  and None in (space, self.namespace)]  # fmt: skip
        return others[0] if len(others) == 1 else None


def config_maps(roots: Sequence[yaml.Node], document: Document) -> ConfigMaps:
    """Return the ConfigMaps among the objects of a file, including those of a `List`."""
    held: dict[tuple[str | None, str], Entries] = {}
    for root in roots:
        for root_item in (root, *nodes.items(nodes.entries(root).get("items"))):
            keys = nodes.entries(root_item)
            namespace, name = _metadata(root_item)
            if nodes.text(keys.get("kind")) == "ConfigMap" and name is not None:
                held[namespace, name] = nodes.entries(keys.get("data"))
    return ConfigMaps(held, document)


def _metadata(root: yaml.Node) -> tuple[str | None, str | None]:
    keys = nodes.entries(nodes.entries(root).get("metadata"))
    return nodes.text(keys.get("namespace")), nodes.text(keys.get("name"))


Steps = tuple[tuple[str, Entries], ...]


class Site(Struct, frozen=True):
    """Container that runs servers or routers: `steps` lead from its object to it."""

    root: yaml.Node
    steps: Steps
    servers: range
    """Indexes among the invocations of the file."""
    routers: range
    envs: tuple[yaml.Node, ...] = ()


def objects(roots: Sequence[yaml.Node], document: Document) -> list[yaml.Node]:
    """Return the objects of a file with composed role templates, and a `List` as its items."""
    found: list[yaml.Node] = []
    for root in roots:
        keys = nodes.entries(root)
        held = nodes.items(keys.get("items")) if "spec" not in keys else []
        found += held or [root]
    return [_with_roles(item, document) for item in found]


_WITH_ROLES = frozenset({"RoleBasedGroup", "RoleBasedGroupSet"})
_LEADER_WORKER = {
    "leaderWorkerSet": ("patchLeaderTemplate", "patchWorkerTemplate"),
    "leaderWorkerPattern": ("leaderTemplatePatch", "workerTemplatePatch"),
}
"""Pattern (v1alpha1, v1alpha2), and its patches for the leader and the workers."""
_PATTERNS = ("standalonePattern", "customComponentsPattern")
_SHARED = "roleTemplates"


def _with_roles(root: yaml.Node, document: Document) -> yaml.Node:
    """Return a RoleBasedGroup with the composed template of each role; other objects unchanged.

    The result is below `leaderTemplate` and `workerTemplate` if they differ, else below `template`.
    """
    keys = nodes.entries(root)
    kind, spec = nodes.text(keys.get("kind")), keys.get("spec")
    if kind not in _WITH_ROLES or spec is None:
        return root
    if kind == "RoleBasedGroup":
        return changed(root, {"spec": _spec(spec, document)})
    inside = nodes.entries(spec).get("template")
    if inside is None:
        return root
    held = nodes.entries(inside).get("spec")
    if held is not None:
        inside = changed(inside, {"spec": _spec(held, document)})
    else:  # its roles are in the template itself
        inside = _spec(inside, document)
    return changed(root, {"spec": changed(spec, {"template": inside})})


def _spec(spec: yaml.Node, document: Document) -> yaml.Node:
    keys = nodes.entries(spec)
    roles = keys.get("roles")
    if not isinstance(roles, yaml.SequenceNode):
        return spec
    shared = {
        nodes.text(nodes.entries(item).get("name")): nodes.entries(item).get("template")
        for item in nodes.items(keys.get(_SHARED))
    }
    items = [_role(item, shared, document) for item in roles.value]
    return changed(spec, {"roles": sequence(items, roles), _SHARED: None})


Shared = Mapping[str | None, yaml.Node | None]


def _role(role: yaml.Node, shared: Shared, document: Document) -> yaml.Node:
    keys = nodes.entries(role)
    for pattern, patches in _LEADER_WORKER.items():
        if pattern in keys:
            held = nodes.entries(keys[pattern])
            template = _template(held, shared, document) or _template(keys, shared, document)
            return _leader_worker(role, held, template, patches, document)
    for pattern in _PATTERNS:
        held = nodes.entries(keys.get(pattern))
        template = _template(held, shared, document)
        if template is not None:
            return changed(role, {pattern: None, "template": template})
    template = _template(keys, shared, document)
    taken = {"templateRef": None, "templatePatch": None}
    return role if template is None else changed(role, {**taken, "template": template})


def _template(keys: Entries, shared: Shared, document: Document) -> yaml.Node | None:
    """Return the template of a role or pattern: its own, or a shared template with a patch."""
    own = keys.get("template")
    if own is not None:
        return own
    reference = nodes.entries(keys.get("templateRef"))
    found = shared.get(nodes.text(reference.get("name"))) if reference else None
    if found is None:
        return None
    patch = reference.get("patch", keys.get("templatePatch"))
    return _patched(found, patch, document)


def _patched(template: yaml.Node, patch: yaml.Node | None, document: Document) -> yaml.Node:
    if not isinstance(patch, yaml.MappingNode) or not patch.value:
        return template
    return strategic(template, patch, document) or template


def _leader_worker(
    role: yaml.Node,
    held: Entries,
    template: yaml.Node | None,
    patches: tuple[str, str],
    document: Document,
) -> yaml.Node:
    """Set one template for all hosts, or one for the leader and one for the workers."""
    leader, worker = (held.get(name) for name in patches)
    base = template if template is not None else mapping([], role)
    size = held.get("size")
    gone = dict.fromkeys((*_LEADER_WORKER, "template", "templateRef", "templatePatch"))
    found: dict[str, yaml.Node | None] = {**gone, "size": size}
    # v1alpha1 has the policy in the role itself; v1alpha2's newer field wins over the older
    config = nodes.entries(held.get("restartPolicyConfig"))
    policy = config.get("type", held.get("restartPolicy"))
    if policy is not None:
        found["restartPolicy"] = policy
    if not any("spec" in nodes.entries(patch) for patch in (leader, worker)):
        found["template"] = _patched(base, leader, document)
    else:
        found["leaderTemplate"] = _patched(base, leader, document)
        if nodes.text(size) not in (None, "1"):  # a group of one host has only a leader
            found["workerTemplate"] = _patched(base, worker, document)
    return changed(role, found)
