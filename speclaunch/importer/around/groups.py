"""Which servers of a file are of one deployment.

Two of them are where one of these holds, in the same namespace:
- one object (or one pod) runs both;
- a router is told of both (a host is the object's name, that of a pod of it, or a Service that
  selects it), or finds them by their labels; the router belongs there, too;
- both are ranks of one server: their `--dist-init-addr` is the same, or names the other;
- one Service selects both, or their pods have the same label `app`, `app.kubernetes.io/part-of` or
  `app.kubernetes.io/instance`;
- one is of prefill and the other of decode, and the file has no other of either;
- they have the ranks of one server, and the file has each rank once;
- (in a script) a router is told of this machine and their ports.
A router that names nobody belongs to the only deployment of its namespace.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from speclaunch.importer.around.members import SCRIPTS, Member, part_of, role_of, text_of, value_of
from speclaunch.importer.interface import Reading
from speclaunch.importer.source_text import Document
from speclaunch.patterns import lazy
from speclaunch.surroundings import Group, Router, Service, Setting, Surroundings

_ORDINAL = lazy(r"(?:-\d+)+\Z")
_TOGETHER = ("app.kubernetes.io/part-of", "app.kubernetes.io/instance", "app")
"""Labels that objects of one deployment have in common."""
_SELECTORS = ("selector", "prefill-selector", "decode-selector")
_LOCAL = frozenset({"localhost", "127.0.0.1", "0.0.0.0", "::1"})  # noqa: S104  names of itself


class _Sets:
    """Numbers that were joined."""

    def __init__(self, count: int) -> None:
        self._parents = list(range(count))

    def of(self, index: int) -> int:
        while self._parents[index] != index:
            self._parents[index] = self._parents[self._parents[index]]
            index = self._parents[index]
        return index

    def join(self, indices: Iterable[int]) -> None:
        first: int | None = None
        for index in indices:
            if first is None:
                first = self.of(index)
            else:
                root = self.of(index)
                low, high = min(first, root), max(first, root)
                self._parents[high] = low
                first = low


def groups(
    members: Sequence[Member], services: Sequence[tuple[str | None, Service]], document: Document
) -> list[Group]:
    """The deployment of each member; members of one get the same one.

    `services` come with their namespaces.
    """
    document.spend(len(members) * (2 + len(services)))
    sets = _Sets(len(members))
    _by_key(members, sets)
    _by_service(members, services, sets)
    _by_labels(members, sets)
    _by_address(members, services, sets)
    _by_router(members, services, sets)
    _by_mode(members, sets)
    _by_rank(members, sets)
    _left_routers(members, sets)
    found: dict[int, Group] = {}
    for index in range(len(members)):
        root = sets.of(index)
        if root not in found:
            inside = [one for at, one in enumerate(members) if sets.of(at) == root]
            document.spend(len(members) // 20)
            found[root] = _group(inside, services)
    return [found[sets.of(index)] for index in range(len(members))]


def _join_equal(keys: Iterable[tuple[int, object]], sets: _Sets) -> None:
    held: dict[object, list[int]] = defaultdict(list)
    for index, key in keys:
        held[key].append(index)
    for indices in held.values():
        sets.join(indices)


def _by_key(members: Sequence[Member], sets: _Sets) -> None:
    _join_equal(((index, one.owner.key) for index, one in enumerate(members)), sets)


def selects(service: Service, labels: Mapping[str, str]) -> bool:
    """Whether a Service leads to pods with these labels; a template's empty ones are not known."""
    chosen = service.selector
    return bool(chosen) and all(chosen.values()) and chosen.items() <= labels.items()


def _reached(members: Sequence[Member], namespace: str | None, service: Service) -> list[int]:
    return [
        index
        for index, one in enumerate(members)
        if _same(one.owner.namespace, namespace) and selects(service, one.owner.labels)
    ]


def _same(one: str | None, other: str | None) -> bool:
    """A namespace that only one of the two names may be the other's."""
    return one == other or one is None or other is None


def _by_service(
    members: Sequence[Member], services: Sequence[tuple[str | None, Service]], sets: _Sets
) -> None:
    for namespace, service in services:
        sets.join(_reached(members, namespace, service))


def _by_labels(members: Sequence[Member], sets: _Sets) -> None:
    keys = (
        (index, (one.owner.namespace, label, one.owner.labels[label]))
        for index, one in enumerate(members)
        for label in _TOGETHER
        if label in one.owner.labels
    )
    _join_equal(keys, sets)


def _by_address(
    members: Sequence[Member], services: Sequence[tuple[str | None, Service]], sets: _Sets
) -> None:
    for index, one in enumerate(members):
        if one.server is None:
            continue
        address = text_of(one.server.words, "--dist-init-addr", "--nccl-init-addr")
        host = (address or "").rpartition(":")[0]
        if host and host not in _LOCAL:
            sets.join([index, *_named(host, one.owner.namespace, members, services)])
    keys = (
        (index, (one.owner.namespace, address))
        for index, one in enumerate(members)
        if one.server is not None
        and (address := text_of(one.server.words, "--dist-init-addr", "--nccl-init-addr"))
        and address.rpartition(":")[0] not in _LOCAL
    )
    _join_equal(keys, sets)


def _named(
    host: str,
    namespace: str | None,
    members: Sequence[Member],
    services: Sequence[tuple[str | None, Service]],
) -> list[int]:
    """The servers that a host name leads to: a Service, an object, a pod of it."""
    parts = host.split(".")
    found: list[int] = []
    for space, service in services:
        if service.name in parts[:2] and _same(space, namespace):
            found += _reached(members, space, service)
    first = {part for part in parts[:2] if part} | {_ORDINAL.sub("", part) for part in parts[:2]}
    found += [
        index
        for index, one in enumerate(members)
        if one.server is not None and first & one.owner.names
    ]
    return found


def _by_router(
    members: Sequence[Member], services: Sequence[tuple[str | None, Service]], sets: _Sets
) -> None:
    for index, one in enumerate(members):
        if one.router is None:
            continue
        told = [index]
        for upstream in one.router.upstreams:
            if upstream.host is not None and upstream.host not in _LOCAL:
                told += _named(upstream.host, one.owner.namespace, members, services)
            elif upstream.port is not None and one.owner.platform in SCRIPTS:
                told += _listening(upstream.port.value, members)
        for selector in _selectors(one.router):
            told += [
                at
                for at, other in enumerate(members)
                if other.server is not None and selector.items() <= other.owner.labels.items()
            ]
        sets.join(told)


def _listening(port: object, members: Sequence[Member]) -> list[int]:
    """The servers of a script that are told to listen on a port."""
    return [
        index
        for index, one in enumerate(members)
        if one.server is not None and text_of(one.server.words, "--port") == str(port)
    ]


def _selectors(router: Router) -> list[Mapping[str, str]]:
    found: list[Mapping[str, str]] = []
    for name in _SELECTORS:
        option = router.options.get(name)
        if option is None or not option.known:
            continue
        texts = option.value if isinstance(option.value, tuple) else (option.value,)
        pairs = [str(text).partition("=") for text in texts]
        if pairs and all(equals for _, equals, _ in pairs):
            found.append({key: value for key, _, value in pairs})
    return found


def _by_mode(members: Sequence[Member], sets: _Sets) -> None:
    """A lone prefill and a lone decode of one namespace."""
    held: dict[tuple[str | None, str], set[int]] = defaultdict(set)
    both: dict[int, set[str]] = defaultdict(set)
    for index, one in enumerate(members):
        if one.server is not None:
            role = role_of(one.owner, one.server.name, one.server)
            held[one.owner.namespace, role].add(sets.of(index))
            both[sets.of(index)].add(role)
    for namespace in {space for space, _ in held}:
        prefill, decode = held[namespace, "prefill"], held[namespace, "decode"]
        if len(prefill) == len(decode) == 1:
            sets.join([*prefill, *decode])


def _by_rank(members: Sequence[Member], sets: _Sets) -> None:
    """The only leader and the workers of one namespace: as many ranks as the leader waits for."""
    held: dict[tuple[str | None, str], dict[str, list[int]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for index, one in enumerate(members):
        if one.server is None or one.owner.part is not None:
            continue
        count, rank = (text_of(one.server.words, flag) for flag in ("--nnodes", "--node-rank"))
        if count not in (None, "1") and rank is not None and rank.isdecimal():
            held[one.owner.namespace, str(count)][rank].append(index)
    for (_, count), by_rank in held.items():
        if len(by_rank) == sum(map(len, by_rank.values())) and str(len(by_rank)) == count:
            sets.join(index for some in by_rank.values() for index in some)


def _left_routers(members: Sequence[Member], sets: _Sets) -> None:
    with_servers = {sets.of(index) for index, one in enumerate(members) if one.server is not None}
    for index, one in enumerate(members):
        root = sets.of(index)
        if one.router is None or root in with_servers:
            continue
        near = {
            sets.of(at)
            for at, other in enumerate(members)
            if other.server is not None and _same(other.owner.namespace, one.owner.namespace)
        }
        if len(near) == 1:
            sets.join([*near, root])


def _group(inside: Sequence[Member], services: Sequence[tuple[str | None, Service]]) -> Group:
    first = next((one for one in inside if one.server is not None), inside[0])
    part_of = (
        first.owner.labels.get(_TOGETHER[0]) if len({m.owner.key for m in inside}) > 1 else None
    )
    before = tuple(
        service
        for namespace, service in services
        if any(
            _same(one.owner.namespace, namespace) and selects(service, one.owner.labels)
            for one in inside
        )
        or any(
            upstream.host is not None and service.name in upstream.host.split(".")[:2]
            for one in inside
            if one.router is not None
            for upstream in one.router.upstreams
        )
    )
    routers = tuple(one.router for one in inside if one.router is not None)
    return Group(
        part_of or first.owner.name,
        first.owner.platform,
        first.owner.place,
        routers,
        before,
    )


_PARALLEL = frozenset({"StatefulSet", "Job"})
"""Kinds whose pods are the hosts of one server, where its command is one for several hosts."""


def with_surroundings(
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
