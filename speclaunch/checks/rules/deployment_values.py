"""Shared parts of rules about deployments: ports, images, GPUs, router targets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from speclaunch.core import Place, lazy
from speclaunch.deployments import tagged_version
from speclaunch.engine import (
    Group,
    Plan,
    Probe,
    ProbeKind,
    ServerContext,
    Service,
    Setting,
    UnknownValueError,
    Vendor,
)

COMPOSE = "compose"
BATCH = "sbatch"
MODES = ("prefill", "decode")
KUBERNETES = frozenset(
    {
        "Pod",
        "Deployment",
        "StatefulSet",
        "ReplicaSet",
        "DaemonSet",
        "Job",
        "LeaderWorkerSet",
        "RoleBasedGroup",
        "RoleBasedGroupSet",
    }
)
"""Object kinds whose pods run unchanged. Operators of other kinds (Dynamo, KServe, OME) add
probes, volumes and ports."""


def context_of(plan: Plan) -> ServerContext:
    """Return the server context of a plan. Raises UnknownValueError if it has none."""
    found = plan.request.server_context
    if found is None:
        raise UnknownValueError("the server context of the command is unknown")
    return found


def in_kubernetes(plan: Plan) -> bool:
    """True if the server runs in a pod that no operator modifies."""
    return context_of(plan).group.platform in KUBERNETES


def in_compose(plan: Plan) -> bool:
    """True if the server is a Compose service."""
    return context_of(plan).group.platform == COMPOSE


def is_in_container(plan: Plan) -> bool:
    """True if the server runs in a Kubernetes pod or a Compose service."""
    return in_kubernetes(plan) or in_compose(plan)


def number(setting: Setting | None, default: float | None = None) -> float | None:
    """Return a setting's number; `default` if not set, None if unknown or not a number."""
    if setting is None:
        return default
    value = setting.value
    if not setting.known or isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def integer(setting: Setting | None) -> int | None:
    """Return a setting's integer; None if it is unset, unknown or not an integer."""
    found = number(setting)
    return int(found) if found is not None and found.is_integer() else None


def text(setting: Setting | None) -> str | None:
    """Return a setting's value as text; None if unset or unknown."""
    return str(setting.value) if setting is not None and setting.known else None


def is_on(setting: Setting | None) -> bool:
    """True if a switch is known to be on."""
    return setting is not None and setting.value is True  # an unknown value is a text


def http_port(plan: Plan) -> int:
    """Return the port that the server listens on. Raises UnknownValueError."""
    return int(plan.value("port"))


def hosts(plan: Plan) -> int:
    """Return the number of hosts of one server. Raises UnknownValueError."""
    return int(plan.value("nnodes") or 1)


def is_worker(plan: Plan) -> bool:
    """True if the command runs only ranks after the first, which serve no requests."""
    rank = plan.value_or_none("node_rank")  # None if the platform sets it
    return context_of(plan).part == "worker" or (isinstance(rank, int) and rank > 0)


def is_also_worker(plan: Plan) -> bool:
    """True if any rank after the first runs this command."""
    try:
        return is_worker(plan) or (context_of(plan).part is None and hosts(plan) > 1)
    except UnknownValueError:
        return is_worker(plan)


def probes(plan: Plan, *kinds: ProbeKind) -> Iterator[Probe]:
    """Yield the probes of a container, or its Compose health check. `kinds`: empty for all."""
    for probe in context_of(plan).pod.probes:
        if (
            is_in_container(plan)
            and plan.request.serves_http
            and (not kinds or probe.kind in kinds)
        ):
            yield probe


def path_of(probe: Probe) -> str | None:
    """Return the path of a probe without query or fragment; None if unset.

    Raises UnknownValueError.
    """
    if probe.path is None:
        return None
    found = text(probe.path)
    if found is None:
        raise UnknownValueError(f"the path of the {probe.kind.value} is unknown")
    path = found.partition("?")[0].partition("#")[0]
    return path.rstrip("/") or "/"


def probe_name(probe: Probe) -> str:
    """Return a probe's name for messages."""
    path = text(probe.path)
    return f"the {probe.kind.value}" + (f" on {path}" if path is not None else "")


def place_of_path(probe: Probe) -> Place:
    """Return the place of a probe's path; if unset, the probe's."""
    return probe.place if probe.path is None else probe.path.place


def part_of(plan: Plan) -> str:
    """Return a server's part (`leader`, `worker`), else its role, for messages."""
    return context_of(plan).part or context_of(plan).role


def services_of(plan: Plan) -> list[Service]:
    """Return the Services that select the server's pod."""
    context = context_of(plan)
    return [each for each in context.group.services if matches(each.selector, context.pod.labels)]


def written(plan: Plan, *names: str) -> tuple[Place, ...]:
    """Return the places of arguments. An argument that is not set has the command's place."""
    return tuple(plan.place(name) for name in names)


def grouped(plans: Sequence[Plan]) -> Iterator[tuple[Group, list[Plan]]]:
    """Yield each deployment with its plans, in file order."""
    found: dict[tuple[str, str, Place], tuple[Group, list[Plan]]] = {}
    for plan in plans:
        server_context = plan.request.server_context
        if server_context is not None:
            group = server_context.group
            key = group.name, group.platform, group.place
            found.setdefault(key, (group, []))[1].append(plan)
    yield from found.values()


def gives_ranks(plan: Plan) -> bool:
    """True if the file itself sets each host's rank and address.

    Otherwise an operator (Dynamo, OME) or a recipe's rendering adds them.
    """
    return is_in_container(plan) or context_of(plan).group.platform == BATCH


def ranks(members: Sequence[Plan]) -> Iterator[list[Plan]]:
    """Yield the commands of each server with separate leader and worker commands, the leader first.

    Workers belong to the leader of their object, or to the only leader of the role or deployment.
    """
    found: dict[tuple[object, str], list[Plan]] = {}
    for plan in members:
        if context_of(plan).part is not None:
            found.setdefault((context_of(plan).place, context_of(plan).role), []).append(plan)
    behind: dict[str, list[Plan]] = {}
    for (_, role), some in found.items():
        if len(some) > 1:
            yield sorted(some, key=_is_behind)
        else:
            behind.setdefault(role if role in MODES else "", []).extend(some)
    for some in behind.values():
        if sum(not _is_behind(plan) for plan in some) == 1:
            yield sorted(some, key=_is_behind)


def _is_behind(plan: Plan) -> bool:
    return context_of(plan).part != "leader"


def matches(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """True if a Service's selector matches a pod's labels."""
    return bool(selector) and selector.items() <= labels.items()


_NAMED = ("grpc_port", "nccl_port")
_OF_PREFILL = "disaggregation_bootstrap_port"


def known_ports(plan: Plan) -> set[int]:
    """Return a server's known ports except `port`. Only rank 0 opens `dist_init_addr`'s port."""
    names = [*_NAMED]
    if plan.value_or_none("disaggregation_mode") in ("prefill", None):
        names.append(_OF_PREFILL)
    found = {value for name in names if isinstance(value := plan.value_or_none(name), int)}
    try:
        address = str(plan.user_value("dist_init_addr")).rpartition(":")[2]
    except UnknownValueError:
        return found
    return found | ({int(address)} if address.isdecimal() else set())


_CUDA = lazy(r"-cu(?P<major>1[1-9])(?P<minor>\d)(?!\d)")
_ROCM = lazy(r"rocm")
_DATED = lazy(r"\d{8}|-[0-9a-f]{7,40}$")
_MOVING = ("latest", "dev", "nightly", "main", "edge")


class Image(Struct, frozen=True):
    """Container image, described by its name."""

    name: str

    @property
    def release(self) -> str | None:
        """SGLang release in the tag; None if the tag has none."""
        return tagged_version(self.name)

    @property
    def digest(self) -> bool:
        return "@sha256:" in self.name

    @property
    def tag(self) -> str | None:
        last = self.name.partition("@")[0].rpartition("/")[2]
        return last.partition(":")[2] or None

    @property
    def is_moving(self) -> bool:
        """True if the name has neither a digest nor a fixed tag."""
        if self.digest:
            return False
        return self.tag is None or (self.tag.startswith(_MOVING) and not _DATED.search(self.tag))

    @property
    def cuda(self) -> tuple[int, int] | None:
        """CUDA release in the tag (`cu126`: 12, 6); None if the tag has none."""
        found = _CUDA.search(self.tag or "")
        return None if found is None else (int(found["major"]), int(found["minor"]))

    @property
    def vendor(self) -> Vendor | None:
        if _ROCM.search(self.name.lower()):
            return Vendor.AMD
        return Vendor.NVIDIA if self.cuda is not None else None


GPU_RESOURCES: Mapping[str, Vendor] = {"nvidia.com/gpu": Vendor.NVIDIA, "amd.com/gpu": Vendor.AMD}
"""Resources that count full GPUs, and their vendors."""


def image_of(plan: Plan) -> tuple[Image, Setting] | None:
    """Return the image of the container and its setting; None if unknown."""
    setting = context_of(plan).pod.image
    name = text(setting)
    return (Image(name), setting) if setting is not None and name else None


def requested_gpus(plan: Plan) -> tuple[str, Setting] | None:
    """Return the container's GPU resource and its limit, else its request; None without either."""
    pod = context_of(plan).pod
    for amounts in (pod.limits, pod.requests):
        for name in GPU_RESOURCES:
            if name in amounts:
                return name, amounts[name]
    return None


class RouterTarget(Struct, frozen=True):
    """Servers behind the host of an address. `service`: the Service that the host names."""

    plans: tuple[Plan, ...]
    service: Service | None = None

    def port_behind(self, port: int) -> int | None:
        """Return the pod port behind a port of the address.

        None if the Service does not have the port, or its target port is named.
        """
        if self.service is None or self.service.headless:
            return port
        for outer, inner in self.service.ports:
            if integer(outer) == port:
                return port if inner is None else integer(inner)
        return None

    def leads_on(self, port: int) -> bool:
        """True unless the Service lacks the port."""
        if self.service is None or self.service.headless:
            return True
        return any(integer(outer) in (port, None) for outer, _ in self.service.ports)


def target_of(host: str | None, group: Group, members: Sequence[Plan]) -> RouterTarget | None:
    """Return the servers behind a host name; None if no part of the deployment has that name."""
    if not host:
        return None
    name = host.partition(".")[0]
    servers = [plan for plan in members if plan.request.serves_http and not is_worker(plan)]
    for service in group.services:
        if service.name == name:
            found = [
                plan for plan in servers if matches(service.selector, context_of(plan).pod.labels)
            ]
            return RouterTarget(tuple(found), service) if found else None
    if group.platform == COMPOSE:
        found = [plan for plan in servers if plan.request.name == name]
        return RouterTarget(tuple(found)) if found else None
    return None
