"""Render pods: plain Kubernetes, LeaderWorkerSet, RoleBasedGroup.

Kubernetes: a Deployment for single-host servers, StatefulSets for multi-host servers.

LeaderWorkerSet: the hosts of a server as one group, created and restarted together.
kubernetes-sigs/lws, API leaderworkerset.x-k8s.io/v1 (v0.9.0): the controller sets
LWS_LEADER_ADDRESS and LWS_WORKER_INDEX in every container.

RoleBasedGroup: all roles of a deployment, including the router, as one object. sgl-project/rbg, API
workloads.x-k8s.io/v1alpha2 (v0.8.0-alpha.5): a `standalonePattern` for single-host servers, a
`leaderWorkerPattern` for multi-host servers. Containers of the latter get RBG_LWP_LEADER_ADDRESS
and RBG_LWP_WORKER_INDEX (api/workloads/constants/env.go:60).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import yaml

from speclaunch.deployments.targets.interface import RenderedCommand, Rendering, Role, RouterOptions
from speclaunch.deployments.targets.launching import launches_of
from speclaunch.deployments.targets.pod_renderer import (
    SERVES,
    Object,
    PodRenderer,
    before,
    headless,
    progress_seconds,
    router,
    router_service,
    service,
    template,
)
from speclaunch.deployments.targets.pods import (
    CONTAINER,
    access,
    answering_fields,
    platform_variables,
    pod_spec,
    router_pod,
)
from speclaunch.deployments.targets.words import (
    COMMENT,
    DIST_PORT,
    ROUTER,
    PlatformArgs,
    labels,
    metadata,
    name_of,
    object_of,
    platform_args_of,
    selector,
)

_INDEX = "apps.kubernetes.io/pod-index"
"""Label with a pod's number in its StatefulSet (Kubernetes 1.28 and later)."""
_RANK = "NODE_RANK"


class KubernetesRenderer(PodRenderer):
    """Built-in Kubernetes objects, available in every cluster."""

    target = "kubernetes"

    def part(self, role: Role) -> dict[str, str]:
        """Return the labels of the pod that answers requests."""
        return SERVES if role.nodes == 1 else {_INDEX: "0"}

    def header(self, deployment: Rendering) -> Iterator[str]:
        """Yield the comment lines of every pod target, and the limitation of this target."""
        yield from super().header(deployment)
        if any(role.nodes > 1 for role in deployment.roles):
            yield (
                "A StatefulSet restarts the hosts of a server one by one, but the engine needs all "
                "of them to restart together: leaderworkerset and rolebasedgroup do that. Ranks "
                "come from the label pod-index (Kubernetes 1.28 and later)."
            )

    def objects(self, deployment: Rendering) -> Iterator[Object]:
        """Yield the prerequisites of the pods, each role with its Service, and the router."""
        yield from before(deployment)
        for role in deployment.roles:
            if role.nodes == 1:
                yield _deployment(deployment, role)
            else:
                yield headless(deployment, role, _hosts(deployment, role))
                for number in range(role.replicas):
                    yield _stateful_set(deployment, role, number)
            if deployment.router is None:
                yield service(deployment, role, self.part(role))
        yield from router(deployment, self.part)

    def commands(self, deployment: Rendering) -> tuple[RenderedCommand, ...]:
        """Return a command for each Deployment and each StatefulSet."""
        found = []
        for role in deployment.roles:
            env = platform_variables(deployment, role)
            if role.nodes > 1:
                env[_RANK] = f"$({_RANK})"
            for number in range(role.replicas if role.nodes > 1 else 1):
                found.append(RenderedCommand(role, _platform_args(deployment, role, number), env))
        return tuple(found)


def _hosts(deployment: Rendering, role: Role) -> str:
    return f"{object_of(deployment, role)}-hosts"


def _set_name(deployment: Rendering, role: Role, number: int) -> str:
    name = object_of(deployment, role)
    return name if role.replicas == 1 else f"{name}-{number}"


def _platform_args(deployment: Rendering, role: Role, number: int) -> PlatformArgs:
    first = f"{_set_name(deployment, role, number)}-0.{_hosts(deployment, role)}"
    return platform_args_of(role, f"{first}:{DIST_PORT}", f"$({_RANK})")


def _deployment(deployment: Rendering, role: Role) -> Object:
    spec = pod_spec(deployment, role, _platform_args(deployment, role, 0))
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(deployment, object_of(deployment, role), role.name),
        "spec": {
            "replicas": role.replicas,
            "progressDeadlineSeconds": progress_seconds(role),
            f"{COMMENT}strategy": "No extra pod: it would need more GPUs.",
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
            },
            "selector": {"matchLabels": selector(deployment, role.name)},
            "template": template(deployment, role, spec, SERVES),
        },
    }


def _stateful_set(deployment: Rendering, role: Role, number: int) -> Object:
    name = _set_name(deployment, role, number)
    own = {"speclaunch.io/server": str(number)}
    spec = pod_spec(deployment, role, _platform_args(deployment, role, number))
    (container,) = (container for container in spec["containers"] if container["name"] == CONTAINER)
    label = {"fieldPath": f"metadata.labels['{_INDEX}']"}
    rank = {"name": _RANK, "valueFrom": {"fieldRef": label}}
    container["env"] = [rank, *container["env"]]
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata(deployment, name, role.name),
        "spec": {
            "replicas": role.nodes,
            "serviceName": _hosts(deployment, role),
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {**selector(deployment, role.name), **own}},
            "template": template(deployment, role, spec, own),
        },
    }


# -- LeaderWorkerSet

_WORKER = {"speclaunch.io/serves": "a-leader"}


class _LeaderRenderer(PodRenderer):
    """Target whose controller starts a leader and workers, and tells them apart by variables."""

    variables: ClassVar[str]
    """Prefix of the variables that the controller sets."""

    def args_of(self, role: Role) -> PlatformArgs:
        """Return the arguments of the leader and of its workers."""
        address = f"$({self.variables}_LEADER_ADDRESS):{DIST_PORT}"
        return platform_args_of(role, address, f"$({self.variables}_WORKER_INDEX)")

    def commands(self, deployment: Rendering) -> tuple[RenderedCommand, ...]:
        """Return the leader's command, then its workers' command, which has the same arguments."""
        return tuple(
            RenderedCommand(role, self.args_of(role), platform_variables(deployment, role), part)
            for role in deployment.roles
            for part in (("leader", "worker") if role.nodes > 1 else (None,))
        )


class LeaderWorkerSetRenderer(_LeaderRenderer):
    """A LeaderWorkerSet for each role."""

    target = "leaderworkerset"
    controller = "LeaderWorkerSet with leaderworkerset.x-k8s.io/v1 (kubernetes-sigs/lws)"
    variables = "LWS"

    def objects(self, deployment: Rendering) -> Iterator[Object]:
        """Yield the prerequisites of the pods, each role with its Service, and the router."""
        yield from before(deployment)
        for role in deployment.roles:
            yield _set(deployment, role, self.args_of(role))
            if deployment.router is None:
                yield service(deployment, role, SERVES, f"{object_of(deployment, role)}-http")
        yield from router(deployment, self.part)


def _set(deployment: Rendering, role: Role, platform_args: PlatformArgs) -> Object:
    leader = template(deployment, role, pod_spec(deployment, role, platform_args), SERVES)
    group: dict[str, Any] = {
        "size": role.nodes,
        f"{COMMENT}restart": "The ranks of a server only start together.",
        "restartPolicy": "RecreateGroupOnPodRestart",
    }
    if role.nodes > 1:
        spec = pod_spec(deployment, role, platform_args, probed=False)
        group["leaderTemplate"] = leader
        group["workerTemplate"] = template(deployment, role, spec, _WORKER)
    else:
        group["workerTemplate"] = leader
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": metadata(deployment, object_of(deployment, role), role.name),
        "spec": {
            "replicas": role.replicas,
            f"{COMMENT}rollout": "No extra group: it would need more GPUs.",
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": {"maxUnavailable": 1, "maxSurge": 0},
            },
            "startupPolicy": "LeaderCreated",
            "leaderWorkerTemplate": group,
        },
    }


# -- RoleBasedGroup


class RoleBasedGroupRenderer(_LeaderRenderer):
    """A single RoleBasedGroup."""

    target = "rolebasedgroup"
    controller = "RoleBasedGroup with workloads.x-k8s.io/v1alpha2 (sgl-project/rbg v0.8)"
    variables = "RBG_LWP"

    def objects(self, deployment: Rendering) -> Iterator[Object]:
        """Yield the group, the prerequisites of its pods, and its Services."""
        yield from before(deployment)
        if deployment.router is not None:
            yield from access(deployment)
        roles = [_role(deployment, role, self.args_of(role)) for role in deployment.roles]
        if deployment.router is not None:
            roles.insert(0, _router(deployment, deployment.router))
        yield {
            "apiVersion": "workloads.x-k8s.io/v1alpha2",
            "kind": "RoleBasedGroup",
            "metadata": metadata(deployment, name_of(deployment)),
            "spec": {"roles": roles},
        }
        if deployment.router is not None:
            yield router_service(deployment, deployment.router)
            return
        for role in deployment.roles:
            yield service(deployment, role, SERVES, f"{object_of(deployment, role)}-http")

    def launches(self, text: str) -> tuple[tuple[str, ...], ...]:
        """Return the arguments of each `speclaunch launch`.

        A pattern's arguments are returned for its leader and for its workers.
        """
        return tuple(
            launch
            for root in yaml.safe_load_all(text)
            for role in (root.get("spec") or {}).get("roles", ())
            for launch in launches_of(role) * (2 if "leaderWorkerPattern" in role else 1)
        )


def _role(deployment: Rendering, role: Role, platform_args: PlatformArgs) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": role.name,
        "replicas": role.replicas,
        f"{COMMENT}rollout": "No extra server: it would need more GPUs.",
        "rolloutStrategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
        },
    }
    spec = pod_spec(deployment, role, platform_args, probed=role.nodes == 1)
    if role.nodes == 1:
        found["standalonePattern"] = {"template": template(deployment, role, spec, SERVES)}
        return found
    answering = {"name": CONTAINER, **answering_fields(role)}
    found["leaderWorkerPattern"] = {
        "size": role.nodes,
        f"{COMMENT}restart": "The ranks of a server only start together.",
        "restartPolicyConfig": {"type": "RecreateRoleInstanceOnPodRestart"},
        "template": template(deployment, role, spec, _WORKER),
        f"{COMMENT}leader": "Only the leader answers requests and has a liveness probe.",
        "leaderTemplatePatch": {
            "metadata": {"labels": SERVES},
            "spec": {"containers": [answering]},
        },
    }
    return found


def _router(deployment: Rendering, options: RouterOptions) -> dict[str, Any]:
    return {
        "name": ROUTER,
        "replicas": options.replicas,
        "standalonePattern": {
            "template": {
                "metadata": {"labels": labels(deployment, ROUTER)},
                "spec": router_pod(deployment, options, lambda _: SERVES),
            }
        },
    }
