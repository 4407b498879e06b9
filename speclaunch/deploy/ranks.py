"""What the schedulers' forms share (Slurm, Ray): the script of a task, and the router's words."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from speclaunch.deploy.interface import Rendering, Role, SpeclaunchFrom
from speclaunch.deploy.launching import launch_words
from speclaunch.deploy.volumes import volume_refusals
from speclaunch.deploy.words import ALL_ADDRESSES, Given
from speclaunch.engine.shell import argument_words, exports
from speclaunch.errors import Problem
from speclaunch.patterns import lazy

_FLAGS = {"host": "--host", "node_rank": "--node-rank", "dist_init_addr": "--dist-init-addr"}
RECIPE = "SPECLAUNCH_RECIPE"
"""The variable with the path of the recipe that a form brings."""
_LAUNCH = lazy(r"^exec (?P<words>.*? launch (?:[^\n]*\\\n)*[^\n]*)$", re.M)


def given_to(role: Role, rank: str, head: str) -> Given:
    """What a form says of a server: where it listens, and which host of it is which."""
    given: dict[str, tuple[str, ...] | None] = {"host": (ALL_ADDRESSES,)}
    if role.nodes > 1:
        return {**given, "dist_init_addr": (head,), "node_rank": (rank,)}
    return {**given, "dist_init_addr": None, "node_rank": None}


def variables(deployment: Rendering, role: Role) -> dict[str, str]:
    """The variables that a form sets besides the role's: where checkpoints are kept."""
    cache = deployment.options.models
    return {"HF_HOME": cache} if cache is not None and "HF_HOME" not in role.env else {}


def grace_of(deployment: Rendering) -> int:
    """Seconds that a server may take to end: its requests, and itself."""
    longest = max(role.grace_seconds for role in deployment.roles)
    return max(deployment.options.drain_seconds, longest)


def task(deployment: Rendering, role: Role, given: Given) -> str:
    """What each host of a server runs, as a script for `bash -c`. The texts of `given` are the
    shell's, with its variables."""
    if deployment.runs_speclaunch:
        return _launch(deployment, role, given)
    words = [shlex.join(["exec", *role.program])]
    words += [argument_words(one) for one in role.spelling.arguments if one.name not in given]
    words += [f'{_FLAGS[name]}="{texts[0]}"' for name, texts in given.items() if texts is not None]
    environment = exports({**variables(deployment, role), **role.env})
    return "\n" + environment + " \\\n  ".join(words) + "\n"


def _launch(deployment: Rendering, role: Role, given: Given) -> str:
    home = deployment.options.shared_dir
    set_ = {**variables(deployment, role), **({"SPECLAUNCH_HOME": home} if home else {})}
    program = shlex.join(["exec", *program_of(deployment)])
    words = launch_words(deployment, role, given, f"${RECIPE}")
    quoted = [f'"{word}"' if "$" in word else shlex.quote(word) for word in words]
    return "\n" + exports(set_) + " \\\n  ".join([f"{program} {quoted[0]}", *quoted[1:]]) + "\n"


def program_of(deployment: Rendering) -> tuple[str, ...]:
    """How speclaunch itself is run: from the image or the hosts' PATH, or from an environment."""
    options = deployment.options
    if options.speclaunch is SpeclaunchFrom.IMAGE:
        return ("speclaunch",)
    return (f"{options.speclaunch_source}/bin/python", "-m", "speclaunch")


def own_refusals(deployment: Rendering, target: str) -> list[Problem]:
    """Why speclaunch itself cannot be started by this form."""
    options = deployment.options
    found = list(volume_refusals(deployment, target))
    if not deployment.runs_speclaunch:
        return found
    if options.speclaunch is SpeclaunchFrom.WHEEL:
        found.append(
            Problem(
                f"deploy.speclaunch is `wheel`, and {target} has no step before a start",
                help="install it into the hosts' environment (image), or name one (mounted)",
            )
        )
    elif options.speclaunch is SpeclaunchFrom.MOUNTED and options.speclaunch_source is None:
        found.append(
            Problem(
                "deploy.speclaunch is `mounted`, and nothing says from where",
                help="deploy.speclaunch_source: a virtual environment that all hosts see",
            )
        )
    return found


def launches_of(script: str, recipe: str, known: Mapping[str, str]) -> list[tuple[str, ...]]:
    """The words of each `speclaunch launch` in a script, with the form's path for the recipe.

    `known` are variables of the script whose text counts.
    """
    found = []
    for match in _LAUNCH.finditer(script):
        text = match["words"].replace("\\\n", " ")
        for name, value in {**known, RECIPE: recipe}.items():
            text = text.replace(f"${name}", value)
        words = shlex.split(text)
        found.append(tuple(words[words.index("launch") :]))
    return found
