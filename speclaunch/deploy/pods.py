"""The pod of a server, for every kind of Kubernetes object that has pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speclaunch.deploy.interface import Rendering, Role, SpeclaunchFrom
from speclaunch.deploy.launching import launch_words, program_of
from speclaunch.deploy.names import name_of, secret_of
from speclaunch.deploy.probes import PATH, Probes, ProbeTimes, probes_of, start_comment
from speclaunch.deploy.volumes import (
    RECIPE_DIR,
    SPECLAUNCH,
    WHEELS,
    Mount,
    cache_variables,
    mounts,
    wheels,
)
from speclaunch.deploy.words import (
    HF_TOKEN,
    Dialect,
    Given,
    argument_words,
    asks_the_hub,
    is_asked_for,
)
from speclaunch.deploy.yaml_text import COMMENT

CONTAINER = "sglang"
ENGINE = ("python3", "-m", "sglang.launch_server")
"""The engine's entry point in its official image."""
_GPU = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
_GIB = 1 << 30
LEAVES_FIRST = 10
"""Seconds between leaving the Service and SIGTERM, so that no request comes any more."""
_ENDS = 30
"""Seconds for the end itself: 0.5.21 and later give their schedulers 15."""


def grace_seconds(deployment: Rendering, role: Role) -> int:
    """Seconds between SIGTERM and SIGKILL, and what stands before."""
    drain = max(deployment.options.drain_seconds, role.grace_seconds)
    return LEAVES_FIRST + drain + _ENDS


def gib(size: int) -> str:
    """Bytes as a quantity, rounded up."""
    return f"{-(-size // _GIB)}Gi"


def pod_spec(
    deployment: Rendering, role: Role, given: Given, *, probed: bool = True
) -> dict[str, Any]:
    """The `spec` of a pod. `probed`: it answers requests, and is asked whether it lives."""
    volumes = list(mounts(deployment, role))
    container = _container(deployment, role, given, volumes, probed=probed)
    spec: dict[str, Any] = {
        "terminationGracePeriodSeconds": grace_seconds(deployment, role),
        "automountServiceAccountToken": False,
    }
    first = _first_steps(deployment, role)
    if first:
        spec["initContainers"] = first
    spec["containers"] = [container]
    spec["volumes"] = [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": gib(role.needs.shm_bytes)}},
        *({"name": one.name, **one.source} for one in volumes),
        *_own_volumes(deployment),
    ]
    return spec


def probe_fields(role: Role) -> dict[str, Any]:
    """The three probes of the container that answers."""
    times: Probes = probes_of(role)
    return {
        f"{COMMENT}startup": f"Until it generates: {start_comment(role)}.",
        "startupProbe": _probe(times.startup, role),
        "readinessProbe": _probe(times.readiness, role),
        f"{COMMENT}liveness": (
            "Any progress of the scheduler counts, also where all slots are taken: restarted is "
            f"what generates nothing for {times.liveness.slack} s."
        ),
        "livenessProbe": _probe(times.liveness, role),
    }


def _probe(times: ProbeTimes, role: Role) -> dict[str, Any]:
    asked: dict[str, Any] = {"path": PATH, "port": role.port}
    if role.tls:
        asked["scheme"] = "HTTPS"
    return {
        "httpGet": asked,
        "periodSeconds": times.period,
        "timeoutSeconds": times.timeout,
        "failureThreshold": times.failures,
    }


def _container(
    deployment: Rendering, role: Role, given: Given, volumes: list[Mount], *, probed: bool
) -> dict[str, Any]:
    dialect = Dialect()
    if deployment.runs_speclaunch:
        command, words = program_of(deployment), launch_words(deployment, role, given)
        argument_words(role, given, dialect)  # the recipe asks for the same variables
    else:
        command, words = ENGINE, argument_words(role, given, dialect)
    found: dict[str, Any] = {
        "name": CONTAINER,
        "image": role.image,
        "command": list(command),
        "args": words,
        "env": environment(deployment, role, dialect),
    }
    if probed:
        found["ports"] = [{"name": "http", "containerPort": role.port}]
        found |= probe_fields(role)
        found["lifecycle"] = {"preStop": {"exec": {"command": ["sleep", str(LEAVES_FIRST)]}}}
    found["resources"] = _resources(deployment, role)
    if deployment.options.rdma is not None:
        found["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}
    found["volumeMounts"] = [
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
        *(_mounted(one) for one in volumes),
    ]
    if deployment.runs_speclaunch:
        mounted = {"name": "recipe", "mountPath": RECIPE_DIR, "readOnly": True}
        found["volumeMounts"].append(mounted)
    return found


def environment(deployment: Rendering, role: Role, dialect: Dialect) -> list[dict[str, Any]]:
    """The variables of the container: secrets first, which others may refer to."""
    plain: list[dict[str, Any]] = []
    for name, value in role.spelling.env.items():
        if value is None:
            continue
        if is_asked_for(name, value):
            dialect.asked[name] = None
        else:
            plain.append({"name": name, "value": dialect.text(value, name, secret=False)})
    caches = cache_variables(deployment, role)
    plain += [{"name": name, "value": path} for name, path in caches.items()]
    secret = secret_of(deployment)
    found = [_from_secret(name, secret) for name in dialect.asked]
    if asks_the_hub(role) and HF_TOKEN not in dialect.asked:
        found.append(_from_secret(HF_TOKEN, secret, optional=True))
    return found + plain


def _from_secret(name: str, secret: str, *, optional: bool = False) -> dict[str, Any]:
    key: dict[str, Any] = {"name": secret, "key": name}
    if optional:
        key["optional"] = True
    return {"name": name, "valueFrom": {"secretKeyRef": key}}


def _resources(deployment: Rendering, role: Role) -> dict[str, Any]:
    """GPUs and memory as the plan has them. Pages of the checkpoint's files may fill the rest up to
    the limit: the kernel takes them back."""
    requests: dict[str, Any] = {"cpu": str(role.needs.cpus), "memory": gib(role.needs.memory_bytes)}
    limits: dict[str, Any] = {}
    if role.needs.weight_bytes is not None:
        limits["memory"] = gib(role.needs.memory_bytes + role.needs.weight_bytes)
    gpu = _GPU.get(role.vendor)
    if gpu is not None and role.gpus_per_node:
        requests[gpu] = limits[gpu] = str(role.gpus_per_node)
    if deployment.options.rdma is not None:
        requests[deployment.options.rdma] = limits[deployment.options.rdma] = "1"
    return {"requests": requests, **({"limits": limits} if limits else {})}


def _mounted(one: Mount) -> dict[str, Any]:
    found: dict[str, Any] = {"name": one.name, "mountPath": one.path}
    if one.read_only:
        found["readOnly"] = True
    return found


def _first_steps(deployment: Rendering, role: Role) -> list[dict[str, Any]]:
    """What installs speclaunch before the start: a virtual environment of its own, because the
    engine's packages are not ours to change."""
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
    """The ConfigMap that holds the recipe."""
    return f"{name_of(deployment)}-recipe"


def platform_variables(deployment: Rendering, role: Role) -> dict[str, str]:
    """The variables of the container that are not the role's own, as our reader sees them."""
    dialect = Dialect()
    argument_words(role, {}, dialect)
    return {
        one["name"]: one.get("value", f"$({one['name']})")
        for one in environment(deployment, role, dialect)
        if one["name"] not in role.spelling.env
    }
