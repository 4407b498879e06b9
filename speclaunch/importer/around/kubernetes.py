"""Servers in objects of Kubernetes, with their pods, routers and Services."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import yaml

from speclaunch.importer import nodes
from speclaunch.importer.around import dynamo_graphs, kinds, pods, values
from speclaunch.importer.around.groups import with_surroundings
from speclaunch.importer.around.members import Member
from speclaunch.importer.around.routers import read_router
from speclaunch.importer.config_maps import ConfigMaps
from speclaunch.importer.containers import Site, objects
from speclaunch.importer.interface import Reading
from speclaunch.importer.source_text import Document
from speclaunch.surroundings import Service


def surrounded(
    reading: Reading, sites: Sequence[Site], roots: Sequence[yaml.Node], maps: ConfigMaps
) -> Reading:
    """A reading of `roots` with the surroundings of its servers, which stand at `sites`."""
    members = [one for site in sites for one in _members(site, reading, maps)]
    if any(one.owner.platform in dynamo_graphs.KINDS for one in members):
        for root in objects(roots, maps.document):
            members += dynamo_graphs.frontends(root, maps)
    services = list(read_services(roots, maps.document))
    return with_surroundings(reading, members, services, maps.document)


def _members(site: Site, reading: Reading, maps: ConfigMaps) -> Iterator[Member]:
    owner = kinds.owner_of(site, maps.document)
    container = site.steps[-1][1]
    pod = pods.of_container(container, kinds.pod_of(site), owner.labels, maps, site.envs)
    if owner.restart is not None:
        pod = replace(pod, restart=owner.restart)
    maps.document.spend(10 + len(pod.env) + len(pod.volumes))
    is_dynamo = owner.platform in dynamo_graphs.KINDS
    if is_dynamo:
        pod = dynamo_graphs.with_service(pod, dynamo_graphs.service_of(site), maps.document)
    for index in site.servers:
        found = reading.invocations[index]
        if is_dynamo:
            found = dynamo_graphs.of_operator(found, owner)
        yield Member(owner, pod, found, index)
    for index in site.routers:
        yield Member(owner, pod, router=read_router(reading.routers[index], pod))


def read_services(
    roots: Sequence[yaml.Node], document: Document
) -> Iterator[tuple[str | None, Service]]:
    """The Services among the objects of a file, each with its namespace."""
    for root in objects(roots, document):
        keys = nodes.entries(root)
        metadata = nodes.entries(keys.get("metadata"))
        name = nodes.text(metadata.get("name"))
        if nodes.text(keys.get("kind")) != "Service" or name is None:
            continue
        spec = nodes.entries(keys.get("spec"))
        ports = []
        for item in nodes.items(spec.get("ports")):
            entry = nodes.entries(item)
            port = values.number(values.setting(entry.get("port"), document))
            if port is not None:
                target = values.number(values.setting(entry.get("targetPort"), document))
                ports.append((port, target))
        place = nodes.place(metadata["name"], document)
        selector = dict(values.labels(spec.get("selector")))
        headless = nodes.text(spec.get("clusterIP")) == "None"
        service = Service(name, place, selector, tuple(ports), headless)
        yield nodes.text(metadata.get("namespace")), service
