"""Plain Kubernetes: a Deployment for servers of one host, StatefulSets for servers of several."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from speclaunch.deploy.interface import RenderedCommand, Rendering, Role
from speclaunch.deploy.names import metadata, object_of, selector
from speclaunch.deploy.objects import (
    SERVES,
    Object,
    before,
    headless,
    progress_seconds,
    router,
    service,
    template,
)
from speclaunch.deploy.pod_renderer import PodRenderer
from speclaunch.deploy.pods import CONTAINER, platform_variables, pod_spec
from speclaunch.deploy.rendezvous import DIST_PORT, on_all_addresses, ranked
from speclaunch.deploy.words import Given
from speclaunch.deploy.yaml_text import COMMENT

_INDEX = "apps.kubernetes.io/pod-index"
"""The label with a pod's number in its StatefulSet, from Kubernetes 1.28 on."""
_RANK = "NODE_RANK"


class KubernetesRenderer(PodRenderer):
    """Objects of Kubernetes itself, which every cluster has."""

    target = "kubernetes"

    def part(self, role: Role) -> dict[str, str]:
        """Return the labels of the pod that answers."""
        return SERVES if role.nodes == 1 else {_INDEX: "0"}

    def header(self, deployment: Rendering) -> Iterator[str]:
        """The lines of every form, and the limit of this one."""
        yield from super().header(deployment)
        if any(role.nodes > 1 for role in deployment.roles):
            yield (
                "A StatefulSet restarts the hosts of a server one by one, and the engine needs "
                "them all to start again: leaderworkerset and rolebasedgroup do that. The ranks "
                "are the label pod-index, of Kubernetes 1.28 and later."
            )

    def objects(self, deployment: Rendering) -> Iterator[Object]:
        """What the pods need, each role with its Service, the router."""
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
        """One for each Deployment, one for each StatefulSet."""
        return tuple(
            RenderedCommand(role, _given(deployment, role, number), _env(deployment, role))
            for role in deployment.roles
            for number in range(role.replicas if role.nodes > 1 else 1)
        )


def _env(deployment: Rendering, role: Role) -> dict[str, str]:
    found = platform_variables(deployment, role)
    return {**found, _RANK: f"$({_RANK})"} if role.nodes > 1 else found


def _hosts(deployment: Rendering, role: Role) -> str:
    return f"{object_of(deployment, role)}-hosts"


def _set_name(deployment: Rendering, role: Role, number: int) -> str:
    name = object_of(deployment, role)
    return name if role.replicas == 1 else f"{name}-{number}"


def _given(deployment: Rendering, role: Role, number: int) -> Given:
    if role.nodes == 1:
        return on_all_addresses()
    first = f"{_set_name(deployment, role, number)}-0.{_hosts(deployment, role)}"
    return ranked(f"{first}:{DIST_PORT}", f"$({_RANK})")


def _deployment(deployment: Rendering, role: Role) -> Object:
    spec = pod_spec(deployment, role, _given(deployment, role, 0))
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(deployment, object_of(deployment, role), role.name),
        "spec": {
            "replicas": role.replicas,
            "progressDeadlineSeconds": progress_seconds(role),
            f"{COMMENT}strategy": "No pod more than there are GPUs for.",
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
    spec = pod_spec(deployment, role, _given(deployment, role, number))
    (container,) = (one for one in spec["containers"] if one["name"] == CONTAINER)
    container["env"] = [_rank(), *container["env"]]
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


def _rank() -> dict[str, Any]:
    path = f"metadata.labels['{_INDEX}']"
    return {"name": _RANK, "valueFrom": {"fieldRef": {"fieldPath": path}}}
