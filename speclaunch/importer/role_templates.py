"""RoleBasedGroup: the pod templates of its roles, put together as its controller does.

Source: sgl-project/rbg, api/workloads/v1alpha1 and v1alpha2/rolebasedgroup_types.go. A role has a
template of its own or one of `roleTemplates` with a patch over it; a pattern of leader and workers
patches it once more for each of them. All patches are strategic merge patches of a pod template.
"""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from speclaunch.importer import nodes
from speclaunch.importer.nodes import changed, mapping, sequence, strategic
from speclaunch.importer.source_text import Document

Entries = Mapping[str, yaml.Node]
KINDS = frozenset({"RoleBasedGroup", "RoleBasedGroupSet"})
_LEADER_WORKER = {
    "leaderWorkerSet": ("patchLeaderTemplate", "patchWorkerTemplate"),
    "leaderWorkerPattern": ("leaderTemplatePatch", "workerTemplatePatch"),
}
"""The pattern (v1alpha1, v1alpha2), and its patches for the leader and the workers."""
_PATTERNS = ("standalonePattern", "customComponentsPattern")
_SHARED = "roleTemplates"


def expanded(root: yaml.Node, document: Document) -> yaml.Node:
    """The object with the templates of each role put together, below `leaderTemplate` and
    `workerTemplate` where they differ, else below `template`."""
    keys = nodes.entries(root)
    if nodes.text(keys.get("kind")) not in KINDS:
        return root
    spec = keys.get("spec")
    if spec is None:
        return root
    if nodes.text(keys.get("kind")) == "RoleBasedGroupSet":
        inside = nodes.entries(spec).get("template")
        if inside is None:
            return root
        held = nodes.entries(inside).get("spec")
        if held is not None:
            inside = changed(inside, {"spec": _spec(held, document)})
        else:  # its roles stand in the template itself
            inside = _spec(inside, document)
        return changed(root, {"spec": changed(spec, {"template": inside})})
    return changed(root, {"spec": _spec(spec, document)})


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
    """The template of a role or pattern: its own, or a shared one with its patch over it."""
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
    """One template for all hosts, or one for the leader and one for the workers."""
    leader, worker = (held.get(name) for name in patches)
    base = template if template is not None else mapping([], role)
    size = held.get("size")
    gone = dict.fromkeys((*_LEADER_WORKER, "template", "templateRef", "templatePatch"))
    found: dict[str, yaml.Node | None] = {**gone, "size": size}
    # v1alpha1 has the policy in the role itself; of v1alpha2's two fields the older one yields
    config = nodes.entries(held.get("restartPolicyConfig"))
    policy = config.get("type", held.get("restartPolicy"))
    if policy is not None:
        found["restartPolicy"] = policy
    if not any("spec" in nodes.entries(patch) for patch in (leader, worker)):
        found["template"] = _patched(base, leader, document)
    else:
        found["leaderTemplate"] = _patched(base, leader, document)
        if nodes.text(size) not in (None, "1"):  # a group of one has a leader alone
            found["workerTemplate"] = _patched(base, worker, document)
    return changed(role, found)
