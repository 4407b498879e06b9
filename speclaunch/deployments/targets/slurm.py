"""Render a Slurm job with one `srun` for each server, or a recipe for NVIDIA's srt-slurm.

How Slurm ends a step (tested with 22.05): `srun` kills its tasks on SIGTERM. `scancel`, a requeue
and the time limit send SIGTERM to all processes of a step simultaneously. The engine's child
processes must ignore it, or they report each other as crashed. Only their parent handles it: it
finishes its requests and ends its children. The script kills remaining processes after the grace
time; Slurm does so after `KillWait`.

`srtctl apply -f FILE` allocates hosts and starts srt-slurm's recipe. Sources: NVIDIA/srt-slurm at
c88ef73: src/srtctl/core/schema.py (SrtConfig, ResourceConfig), src/srtctl/backends/sglang.py
(`build_worker_command`: arguments that it sets itself, and how keys become flags),
src/srtctl/frontends/sglang.py (the router). srt-slurm's recipes cannot refer to secrets.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import yaml

from speclaunch.core import Problem, is_secret_variable, lazy
from speclaunch.deployments.targets.interface import (
    DIST_PORT,
    FILL_IN,
    DeployOptions,
    PlatformArgs,
    RenderedCommand,
    Renderer,
    Rendering,
    Role,
    RouterOptions,
    ShellDialect,
    crosses_hosts,
    platform_args_of,
    unset_interfaces,
    uses_hub,
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
from speclaunch.engine import FromEnvironment, RenderedArgument, is_secret_text, suggest

OF_THE_CLUSTER = (
    *("account", "partition", "qos", "reservation", "constraint", "time", "comment", "wckey"),
    *("nodelist", "exclude", "switches", "licenses", "mail-user", "mail-type", "exclusive"),
)
"""sbatch options allowed in `deploy.slurm`, with `_` or `-`. speclaunch computes the others."""
OTHERS = ("module", "gpu-type")
"""Other keys allowed in `deploy.slurm`: modules to load, and srt-slurm's GPU name."""
MODULES = "module"
"""Key of `deploy.slurm` for the arguments of `module load`, which runs before the servers start."""
_VALUE = lazy(r"[\w@%.,:/+=&|*\[\]-]+\Z", re.ASCII)
_MODULE = lazy(r"[\w.+/-]+\Z", re.ASCII)
_SIGNAL_SLACK_S = 60
"""Maximum delay of Slurm's signal, in seconds. Slurm checks time limits once a minute."""


def directives(deployment: Rendering, grace: int) -> list[str]:
    """Return sbatch options, with a signal at least `grace` seconds before the job's time limit."""
    nodes = sum(role.nodes * role.replicas for role in deployment.roles)
    gpus = max(role.gpus_per_node for role in deployment.roles)
    name = re.sub(r"[^\w.-]+", "-", deployment.name, flags=re.ASCII).strip("-") or "sglang"
    memory = max(role.needs.memory_bytes for role in deployment.roles)
    own = cluster_options(deployment.options)
    return [
        f"job-name={name}",
        f"nodes={nodes}",
        "ntasks-per-node=1",
        *([f"gpus-per-node={gpus}"] if gpus else []),
        f"cpus-per-task={max(role.needs.cpus for role in deployment.roles)}",
        f"mem={-(-memory // (1 << 30))}G",
        *(option if value is True else f"{option}={value}" for option, value in own.items()),
        f"signal=B:TERM@{grace + _SIGNAL_SLACK_S}",
        "requeue",
        "open-mode=append",
        "output=%x-%j.out",
    ]


def cluster_options(options: DeployOptions) -> dict[str, object]:
    """Return the `OF_THE_CLUSTER` options in use, by sbatch name."""
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
            yield Problem(f"deploy.slurm has no option {name!r}", help=near or known)
    for name, value in cluster_options(options).items():
        if value is not True and not _VALUE.match(str(value)):
            message = f"deploy.slurm.{name}: {value!r} is not a valid value for sbatch's --{name}"
            yield Problem(message)
    for name in modules(options):
        if not _MODULE.match(name):
            yield Problem(f"deploy.slurm.{MODULES}: {name!r} is not the name of a module")


_RANK, _HEAD = "$SLURM_PROCID", "SERVER_HEAD"
_MORE_S = 5
"""Seconds added to the servers' grace time, so that Slurm can pass on the signal."""
_QUOTE = "'\"'\"'"
"""Apostrophe, as written by `shlex.quote`."""
_SRUN = lazy(r'^ *(?:SERVER_HEAD="(?P<head>[^"]*)" )?srun .*?^\' &$', re.M | re.S)
_PAIR_INTERFACE = "SGLANG_LOCAL_IP_NIC"
"""Environment variable that names the interface whose address prefill and decode servers exchange
(0.5.23 srt/utils/network.py:325). If unset, the default route's interface is used."""
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
    """Renderer of an `sbatch` script. The job's hosts are divided among servers, in role order."""

    target = "slurm"
    suffix: ClassVar[str] = ".sbatch"

    def refuses(self, deployment: Rendering) -> Sequence[Problem]:
        found = [*option_problems(deployment.options), *own_refusals(deployment, self.target)]
        found += [*router_refusals(deployment), *single_router_refusals(deployment)]
        options = deployment.options
        if deployment.runs_speclaunch and options.image and not options.shared_dir:
            what = "in a container, speclaunch reads its recipe from a shared directory"
            help_ = "set deploy.shared_dir to a directory that all hosts share"
            found.append(Problem(what, help=help_))
        return found

    def render(self, deployment: Rendering) -> str:
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
        """Return one command for each role, whose servers are identical."""
        found, at = [], 0
        for role in deployment.roles:
            head = _head(role, at)
            env = variables(deployment, role)
            if role.nodes > 1:
                env[_HEAD] = head
            found.append(RenderedCommand(role, platform_args_of(role, head, _RANK), env))
            at += role.nodes * role.replicas
        return tuple(found)

    def launches(self, text: str) -> tuple[tuple[str, ...], ...]:
        path = f"{RECIPE_DIR}/{RECIPE_FILE}"
        return tuple(
            words
            for match in _SRUN.finditer(text)
            for words in launches_of_script(
                match[0].replace(_QUOTE, "'"), path, {_HEAD: match["head"] or ""}
            )
        )

    def recipe_in(self, text: str) -> str | None:
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
        names[_PAIR_INTERFACE] = None  # each server gives its partner this address
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
    """Return problems with the router, which runs next to a server on the first host."""
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
    """Return the index of a server's first host: `at`, or the loop variable for replicas."""
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
    """Return pyxis's container options; empty without an image (hosts use their own Python)."""
    options = deployment.options
    if options.image is None:
        return []
    folders = [options.models, options.jit_cache, options.shared_dir]
    folders += [options.speclaunch_source] if deployment.runs_speclaunch else []
    mounts = [f"{folder}:{folder}" for folder in dict.fromkeys(folders) if folder]
    found = [f"--container-image=docker://{options.image}"]
    return [*found, *([f"--container-mounts={','.join(mounts)}"] if mounts else [])]


def _router(deployment: Rendering, router: RouterOptions) -> str:
    dialect = ShellDialect()
    words = [*PROGRAM, *start_words(deployment, router)]
    words += ["--pd-disaggregation"] if is_disaggregated(deployment) else []
    lines = [shlex.join(words)]
    plain: list[str] = []
    at = 0
    for role in deployment.roles:
        for number in range(role.replicas):
            url = f'"http://${{hosts[{at + number * role.nodes}]}}:{role.port}"'
            (plain if role.mode is None else lines).append(" ".join(upstream_words(role, url)))
        at += role.nodes * role.replicas
    if plain:
        lines.append(f"--worker-urls {' '.join(plain)}")
    more = (api_key_of(deployment, dialect), own_words(router, dialect))
    lines += [" ".join(part) for part in more if part]
    step = ["srun", "--overlap", "--nodes=1", "--ntasks=1", "--relative=0", "--label"]
    command = " \\\n  ".join(
        [f"{shlex.join([*step, *_container(deployment)])} {lines[0]}", *lines[1:]]
    )
    return f'# router, on the first host\n{command} &\nservers+=("$!")\n'


_OWN = {
    "host": "all addresses",
    "port": "one port per worker",
    "nccl_port": "one port per worker",
    "nnodes": "the hosts of a worker",
    "node_rank": "the rank of each host",
    "dist_init_addr": "the first host of a worker",
    "disaggregation_mode": "the role",
    "disaggregation_bootstrap_port": "one port per worker",
}
"""Arguments that srt-slurm sets itself, with a description of each value. Flags in a recipe would
override these values."""
_PARAMETER = lazy(r"\{[A-Za-z_]\w*\}")
"""Pattern of a placeholder that srt-slurm fills in: a sweep parameter or the node."""
_PRECISIONS = {"fp4": "fp4", "mxfp4": "fp4", "nvfp4": "fp4", "fp8": "fp8", "w8a8": "fp8"}
_NUMBER = lazy(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?\Z", re.ASCII)


class SrtSlurmRenderer(Renderer):
    """Renderer of srt-slurm's YAML, with SGLang's router as the frontend."""

    target = "srt-slurm"
    suffix: ClassVar[str] = ".yaml"
    carries_speclaunch: ClassVar[bool] = False

    def refuses(self, deployment: Rendering) -> Sequence[Problem]:
        found = list(option_problems(deployment.options))
        sides = [_side(role) for role in deployment.roles]
        if sides not in (["aggregated"], ["prefill", "decode"], ["decode", "prefill"]):
            names = ", ".join(role.name for role in deployment.roles)
            message = f"srt-slurm supports identical workers, or prefill and decode, not {names}"
            found.append(Problem(message, help="choose one role: --role NAME"))
        if any(role.gpus_per_node == 0 for role in deployment.roles):
            found.append(Problem("srt-slurm cannot run without GPUs", help="use --to slurm"))
        if len({role.rendered_args.value("model_path") for role in deployment.roles}) > 1:
            message = "srt-slurm supports a single model for all roles"
            found.append(Problem(message, help="choose one role: --role NAME"))
        for role in deployment.roles:
            found += [Problem(message, help=_HELP) for message in _unsupported(role)]
        return tuple(dict.fromkeys(found))

    def render(self, deployment: Rendering) -> str:
        comments = [
            " ".join(deployment.title.split()),
            *deployment.notes,
            "srt-slurm starts the engine itself, without speclaunch.",
        ]
        left_out = {
            argument.flag: _OWN[argument.name]
            for role in deployment.roles
            for argument in role.rendered_args.arguments
            if argument.name in _OWN
        }
        comments += [f"left out: {flag} (srt-slurm sets {what})" for flag, what in left_out.items()]
        head = "".join(f"# {comment}\n" for comment in comments)
        return head + yaml.safe_dump(
            _document(deployment), sort_keys=False, allow_unicode=True, width=1000
        )

    def commands(self, deployment: Rendering) -> tuple[RenderedCommand, ...]:
        in_order = ("prefill", "decode", "aggregated")
        roles = sorted(deployment.roles, key=lambda role: in_order.index(_side(role)))
        return tuple(_command(role) for role in roles)


_HELP = "set it in srt-slurm itself, and remove it from the recipe"


def _side(role: Role) -> str:
    """Return the role's name in `sglang_config`."""
    return role.mode or "aggregated"


def _unsupported(role: Role) -> list[str]:
    found = []
    for argument in role.rendered_args.arguments:
        if argument.secret or any(map(is_secret_text, argument.values)):
            found.append(f"srt-slurm cannot refer to a secret: {argument.flag}")
        elif any(isinstance(v, FromEnvironment) and v.unset for v in argument.values):
            found.append(f"srt-slurm cannot refer to a variable: {argument.flag}")
        elif any(_is_filled_in(value) for value in argument.values):
            found.append(f"srt-slurm reads part of {argument.flag} as its own parameter")
    for name, value in role.env.items():
        if value is None:
            found.append(f"srt-slurm cannot remove a variable: {name}")
        elif is_secret_variable(name) or is_secret_text(value):
            found.append(f"srt-slurm cannot refer to a secret: {name}")
        elif _is_filled_in(value):
            found.append(f"srt-slurm reads part of {name} as its own parameter")
    return found


def _is_filled_in(value: str) -> bool:
    return bool(_PARAMETER.search(value)) and not value.lstrip().startswith(('{"', "["))


def _document(deployment: Rendering) -> dict[str, Any]:
    first = deployment.roles[0]
    options = deployment.options
    image = options.image or f"lmsysorg/sglang:v{deployment.version}"
    path = first.rendered_args.value("model_path") or ""
    model = path if path.startswith(("/", ".")) else f"hf:{path}"  # a directory becomes /model
    document: dict[str, Any] = {
        "name": deployment.name,
        "model": {"path": model, "container": image, "precision": _precision(first)},
        "resources": _resources(deployment),
        "frontend": _frontend(deployment),
        "backend": {"type": "sglang"},
        "benchmark": {"type": "manual"},
    }
    for role in deployment.roles:
        env = {name: value for name, value in role.env.items() if value is not None}
        if env:
            document["backend"][f"{_side(role)}_environment"] = {k: str(v) for k, v in env.items()}
    document["backend"]["sglang_config"] = {_side(role): _config(role) for role in deployment.roles}
    mounts = [f"{path}:{path}" for path in _other_paths(deployment)]
    if mounts:
        document["extra_mount"] = mounts
    names = {"account": "account", "partition": "partition", "time": "time_limit"}
    slurm = {name: str(value) for key, name in names.items() if (value := options.slurm.get(key))}
    if slurm:
        document["slurm"] = slurm
    return document


def _precision(role: Role) -> str:
    """Return the precision, which srt-slurm requires but only displays."""
    text = (role.rendered_args.value("quantization") or "").lower()
    found = next((name for word, name in _PRECISIONS.items() if word in text), None)
    return found or ("fp16" if role.rendered_args.value("dtype") in ("half", "float16") else "bf16")


def _resources(deployment: Rendering) -> dict[str, Any]:
    most = max(role.gpus_per_node for role in deployment.roles)
    explicit, planned = deployment.options.slurm.get("gpu_type"), deployment.roles[0].gpu
    named = str(explicit) if explicit else (planned or "").partition("-")[0]  # of `h100-80gb`
    found: dict[str, Any] = {"gpu_type": named or "h100", "gpus_per_node": most}
    for role in deployment.roles:
        side = role.mode or "agg"
        found[f"{side}_nodes"] = role.nodes * role.replicas
        found[f"{side}_workers"] = role.replicas
        if role.gpus_per_node < most:
            found[f"gpus_per_{side}"] = role.gpus_per_node * role.nodes
            found["spread_workers"] = True
    return found


def _frontend(deployment: Rendering) -> dict[str, Any]:
    router = deployment.router
    if router is None:
        return {"type": "sglang", "enable_multiple_frontends": False}
    several = router.replicas > 1
    found: dict[str, Any] = {"type": "sglang", "enable_multiple_frontends": several}
    if several:
        found["num_additional_frontends"] = router.replicas - 1
    args = {name.replace("_", "-"): value for name, value in router.args.items()}
    return {**found, **({"args": args} if args else {})}


def _config(role: Role) -> Mapping[str, Any]:
    return {
        argument.flag.removeprefix("--"): _value(argument)
        for argument in role.rendered_args.arguments
        if argument.name not in _OWN and argument.name != "model_path"
    }


def _value(argument: RenderedArgument) -> Any:
    values = [_number_or_text(str(value)) for value in argument.values]
    if not values:
        return True
    return values[0] if len(values) == 1 else values


def _number_or_text(text: str) -> Any:
    if _NUMBER.match(text):
        number: int | float = float(text) if "." in text else int(text)
        if str(number) == text:
            return number
    return text


def _other_paths(deployment: Rendering) -> list[str]:
    """Return the paths in arguments other than `model_path`, which the container must mount."""
    found = [
        str(value)
        for role in deployment.roles
        for argument in role.rendered_args.arguments
        if argument.name != "model_path" and argument.name.endswith("path")
        for value in argument.values
        if value.startswith("/")
    ]
    return list(dict.fromkeys(found))


def _command(role: Role) -> RenderedCommand:
    platform_args: dict[str, tuple[str, ...] | None] = {
        argument.name: None
        for argument in role.rendered_args.arguments
        if argument.name in _OWN and argument.name != "disaggregation_mode"
    }
    path = role.rendered_args.value("model_path") or ""
    if path.startswith(("/", ".")):
        platform_args["model_path"] = (path,)
    return RenderedCommand(role, platform_args)
