"""Rules about the image and the resources of a server's pod."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from speclaunch.checks.rules.deployment_values import (
    GPU_RESOURCES,
    MODES,
    Image,
    context_of,
    grouped,
    http_port,
    image_of,
    in_compose,
    in_kubernetes,
    integer,
    is_in_container,
    is_on,
    is_worker,
    known_ports,
    number,
    part_of,
    requested_gpus,
    text,
    written,
)
from speclaunch.checks.rules.interface import Fix, Severity, Verdict, rule, rule_across
from speclaunch.core import Place, lazy
from speclaunch.deployments import byte_count
from speclaunch.engine import Plan, Setting, UnknownValueError, Volume, gpus_needed, least_seconds


@rule_across("SPL860")
def image_versions(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """Report parts of one deployment that run different releases."""
    for _, members in grouped(plans):
        images = [(plan, *found) for plan in members if (found := image_of(plan))]
        tagged = [
            (plan, image.release, setting) for plan, image, setting in images if image.release
        ]
        for plan, image, ours in tagged:
            first, other, theirs = tagged[0]
            if image == other:
                continue
            yield (
                plan,
                Verdict(
                    f"{part_of(plan)} runs SGLang {image}, but {part_of(first)} runs {other}",
                    why="ranks and roles exchange unversioned data (KV layout, bootstrap, "
                    "messages): different releases fail to connect, or serve wrong results",
                    fix=Fix("set the same image for all parts"),
                    place=ours.place,
                    others=(theirs.place,),
                ),
            )


@rule("SPL861")
def moving_image(plan: Plan) -> Iterator[Verdict]:
    """Report an image with a mutable tag."""
    found = image_of(plan)
    if found is None or not found[0].is_moving:
        return
    image, written = found
    called = f"the tag {image.tag}" if image.tag is not None else "no tag"
    yield Verdict(
        f"the image has {called}, so its content can change",
        why=(
            "a recreated container may run another release, with renamed arguments and new defaults"
        ),
        fix=Fix(f"pin the tag v{plan.request.version}, or a digest"),
        place=written.place,
    )


_FIRST: Mapping[int | None, tuple[int, int]] = {
    100: (12, 8),
    103: (12, 9),
    120: (12, 8),
    121: (12, 9),
}
"""First CUDA release that supports each GPU, by compute capability (CUDA toolkit release notes:
sm_100 and sm_120 in 12.8, sm_103 and sm_121 in 12.9)."""


@rule("SPL862")
def image_accelerator(plan: Plan) -> Iterator[Verdict]:
    """Report an image whose kernels do not run on the GPUs."""
    found = image_of(plan)
    if found is None:
        return
    image, written = found
    yield from _resource(plan, image, written)
    hardware = plan.facts.hardware
    if hardware is None:
        return
    first = _FIRST.get(hardware.capability)
    if image.cuda is not None and first is not None and image.cuda < first:
        had = ".".join(map(str, image.cuda))
        yield Verdict(
            f"the image has CUDA {had}, but {hardware.name} needs {'.'.join(map(str, first))}",
            why=f"CUDA {had} has no kernels for sm_{hardware.capability}: no kernel image is "
            "available for execution on the device",
            fix=Fix("use an image with CUDA 12.9 or later: cu129 or cu130"),
            place=written.place,
        )


def _resource(plan: Plan, image: Image, written: Setting) -> Iterator[Verdict]:
    requested = requested_gpus(plan)
    if requested is None or image.vendor is None:
        return
    vendor = GPU_RESOURCES[requested[0]]
    if vendor is not image.vendor:
        yield Verdict(
            f"the image is for {image.vendor.value} GPUs, but the pod requests {requested[0]}",
            why="the image has no kernels for these GPUs: the engine finds no device",
            fix=Fix(f"use this release's image for {vendor.value} GPUs"),
            place=written.place,
            others=(requested[1].place,),
        )


SHARED = "/dev/shm"  # noqa: S108
_MIB = 1 << 20
ENOUGH = 1 << 30
"""Shared memory that NCCL needs, in bytes. Its troubleshooting guide recommends `--shm-size=1g`."""
_WHY = (
    "NCCL ranks on one host communicate through /dev/shm, about 10 MiB per channel and pair; "
    "with the default 64 MiB they stop with `Error while creating shared memory segment`"
)


@rule("SPL863")
def shared_memory(plan: Plan) -> Iterator[Verdict]:
    """Report ranks that share a host and have too little shared memory."""
    if not is_in_container(plan):
        return
    pod = context_of(plan).pod
    if is_on(pod.ipc_host) or (pod.ipc_host is not None and not pod.ipc_host.known):
        return
    ranks = gpus_needed(plan)
    if ranks < 2:
        return
    volume = next((mounted for mounted in pod.volumes if text(mounted.mount) == SHARED), None)
    if volume is not None:
        yield from _of_volume(volume, ranks)
    elif pod.shm_size is not None:
        size = number(pod.shm_size)
        if size is not None and size < ENOUGH:
            yield _too_small(size, ranks, pod.shm_size.place)
    else:
        remedy = (
            f"mount an emptyDir with medium: Memory at {SHARED}"
            if in_kubernetes(plan)
            else "set shm_size to 32g, or ipc to host"
        )
        yield Verdict(
            f"{ranks} ranks share a container with the default {SHARED} of 64 MiB",
            why=_WHY,
            fix=Fix(remedy),
            place=context_of(plan).place,
            others=written(plan, "tp_size"),
        )


def _of_volume(volume: Volume, ranks: int) -> Iterator[Verdict]:
    size = number(volume.size)
    if volume.kind == "emptyDir" and volume.medium != "Memory":
        yield Verdict(
            f"the volume at {SHARED} is on the node's disk",
            why="an emptyDir without medium Memory is a directory on the node, so the ranks' "
            "shared data goes through the node's disk",
            fix=Fix("set its medium to Memory"),
            place=volume.place,
            others=(volume.mount.place,),
        )
    elif size is not None and size < ENOUGH:
        place = volume.place if volume.size is None else volume.size.place
        yield _too_small(size, ranks, place)


def _too_small(size: float, ranks: int, place: Place) -> Verdict:
    return Verdict(
        f"{ranks} ranks share {size / _MIB:,.0f} MiB of {SHARED}",
        why=_WHY,
        fix=Fix("increase it to 1 GiB or more"),
        place=place,
    )


@rule("SPL864")
def gpu_requests(plan: Plan) -> Iterator[Verdict]:
    """Report a GPU request that the API server refuses."""
    if not in_kubernetes(plan):
        return
    pod = context_of(plan).pod
    for name in GPU_RESOURCES:
        request, limit = pod.requests.get(name), pod.limits.get(name)
        if request is None:
            continue
        if limit is None:
            yield Verdict(
                f"{name} is requested without a limit",
                why="the API server refuses the pod: Limit must be set for non overcommitable "
                "resources",
                fix=Fix("set it under limits"),
                place=request.place,
            )
        elif request.known and limit.known and integer(request) != integer(limit):
            yield Verdict(
                f"the request for {name} is {request.value}, but its limit is {limit.value}",
                why="the API server refuses the pod: must be equal to nvidia.com/gpu limit"
                if name.startswith("nvidia")
                else "the API server refuses the pod: both must be equal",
                fix=Fix("set only the limit"),
                place=request.place,
                others=(limit.place,),
            )


_GIB = 1 << 30
_GB = 10**9
PROCESS = 1.5
"""Minimum host memory of a scheduler process, in GiB. The CPU engine uses 1.5 GB with a 1 MB model;
CUDA and NCCL need more."""
_POOLS = (("hicache_size", True), ("cpu_offload_gb", False))
"""Arguments that set the host memory of each rank in GB, with True for an argument that has an
effect only with `enable_hierarchical_cache`."""


@rule("SPL865")
def host_memory(plan: Plan) -> Iterator[Verdict]:
    """Report a container memory limit below the host memory that the engine needs."""
    written = context_of(plan).pod.limits.get("memory")
    amount = text(written)
    if written is None or amount is None or not is_in_container(plan):
        return
    limit = byte_count(amount, compose=in_compose(plan))
    if limit is None:
        return
    ranks = gpus_needed(plan)
    pools = sum(
        float(plan.value(name))
        for name, hierarchical in _POOLS
        if not hierarchical or plan.value("enable_hierarchical_cache")
    )
    taken = ranks * pools * _GB
    if taken > limit:
        yield Verdict(
            f"{ranks} ranks need {pools:g} GB of host memory each, but the container's limit is "
            f"{limit / _GIB:,.0f} GiB",
            at=tuple(name for name, _ in _POOLS),
            why="the server pins this memory at startup: the kernel kills the container "
            "(OOMKilled, 137), or the engine refuses to start",
            fix=Fix(f"raise the limit above {taken / _GIB + ranks * PROCESS:,.0f} GiB"),
            place=written.place,
        )
    elif limit < ranks * PROCESS * _GIB:
        yield Verdict(
            f"{ranks} ranks share a memory limit of {limit / _GIB:,.1f} GiB",
            at=("tp_size",),
            why=f"each scheduler process needs at least {PROCESS} GiB before it loads anything: "
            "the kernel kills the container (OOMKilled, 137)",
            fix=Fix(f"raise the limit above {ranks * PROCESS:,.0f} GiB plus the size of {SHARED}"),
            place=written.place,
            severity=Severity.WARNING,
        )


@rule("SPL866")
def termination_grace(plan: Plan) -> Iterator[Verdict]:
    """Report a server that is killed before it can shut down."""
    written = context_of(plan).pod.grace
    grace = number(written)
    if (
        written is None
        or grace is None
        or not is_in_container(plan)
        or not plan.request.serves_http
    ):
        return
    least = least_seconds(plan)
    if grace >= least:
        return
    yield Verdict(
        f"the server is killed {grace:g} s after SIGTERM, but needs up to {least} s to exit even "
        "when idle",
        why="it checks for the signal every 5 s, finishes all requests, and then waits for its "
        "schedulers; an earlier kill cuts off answers",
        fix=Fix("set the grace period to the duration of the longest request, such as 300 s"),
        place=written.place,
    )


@rule("SPL867")
def privileged(plan: Plan) -> Iterator[Verdict]:
    """Report a privileged container."""
    written = context_of(plan).pod.privileged
    if written is None or not is_on(written):
        return
    yield Verdict(
        "the container is privileged",
        why="it can access all devices of the host, including other containers' GPUs, and escape "
        "to the host; the engine does not need that",
        fix=Fix("remove privileged; for RDMA, request the device and add the capability IPC_LOCK"),
        place=written.place,
    )


_SOURCE = lazy(r"/sgl-workspace(?:/sglang(?:/.*)?)?|.*/(?:site|dist)-packages(?:/sglang(?:/.*)?)?")
_OF_HOST = ("hostPath", "bind", "persistentVolumeClaim", "volume", "emptyDir", "nfs")


@rule("SPL868")
def mounted_source(plan: Plan) -> Iterator[Verdict]:
    """Report a volume that hides the engine's source in its image."""
    for volume in context_of(plan).pod.volumes:
        mount = (text(volume.mount) or "").rstrip("/")
        if volume.kind not in _OF_HOST or not _SOURCE.fullmatch(mount):
            continue
        yield Verdict(
            f"a volume of kind {volume.kind} replaces the engine's source at {mount}",
            why="the engine is no longer the release in the image's tag and may differ between "
            "nodes; with an empty directory it does not start",
            fix=Fix("build an image with the change, and remove the mount"),
            place=volume.mount.place,
            others=(volume.place,),
        )


@rule("SPL869")
def container_port(plan: Plan) -> Iterator[Verdict]:
    """Report a container whose ports lack the server's port."""
    pod = context_of(plan).pod
    if (
        not pod.ports
        or not is_in_container(plan)
        or not plan.request.serves_http
        or is_worker(plan)
    ):
        return
    if in_compose(plan) and is_on(pod.host_network):
        return
    named = [integer(port) for port in pod.ports]
    if None in named or http_port(plan) in named or known_ports(plan) & set(named):
        return
    shown = ", ".join(str(port) for port in named)
    yield Verdict(
        f"the container declares port {shown}, but the server listens on {http_port(plan)}",
        at=("port",),
        why="clients that use the declared port reach no listener",
        fix=Fix(f"declare port {http_port(plan)}, or set port to {named[0]}"),
        place=pod.ports[0].place,
        others=() if plan.is_set("port") else (plan.request.place,),
    )


_RDMA = lazy(r"rdma|efa|(?:^|[/_-])ib|infiniband|hca|roce|sriov|eni|vf$|mlnx|mellanox|nic")
_CARRIERS = ("mooncake", "nixl", "mori")
_ELSE = ("MC_FORCE_TCP", "MOONCAKE_PROTOCOL", "MC_FORCE_MNNVL", "UCX_TLS", "FI_PROVIDER")
"""Variables that select a transport other than RDMA, or show that the user configured one."""


@rule("SPL881")
def missing_rdma(plan: Plan) -> Iterator[Verdict]:
    """Report prefill and decode pods that transfer the KV cache without a fast network."""
    pod = context_of(plan).pod
    backend = plan.value("disaggregation_transfer_backend")
    if plan.value("disaggregation_mode") not in MODES or backend not in _CARRIERS:
        return
    if not in_kubernetes(plan):
        return
    if is_on(pod.privileged) or is_on(pod.host_network) or any(n in pod.env for n in _ELSE):
        return
    if any(_RDMA.search(name.lower()) for name in (*pod.limits, *pod.requests)):
        return
    yield Verdict(
        f"{backend} transfers the KV cache, but the pod has neither an RDMA device nor the "
        "host's network",
        at=("disaggregation_transfer_backend", "disaggregation_mode"),
        why="the backend finds no device, or falls back to TCP: the transfer of a long prompt's "
        "KV cache then takes longer than its computation",
        fix=Fix("request the device plugin's resource (rdma/…), or use hostNetwork"),
        place=context_of(plan).place,
        others=written(plan, "disaggregation_mode"),
    )


_PATHS = ("model_path", "speculative_draft_model_path")


@rule_across("SPL882")
def unmounted_model(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """Report a model directory that no volume provides."""
    for _, members in grouped(plans):
        for name in _PATHS:
            mounted: dict[str, tuple[Plan, Volume]] = {}
            without: list[tuple[Plan, str]] = []
            for plan in members:
                path = _path(plan, name)
                if path is None or not is_in_container(plan):
                    continue
                volume = _volume(plan, path)
                if volume is None:
                    without.append((plan, path))
                else:
                    mounted.setdefault(path, (plan, volume))
            for plan, path in without:
                if path in mounted:
                    yield plan, _verdict(plan, name, path, *mounted[path])


def _path(plan: Plan, name: str) -> str | None:
    try:
        found = plan.user_value(name)
    except UnknownValueError:
        return None
    return found if isinstance(found, str) and found.startswith("/") else None


def _volume(plan: Plan, path: str) -> Volume | None:
    target = PurePosixPath(path)
    for volume in context_of(plan).pod.volumes:
        mount = text(volume.mount)
        if mount is None or target.is_relative_to(mount):
            return volume
    return None


def _verdict(plan: Plan, name: str, path: str, other: Plan, volume: Volume) -> Verdict:
    return Verdict(
        f"{part_of(plan)} mounts no volume at {path}, but {part_of(other)} does",
        at=(name,),
        why="unless the image contains the path, the engine treats it as a repository name and "
        "stops",
        fix=Fix("mount the same volume in all parts"),
        others=(volume.mount.place, *written(other, name)),
    )
