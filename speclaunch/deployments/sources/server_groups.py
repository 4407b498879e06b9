"""Grouping of a file's servers into deployments.

Two servers of one namespace are in the same deployment if one of these holds:
- one object or pod runs both;
- a router names both or selects them by their labels (it may name an object, one of its pods, or a
  Service that selects it); the router also belongs to the deployment;
- both are ranks of one server: their `--dist-init-addr` is the same, or names the other;
- one Service selects both, or their pods share the label `app`, `app.kubernetes.io/part-of` or
  `app.kubernetes.io/instance`;
- one is prefill and the other decode, and the file has no more prefill or decode servers;
- they are ranks of one server, and the file has each rank once;
- (in a script) a router names this machine and their ports.
A router without upstreams belongs to the deployment of its namespace if there is only one.

Router options and the servers that they name are also read here. Sources: sglang_router 0.3.2
(router_args.py: `--prefill URL [BOOTSTRAP_PORT]` and `--decode URL`, each repeatable;
`--worker-urls URL …`), sglang 0.4.7 (srt/disaggregation/launch_lb.py: `--prefill URL …`,
`--decode URL …`, `--prefill-bootstrap-ports PORT …`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import Place, lazy
from speclaunch.deployments.sources.interface import Invocation, Reading, RouterCommand, Word
from speclaunch.deployments.sources.source_text import Document
from speclaunch.engine import Group, Pod, Router, ServerContext, Service, Setting, Upstream

_ROLES = {"prefill": "prefill", "prefiller": "prefill", "decode": "decode", "decoder": "decode"}
_PART = lazy(r"[^A-Za-z]+|(?<=[a-z])(?=[A-Z])")
MODE = "--disaggregation-mode"
SBATCH, SCRIPT = "sbatch", "script"
SCRIPTS = frozenset({SBATCH, SCRIPT})
"""Platforms of scripts. A script's name is not the name of its server."""


class Owner(Struct, frozen=True):
    """Kubernetes object or Compose service that runs a container.

    All containers of one object have the same `key`. `names` contains the host names that may
    resolve to it.
    """

    key: str
    name: str
    platform: str
    place: Place
    namespace: str | None = None
    role: str | None = None
    role_place: Place | None = None
    part: str | None = None
    nodes: Setting | None = None
    replicas: Setting | None = None
    gpus_per_node: Setting | None = None
    names: frozenset[str] = frozenset()
    labels: Mapping[str, str] = {}
    restart: Setting | None = None
    """Effect on the group if one of its pods restarts; None if the pods' restart policy decides."""


class Member(Struct, frozen=True):
    """Server or router, with its owner and pod. `index` is the index of the server's invocation."""

    owner: Owner
    pod: Pod
    server: Invocation | None = None
    index: int = -1
    router: Router | None = None


def value_of(words: Sequence[Word], *flags: str) -> Word | None:
    """Return the token with the last value of any of `flags`; None if none is set."""
    found: Word | None = None
    for index, word in enumerate(words):
        name, equals, _ = word.text.partition("=")
        if name not in flags:
            continue
        if equals:
            found = word
        elif index + 1 < len(words):
            found = words[index + 1]
    return found


def text_of(words: Sequence[Word], *flags: str) -> str | None:
    """Return the text of the last value of any of `flags`; None if unset or unknown."""
    word = value_of(words, *flags)
    if word is None or not word.evaluated:
        return None
    name, equals, value = word.text.partition("=")
    return value if equals and name in flags else word.text


def role_in(name: str | None) -> str | None:
    """Return `prefill` or `decode` if a name contains exactly one of these roles, else None."""
    parts = [part.lower() for part in _PART.split(name or "")]
    roles = {_ROLES[part] for part in parts if part in _ROLES}
    return roles.pop() if len(roles) == 1 else None


def role_of(owner: Owner, container: str | None, server: Invocation) -> str:
    """Return a server's role from names in the file, its command or its owner."""
    for name in (owner.role, *(() if owner.platform in SCRIPTS else (owner.name, container))):
        if (role := role_in(name)) is not None:
            return role
    mode = text_of(server.words, MODE)
    if mode in ("prefill", "decode"):
        return mode
    return owner.role or owner.name


def part_of(owner: Owner, server: Invocation) -> str | None:
    """Return `leader` or `worker` if a server's ranks have separate commands, else None."""
    if owner.part is not None:
        return owner.part
    nodes, rank = text_of(server.words, "--nnodes"), text_of(server.words, "--node-rank")
    if rank is None or not rank.isdecimal() or nodes in (None, "1"):
        return None
    return "leader" if int(rank) == 0 else "worker"


_UPSTREAMS = {"prefill": "prefill", "decode": "decode", "worker-urls": "worker"}
_SECRET = lazy(r"(?:^|-)(?:key|keys|password|secret|token|db-url)(?:-|\Z)")
_URL = lazy(r"[a-z][a-z+]*://")
_OPEN = lazy(r"\$\{[^}]*\}|\$\([^)]*\)|\$\w+|\{\{.*?\}\}|`[^`]*`|\{\w+\}")
"""Pattern of the unknown parts of a URL."""
_NUMBER = lazy(r"\d{1,7}\Z")

Option = tuple[str, Word, Sequence[Word]]
"""Flag without its dashes, its token, and its values."""


def read_router(command: RouterCommand, pod: Pod | None = None) -> Router:
    """Return the router that a command starts in `pod`."""
    upstreams: list[Upstream] = []
    options: dict[str, Setting] = {}
    late: list[Word] = []
    for name, flag, values in _options(command.words):
        role = _UPSTREAMS.get(name)
        if role is not None:
            upstreams += _upstreams(role, values)
        elif name == "prefill-bootstrap-ports":
            late += values
        else:
            options[name] = _setting(name, flag, values)
    return Router(
        command.name or command.program,
        command.program,
        command.place,
        tuple(_with_ports(upstreams, late)),
        options,
        pod or Pod(),
    )


def _options(words: Sequence[Word]) -> Iterator[Option]:
    flag: Word | None = None
    values: list[Word] = []
    for word in words:
        if not word.text.startswith("--"):
            values.append(word)
            continue
        if flag is not None:
            yield _option(flag, values)
        flag, values = word, []
    if flag is not None:
        yield _option(flag, values)


def _option(flag: Word, values: list[Word]) -> Option:
    name, equals, value = flag.text.partition("=")
    if equals:
        first = replace(flag, text=value, place=_place_in(flag, len(name) + 1, len(value)))
        values = [first, *values]
    return name.removeprefix("--").replace("_", "-"), flag, values


def _place_in(word: Word, start: int, length: int) -> Place:
    """Return the place of part of a token, or of the complete token if it is not literal."""
    if word.place.length != len(word.text) or not word.evaluated:
        return word.place
    return replace(word.place, column=word.place.column + start, length=max(length, 1))


def _setting(name: str, flag: Word, values: Sequence[Word]) -> Setting:
    if not values:
        return Setting(True, flag.place)
    if _SECRET.search(name):
        # do not store the value, only whether the file contains it
        return Setting(None, values[0].place, values[0].evaluated)
    known = all(value.evaluated for value in values)
    texts = [value.text for value in values]
    if len(texts) > 1:
        return Setting(tuple(texts), values[0].place, known)
    text = texts[0]
    return Setting(int(text) if _NUMBER.match(text) else text, values[0].place, known)


def _upstreams(role: str, values: Sequence[Word]) -> Iterator[Upstream]:
    found: Upstream | None = None
    for value in values:
        if _URL.match(value.text) or (not value.evaluated and found is None):
            if found is not None:
                yield found
            found = _upstream(role, value)
        elif found is not None and value.text.lower() != "none":
            found = _with_port(found, value)
    if found is not None:
        yield found


def _with_port(upstream: Upstream, word: Word) -> Upstream:
    known = word.evaluated and _NUMBER.match(word.text) is not None
    number = int(word.text) if known else word.text
    return replace(upstream, bootstrap=Setting(number, word.place, known))


def _upstream(role: str, url: Word) -> Upstream:
    text = url.text if url.evaluated else _OPEN.sub(lambda open_: "~" * len(open_[0]), url.text)
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:  # no port, or a URL without a host
        return Upstream(role, None, Setting(url.text, url.place, known=False), url.place)
    if host is not None and "~" in host:
        host = None
    if port is None:
        return Upstream(role, host, None, url.place)
    digits = str(port)
    at = text.find(f":{digits}", text.find("://") + 3) + 1
    return Upstream(role, host, Setting(port, _place_in(url, at, len(digits))), url.place)


def _with_ports(upstreams: Sequence[Upstream], ports: Sequence[Word]) -> Iterator[Upstream]:
    """Add launch_lb's bootstrap ports to its prefill upstreams, in order."""
    waiting = list(ports)
    for upstream in upstreams:
        if upstream.role == "prefill" and upstream.bootstrap is None and waiting:
            yield _with_port(upstream, waiting.pop(0))
        else:
            yield upstream


_ORDINAL = lazy(r"(?:-\d+)+\Z")
_TOGETHER = ("app.kubernetes.io/part-of", "app.kubernetes.io/instance", "app")
"""Labels that objects of one deployment share."""
_SELECTORS = ("selector", "prefill-selector", "decode-selector")
_LOCAL = frozenset({"localhost", "127.0.0.1", "0.0.0.0", "::1"})  # noqa: S104  names of the machine itself


Services = Sequence[tuple[str | None, Service]]
"""Services, each with its namespace, or None if it states none."""


class _Sets:
    """Disjoint sets of member indexes."""

    def __init__(self, count: int) -> None:
        self._parents = list(range(count))

    def of(self, index: int) -> int:
        while self._parents[index] != index:
            self._parents[index] = self._parents[self._parents[index]]
            index = self._parents[index]
        return index

    def join(self, indices: Iterable[int]) -> None:
        roots = {self.of(index) for index in indices}
        lowest = min(roots, default=0)
        for root in roots:
            self._parents[root] = lowest


def groups(members: Sequence[Member], services: Services, document: Document) -> list[Group]:
    """Return the deployment of each member; members of one deployment get the same object."""
    document.spend(len(members) * (2 + len(services)))
    sets = _Sets(len(members))
    _join_equal(((index, member.owner.key) for index, member in enumerate(members)), sets)
    for namespace, service in services:
        sets.join(_reached(members, namespace, service))
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
            inside = [member for at, member in enumerate(members) if sets.of(at) == root]
            document.spend(len(members) // 20)
            found[root] = _group(inside, services)
    return [found[sets.of(index)] for index in range(len(members))]


def _join_equal(keys: Iterable[tuple[int, object]], sets: _Sets) -> None:
    held: dict[object, list[int]] = defaultdict(list)
    for index, key in keys:
        held[key].append(index)
    for indices in held.values():
        sets.join(indices)


def selects(service: Service, labels: Mapping[str, str]) -> bool:
    """True if a Service selects pods with these labels. Selectors with empty values do not."""
    chosen = service.selector
    return bool(chosen) and all(chosen.values()) and chosen.items() <= labels.items()


def _reached(members: Sequence[Member], namespace: str | None, service: Service) -> list[int]:
    return [
        index
        for index, member in enumerate(members)
        if _same(member.owner.namespace, namespace) and selects(service, member.owner.labels)
    ]


def _same(value: str | None, other: str | None) -> bool:
    """True if the namespaces may be equal. An unset namespace may be any namespace."""
    return value == other or value is None or other is None


def _by_labels(members: Sequence[Member], sets: _Sets) -> None:
    keys = (
        (index, (member.owner.namespace, label, member.owner.labels[label]))
        for index, member in enumerate(members)
        for label in _TOGETHER
        if label in member.owner.labels
    )
    _join_equal(keys, sets)


def _by_address(members: Sequence[Member], services: Services, sets: _Sets) -> None:
    keys = []
    for index, member in enumerate(members):
        words = () if member.server is None else member.server.words
        address = text_of(words, "--dist-init-addr", "--nccl-init-addr")
        host = (address or "").rpartition(":")[0]
        if not address or host in _LOCAL:
            continue
        keys.append((index, (member.owner.namespace, address)))
        if host:
            sets.join([index, *_named(host, member.owner.namespace, members, services)])
    _join_equal(keys, sets)


def _named(
    host: str, namespace: str | None, members: Sequence[Member], services: Services
) -> list[int]:
    """Return the indexes of members that a host name resolves to, by Service, object or pod."""
    parts = host.split(".")
    found: list[int] = []
    for space, service in services:
        if service.name in parts[:2] and _same(space, namespace):
            found += _reached(members, space, service)
    first = {part for part in parts[:2] if part} | {_ORDINAL.sub("", part) for part in parts[:2]}
    found += [
        index
        for index, member in enumerate(members)
        if member.server is not None and first & member.owner.names
    ]
    return found


def _by_router(members: Sequence[Member], services: Services, sets: _Sets) -> None:
    for index, member in enumerate(members):
        if member.router is None:
            continue
        joined = [index]
        for upstream in member.router.upstreams:
            if upstream.host is not None and upstream.host not in _LOCAL:
                joined += _named(upstream.host, member.owner.namespace, members, services)
            elif upstream.port is not None and member.owner.platform in SCRIPTS:
                port = str(upstream.port.value)
                joined += [
                    at
                    for at, other in enumerate(members)
                    if other.server is not None and text_of(other.server.words, "--port") == port
                ]
        for selector in _selectors(member.router):
            joined += [
                at
                for at, other in enumerate(members)
                if other.server is not None and selector.items() <= other.owner.labels.items()
            ]
        sets.join(joined)


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
    """Join the prefill and the decode server of a namespace if each exists once."""
    held: dict[tuple[str | None, str], set[int]] = defaultdict(set)
    for index, member in enumerate(members):
        if member.server is not None:
            role = role_of(member.owner, member.server.name, member.server)
            held[member.owner.namespace, role].add(sets.of(index))
    for namespace in {space for space, _ in held}:
        prefill, decode = held[namespace, "prefill"], held[namespace, "decode"]
        if len(prefill) == len(decode) == 1:
            sets.join([*prefill, *decode])


def _by_rank(members: Sequence[Member], sets: _Sets) -> None:
    """Join the leader and the workers of a namespace if every rank exists once."""
    held: dict[tuple[str | None, str], dict[str, list[int]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for index, member in enumerate(members):
        if member.server is None or member.owner.part is not None:
            continue
        count, rank = (text_of(member.server.words, flag) for flag in ("--nnodes", "--node-rank"))
        if count not in (None, "1") and rank is not None and rank.isdecimal():
            held[member.owner.namespace, str(count)][rank].append(index)
    for (_, count), by_rank in held.items():
        if len(by_rank) == sum(map(len, by_rank.values())) and str(len(by_rank)) == count:
            sets.join(index for some in by_rank.values() for index in some)


def _left_routers(members: Sequence[Member], sets: _Sets) -> None:
    with_servers = {
        sets.of(index) for index, member in enumerate(members) if member.server is not None
    }
    for index, member in enumerate(members):
        root = sets.of(index)
        if member.router is None or root in with_servers:
            continue
        near = {
            sets.of(at)
            for at, other in enumerate(members)
            if other.server is not None and _same(other.owner.namespace, member.owner.namespace)
        }
        if len(near) == 1:
            sets.join([*near, root])


def _group(inside: Sequence[Member], services: Services) -> Group:
    first = next((member for member in inside if member.server is not None), inside[0])
    has_several = len({member.owner.key for member in inside}) > 1
    name = (first.owner.labels.get(_TOGETHER[0]) if has_several else None) or first.owner.name
    before = tuple(
        service
        for namespace, service in services
        if any(
            _same(member.owner.namespace, namespace) and selects(service, member.owner.labels)
            for member in inside
        )
        or any(
            upstream.host is not None and service.name in upstream.host.split(".")[:2]
            for member in inside
            if member.router is not None
            for upstream in member.router.upstreams
        )
    )
    routers = tuple(member.router for member in inside if member.router is not None)
    return Group(name, first.owner.platform, first.owner.place, routers, before)


_PARALLEL = frozenset({"StatefulSet", "Job"})
"""Kinds whose pods are the hosts of one server, if its command is for several hosts."""


def with_server_context(
    reading: Reading, members: Sequence[Member], services: Services, document: Document
) -> Reading:
    """Return `reading` with the server context of each server."""
    found = list(reading.invocations)
    for member, group in zip(members, groups(members, services, document), strict=True):
        server = member.server
        if server is None:
            continue
        owner = member.owner
        nodes, replicas = _hosts(member)
        # one command runs on several hosts: its rank is the same for all of them
        is_several = nodes is not None and (not nodes.known or nodes.value not in (0, 1))
        found[member.index] = replace(
            server,
            server_context=ServerContext(
                group,
                role_of(owner, server.name, server),
                owner.role_place or owner.place,
                None if is_several and owner.part is None else part_of(owner, server),
                nodes,
                replicas,
                owner.gpus_per_node,
                member.pod,
            ),
        )
    return replace(reading, invocations=tuple(found))


def _hosts(member: Member) -> tuple[Setting | None, Setting | None]:
    """Return the hosts per server and the number of servers, each None if unknown."""
    owner, server = member.owner, member.server
    if owner.nodes is None and owner.platform in _PARALLEL and server is not None:
        several = value_of(server.words, "--nnodes")
        if several is not None and not several.evaluated:
            return owner.replicas and replace(owner.replicas, known=False), None
        if several is not None and text_of(server.words, "--nnodes") != "1":
            return owner.replicas, None
    return owner.nodes, owner.replicas


def words_of_hosts(hosts: Setting, leader: str, rank: str, why: str) -> tuple[Word, ...]:
    """Return the tokens that a platform appends to the command of a multi-host server.

    `why` states why the values `leader` and `rank` are unknown.
    """
    place = hosts.place

    def unknown(text: str) -> Word:
        return Word(text, place, evaluated=False, inside=True, why=why)

    count = str(hosts.value)
    return (
        *(Word("--dist-init-addr", place), unknown(leader)),
        *(Word("--nnodes", place), Word(count, place) if hosts.known else unknown(count)),
        *(Word("--node-rank", place), unknown(rank)),
    )
