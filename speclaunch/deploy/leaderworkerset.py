"""LeaderWorkerSet: the hosts of a server as one group, which is created and restarted as a whole.

kubernetes-sigs/lws, API leaderworkerset.x-k8s.io/v1 (v0.9.0): the controller gives every container
LWS_LEADER_ADDRESS and LWS_WORKER_INDEX.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from speclaunch.deploy.interface import RenderedCommand, Rendering, Role
from speclaunch.deploy.names import metadata, object_of
from speclaunch.deploy.objects import SERVES, Object, before, router, service, template
from speclaunch.deploy.pod_renderer import PodRenderer
from speclaunch.deploy.pods import platform_variables, pod_spec
from speclaunch.deploy.rendezvous import DIST_PORT, on_all_addresses, ranked
from speclaunch.deploy.words import Given
from speclaunch.deploy.yaml_text import COMMENT

_WORKER = {"speclaunch.io/serves": "a-leader"}


class LeaderWorkerSetRenderer(PodRenderer):
    """A LeaderWorkerSet for each role."""

    target = "leaderworkerset"
    controller = "LeaderWorkerSet with leaderworkerset.x-k8s.io/v1 (kubernetes-sigs/lws)"

    def objects(self, deployment: Rendering) -> Iterator[Object]:
        """What the pods need, each role with its Service, the router."""
        yield from before(deployment)
        for role in deployment.roles:
            yield _set(deployment, role)
            if deployment.router is None:
                yield service(deployment, role, SERVES, f"{object_of(deployment, role)}-http")
        yield from router(deployment, self.part)

    def commands(self, deployment: Rendering) -> tuple[RenderedCommand, ...]:
        """The leader's, then its workers'."""
        found = []
        for role in deployment.roles:
            env = platform_variables(deployment, role)
            for part in ("leader", "worker") if role.nodes > 1 else (None,):
                found.append(RenderedCommand(role, _given(role), env, part))
        return tuple(found)


def _given(role: Role) -> Given:
    if role.nodes == 1:
        return on_all_addresses()
    return ranked(f"$(LWS_LEADER_ADDRESS):{DIST_PORT}", "$(LWS_WORKER_INDEX)")


def _set(deployment: Rendering, role: Role) -> Object:
    given = _given(role)
    leader = template(deployment, role, pod_spec(deployment, role, given), SERVES)
    group: dict[str, Any] = {
        "size": role.nodes,
        f"{COMMENT}restart": "The ranks of a server only start together.",
        "restartPolicy": "RecreateGroupOnPodRestart",
    }
    if role.nodes > 1:
        spec = pod_spec(deployment, role, given, probed=False)
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
            f"{COMMENT}rollout": "No group more than there are GPUs for.",
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": {"maxUnavailable": 1, "maxSurge": 0},
            },
            "startupPolicy": "LeaderCreated",
            "leaderWorkerTemplate": group,
        },
    }
