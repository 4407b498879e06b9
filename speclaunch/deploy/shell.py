"""A shell script."""

from __future__ import annotations

from collections.abc import Sequence

from speclaunch.deploy.interface import Renderer, Rendering
from speclaunch.engine.shell import exports, shell_command
from speclaunch.errors import Problem

_OF_A_HOST = ("node_rank", "dist_init_addr")


class ShellRenderer(Renderer):
    """A bash script that becomes the engine (`exec`), so that signals reach it."""

    target = "shell"
    one_server = True
    carries_speclaunch = False

    def refuses(self, deployment: Rendering) -> Sequence[Problem]:
        """A script starts one host: of several it has to know which one."""
        (role,) = deployment.roles
        lacks = [name for name in _OF_A_HOST if role.spelling.value(name) is None]
        if role.nodes == 1 or not lacks:
            return ()
        return (
            Problem(
                f"a server of {deployment.name} needs {role.nodes} hosts, and a script starts one: "
                f"{' and '.join(lacks)} are not given",
                help="add args.node_rank=0 args.dist_init_addr=HOST:20000, or render it to "
                "leaderworkerset, rolebasedgroup, kubernetes or slurm",
            ),
        )

    def render(self, deployment: Rendering) -> str:
        """The script; paste it, or save it and run it."""
        (role,) = deployment.roles
        notes = "".join(f"# {note}\n" for note in role.spelling.notes)
        environment = exports(role.env)
        command = shell_command(("exec", *role.program), role.spelling.arguments, {})
        parts = [f"#!/usr/bin/env bash\n# {deployment.title}\n{notes}set -euo pipefail\n"]
        return "\n".join([*parts, *([environment] if environment else []), command])
