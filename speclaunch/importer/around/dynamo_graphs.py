"""Dynamo's graph deployments: what a service says of its pods, and what the operator does to them.

Source: ai-dynamo/dynamo, deploy/operator: api/v1alpha1 and v1beta1 (the fields), and
internal/dynamo/backend_sglang.go: a service of several hosts gets `--dist-init-addr`, `--nnodes`
and `--node-rank` behind its own arguments, and its workers lose their probes. A frontend without a
command runs `python3 -m dynamo.frontend`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import yaml

from speclaunch.errors import Place
from speclaunch.importer import nodes
from speclaunch.importer.around import kinds, pods, probes, values
from speclaunch.importer.around.members import Member, Owner
from speclaunch.importer.config_maps import ConfigMaps
from speclaunch.importer.containers import Site
from speclaunch.importer.interface import Invocation, InvocationKind, Word
from speclaunch.importer.source_text import Document
from speclaunch.surroundings import Pod, Router, Setting

Entries = Mapping[str, yaml.Node]
KINDS = frozenset({"DynamoGraphDeployment", "DynamoComponentDeployment"})
_FRONTEND = "frontend"
_MODULE = "dynamo.frontend"
_WHY = "Dynamo's operator fills it in"


def service_of(site: Site) -> Entries:
    """The service that a container belongs to."""
    keys = [key for key, _ in site.steps]
    if "services" in keys and keys.index("services") + 1 < len(keys):
        return site.steps[keys.index("services") + 1][1]
    spec = nodes.entries(nodes.entries(site.root).get("spec"))
    return kinds.below(site, "components") or spec


def with_service(pod: Pod, service: Entries, document: Document) -> Pod:
    """A pod with what its service says of it beside the pod's own specification."""
    resources = nodes.entries(service.get("resources"))
    shared = service.get("sharedMemorySize")
    if shared is None:
        shared = nodes.entries(service.get("sharedMemory")).get("size")
    asked = {probe.kind: probe for probe in probes.of_container(service, document)}
    asked |= {probe.kind: probe for probe in pod.probes}
    return replace(
        pod,
        requests={**_amounts(resources.get("requests"), document), **pod.requests},
        limits={**_amounts(resources.get("limits"), document), **pod.limits},
        probes=tuple(asked.values()),
        shm_size=values.in_bytes(values.setting(shared, document)) or pod.shm_size,
    )


def _amounts(node: yaml.Node | None, document: Document) -> dict[str, Setting]:
    """Resources, of which Dynamo calls the GPUs `gpu`."""
    found = pods.amounts(node, document)
    return {"nvidia.com/gpu" if name == "gpu" else name: one for name, one in found.items()}


def of_operator(found: Invocation, owner: Owner) -> Invocation:
    """A command with the words that the operator puts behind its own for several hosts."""
    hosts = owner.nodes
    if hosts is None or found.kind is not InvocationKind.DYNAMO:
        return found
    if hosts.known and (not isinstance(hosts.value, int) or hosts.value <= 1):
        return found
    place = hosts.place

    def word(text: str, *, known: bool) -> Word:
        return Word(text, place, evaluated=known, inside=True, why=None if known else _WHY)

    added = (
        *(word("--dist-init-addr", known=True), word("$(LEADER):29500", known=False)),
        *(word("--nnodes", known=True), word(str(hosts.value), known=hosts.known)),
        *(word("--node-rank", known=True), word("$(NODE_RANK)", known=False)),
    )
    return replace(found, added=added)


def frontends(root: yaml.Node, maps: ConfigMaps) -> Iterator[Member]:
    """The frontends that say no command: the operator gives them one."""
    keys = nodes.entries(root)
    if nodes.text(keys.get("kind")) not in KINDS:
        return
    spec = nodes.entries(keys.get("spec"))
    services = nodes.pairs(spec.get("services"))
    held = [(key, node, value) for key, node, value in services]
    for item in nodes.items(spec.get("components")):
        title = nodes.entries(item).get("name")
        if isinstance(title, yaml.ScalarNode):
            held.append((str(title.value), title, item))
    for name, node, value in held:
        service = nodes.entries(value)
        kind = nodes.text(service.get("componentType", service.get("type")))
        if kind != _FRONTEND:
            continue
        steps, container, pod_spec = _main(value, service)
        if container.keys() & {"command", "args"}:
            continue
        site = Site(root, (("", keys), ("spec", spec), *steps), range(0), range(0))
        owner = replace(kinds.owner_of(site, maps.document), role=name)
        pod = pods.of_container(container, pod_spec, {}, maps)
        pod = with_service(pod, service, maps.document)
        place: Place = nodes.place(node, maps.document)
        yield Member(owner, pod, router=Router(f"{owner.name}/{name}", _MODULE, place, pod=pod))


def _main(
    value: yaml.Node, service: Entries
) -> tuple[tuple[tuple[str, Entries], ...], Entries, Entries]:
    """The way to the main container of a service, the container, its pod."""
    extra = nodes.entries(service.get("extraPodSpec"))
    if "podTemplate" in service:
        spec = nodes.entries(nodes.entries(service["podTemplate"]).get("spec"))
        listed = [nodes.entries(item) for item in nodes.items(spec.get("containers"))]
        container = next((c for c in listed if nodes.text(c.get("name")) == "main"), {})
        return (("components", nodes.entries(value)),), container, spec
    container = nodes.entries(extra.get("mainContainer"))
    return (("services", {}), ("", nodes.entries(value))), container, extra
