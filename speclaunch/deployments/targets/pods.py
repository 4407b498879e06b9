"""Build a server's pod, for every Kubernetes object with pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speclaunch.deployments.recipe.values import EMPTY_DIR
from speclaunch.deployments.targets.interface import Rendering, Role, SpeclaunchFrom
from speclaunch.deployments.targets.launching import (
    PATH,
    RECIPE_DIR,
    SPECLAUNCH,
    WHEELS,
    Mount,
    Probes,
    ProbeTimes,
    cache_variables,
    launch_words,
    mounts,
    probes_of,
    program_of,
    start_comment,
    stored_bytes,
    stored_contents,
    wheels,
)
from speclaunch.deployments.targets.words import (
    COMMENT,
    FILL_IN,
    HF_TOKEN,
    POD_INTERFACE,
    Dialect,
    PlatformArgs,
    argument_words,
    crosses_hosts,
    is_secret_env,
    name_of,
    rdma_devices,
    secret_of,
    unset_interfaces,
    uses_hub,
)

CONTAINER = "sglang"
ENGINE = ("python3", "-m", "sglang.launch_server")
"""The engine's entry point in its official image."""
_GPU = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
_GIB = 1 << 30
LEAVES_FIRST = 10
"""Seconds between leaving the Service and SIGTERM, so that no new requests arrive."""
_ENDS = 30
"""Seconds for the exit after SIGTERM. 0.5.21 and later give their schedulers 15 s."""


def grace_seconds(deployment: Rendering, role: Role) -> int:
    """Return the seconds until SIGKILL. They include the wait before SIGTERM."""
    drain = max(deployment.options.drain_seconds, role.grace_seconds)
    return LEAVES_FIRST + drain + _ENDS


def gib(size: int) -> str:
    """Return bytes as a Kubernetes quantity, rounded up."""
    return f"{-(-size // _GIB)}Gi"


def pod_spec(
    deployment: Rendering, role: Role, platform_args: PlatformArgs, *, probed: bool = True
) -> dict[str, Any]:
    """Return the `spec` of a pod. `probed`: true if it answers requests and has probes."""
    volumes = list(mounts(deployment, role))
    container = _container(deployment, role, platform_args, volumes, probed=probed)
    spec: dict[str, Any] = {
        "terminationGracePeriodSeconds": grace_seconds(deployment, role),
        "automountServiceAccountToken": False,
    }
    first = _first_steps(deployment, role)
    if first:
        spec["initContainers"] = first
    if role.gpu is not None:
        spec[f"{COMMENT}nodes"] = (
            f"{FILL_IN} a nodeSelector if the nodes' GPUs differ: this is planned for {role.gpu}."
        )
    spec["containers"] = [container]
    spec["volumes"] = [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": gib(role.needs.shm_bytes)}},
        *({"name": mount.name, **mount.source} for mount in volumes),
        *_own_volumes(deployment),
    ]
    return spec


def answering_fields(role: Role) -> dict[str, Any]:
    """Return the port, probes and shutdown hook of a container that answers requests."""
    times: Probes = probes_of(role)
    return {
        "ports": [{"name": "http", "containerPort": role.port}],
        f"{COMMENT}startup": f"Worst-case startup: {start_comment(role)}.",
        "startupProbe": _probe(times.startup, role),
        "readinessProbe": _probe(times.readiness, role),
        f"{COMMENT}liveness": (
            "Any scheduler progress counts, even if all slots are taken. "
            f"Restarts after {times.liveness.slack} s without output."
        ),
        "livenessProbe": _probe(times.liveness, role),
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(LEAVES_FIRST)]}}},
    }


def _probe(times: ProbeTimes, role: Role) -> dict[str, Any]:
    request: dict[str, Any] = {"path": PATH, "port": role.port}
    if role.tls:
        request["scheme"] = "HTTPS"
    return {
        "httpGet": request,
        "periodSeconds": times.period,
        "timeoutSeconds": times.timeout,
        "failureThreshold": times.failures,
    }


def _container(
    deployment: Rendering,
    role: Role,
    platform_args: PlatformArgs,
    volumes: list[Mount],
    *,
    probed: bool,
) -> dict[str, Any]:
    dialect = Dialect()
    if deployment.runs_speclaunch:
        command, words = program_of(deployment), launch_words(deployment, role, platform_args)
        argument_words(role, platform_args, dialect)  # the recipe needs the same variables
    else:
        command, words = ENGINE, argument_words(role, platform_args, dialect)
    found: dict[str, Any] = {
        "name": CONTAINER,
        "image": role.image,
        "command": list(command),
        "args": words,
        "env": environment(deployment, role, dialect),
    }
    if probed:
        found |= answering_fields(role)
    found |= _resource_comments(deployment, role)
    found["resources"] = _resources(deployment, role)
    if deployment.options.rdma is not None:
        found["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}
    found["volumeMounts"] = [
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
        *(_mounted(mount) for mount in volumes),
    ]
    if deployment.runs_speclaunch:
        mounted = {"name": "recipe", "mountPath": RECIPE_DIR, "readOnly": True}
        found["volumeMounts"].append(mounted)
    return found


def environment(deployment: Rendering, role: Role, dialect: Dialect) -> list[dict[str, Any]]:
    """Return the container's variables. Secrets come first, because others may refer to them."""
    plain: list[dict[str, Any]] = []
    for name, value in role.rendered_args.env.items():
        if value is None:
            continue
        if is_secret_env(name, value):
            dialect.variables[name] = None
        else:
            plain.append({"name": name, "value": dialect.text(value, name, secret=False)})
    caches = cache_variables(deployment, role)
    caches |= dict.fromkeys(unset_interfaces(role), POD_INTERFACE)
    plain += [{"name": name, "value": path} for name, path in caches.items()]
    secret = secret_of(deployment)
    found = [_from_secret(name, secret) for name in dialect.variables]
    if uses_hub(role) and HF_TOKEN not in dialect.variables:
        found.append(_from_secret(HF_TOKEN, secret, optional=True))
    return found + plain


def _from_secret(name: str, secret: str, *, optional: bool = False) -> dict[str, Any]:
    key: dict[str, Any] = {"name": secret, "key": name}
    if optional:
        key["optional"] = True
    return {"name": name, "valueFrom": {"secretKeyRef": key}}


def _resources(deployment: Rendering, role: Role) -> dict[str, Any]:
    """Return GPUs, memory and disk from the plan.

    Memory has no limit, because the page cache of the checkpoint's files would count towards it.
    The kernel reclaims this cache when needed.
    """
    requests: dict[str, Any] = {"cpu": str(role.needs.cpus), "memory": gib(role.needs.memory_bytes)}
    limits: dict[str, Any] = {}
    if deployment.options.models == EMPTY_DIR and uses_hub(role):
        requests["ephemeral-storage"] = gib(stored_bytes(role))
    gpu = _GPU.get(role.vendor)
    if gpu is not None and role.gpus_per_node:
        requests[gpu] = limits[gpu] = str(role.gpus_per_node)
    devices = rdma_devices(deployment)
    if devices is not None:
        requests[devices[0]] = limits[devices[0]] = devices[1]
    return {"requests": requests, **({"limits": limits} if limits else {})}


def _resource_comments(deployment: Rendering, role: Role) -> dict[str, str]:
    found = {f"{COMMENT}memory": f"Memory: {memory_contents(role)}."}
    if deployment.options.models == EMPTY_DIR and uses_hub(role):
        guess = f"{FILL_IN} the size. " if role.needs.weight_bytes is None else ""
        text = stored_contents(role)
        found[f"{COMMENT}disk"] = f"{guess}Ephemeral storage: {text}. Every new pod downloads it."
    if rdma_devices(deployment) is None and crosses_hosts(deployment, role):
        found[f"{COMMENT}rdma"] = (
            f"{FILL_IN} the RDMA devices of the cluster, if it has them; otherwise data between "
            "hosts takes the pod network's TCP. `kubectl describe node` shows the resource. Render "
            "again with deploy.rdma=NAME (NAME:8 for 8 devices): that adds it to requests and "
            "limits, and the capability IPC_LOCK. RoCE also needs the pod's secondary network."
        )
    return found


def memory_contents(role: Role) -> str:
    """Return the text on the uses of a host's memory, which is equal for every target."""
    shm = -(-role.needs.shm_bytes // _GIB)
    return f"processes and {shm} GiB of /dev/shm; the page cache of the checkpoint is not included"


def _mounted(mount: Mount) -> dict[str, Any]:
    found: dict[str, Any] = {"name": mount.name, "mountPath": mount.path}
    if mount.read_only:
        found["readOnly"] = True
    return found


def _first_steps(deployment: Rendering, role: Role) -> list[dict[str, Any]]:
    """Return the init containers that install speclaunch.

    It gets a separate virtual environment, because the engine's packages must not change.
    """
    if not deployment.runs_speclaunch:
        return []
    if deployment.options.speclaunch is not SpeclaunchFrom.WHEEL:
        return []
    found = wheels(deployment)
    source = "" if found is None else f"--no-index --find-links {WHEELS} "
    script = (
        f"python3 -m venv {SPECLAUNCH} && "
        f"{SPECLAUNCH}/bin/python -m pip install --no-cache-dir {source}speclaunch"
    )
    own = [{"name": "speclaunch", "mountPath": SPECLAUNCH}]
    return [
        {
            "name": "install-speclaunch",
            "image": role.image,
            "command": ["sh", "-c", script],
            "volumeMounts": own if found is None else [*own, _mounted(found)],
        }
    ]


def _own_volumes(deployment: Rendering) -> list[Mapping[str, Any]]:
    if not deployment.runs_speclaunch:
        return []
    found: list[Mapping[str, Any]] = [
        {"name": "recipe", "configMap": {"name": recipe_map(deployment)}}
    ]
    of_wheels = wheels(deployment)
    if deployment.options.speclaunch is SpeclaunchFrom.WHEEL and of_wheels is not None:
        found.append({"name": of_wheels.name, **of_wheels.source})
    return found


def recipe_map(deployment: Rendering) -> str:
    """Return the name of the ConfigMap with the recipe."""
    return f"{name_of(deployment)}-recipe"


def platform_variables(deployment: Rendering, role: Role) -> dict[str, str]:
    """Return the container's variables beyond the role's, as speclaunch's reader sees them."""
    dialect = Dialect()
    argument_words(role, {}, dialect)
    return {
        variable["name"]: variable.get("value", f"$({variable['name']})")
        for variable in environment(deployment, role, dialect)
        if variable["name"] not in role.rendered_args.env
    }
