"""Render an sbatch script: one job, one `srun` for each server, one task for each host.

How Slurm ends a step (tested with 22.05): `srun` kills its tasks on SIGTERM. `scancel`, a requeue
and the time limit send SIGTERM to all processes of a step simultaneously. The engine's processes
then report each other as crashed, so they ignore SIGTERM. Only the engine's parent handles it: it
finishes its requests and ends its children. The script kills remaining processes after the grace
time, and Slurm after `KillWait`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import ClassVar

from speclaunch.core import Problem, lazy
from speclaunch.deployments.targets.interface import (
    DeployOptions,
    RenderedCommand,
    Renderer,
    Rendering,
    Role,
    RouterOptions,
)
from speclaunch.deployments.targets.launching import (
    ALONE,
    RECIPE,
    RECIPE_DIR,
    RECIPE_FILE,
    WITHIN,
    grace_of,
    launches_of_script,
    own_refusals,
    task_script,
    variables,
)
from speclaunch.deployments.targets.pods import (
    PROGRAM,
    api_key_of,
    is_disaggregated,
    memory_contents,
    own_words,
    router_refusals,
    start_words,
    upstream_words,
)
from speclaunch.deployments.targets.words import (
    DIST_PORT,
    FILL_IN,
    PlatformArgs,
    ShellDialect,
    crosses_hosts,
    platform_args_of,
    unset_interfaces,
    uses_hub,
)
from speclaunch.engine import suggest

OF_THE_CLUSTER = (
    *("account", "partition", "qos", "reservation", "constraint", "time", "comment", "wckey"),
    *("nodelist", "exclude", "switches", "licenses", "mail-user", "mail-type", "exclusive"),
)
"""sbatch options allowed in `deploy.slurm`, with `_` or `-`. All others are computed."""
OTHERS = ("module", "gpu-type")
"""Other allowed keys: modules to load, and srt-slurm's GPU name."""
MODULES = "module"
"""Key of `deploy.slurm`: arguments of `module load` before the servers."""
_VALUE = lazy(r"[\w@%.,:/+=&|*\[\]-]+\Z", re.ASCII)
_MODULE = lazy(r"[\w.+/-]+\Z", re.ASCII)
_SIGNAL_SLACK_S = 60
"""Slurm checks once a minute whether a job is near its time limit (sbatch, `--signal`)."""
_GIB = 1 << 30
"""Bytes in Slurm's unit `G`."""


def directives(deployment: Rendering, grace: int) -> list[str]:
    """Return the job's options, including a signal `grace` seconds before its time limit."""
    nodes = sum(role.nodes * role.replicas for role in deployment.roles)
    gpus = max(role.gpus_per_node for role in deployment.roles)
    name = re.sub(r"[^\w.-]+", "-", deployment.name, flags=re.ASCII).strip("-") or "sglang"
    found = [
        f"job-name={name}",
        f"nodes={nodes}",
        "ntasks-per-node=1",
        *([f"gpus-per-node={gpus}"] if gpus else []),
        f"cpus-per-task={max(role.needs.cpus for role in deployment.roles)}",
    ]
    memory = max(role.needs.memory_bytes for role in deployment.roles)
    found.append(f"mem={-(-memory // _GIB)}G")
    own = cluster_options(deployment.options)
    found += [option if value is True else f"{option}={value}" for option, value in own.items()]
    return [
        *found,
        f"signal=B:TERM@{grace + _SIGNAL_SLACK_S}",
        "requeue",
        "open-mode=append",
        "output=%x-%j.out",
    ]


def cluster_options(options: DeployOptions) -> dict[str, object]:
    """Return the cluster's options, by sbatch's names."""
    found = {str(name).replace("_", "-"): value for name, value in options.slurm.items()}
    return {
        name: found[name]
        for name in OF_THE_CLUSTER
        if name in found and found[name] not in (None, False)
    }


def modules(options: DeployOptions) -> list[str]:
    """Return the arguments of `module load`."""
    names = options.slurm.get(MODULES) or []
    return [names] if isinstance(names, str) else [str(name) for name in names]


def option_problems(options: DeployOptions) -> Iterator[Problem]:
    """Yield problems with options that an sbatch script does not support."""
    for name in options.slurm:
        if name.replace("_", "-") not in (*OF_THE_CLUSTER, *OTHERS):
            near = suggest(name, [*OF_THE_CLUSTER, *OTHERS])
            known = f"choose one of {', '.join((*OF_THE_CLUSTER, *OTHERS))}"
            yield Problem(f"deploy.slurm has no {name!r}", help=near or known)
    for name, value in cluster_options(options).items():
        if value is not True and not _VALUE.match(str(value)):
            message = f"deploy.slurm.{name}: {value!r} is not a valid value for sbatch's --{name}"
            yield Problem(message)
    for name in modules(options):
        if not _MODULE.match(name):
            yield Problem(f"deploy.slurm.{MODULES}: {name!r} is not the name of a module")


_RANK, _HEAD = "$SLURM_PROCID", "SERVER_HEAD"
_MORE_S = 5
"""Seconds beyond the servers' own grace time, for Slurm to pass on a signal."""
_QUOTE = "'\"'\"'"
"""Apostrophe, as written by `shlex.quote`."""
_SRUN = lazy(r'^ *(?:SERVER_HEAD="(?P<head>[^"]*)" )?srun .*?^\' &$', re.M | re.S)
_PAIR_INTERFACE = "SGLANG_LOCAL_IP_NIC"
"""Interface whose address prefill and decode servers give each other (0.5.23
srt/utils/network.py:325); without it, the default route's."""
_DELIMITER = "END_OF_RECIPE"
_RECIPE = lazy(rf"^cat > .* <<'{_DELIMITER}'\n(?P<text>.*?)^{_DELIMITER}$", re.M | re.S)

_BEGIN = """\
mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
servers=()

# Slurm passes SIGTERM to the servers; servers that have not exited after {grace} s are killed.
finish() {{
  trap '' TERM INT
  timeout 5 scancel --signal=TERM "$SLURM_JOB_ID" 2>/dev/null || true
  (sleep {grace}; kill -0 $$ && scancel --signal=KILL "$SLURM_JOB_ID") 2>/dev/null &
  killer=$!
  wait "${{servers[@]}}" || true
  kill -KILL "$killer" || true  # else it would end this job after a requeue
  exit "$1"
}}
trap 'finish 143' TERM INT
"""
_END = """\
# All servers run until the job ends. If one exits, the job ends.
status=0
wait -n "${servers[@]}" || status=$?
echo "a server ended with $status" >&2
finish "$status"
"""


class SlurmRenderer(Renderer):
    """Script for `sbatch`. The job's hosts are divided among the servers, in the roles' order."""

    target = "slurm"
    suffix: ClassVar[str] = ".sbatch"

    def refuses(self, deployment: Rendering) -> Sequence[Problem]:
        """Return problems with the settings that a Slurm job does not support."""
        found = [*option_problems(deployment.options), *own_refusals(deployment, self.target)]
        found += [*router_refusals(deployment), *single_router_refusals(deployment)]
        options = deployment.options
        if deployment.runs_speclaunch and options.image and not options.shared_dir:
            message = (
                "in a container, speclaunch reads its recipe from a directory that all hosts share"
            )
            found.append(Problem(message, help="set deploy.shared_dir"))
        return found

    def render(self, deployment: Rendering) -> str:
        """Return the script."""
        grace = grace_of(deployment) + _MORE_S
        head = [
            "#!/usr/bin/env bash",
            *(f"#SBATCH --{directive}" for directive in directives(deployment, grace)),
            f"# {' '.join(deployment.title.split())}",
            *(f"# {note}" for note in deployment.notes),
            f"# {WITHIN if deployment.runs_speclaunch else ALONE}",
            *(f"# {line}" for line in _left_open(deployment)),
            "set -euo pipefail",
            *(f"module load {name}" for name in modules(deployment.options)),
            *_network(deployment),
        ]
        parts = ["\n".join(head) + "\n", _BEGIN.format(grace=grace)]
        if deployment.recipe is not None:
            parts.append(_recipe(deployment, deployment.recipe))
        at = 0
        for role in deployment.roles:
            parts.append(_servers(deployment, role, at))
            at += role.nodes * role.replicas
        if deployment.router is not None:
            parts.append(_router(deployment, deployment.router))
        return "\n".join([*parts, _END])

    def commands(self, deployment: Rendering) -> tuple[RenderedCommand, ...]:
        """Return one command for each role, because its servers are identical."""
        found: list[RenderedCommand] = []
        at = 0
        for role in deployment.roles:
            head = _head(role, at)
            env = variables(deployment, role)
            if role.nodes > 1:
                env[_HEAD] = head
            found.append(RenderedCommand(role, platform_args_of(role, head, _RANK), env))
            at += role.nodes * role.replicas
        return tuple(found)

    def launches(self, text: str) -> tuple[tuple[str, ...], ...]:
        """Return the arguments of each `speclaunch launch`."""
        path = f"{RECIPE_DIR}/{RECIPE_FILE}"
        return tuple(
            words
            for match in _SRUN.finditer(text)
            for words in launches_of_script(
                match[0].replace(_QUOTE, "'"), path, {_HEAD: match["head"] or ""}
            )
        )

    def recipe_in(self, text: str) -> str | None:
        """Return the recipe embedded in the script."""
        found = _RECIPE.search(text)
        return found["text"] if found is not None else None


def _left_open(deployment: Rendering) -> Iterator[str]:
    """Yield comments about options that depend on the cluster and that the recipe omits."""
    options, first = deployment.options, deployment.roles[0]
    yield f"Memory of each host: {memory_contents(first)}."
    unset = [name for name in ("partition", "account", "time") if name not in options.slurm]
    if unset:
        yield (
            f"{FILL_IN} the options that the cluster requires ({', '.join(unset)}): "
            f"+deploy.slurm.{unset[0]}=VALUE."
        )
    if first.gpu is not None and not {"constraint", "nodelist"} & set(options.slurm):
        yield (
            f"{FILL_IN} +deploy.slurm.constraint if the hosts' GPUs differ: this is planned for "
            f"{first.gpu}."
        )
    if options.image is None and not first.own_engine:
        router = " and sglang_router" if deployment.router is not None else ""
        yield (
            f"{FILL_IN} the engine: {first.program[0]} of every host must have SGLang "
            f"{deployment.version}{router}, or set deploy.image (with pyxis)."
        )
    if options.models is None and any(uses_hub(role) for role in deployment.roles):
        yield (
            f"{FILL_IN} deploy.models, a directory that all hosts share: without it, checkpoints "
            "are downloaded to ~/.cache/huggingface."
        )


def _network(deployment: Rendering) -> list[str]:
    """Return comments about the network between hosts; empty if no server needs it."""
    across = [role for role in deployment.roles if crosses_hosts(deployment, role)]
    names = dict.fromkeys(name for role in deployment.roles for name in unset_interfaces(role))
    known = {"SGLANG_HOST_IP", "HOST_IP", _PAIR_INTERFACE}
    if any(role.mode is not None and not known & set(role.env) for role in across):
        names[_PAIR_INTERFACE] = None  # each of a pair chooses the address for its partner
    if not across and not names:
        return []
    lines = [f"# {FILL_IN} the network between hosts. RDMA needs `ulimit -l` unlimited on each."]
    if names:
        lines += [
            "# If hosts have several interfaces, uncomment this with the one that reaches the "
            "others (`ip -br addr`):",
            f"# export {' '.join(f'{name}=ib0' for name in names)}",
        ]
    return lines


def single_router_refusals(deployment: Rendering) -> list[Problem]:
    """Return why the job cannot run its router, which is next to a server on the first host."""
    router, first = deployment.router, deployment.roles[0]
    if router is None:
        return []
    found = []
    if router.replicas > 1:
        found.append(Problem("a job can run only one router", help="set router.replicas to 1"))
    if router.port == first.port:
        message = f"the router and {first.name} both listen on port {router.port} of one host"
        found.append(Problem(message, help="set router.port to a different port"))
    return found


def _first(role: Role, at: int) -> str:
    """Return the index of a server's first host: a number, or the loop's variable."""
    return str(at) if role.replicas == 1 else "first"


def _head(role: Role, at: int) -> str:
    return f"${{hosts[{_first(role, at)}]}}:{DIST_PORT}"


def _recipe(deployment: Rendering, text: str) -> str:
    folder = deployment.options.shared_dir
    where = shlex.quote(folder) if folder else '"$SLURM_SUBMIT_DIR"'
    return (
        f'export {RECIPE}={where}/"speclaunch-$SLURM_JOB_ID.yaml"\n'
        f"cat > \"${RECIPE}\" <<'{_DELIMITER}'\n{text.rstrip()}\n{_DELIMITER}\n"
    )


def _servers(deployment: Rendering, role: Role, at: int) -> str:
    """Return the script lines that start a role's servers: one `srun`, or a loop."""
    first = _first(role, at)
    hosts = "1 host" if role.nodes == 1 else f"{role.nodes} hosts"
    servers = "1 server" if role.replicas == 1 else f"{role.replicas} servers, each"
    step = shlex.join(["srun", *_step(deployment, role)])
    relative = first if role.replicas == 1 else '"$first"'
    head = f'{_HEAD}="{_head(role, at)}" ' if role.nodes > 1 else ""
    platform_args: PlatformArgs = platform_args_of(role, f"${_HEAD}", _RANK)
    ignored = 'trap "" TERM  # the program sets its own handler'
    script = shlex.quote(f"\n{ignored}{task_script(deployment, role, platform_args)}")
    body = [f"{head}{step} --relative={relative} bash -c {script} &", 'servers+=("$!")']
    lines = [f"# {role.name}: {servers} on {hosts}"]
    if role.replicas == 1:
        return "\n".join([*lines, *body]) + "\n"
    starts = " ".join(str(at + number * role.nodes) for number in range(role.replicas))
    return "\n".join([*lines, f"for first in {starts}; do", *body, "done"]) + "\n"


def _step(deployment: Rendering, role: Role) -> list[str]:
    most = max(role.gpus_per_node for role in deployment.roles)
    return [
        f"--nodes={role.nodes}",
        f"--ntasks={role.nodes}",
        f"--cpus-per-task={role.needs.cpus}",  # since Slurm 22.05 the default is one CPU
        "--kill-on-bad-exit=1",
        "--label",
        *([f"--gpus-per-node={role.gpus_per_node}"] if role.gpus_per_node != most else []),
        *_container(deployment),
    ]


def _container(deployment: Rendering) -> list[str]:
    """Return pyxis's container options; empty without an image (the hosts' Python is used)."""
    options = deployment.options
    if options.image is None:
        return []
    folders = [options.models, options.jit_cache, options.shared_dir]
    folders += [options.speclaunch_source] if deployment.runs_speclaunch else []
    mounts = [f"{folder}:{folder}" for folder in dict.fromkeys(folders) if folder]
    found = [f"--container-image=docker://{options.image}"]
    return [*found, *([f"--container-mounts={','.join(mounts)}"] if mounts else [])]


def _router(deployment: Rendering, router: RouterOptions) -> str:
    """Return the script lines that start the router next to a server on the first host."""
    dialect = ShellDialect()
    words = [*PROGRAM, *start_words(deployment, router)]
    lines = [
        shlex.join([*words, *(["--pd-disaggregation"] if is_disaggregated(deployment) else [])])
    ]
    plain: list[str] = []
    at = 0
    for role in deployment.roles:
        for number in range(role.replicas):
            url = f'"http://${{hosts[{at + number * role.nodes}]}}:{role.port}"'
            (plain if role.mode is None else lines).append(" ".join(upstream_words(role, url)))
        at += role.nodes * role.replicas
    if plain:
        lines.append(f"--worker-urls {' '.join(plain)}")
    lines += [
        " ".join(part)
        for part in (api_key_of(deployment, dialect), own_words(router, dialect))
        if part
    ]
    step = ["srun", "--overlap", "--nodes=1", "--ntasks=1", "--relative=0", "--label"]
    command = " \\\n  ".join(
        [f"{shlex.join([*step, *_container(deployment)])} {lines[0]}", *lines[1:]]
    )
    return f'# router, on the first host\n{command} &\nservers+=("$!")\n'
