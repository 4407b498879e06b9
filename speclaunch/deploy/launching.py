"""The command that is speclaunch itself: `speclaunch launch` with the recipe beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from speclaunch.deploy.interface import Rendering, Role, SpeclaunchFrom
from speclaunch.deploy.probes import start_seconds
from speclaunch.deploy.volumes import RECIPE_DIR, RECIPE_FILE, SPECLAUNCH
from speclaunch.deploy.words import Given

ALONE = (
    "The engine runs alone: speclaunch's validation, diagnosis and recovery are not at work here "
    "(deploy.speclaunch: image, wheel or mounted)."
)
"""The line of every form that starts the engine without speclaunch."""
WITHIN = (
    "speclaunch starts the engine: it checks the recipe first, says what a start died of, and "
    "recovers from too little memory."
)


def program_of(deployment: Rendering) -> tuple[str, ...]:
    """What is run, without the words of the verb."""
    if deployment.options.speclaunch is SpeclaunchFrom.IMAGE:
        return ("speclaunch",)
    return (f"{SPECLAUNCH}/bin/python", "-m", "speclaunch")  # a script would name its old place


def launch_words(
    deployment: Rendering, role: Role, given: Given, recipe: str = f"{RECIPE_DIR}/{RECIPE_FILE}"
) -> list[str]:
    """What follows the program. `given` is what the platform says, as it writes it.

    A crash is the platform's to restart from, which restarts all ranks and waits again as long as
    a start may take; an engine that is stopped may finish what it serves.
    """
    words = ["launch", f"recipe={recipe}"]
    inside = ""
    if deployment.has_roles:
        words.append(f"--role={role.name}")
        inside = f"roles.{role.name}."
    for name, texts in given.items():
        if texts is not None:
            words.append(f"++{inside}args.{name}={' '.join(texts)}")
    drain = max(deployment.options.drain_seconds, role.grace_seconds)
    settings = {"grace_seconds": str(drain), "restart.policy": "never"}
    one_start = start_seconds(role) // role.starts
    if one_start > role.ready_seconds:
        settings["ready_timeout_seconds"] = str(one_start)
    return words + [f"++{inside}launch.{name}={value}" for name, value in settings.items()]


def launches_in(text: str) -> tuple[tuple[str, ...], ...]:
    """The words of each `speclaunch launch` in YAML, from `launch` on: wherever a list has them."""
    return tuple(one for root in yaml.safe_load_all(text) for one in launches_of(root))


def launches_of(value: Any) -> tuple[tuple[str, ...], ...]:
    """The same in what was read of it."""
    return tuple(_launches(value))


def _launches(value: Any) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict):
        for one in value.values():
            yield from _launches(one)
    elif isinstance(value, list):
        words = tuple(one for one in value if isinstance(one, str))
        if words[:1] == ("launch",) and len(words) == len(value):
            yield words
        for one in value:
            yield from _launches(one)
