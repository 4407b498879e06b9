"""What all targets with pods share: the text from its objects, and how it is read back."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import yaml

from speclaunch.deploy.containers import container_refusals, header
from speclaunch.deploy.interface import Renderer, Rendering, Role
from speclaunch.deploy.launching import launches_in
from speclaunch.deploy.objects import SERVES, Object
from speclaunch.deploy.rendezvous import FILL_IN
from speclaunch.deploy.routers import discovery_refusals, router_refusals
from speclaunch.deploy.volumes import RECIPE_FILE
from speclaunch.deploy.yaml_text import documents
from speclaunch.errors import Problem


class PodRenderer(Renderer):
    """A target that writes Kubernetes objects."""

    suffix = ".yaml"
    controller: ClassVar[str | None] = None
    """Controllers that the cluster needs besides Kubernetes."""

    def part(self, role: Role) -> dict[str, str]:  # noqa: ARG002  of one role's hosts
        """Return the labels of the pod that answers."""
        return SERVES

    def refuses(self, deployment: Rendering) -> Sequence[Problem]:
        """Return why no pods can run it."""
        return (
            *container_refusals(deployment, self.target),
            *router_refusals(deployment),
            *discovery_refusals(deployment, self.part),
        )

    @abstractmethod
    def objects(self, deployment: Rendering) -> Iterator[Object]:
        """The objects in the order of the text."""

    def header(self, deployment: Rendering) -> Iterator[str]:
        """The comment lines above the text."""
        yield from header(deployment)
        if self.controller is not None:
            yield f"The cluster needs {self.controller}."

    def render(self, deployment: Rendering) -> str:
        """Write the objects below a header that names what is left to fill in."""
        objects = list(self.objects(deployment))
        head, text = list(self.header(deployment)), documents((), objects)
        namespace = deployment.options.namespace
        where = "" if namespace is None else f"-n {namespace} "
        for secret, keys in _secrets(objects).items():
            literals = " ".join(f"--from-literal={key}=VALUE" for key in keys)
            head.append(
                f"{FILL_IN} the Secret: kubectl {where}create secret generic {secret} {literals}"
            )
        if FILL_IN in text:
            head.append(f"Resolve each comment that begins with {FILL_IN} before you apply this.")
        return documents(head, ()) + text

    def launches(self, text: str) -> tuple[tuple[str, ...], ...]:
        """The words of each `speclaunch launch`."""
        return launches_in(text)

    def recipe_in(self, text: str) -> str | None:
        """The recipe that the text brings with it, in a ConfigMap."""
        for one in yaml.safe_load_all(text):
            found = (one.get("data") or {}).get(RECIPE_FILE)
            if found is not None:
                return str(found)
        return None


def _secrets(objects: Iterable[Object]) -> dict[str, list[str]]:
    """The keys of each Secret without which no container starts."""
    found: dict[str, list[str]] = {}
    for one in _references(objects):
        keys = found.setdefault(one["name"], [])
        if one["key"] not in keys:
            keys.append(one["key"])
    return found


def _references(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        if "secretKeyRef" in value and not value["secretKeyRef"].get("optional"):
            yield value["secretKeyRef"]
        for one in value.values():
            yield from _references(one)
    elif isinstance(value, list):
        for one in value:
            yield from _references(one)
