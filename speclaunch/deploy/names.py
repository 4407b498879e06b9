"""What the objects of a deployment are called, the same in every form."""

from __future__ import annotations

import re

from speclaunch.deploy.interface import Rendering, Role

_MOST = 40
"""Characters, so that what platforms append still fits into 63."""
_NAME = "app.kubernetes.io/name"
_COMPONENT = "app.kubernetes.io/component"
ROUTER = "router"
LEADER = {"speclaunch.io/part": "leader"}
"""The label of the pod that answers requests, where a server has several."""


def name_of(deployment: Rendering) -> str:
    """The deployment's name as a DNS label."""
    label = re.sub(r"[^a-z0-9]+", "-", deployment.name.lower()).strip("-")[:_MOST].strip("-")
    return label if label[:1].isalpha() else f"d-{label}".rstrip("-")


def object_of(deployment: Rendering, role: Role) -> str:
    """The name of what runs a role."""
    name = name_of(deployment)
    return name if len(deployment.roles) == 1 else f"{name}-{role.name}"


def secret_of(deployment: Rendering) -> str:
    """The Secret that holds what the text must not show; its keys are variables."""
    return f"{name_of(deployment)}-secrets"


def selector(deployment: Rendering, component: str) -> dict[str, str]:
    """The labels that tell the pods of a role from all others."""
    return {_NAME: name_of(deployment), _COMPONENT: component}


def labels(deployment: Rendering, component: str) -> dict[str, str]:
    """The labels of a role's objects."""
    version = re.sub(r"[^A-Za-z0-9._-]", "-", deployment.version)[:63].strip("._-")
    return {**selector(deployment, component), "app.kubernetes.io/version": version}


def metadata(deployment: Rendering, name: str, component: str | None = None) -> dict[str, object]:
    """The `metadata` of an object."""
    found: dict[str, object] = {"name": name}
    if deployment.options.namespace is not None:
        found["namespace"] = deployment.options.namespace
    if component is None:
        found["labels"] = {_NAME: name_of(deployment)}
    else:
        found["labels"] = labels(deployment, component)
    return found


def instances(deployment: Rendering) -> int:
    """How many hosts the whole deployment takes."""
    return sum(role.replicas * role.nodes for role in deployment.roles)
