"""What each kind of Kubernetes object says of a container in it: role, part, hosts, replicas.

Sources: the API types of kubernetes-sigs/lws (leaderworkerset/v1), sgl-project/rbg
(api/workloads/v1alpha1, v1alpha2), ai-dynamo/dynamo (deploy/operator/api/v1alpha1, v1beta1),
sgl-project/ome (pkg/apis/ome/v1beta1), vllm-project/aibrix (api/orchestration/v1alpha1), kserve
(pkg/apis/serving/v1beta1 and v1alpha1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import yaml

from speclaunch.errors import Place
from speclaunch.importer import nodes
from speclaunch.importer.around import values
from speclaunch.importer.around.members import Owner
from speclaunch.importer.containers import Site
from speclaunch.importer.source_text import Document
from speclaunch.surroundings import Setting

Entries = Mapping[str, yaml.Node]
Kind = Callable[[Owner, Site, Entries, Document], Owner]

_LWS = "leaderworkerset.sigs.k8s.io"
_PARTS = {
    "leader": "leader",
    "leaderTemplate": "leader",
    "worker": "worker",
    "workerTemplate": "worker",
    "workerSpec": "worker",
}
"""Keys of templates for one of the two."""


def owner_of(site: Site, document: Document) -> Owner:
    """The owner of a container, by the kind of its object; of one that is not known its name."""
    keys = nodes.entries(site.root)
    metadata = nodes.entries(keys.get("metadata"))
    kind = nodes.text(keys.get("kind")) or "object"
    name = nodes.text(metadata.get("name")) or nodes.text(metadata.get("generateName")) or kind
    namespace = nodes.text(metadata.get("namespace"))
    node = metadata.get("name", site.root)
    plain = Owner(
        f"{kind}/{namespace or ''}/{name}/{nodes.offsets(site.root, document)[0]}",
        name,
        kind,
        nodes.place(node, document)
        if isinstance(node, yaml.ScalarNode)
        else _start(site, document),
        namespace,
        names=frozenset({name}),
        labels=labels_of(site, keys),
    )
    return _reader(kind, keys)(plain, site, nodes.entries(keys.get("spec")), document)


def _reader(kind: str, keys: Entries) -> Kind:
    if "kserve" in (nodes.text(keys.get("apiVersion")) or "") or kind == "LLMInferenceService":
        return _kserve
    return _KINDS.get(kind, _other)


def _start(site: Site, document: Document) -> Place:
    start, _ = nodes.offsets(site.root, document)
    return document.place(start)


def labels_of(site: Site, root: Entries) -> Mapping[str, str]:
    """The labels of the pod: of the template around the container, of a Pod its own."""
    for key, step in reversed(site.steps[1:-1]):
        if "metadata" in step and ("spec" in step or key.lower().endswith("template")):
            return values.known(values.labels(nodes.entries(step["metadata"]).get("labels")))
    if nodes.text(root.get("kind")) == "Pod":
        return values.known(values.labels(nodes.entries(root.get("metadata")).get("labels")))
    return {}


def pod_of(site: Site) -> Entries:
    """The pod's `spec`: what the container, or its list, stands in."""
    return site.steps[-2][1] if len(site.steps) > 1 else {}


def count(keys: Entries, name: str, document: Document) -> Setting | None:
    """A number below a key."""
    return values.number(values.setting(keys.get(name), document))


def below(site: Site, *keys: str) -> Entries:
    """The innermost mapping on the way to the container that is the value (or an item) of a key."""
    return next((step for key, step in reversed(site.steps) if key in keys), {})


def _named(keys: Entries, document: Document) -> Place | None:
    """Where the name of a role stands."""
    node = keys.get("name")
    return nodes.place(node, document) if isinstance(node, yaml.ScalarNode) else None


def _part(site: Site) -> str | None:
    return next((_PARTS[key] for key, _ in reversed(site.steps) if key in _PARTS), None)


def _replicas(owner: Owner, _: Site, spec: Entries, document: Document) -> Owner:
    found = count(spec, "replicas", document)
    service = nodes.text(spec.get("serviceName"))
    names = owner.names | ({service} if service else set())
    return replace(owner, replicas=found, names=names)


def _job(owner: Owner, _: Site, spec: Entries, document: Document) -> Owner:
    return replace(owner, replicas=count(spec, "parallelism", document))


def _leader_worker_set(owner: Owner, site: Site, spec: Entries, document: Document) -> Owner:
    template = nodes.entries(spec.get("leaderWorkerTemplate"))
    part = _part(site) if "leaderTemplate" in template else None
    labels = {**owner.labels, f"{_LWS}/name": owner.name}
    if part != "worker":
        labels[f"{_LWS}/worker-index"] = "0"
    return replace(
        owner,
        part=part,
        nodes=count(template, "size", document),
        replicas=count(spec, "replicas", document),
        labels=labels,
        restart=values.setting(template.get("restartPolicy"), document),
    )


def _role_based_group(owner: Owner, site: Site, _: Entries, document: Document) -> Owner:
    role = below(site, "roles")
    name = nodes.text(role.get("name"))
    component = nodes.text(below(site, "components").get("name"))
    labels = dict(owner.labels)
    for prefix in ("rolebasedgroup.workloads.x-k8s.io/", "rbg.workloads.x-k8s.io/group-"):
        labels[f"{prefix}name"] = owner.name
    if name is not None:
        labels["rolebasedgroup.workloads.x-k8s.io/role"] = name
        labels["rbg.workloads.x-k8s.io/role-name"] = name
    part = _part(site) if "workerTemplate" in role else None
    if part != "worker":
        labels[f"{_LWS}/worker-index"] = "0"
        labels["rbg.workloads.x-k8s.io/component-index"] = "0"
    return replace(
        owner,
        role=name,
        role_place=_named(role, document),
        part=part or (component if component in ("leader", "worker") else None),
        nodes=count(role, "size", document),
        replicas=count(role, "replicas", document),
        names=frozenset({f"{owner.name}-{name}", f"s-{owner.name}-{name}"}),
        labels=labels,
        restart=values.setting(role.get("restartPolicy"), document),
    )


def _dynamo(owner: Owner, site: Site, spec: Entries, document: Document) -> Owner:
    service = below(site, "services", "components")
    name = nodes.text(service.get("name"))
    if "services" in spec:  # v1alpha1: a mapping, whose key is the name
        keys = [key for key, _ in site.steps]
        at = keys.index("services") + 1 if "services" in keys else len(keys)
        name, service = site.steps[at] if at < len(keys) else (None, {})
    elif not service:  # DynamoComponentDeployment
        name, service = nodes.text(spec.get("serviceName")) or owner.name, spec
    multinode = nodes.entries(service.get("multinode"))
    return replace(
        owner,
        role=_dynamo_role(name, service),
        role_place=_named(service, document),
        nodes=count(multinode, "nodeCount", document),
        replicas=count(service, "replicas", document),
        names=frozenset({f"{owner.name}-{name}".lower()}),
    )


def _dynamo_role(name: str | None, service: Entries) -> str | None:
    for key in ("subComponentType", "type", "componentType"):
        said = nodes.text(service.get(key))
        if said in ("prefill", "decode"):
            return said
    return name


_OME_ROLES = {"engine": "engine", "decoder": "decode", "router": "router"}


def _ome(owner: Owner, site: Site, spec: Entries, document: Document) -> Owner:
    key, held = next(
        (
            (key.removesuffix("Config"), step)
            for key, step in site.steps
            if key.removesuffix("Config") in _OME_ROLES
        ),
        ("", {}),
    )
    both = "decoderConfig" in spec or "decoder" in spec
    role = "prefill" if key == "engine" and both else _OME_ROLES.get(key)
    workers = _count_of(held, "worker", "size", document)
    part = _part(site) if "worker" in held and "leader" in held else None
    labels = {**owner.labels, "component": key}
    if part != "worker":
        labels[f"{_LWS}/worker-index"] = "0"
    nodes_ = workers
    if workers is not None and workers.known and isinstance(workers.value, int):
        nodes_ = replace(workers, value=workers.value + 1)  # and the leader
    return replace(
        owner,
        role=role,
        part=part,
        nodes=nodes_,
        replicas=count(held, "minReplicas", document),
        names=frozenset({owner.name, f"{owner.name}-{key}"}),
        labels=labels,
    )


def _count_of(keys: Entries, outer: str, name: str, document: Document) -> Setting | None:
    return count(nodes.entries(keys.get(outer)), name, document)


def _aibrix(owner: Owner, site: Site, spec: Entries, document: Document) -> Owner:
    role = below(site, "roles") or spec
    name = nodes.text(role.get("name"))
    return replace(
        owner,
        role=name,
        role_place=_named(role, document),
        nodes=count(role, "podGroupSize", document),
        replicas=count(role, "replicas", document),
        names=frozenset({owner.name, f"{owner.name}-{name}"}),
    )


def _kserve(owner: Owner, site: Site, spec: Entries, document: Document) -> Owner:
    role: str | None = None
    if any(key == "prefill" for key, _ in site.steps):
        around, role = below(site, "prefill"), "prefill"
    elif owner.platform == "LLMInferenceService":
        around, role = spec, "decode" if "prefill" in spec else None
    else:
        around = below(site, "predictor") or spec
    workers = around.get("worker", around.get("workerSpec"))
    part = None if workers is None else _part(site) or "leader"
    return replace(
        owner,
        role=role,
        part=part,
        replicas=count(around, "replicas", document) or count(around, "minReplicas", document),
        names=frozenset({owner.name, f"{owner.name}-predictor", f"{owner.name}-kserve"}),
    )


_ITEMS = ("roles", "components", "replicatedJobs", "tasks", "workerGroupSpecs", "services")


def _other(owner: Owner, site: Site, spec: Entries, document: Document) -> Owner:
    """A kind that is not known: the nearest item with a name is a role."""
    item = below(site, *_ITEMS)
    name = nodes.text(item.get("name"))
    replicas = count(item, "replicas", document) if item else count(spec, "replicas", document)
    return replace(owner, role=name, role_place=_named(item, document), replicas=replicas)


_KINDS: dict[str, Kind] = {
    "Deployment": _replicas,
    "StatefulSet": _replicas,
    "ReplicaSet": _replicas,
    "Job": _job,
    "LeaderWorkerSet": _leader_worker_set,
    "RoleBasedGroup": _role_based_group,
    "RoleBasedGroupSet": _role_based_group,
    "DynamoGraphDeployment": _dynamo,
    "DynamoComponentDeployment": _dynamo,
    "InferenceService": _ome,
    "ServingRuntime": _ome,
    "ClusterServingRuntime": _ome,
    "StormService": _aibrix,
    "RoleSet": _aibrix,
    "PodSet": _aibrix,
}
