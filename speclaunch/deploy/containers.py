"""What every target that runs containers refuses, and says above its text."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.deploy.interface import Rendering, Role, SpeclaunchFrom
from speclaunch.deploy.launching import ALONE, WITHIN
from speclaunch.deploy.words import CHECKPOINTS
from speclaunch.errors import Problem

_FILES = ("config", "ssl_certfile", "ssl_keyfile", "ssl_ca_certs")
"""Arguments that name a file of this machine, which no form carries into a container."""

_TEMPLATE = "{{"


def container_refusals(deployment: Rendering, target: str) -> Iterator[Problem]:
    """Why the servers of a deployment cannot run in containers."""
    for role in deployment.roles:
        yield from _role(deployment, role, target)
    options = deployment.options
    mounted = options.speclaunch is SpeclaunchFrom.MOUNTED
    if deployment.runs_speclaunch and mounted and options.speclaunch_source is None:
        yield Problem(
            "deploy.speclaunch is `mounted`, and nothing says where it lies",
            help="set deploy.speclaunch_source to a directory of each host, or to pvc:NAME, with a "
            "virtual environment that holds speclaunch",
        )


def _role(deployment: Rendering, role: Role, target: str) -> Iterator[Problem]:
    if role.own_engine and not deployment.runs_speclaunch:
        yield Problem(
            f"{deployment.name} runs on the CPU engine, which is installed on this machine and in "
            f"no image: {target} cannot start it alone",
            help="set deploy.image to one of yours that holds it, and deploy.speclaunch to `image`",
        )
    elif role.image is None:
        yield Problem(
            f"no official image holds the engine of {deployment.name} (SGLang "
            f"{role.spelling.version} for {role.vendor})",
            help="set deploy.image to one that does",
        )
    for name in CHECKPOINTS:
        value = role.spelling.value(name)
        if value is not None and value.startswith((".", "~")):
            yield Problem(
                f"{name} is {value}, a path that no container has",
                help="write it from the root: it is then mounted from each host",
            )
    texts = {one.given or one.name: " ".join(one.values) for one in role.spelling.arguments}
    for name, text in {**texts, **role.spelling.env}.items():
        if text is not None and _TEMPLATE in text:
            yield Problem(
                f"{name} contains `{_TEMPLATE}`, which Helm and others take for a template",
                help="write a space between the two braces, where it is JSON",
            )
    for name in _FILES:
        value = role.spelling.value(name)
        if value is not None:
            yield Problem(
                f"{name} names {value}, a file that {target} does not carry into the container",
                help="render without it, and mount it yourself",
            )


def header(deployment: Rendering) -> Iterator[str]:
    """The comment lines above a text: what it is, and what was put differently."""
    yield deployment.title
    yield WITHIN if deployment.runs_speclaunch else ALONE
    yield from deployment.notes
