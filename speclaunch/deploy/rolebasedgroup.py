"""RoleBasedGroup: all roles of a deployment, the router among them, as one object.

sgl-project/rbg, API workloads.x-k8s.io/v1alpha2 (v0.8.0-alpha.5): a `standalonePattern` for servers
of one host, a `leaderWorkerPattern` for those of several, whose containers get
RBG_LWP_LEADER_ADDRESS and RBG_LWP_WORKER_INDEX (api/workloads/constants/env.go:60).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from speclaunch.deploy.interface import RenderedCommand, Rendering, Role, RouterOptions
from speclaunch.deploy.launching import launches_of
from speclaunch.deploy.names import ROUTER, labels, metadata, name_of, object_of
from speclaunch.deploy.objects import (
    SERVES,
    Object,
    before,
    router_service,
    service,
    template,
)
from speclaunch.deploy.pod_renderer import PodRenderer
from speclaunch.deploy.pods import CONTAINER, answering_fields, platform_variables, pod_spec
from speclaunch.deploy.rendezvous import DIST_PORT, on_all_addresses, ranked
from speclaunch.deploy.routers import access, router_pod
from speclaunch.deploy.words import Given
from speclaunch.deploy.yaml_text import COMMENT

_WORKER = {"speclaunch.io/serves": "a-leader"}


class RoleBasedGroupRenderer(PodRenderer):
    """One RoleBasedGroup."""

    target = "rolebasedgroup"
    controller = "RoleBasedGroup with workloads.x-k8s.io/v1alpha2 (sgl-project/rbg v0.8)"

    def objects(self, deployment: Rendering) -> Iterator[Object]:
        """The group, what its pods need, and the Services before it."""
        yield from before(deployment)
        if deployment.router is not None:
            yield from access(deployment)
        yield _group(deployment)
        if deployment.router is not None:
            yield router_service(deployment, deployment.router)
            return
        for role in deployment.roles:
            yield service(deployment, role, SERVES, f"{object_of(deployment, role)}-http")

    def commands(self, deployment: Rendering) -> tuple[RenderedCommand, ...]:
        """The leader's, then its workers', who have the same words."""
        return tuple(
            RenderedCommand(role, _given(role), platform_variables(deployment, role), part)
            for role in deployment.roles
            for part in (("leader", "worker") if role.nodes > 1 else (None,))
        )

    def launches(self, text: str) -> tuple[tuple[str, ...], ...]:
        """The words of each `speclaunch launch`: those of a pattern are its leader's and its
        workers'."""
        return tuple(
            one
            for root in yaml.safe_load_all(text)
            for role in (root.get("spec") or {}).get("roles", ())
            for one in launches_of(role) * (2 if "leaderWorkerPattern" in role else 1)
        )


def _given(role: Role) -> Given:
    if role.nodes == 1:
        return on_all_addresses()
    return ranked(f"$(RBG_LWP_LEADER_ADDRESS):{DIST_PORT}", "$(RBG_LWP_WORKER_INDEX)")


def _group(deployment: Rendering) -> Object:
    roles = [_role(deployment, role) for role in deployment.roles]
    if deployment.router is not None:
        roles.insert(0, _router(deployment, deployment.router))
    return {
        "apiVersion": "workloads.x-k8s.io/v1alpha2",
        "kind": "RoleBasedGroup",
        "metadata": metadata(deployment, name_of(deployment)),
        "spec": {"roles": roles},
    }


def _role(deployment: Rendering, role: Role) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": role.name,
        "replicas": role.replicas,
        f"{COMMENT}rollout": "No server more than there are GPUs for.",
        "rolloutStrategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
        },
    }
    spec = pod_spec(deployment, role, _given(role), probed=role.nodes == 1)
    if role.nodes == 1:
        found["standalonePattern"] = {"template": template(deployment, role, spec, SERVES)}
        return found
    answering = {"name": CONTAINER, **answering_fields(role)}
    found["leaderWorkerPattern"] = {
        "size": role.nodes,
        f"{COMMENT}restart": "The ranks of a server only start together.",
        "restartPolicyConfig": {"type": "RecreateRoleInstanceOnPodRestart"},
        "template": template(deployment, role, spec, _WORKER),
        f"{COMMENT}leader": "The leader alone answers requests, and is asked whether it lives.",
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
