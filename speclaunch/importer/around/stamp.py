"""The servers of a reading, each with what stands around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from speclaunch.importer.around.groups import groups
from speclaunch.importer.around.members import Member, part_of, role_of, text_of, value_of
from speclaunch.importer.interface import Reading
from speclaunch.importer.source_text import Document
from speclaunch.surroundings import Service, Setting, Surroundings

_PARALLEL = frozenset({"StatefulSet", "Job"})
"""Kinds whose pods are the hosts of one server, where its command is one for several hosts."""


def surrounded(
    reading: Reading,
    members: Sequence[Member],
    services: Sequence[tuple[str | None, Service]],
    document: Document,
) -> Reading:
    """The reading with the surroundings of its servers."""
    found = list(reading.invocations)
    for member, group in zip(members, groups(members, services, document), strict=True):
        server = member.server
        if server is None:
            continue
        owner = member.owner
        nodes, replicas = _hosts(member)
        found[member.index] = replace(
            server,
            surroundings=Surroundings(
                group,
                role_of(owner, server.name, server),
                owner.role_place or owner.place,
                None if _several(nodes) and owner.part is None else part_of(owner, server),
                nodes,
                replicas,
                owner.gpus_per_node,
                member.pod,
            ),
        )
    return replace(reading, invocations=tuple(found))


def _several(nodes: Setting | None) -> bool:
    """Whether one command runs on several hosts: the rank that it says is that of all of them."""
    return nodes is not None and (not nodes.known or nodes.value not in (0, 1))


def _hosts(member: Member) -> tuple[Setting | None, Setting | None]:
    """Hosts of one server, and how many such servers."""
    owner, server = member.owner, member.server
    if owner.nodes is None and owner.platform in _PARALLEL and server is not None:
        several = value_of(server.words, "--nnodes")
        if several is not None and not several.evaluated:
            return owner.replicas and replace(owner.replicas, known=False), None
        if several is not None and text_of(server.words, "--nnodes") != "1":
            return owner.replicas, None
    return owner.nodes, owner.replicas
