"""Read what each Kubernetes kind states about its servers, pods and routers.

Each kind states its role, part, hosts and replicas. Sources: the API types of kubernetes-sigs/lws
(leaderworkerset/v1), sgl-project/rbg (api/workloads/v1alpha1, v1alpha2), ai-dynamo/dynamo
(deploy/operator/api/v1alpha1, v1beta1), sgl-project/ome (pkg/apis/ome/v1beta1), vllm-project/aibrix
(api/orchestration/v1alpha1), kserve (pkg/apis/serving/v1beta1 and v1alpha1).

Sources of the variables that a controller sets in its pods (`controller_variables`).
LeaderWorkerSet: pkg/utils/pod (LWS_LEADER_ADDRESS, LWS_GROUP_SIZE, LWS_WORKER_INDEX), also for
everything based on it (OME, KServe, RoleBasedGroup v1alpha1). RoleBasedGroup: RBG_LWP_…, RBG_ROLE_…
(api/workloads/constants/env.go). OME: PARALLELISM_SIZE, the GPUs of a pod times its hosts
(inferenceservice/components/engine.go). AIBrix: pkg/controller/constants/stormservice.go.

Dynamo's graph deployments: ai-dynamo/dynamo, deploy/operator, api/v1alpha1 and v1beta1 (the
fields), and internal/dynamo/backend_sglang.go. A multi-host service gets `--dist-init-addr`,
`--nnodes` and `--node-rank` appended to its own arguments, and its workers lose their probes. A
frontend without a command runs `python3 -m dynamo.frontend`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import yaml
from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import Place
from speclaunch.deployments.sources import nodes, pods
from speclaunch.deployments.sources.fields import Field
from speclaunch.deployments.sources.interface import Invocation, InvocationKind, Reading
from speclaunch.deployments.sources.nodes import Entries
from speclaunch.deployments.sources.pods import ConfigMaps, Site, objects
from speclaunch.deployments.sources.server_groups import (
    Member,
    Owner,
    read_router,
    with_server_context,
    words_of_hosts,
)
from speclaunch.deployments.sources.source_text import Document, SourceText, WordPiece
from speclaunch.engine import Pod, Router, Scrape, Service, Setting

_ANNOTATION = "prometheus.io/"
_ON = "true"


class SelectedScrape(Struct, frozen=True):
    """Scrape of the pods whose labels match `selector`, in `namespace` or, if None, anywhere."""

    namespace: str | None
    selector: Mapping[str, str]
    scrape: Scrape

    def reaches(self, namespace: str | None, labels: Mapping[str, str]) -> bool:
        same = self.namespace is None or namespace is None or self.namespace == namespace
        return same and bool(self.selector) and self.selector.items() <= labels.items()


def annotated(metadata: yaml.Node | None, subject: str, document: Document) -> Scrape | None:
    """Return the scrape that the annotations of a pod or Service request, or None."""
    found = nodes.entries(nodes.entries(metadata).get("annotations"))
    if nodes.text(found.get(f"{_ANNOTATION}scrape")) != _ON:
        return None
    return Scrape(
        f"the annotation prometheus.io/scrape{subject}",
        nodes.place(found[f"{_ANNOTATION}scrape"], document),
        pods.setting(found.get(f"{_ANNOTATION}path"), document),
        pods.number_at(found.get(f"{_ANNOTATION}port"), document),
    )


def scrapes_in(roots: Sequence[Entries], document: Document) -> Iterator[SelectedScrape]:
    """Yield the scrapes that Services, PodMonitors and ServiceMonitors request."""
    services = [root for root in roots if nodes.text(root.get("kind")) == "Service"]
    for root in roots:
        kind = nodes.text(root.get("kind"))
        metadata = nodes.entries(root.get("metadata"))
        namespace, spec = nodes.text(metadata.get("namespace")), nodes.entries(root.get("spec"))
        name = nodes.text(metadata.get("name")) or "unnamed"
        if kind == "Service":
            scrape = annotated(root.get("metadata"), f" of the Service {name}", document)
            if scrape is not None:
                yield SelectedScrape(namespace, _selector(spec), scrape)
        elif kind == "PodMonitor":
            for endpoint in map(nodes.entries, nodes.items(spec.get("podMetricsEndpoints"))):
                port = endpoint.get("portNumber", endpoint.get("targetPort"))
                scrape = _monitored(endpoint, port, f"the PodMonitor {name}", document)
                if scrape is not None:
                    yield SelectedScrape(namespace, _match_labels(spec), scrape)
        elif kind == "ServiceMonitor":
            chosen = _match_labels(spec)
            for service in services:
                own = nodes.entries(service.get("metadata"))
                if not chosen or not chosen.items() <= pods.texts_in(own.get("labels")).items():
                    continue
                its = nodes.entries(service.get("spec"))
                for endpoint in map(nodes.entries, nodes.items(spec.get("endpoints"))):
                    target = endpoint.get("targetPort", _target(its, endpoint))
                    scrape = _monitored(endpoint, target, f"the ServiceMonitor {name}", document)
                    if scrape is not None:
                        yield SelectedScrape(namespace, _selector(its), scrape)


def _monitored(
    endpoint: Entries, port: yaml.Node | None, subject: str, document: Document
) -> Scrape | None:
    shown = next((endpoint[key] for key in ("port", "targetPort", "path") if key in endpoint), port)
    if shown is None:
        return None
    place = nodes.place(shown, document)
    path = pods.setting(endpoint.get("path"), document)
    return Scrape(subject, place, path, pods.number_at(port, document))


def _selector(spec: Entries) -> dict[str, str]:
    return dict(pods.texts_in(spec.get("selector")))


def _match_labels(spec: Entries) -> dict[str, str]:
    selector = nodes.entries(spec.get("selector"))
    labels = pods.texts_in(selector.get("matchLabels"))
    return {} if "matchExpressions" in selector else dict(labels)


def _target(service: Entries, endpoint: Entries) -> yaml.Node | None:
    """Return the target port of the Service port that an endpoint names, or None."""
    shown = nodes.text(endpoint.get("port"))
    for item in nodes.items(service.get("ports")):
        entry = nodes.entries(item)
        if nodes.text(entry.get("name")) == shown:
            return entry.get("targetPort", entry.get("port"))
    return None


Kind = Callable[[Owner, Site, Entries, Document], Owner]

_LWS = "leaderworkerset.sigs.k8s.io"
_PARTS = {
    "leader": "leader",
    "leaderTemplate": "leader",
    "worker": "worker",
    "workerTemplate": "worker",
    "workerSpec": "worker",
}
"""Part (leader or worker) by the key of its template."""


def owner_of(site: Site, document: Document) -> Owner:
    """Return the object that owns a container, with its role, hosts and replicas if known."""
    keys = nodes.entries(site.root)
    metadata = nodes.entries(keys.get("metadata"))
    kind = nodes.text(keys.get("kind")) or "object"
    name = nodes.text(metadata.get("name")) or nodes.text(metadata.get("generateName")) or kind
    namespace = nodes.text(metadata.get("namespace"))
    start, _ = nodes.offsets(site.root, document)
    node = metadata.get("name", site.root)
    is_named = isinstance(node, yaml.ScalarNode)
    place = nodes.place(node, document) if is_named else document.place(start)
    plain = Owner(
        f"{kind}/{namespace or ''}/{name}/{start}",
        name,
        kind,
        place,
        namespace,
        names=frozenset({name}),
        labels=labels_of(site, keys),
    )
    version = nodes.text(keys.get("apiVersion")) or ""
    is_kserve = "kserve" in version or kind == "LLMInferenceService"
    read = _kserve if is_kserve else _KINDS.get(kind, _other)
    return read(plain, site, nodes.entries(keys.get("spec")), document)


def labels_of(site: Site, root: Entries) -> Mapping[str, str]:
    """Return the labels of the pod, from the container's template or the Pod."""
    metadata = nodes.entries(metadata_of(site, root))
    return pods.known_texts(pods.texts_in(metadata.get("labels")))


def metadata_of(site: Site, root: Entries) -> yaml.Node | None:
    """Return the metadata of the pod, from the container's template or the Pod, or None."""
    templates = (
        step["metadata"]
        for key, step in reversed(site.steps[1:-1])
        if "metadata" in step and ("spec" in step or key.lower().endswith("template"))
    )
    is_pod = nodes.text(root.get("kind")) == "Pod"
    return next(templates, root.get("metadata") if is_pod else None)


def count(keys: Entries, name: str, document: Document) -> Setting | None:
    """Return a key's value, as a number if possible; None if the key is missing."""
    return pods.number_at(keys.get(name), document)


def below(site: Site, *keys: str) -> Entries:
    """Return the innermost mapping around a container under one of `keys`; empty if none is."""
    return next((step for key, step in reversed(site.steps) if key in keys), {})


def _named(keys: Entries, document: Document) -> Place | None:
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
        restart=pods.setting(template.get("restartPolicy"), document),
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
        restart=pods.setting(role.get("restartPolicy"), document),
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
    types = [nodes.text(service.get(key)) for key in ("subComponentType", "type", "componentType")]
    first = next((nodes.place(value, document) for value in service.values()), None)
    return replace(
        owner,
        role=next((type_ for type_ in types if type_ in ("prefill", "decode")), name),
        role_place=_named(service, document) or first,
        nodes=count(multinode, "nodeCount", document),
        replicas=count(service, "replicas", document),
        names=frozenset({f"{owner.name}-{name}".lower()}),
    )


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
    workers = count(nodes.entries(held.get("worker")), "size", document)
    part = _part(site) if "worker" in held and "leader" in held else None
    labels = {**owner.labels, "component": key}
    if part != "worker":
        labels[f"{_LWS}/worker-index"] = "0"
    nodes_ = workers
    if workers is not None and workers.known and isinstance(workers.value, int):
        nodes_ = replace(workers, value=workers.value + 1)  # plus the leader
    return replace(
        owner,
        role=role,
        part=part,
        nodes=nodes_,
        replicas=count(held, "minReplicas", document),
        names=frozenset({owner.name, f"{owner.name}-{key}"}),
        labels=labels,
    )


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
        section, role = below(site, "prefill"), "prefill"
    elif owner.platform == "LLMInferenceService":
        section, role = spec, "decode" if "prefill" in spec else None
    else:
        section = below(site, "predictor") or spec
    workers = section.get("worker", section.get("workerSpec"))
    part = None if workers is None else _part(site) or "leader"
    return replace(
        owner,
        role=role,
        part=part,
        replicas=count(section, "replicas", document) or count(section, "minReplicas", document),
        names=frozenset({owner.name, f"{owner.name}-predictor", f"{owner.name}-kserve"}),
    )


_ITEMS = ("roles", "components", "replicatedJobs", "tasks", "workerGroupSpecs", "services")


def _other(owner: Owner, site: Site, spec: Entries, document: Document) -> Owner:
    """Return the owner for an unknown kind; its role is the nearest enclosing item's name."""
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


_OF_RBG = ("RoleBasedGroup", "RoleBasedGroupSet")
_OF_OME = ("InferenceService", "ServingRuntime", "ClusterServingRuntime")
_WITH_LWS = ("LeaderWorkerSet", *_OF_RBG, "LLMInferenceService", *_OF_OME)
_OF_AIBRIX = ("StormService", "RoleSet", "PodSet")
_RBG = ("RBG_GROUP_NAME", "RBG_ROLE_INDEX", "RBG_ROLE_INSTANCE_NAME", "RBG_COMPONENT_INDEX")
_AIBRIX = ("POD_GROUP_INDEX", "ROLE_REPLICA_INDEX", "ROLESET_NAME", "STORM_SERVICE_NAME")
"""Variables that AIBrix sets in each pod. The object does not state their values."""


def controller_variables(site: Site, document: Document) -> dict[str, Field]:
    """Return the variables that the controller sets in the container at a site."""
    owner = owner_of(site, document)
    kind = owner.platform
    found: dict[str, Setting | None] = {}
    for prefix, kinds in (("LWS_", _WITH_LWS), ("RBG_LWP_", _OF_RBG)):
        if kind in kinds:
            found[f"{prefix}LEADER_ADDRESS"] = None
            found[f"{prefix}GROUP_SIZE"] = owner.nodes
            found[f"{prefix}WORKER_INDEX"] = _index(owner)
    if kind in _OF_RBG:
        named = None if owner.role is None else Setting(owner.role, owner.place)
        found |= {"RBG_ROLE_NAME": named, "ROLE_NAME": named, **dict.fromkeys(_RBG)}
    if kind in _OF_AIBRIX:
        found |= dict.fromkeys(_AIBRIX)
    if kind in _OF_OME:
        found["PARALLELISM_SIZE"] = _parallelism(owner, site.steps[-1][1], document)
    return {name: _field(name, setting, owner, document) for name, setting in found.items()}


def _index(owner: Owner) -> Setting | None:
    size = owner.nodes
    hosts = size.value if size is not None and size.known else None
    if owner.part == "leader" or hosts == 1:
        return Setting(0, owner.place)
    if owner.part == "worker" and hosts == 2:
        return Setting(1, owner.place)
    return None


def _parallelism(
    owner: Owner, container: Mapping[str, yaml.Node], document: Document
) -> Setting | None:
    resources = nodes.entries(container.get("resources"))
    limits = pods.settings(resources.get("limits"), document)
    gpus = pods.numeric(limits.get("nvidia.com/gpu"))
    hosts = 1 if owner.nodes is None else owner.nodes.value
    if gpus is None or not isinstance(gpus.value, int) or not isinstance(hosts, int):
        return None
    return replace(gpus, value=gpus.value * hosts)


def _field(name: str, setting: Setting | None, owner: Owner, document: Document) -> Field:
    if setting is None or not setting.known:
        why = f"`{name}` comes from the controller of {owner.platform}"
        piece = _piece(f"$({name})", owner.place, document)
        return Field((replace(piece, unknown=why, inside=True),))
    note = f"`{name}` is derived from this object by {owner.platform}"
    return Field((replace(_piece(str(setting.value), setting.place, document), note=note),))


def _piece(text: str, place: Place, document: Document) -> WordPiece:
    start = document.at(place)
    return WordPiece(text, SourceText(document, text, [start] * len(text)), 0, quoted=True)


DYNAMO_KINDS = frozenset({"DynamoGraphDeployment", "DynamoComponentDeployment"})


def service_of(site: Site) -> Entries:
    """Return the entries of a container's Dynamo service."""
    keys = [key for key, _ in site.steps]
    if "services" in keys and keys.index("services") + 1 < len(keys):
        return site.steps[keys.index("services") + 1][1]
    spec = nodes.entries(nodes.entries(site.root).get("spec"))
    return below(site, "components") or spec


def with_service(pod: Pod, service: Entries, document: Document) -> Pod:
    """Return a pod with its service's settings; its own settings win, except for `shm_size`."""
    resources = nodes.entries(service.get("resources"))
    shared = service.get("sharedMemorySize")
    if shared is None:
        shared = nodes.entries(service.get("sharedMemory")).get("size")
    probes = {probe.kind: probe for probe in pods.probes_of_container(service, document)}
    probes |= {probe.kind: probe for probe in pod.probes}
    return replace(
        pod,
        requests={**_amounts(resources.get("requests"), document), **pod.requests},
        limits={**_amounts(resources.get("limits"), document), **pod.limits},
        probes=tuple(probes.values()),
        shm_size=pods.in_bytes(pods.setting(shared, document)) or pod.shm_size,
    )


def _amounts(node: yaml.Node | None, document: Document) -> dict[str, Setting]:
    found = pods.resource_amounts(node, document)
    return {"nvidia.com/gpu" if name == "gpu" else name: amount for name, amount in found.items()}


def of_operator(found: Invocation, owner: Owner) -> Invocation:
    """Return a command with the tokens that the operator appends for several hosts."""
    hosts = owner.nodes
    if hosts is None or found.kind is not InvocationKind.DYNAMO:
        return found
    if hosts.known and (not isinstance(hosts.value, int) or hosts.value <= 1):
        return found
    why = "Dynamo's operator fills it in"
    added = words_of_hosts(hosts, "$(LEADER):29500", "$(NODE_RANK)", why)
    return replace(found, added=added)


def frontends(root: yaml.Node, maps: ConfigMaps) -> Iterator[Member]:
    """Yield the Dynamo frontends whose command the operator sets."""
    keys = nodes.entries(root)
    if nodes.text(keys.get("kind")) not in DYNAMO_KINDS:
        return
    spec = nodes.entries(keys.get("spec"))
    held = list(nodes.pairs(spec.get("services")))
    for item in nodes.items(spec.get("components")):
        title = nodes.entries(item).get("name")
        if isinstance(title, yaml.ScalarNode):
            held.append((str(title.value), title, item))
    for name, node, value in held:
        service = nodes.entries(value)
        kind = nodes.text(service.get("componentType", service.get("type")))
        if kind != "frontend":
            continue
        steps, container, pod_spec = _main(value, service)
        if container.keys() & {"command", "args"}:
            continue
        site = Site(root, (("", keys), ("spec", spec), *steps), range(0), range(0))
        owner = replace(owner_of(site, maps.document), role=name)
        pod = pods.pod_of_container(container, pod_spec, {}, maps)
        pod = with_service(pod, service, maps.document)
        place: Place = nodes.place(node, maps.document)
        router = Router(f"{owner.name}/{name}", "dynamo.frontend", place, pod=pod)
        yield Member(owner, pod, router=router)


def _main(
    value: yaml.Node, service: Entries
) -> tuple[tuple[tuple[str, Entries], ...], Entries, Entries]:
    """Return the steps to a service's main container, the container, and its pod spec."""
    extra = nodes.entries(service.get("extraPodSpec"))
    if "podTemplate" in service:
        spec = nodes.entries(nodes.entries(service["podTemplate"]).get("spec"))
        listed = [nodes.entries(item) for item in nodes.items(spec.get("containers"))]
        container = next((c for c in listed if nodes.text(c.get("name")) == "main"), {})
        return (("components", nodes.entries(value)),), container, spec
    container = nodes.entries(extra.get("mainContainer"))
    return (("services", {}), ("", nodes.entries(value))), container, extra


def add_server_context(
    reading: Reading, sites: Sequence[Site], roots: Sequence[yaml.Node], maps: ConfigMaps
) -> Reading:
    """Return the `reading` of `roots` with server context added to the servers at `sites`."""
    scrapes = list(
        scrapes_in([nodes.entries(r) for r in objects(roots, maps.document)], maps.document)
    )
    maps.document.spend(len(sites) * len(scrapes))
    members = [member for site in sites for member in _members(site, reading, maps, scrapes)]
    if any(member.owner.platform in DYNAMO_KINDS for member in members):
        for root in objects(roots, maps.document):
            members += frontends(root, maps)
    services = list(read_services(roots, maps.document))
    return with_server_context(reading, members, services, maps.document)


def _members(
    site: Site, reading: Reading, maps: ConfigMaps, scrapes: Sequence[SelectedScrape]
) -> Iterator[Member]:
    owner = owner_of(site, maps.document)
    container = site.steps[-1][1]
    spec = site.steps[-2][1] if len(site.steps) > 1 else {}
    pod = pods.pod_of_container(container, spec, owner.labels, maps, site.envs)
    own = annotated(metadata_of(site, nodes.entries(site.root)), "", maps.document)
    others = (found.scrape for found in scrapes if found.reaches(owner.namespace, owner.labels))
    pod = replace(pod, scrapes=tuple(dict.fromkeys(filter(None, (own, *others)))))
    if owner.restart is not None:
        pod = replace(pod, restart=owner.restart)
    maps.document.spend(10 + len(pod.env) + len(pod.volumes))
    is_dynamo = owner.platform in DYNAMO_KINDS
    if is_dynamo:
        pod = with_service(pod, service_of(site), maps.document)
    for index in site.servers:
        found = reading.invocations[index]
        if is_dynamo:
            found = of_operator(found, owner)
        yield Member(owner, pod, found, index)
    for index in site.routers:
        yield Member(owner, pod, router=read_router(reading.routers[index], pod))


def read_services(
    roots: Sequence[yaml.Node], document: Document
) -> Iterator[tuple[str | None, Service]]:
    """Yield the Services among the objects of a file, each with its namespace or None."""
    for root in objects(roots, document):
        keys = nodes.entries(root)
        metadata = nodes.entries(keys.get("metadata"))
        name = nodes.text(metadata.get("name"))
        if nodes.text(keys.get("kind")) != "Service" or name is None:
            continue
        spec = nodes.entries(keys.get("spec"))
        ports = tuple(
            (port, pods.number_at(entry.get("targetPort"), document))
            for entry in map(nodes.entries, nodes.items(spec.get("ports")))
            if (port := pods.number_at(entry.get("port"), document)) is not None
        )
        place = nodes.place(metadata["name"], document)
        headless = nodes.text(spec.get("clusterIP")) == "None"
        service = Service(name, place, _selector(spec), ports, headless)
        yield nodes.text(metadata.get("namespace")), service
