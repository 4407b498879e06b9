"""Kubernetes objects that several targets write: Services, the router, claims, the recipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from speclaunch.deploy.interface import Rendering, Role, RouterOptions
from speclaunch.deploy.names import ROUTER, labels, metadata, name_of, object_of, selector
from speclaunch.deploy.pods import gib, recipe_map
from speclaunch.deploy.probes import start_seconds
from speclaunch.deploy.rendezvous import FILL_IN
from speclaunch.deploy.routers import BOOTSTRAP, Part, access, bootstrap_port, router_pod
from speclaunch.deploy.volumes import RECIPE_FILE, VolumeClaim, own_claim
from speclaunch.deploy.yaml_text import COMMENT

Object = Mapping[str, Any]
SERVES = {"speclaunch.io/serves": "requests"}
"""The label of every pod that answers requests."""


def before(deployment: Rendering) -> Iterator[Object]:
    """The objects that the pods need: the claim of their checkpoints, and the recipe."""
    claim = own_claim(deployment)
    if claim is not None:
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": metadata(deployment, claim.name),
            "spec": _claim_spec(claim),
        }
    if deployment.recipe is not None:
        yield {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata(deployment, recipe_map(deployment)),
            "data": {RECIPE_FILE: deployment.recipe},
        }


def _claim_spec(claim: VolumeClaim) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if claim.shared:
        spec[f"{COMMENT}class"] = (
            f"{FILL_IN} storageClassName unless the default class offers ReadWriteMany volumes "
            "(NFS, CephFS, Lustre). Or set deploy.models to pvc:NAME, a claim that exists, or to "
            "a directory of every host."
        )
    spec["accessModes"] = ["ReadWriteMany" if claim.shared else "ReadWriteOnce"]
    guess = f"{FILL_IN} the size. " if claim.is_guess else ""
    spec[f"{COMMENT}size"] = f"{guess}{claim.contents[:1].upper()}{claim.contents[1:]}."
    spec["resources"] = {"requests": {"storage": gib(claim.bytes)}}
    return spec


def template(
    deployment: Rendering, role: Role, spec: Mapping[str, Any], more: Mapping[str, str]
) -> dict[str, Any]:
    """A pod template; `more` are labels of its own."""
    described: dict[str, Any] = {"labels": {**labels(deployment, role.name), **more}}
    if role.mode == "prefill":
        described["annotations"] = {BOOTSTRAP: bootstrap_port(role)}
    return {"metadata": described, "spec": spec}


def service(
    deployment: Rendering, role: Role, more: Mapping[str, str], name: str | None = None
) -> Object:
    """The address of a role's servers: those pods that answer."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(deployment, name or object_of(deployment, role), role.name),
        "spec": {
            "selector": {**selector(deployment, role.name), **more},
            "ports": [{"name": "http", "port": role.port, "targetPort": role.port}],
        },
    }


def headless(deployment: Rendering, role: Role, name: str) -> Object:
    """The names by which the hosts of a server find each other, before any of them is ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(deployment, name, role.name),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": selector(deployment, role.name),
            "ports": [{"name": "http", "port": role.port, "targetPort": role.port}],
        },
    }


def router(deployment: Rendering, part: Part) -> Iterator[Object]:
    """The router with what it may see, and its Service; nothing where the recipe has none."""
    if deployment.router is None:
        return
    yield from access(deployment)
    name = f"{name_of(deployment)}-{ROUTER}"
    yield {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(deployment, name, ROUTER),
        "spec": {
            "replicas": deployment.router.replicas,
            "selector": {"matchLabels": selector(deployment, ROUTER)},
            "template": {
                "metadata": {"labels": labels(deployment, ROUTER)},
                "spec": router_pod(deployment, deployment.router, part),
            },
        },
    }
    yield router_service(deployment, deployment.router)


def router_service(deployment: Rendering, options: RouterOptions) -> Object:
    """The address of the whole deployment."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(deployment, name_of(deployment), ROUTER),
        "spec": {
            "selector": selector(deployment, ROUTER),
            "ports": [{"name": "http", "port": options.port, "targetPort": options.port}],
        },
    }


def progress_seconds(role: Role) -> int:
    """How long a rollout may show no progress: a start, and the image before it."""
    return start_seconds(role) + 1800
