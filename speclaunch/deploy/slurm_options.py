"""What stands in the `#SBATCH` lines: what the deployment needs, and what the cluster asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator

from speclaunch.deploy.interface import DeployOptions, Rendering
from speclaunch.engine.nearest import suggest
from speclaunch.errors import Problem
from speclaunch.patterns import lazy

OF_THE_CLUSTER = (
    *("account", "partition", "qos", "reservation", "constraint", "time", "comment", "wckey"),
    *("nodelist", "exclude", "switches", "licenses", "mail-user", "mail-type", "exclusive"),
)
"""Options of sbatch that `deploy.slurm` may have, with `_` or `-`: the rest is worked out."""
OTHERS = ("module", "gpu-type")
"""What else it may have: modules to load, and what srt-slurm calls the GPU."""
MODULES = "module"
"""Of `deploy.slurm`: what `module load` is called with before the servers."""
_VALUE = lazy(r"[\w@%.,:/+=&|*\[\]-]+\Z", re.ASCII)
_MODULE = lazy(r"[\w.+/-]+\Z", re.ASCII)
_SIGNAL_SLACK_S = 60
"""Slurm looks once a minute whether a job is near its time limit (sbatch, `--signal`)."""
_GIB = 1 << 30
"""Of Slurm's `G`."""


def directives(deployment: Rendering, grace: int) -> list[str]:
    """The options of the job, `grace` seconds before whose end the script is told."""
    nodes = sum(role.nodes * role.replicas for role in deployment.roles)
    gpus = max(role.gpus_per_node for role in deployment.roles)
    found = [
        f"job-name={_plain(deployment.name)}",
        f"nodes={nodes}",
        "ntasks-per-node=1",
        *([f"gpus-per-node={gpus}"] if gpus else []),
        f"cpus-per-task={max(role.needs.cpus for role in deployment.roles)}",
    ]
    memory = max(role.needs.memory_bytes for role in deployment.roles)
    found.append(f"mem={-(-memory // _GIB)}G")
    own = cluster_options(deployment.options)
    found += [name if value is True else f"{name}={value}" for name, value in own.items()]
    return [
        *found,
        f"signal=B:TERM@{grace + _SIGNAL_SLACK_S}",
        "requeue",
        "open-mode=append",
        "output=%x-%j.out",
    ]


def cluster_options(options: DeployOptions) -> dict[str, object]:
    """What the cluster asks for, by sbatch's names."""
    told = {str(name).replace("_", "-"): value for name, value in options.slurm.items()}
    return {
        name: told[name]
        for name in OF_THE_CLUSTER
        if name in told and told[name] not in (None, False)
    }


def modules(options: DeployOptions) -> list[str]:
    """What `module load` is called with."""
    said = options.slurm.get(MODULES) or []
    return [said] if isinstance(said, str) else [str(one) for one in said]


def option_problems(options: DeployOptions) -> Iterator[Problem]:
    """What cannot stand in a script of sbatch."""
    for name in options.slurm:
        if name.replace("_", "-") not in (*OF_THE_CLUSTER, *OTHERS):
            near = suggest(name, [*OF_THE_CLUSTER, *OTHERS])
            said = f"deploy.slurm has no {name!r}"
            yield Problem(said, help=near or f"it has {', '.join((*OF_THE_CLUSTER, *OTHERS))}")
    for name, value in cluster_options(options).items():
        if value is not True and not _VALUE.match(str(value)):
            yield Problem(f"deploy.slurm.{name}: {value!r} is not a value of sbatch's --{name}")
    for name in modules(options):
        if not _MODULE.match(name):
            yield Problem(f"deploy.slurm.{MODULES}: {name!r} is not the name of a module")


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name, flags=re.ASCII).strip("-") or "sglang"
