"""Render a shell script, or slime's rollout arguments.

slime passes every server argument with the prefix `--sglang-` to the SGLang engines of its
rollouts, except those that it sets itself (sources/slime.py, with sources).
"""

from __future__ import annotations

from collections.abc import Sequence

from speclaunch.core import Problem
from speclaunch.deployments.sources.slime import GPUS, OWN, prefixed
from speclaunch.deployments.targets.interface import Renderer, Rendering
from speclaunch.engine import RenderedArgument, argument_text, exports, shell_command

_OF_A_HOST = ("node_rank", "dist_init_addr")


class ShellRenderer(Renderer):
    """Bash script that becomes the engine (`exec`), so that signals reach it."""

    target = "shell"
    single_server = True
    carries_speclaunch = False

    def refuses(self, deployment: Rendering) -> Sequence[Problem]:
        """Return problems with multi-host servers: a script starts one rank, which must be set."""
        (role,) = deployment.roles
        lacks = [name for name in _OF_A_HOST if role.rendered_args.value(name) is None]
        if role.nodes == 1 or not lacks:
            return ()
        return (
            Problem(
                f"a server of {deployment.name} needs {role.nodes} hosts, but a script starts one: "
                f"{' and '.join(lacks)} are not set",
                help="add args.node_rank=0 args.dist_init_addr=HOST:20000, or render it to "
                "leaderworkerset, rolebasedgroup, kubernetes or slurm",
            ),
        )

    def render(self, deployment: Rendering) -> str:
        """Return the script, to paste or to save and run."""
        (role,) = deployment.roles
        notes = "".join(f"# {note}\n" for note in role.rendered_args.notes)
        environment = exports(role.env)
        command = shell_command(("exec", *role.program), role.rendered_args.arguments, {})
        parts = [f"#!/usr/bin/env bash\n# {deployment.title}\n{notes}set -euo pipefail\n"]
        return "\n".join([*parts, *([environment] if environment else []), command])


SET_BY_SLIME = {name: own.does for name, own in OWN.items() if name != "tp_size"}
"""Omitted server arguments, with reasons. tp_size becomes a slime option."""

_PARALLEL = ("tp_size", "pp_size")
"""slime's tp_size is --rollout-num-gpus-per-engine divided by pp_size."""


class SlimeRenderer(Renderer):
    """`SGLANG_ARGS=( … )` array, as in slime's scripts."""

    target = "slime"
    single_server = True
    carries_speclaunch = False

    def refuses(self, deployment: Rendering) -> Sequence[Problem]:
        """Return a problem if no argument is left for the array, so none identifies SGLang."""
        (role,) = deployment.roles
        if any(_is_passed(argument) for argument in role.rendered_args.arguments):
            return ()
        return (
            Problem(
                f"slime sets every argument of {deployment.name} except its number of GPUs",
                help=f"start slime with {GPUS}, or add an argument to the recipe",
            ),
        )

    def render(self, deployment: Rendering) -> str:
        """Return the Bash array after its environment, with omitted arguments as comments."""
        (role,) = deployment.roles
        arguments = role.rendered_args.arguments
        sizes = {a.name: int(a.values[0]) for a in arguments if a.name in _PARALLEL}
        gpus = sizes.get("tp_size", 1) * sizes.get("pp_size", 1)
        lines = [f"# {deployment.title}", *(f"# {note}" for note in role.rendered_args.notes)]
        lines += [
            f"# left out: {argument.flag} ({SET_BY_SLIME[argument.name]})"
            for argument in arguments
            if argument.name in SET_BY_SLIME
        ]
        body = ["SGLANG_ARGS=(", f"   {GPUS} {gpus}"]
        body += [
            f"   {argument_text(argument, prefixed(argument.flag))}"
            for argument in arguments
            if _is_passed(argument)
        ]
        body += [")"]
        tail = [
            "# Add ${SGLANG_ARGS[@]} to slime's train.py. If rollouts fail, slime's",
            "# --debug-rollout-only runs them without training and offloading.",
        ]
        environment = exports(role.env)
        middle = [environment.rstrip()] if environment else []
        return "\n".join([*lines, *middle, *body, *tail]) + "\n"


def _is_passed(argument: RenderedArgument) -> bool:
    return argument.name not in SET_BY_SLIME and argument.name != "tp_size"
