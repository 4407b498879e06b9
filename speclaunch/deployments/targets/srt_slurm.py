"""Render a recipe for NVIDIA's srt-slurm: `srtctl apply -f FILE` allocates hosts and starts it.

Sources: NVIDIA/srt-slurm at c88ef73: src/srtctl/core/schema.py (SrtConfig, ResourceConfig),
src/srtctl/backends/sglang.py (`build_worker_command`: arguments that it sets itself, and how keys
become flags), src/srtctl/frontends/sglang.py (the router). srt-slurm's recipes cannot refer to
secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import yaml

from speclaunch.core import Problem, is_secret_variable, lazy
from speclaunch.deployments.targets.interface import RenderedCommand, Renderer, Rendering, Role
from speclaunch.deployments.targets.slurm import option_problems
from speclaunch.engine import FromEnvironment, RenderedArgument, is_secret_text

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
"""Arguments that srt-slurm sets itself. Flags in a recipe would override their values."""
_PARAMETER = lazy(r"\{[A-Za-z_]\w*\}")
"""Placeholder that srt-slurm fills in: a parameter of a sweep, the node."""
_PRECISIONS = {"fp4": "fp4", "mxfp4": "fp4", "nvfp4": "fp4", "fp8": "fp8", "w8a8": "fp8"}
_UNKNOWN_GPU = "h100"
_NUMBER = lazy(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?\Z", re.ASCII)


class SrtSlurmRenderer(Renderer):
    """srt-slurm's YAML, with SGLang's router as the frontend."""

    target = "srt-slurm"
    suffix: ClassVar[str] = ".yaml"
    carries_speclaunch: ClassVar[bool] = False

    def refuses(self, deployment: Rendering) -> Sequence[Problem]:
        """Return problems with the settings that srt-slurm does not support."""
        found = list(option_problems(deployment.options))
        sides = [_side(role) for role in deployment.roles]
        if sides not in (["aggregated"], ["prefill", "decode"], ["decode", "prefill"]):
            names = ", ".join(role.name for role in deployment.roles)
            message = f"srt-slurm supports equal workers, or prefill and decode, but not {names}"
            found.append(Problem(message, help="choose one role: --role NAME"))
        if any(role.gpus_per_node == 0 for role in deployment.roles):
            found.append(Problem("srt-slurm allocates GPUs, but this deployment uses none"))
        if len({role.rendered_args.value("model_path") for role in deployment.roles}) > 1:
            found.append(Problem("srt-slurm supports a single model for all roles"))
        for role in deployment.roles:
            found += [Problem(message, help=_HELP) for message in _unsupported(role)]
        return tuple(dict.fromkeys(found))

    def render(self, deployment: Rendering) -> str:
        """Return the recipe."""
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
        """Return a command for each role, as srt-slurm builds it."""
        in_order = ("prefill", "decode", "aggregated")
        roles = sorted(deployment.roles, key=lambda role: in_order.index(_side(role)))
        return tuple(_command(role) for role in roles)


_HELP = "set it in srt-slurm itself, and remove it from the recipe"


def _side(role: Role) -> str:
    """Return the role's name in `sglang_config`."""
    return role.mode or "aggregated"


def _unsupported(role: Role) -> list[str]:
    """Return the role's settings for which srt-slurm has no key."""
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
    """Return the precision, which srt-slurm requires and only displays."""
    text = (role.rendered_args.value("quantization") or "").lower()
    found = next((name for word, name in _PRECISIONS.items() if word in text), None)
    return found or ("fp16" if role.rendered_args.value("dtype") in ("half", "float16") else "bf16")


def _resources(deployment: Rendering) -> dict[str, Any]:
    most = max(role.gpus_per_node for role in deployment.roles)
    explicit, planned = deployment.options.slurm.get("gpu_type"), deployment.roles[0].gpu
    named = str(explicit) if explicit else (planned or "").partition("-")[0]  # of `h100-80gb`
    found: dict[str, Any] = {"gpu_type": named or _UNKNOWN_GPU, "gpus_per_node": most}
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
    """Return the arguments by flag, without the leading dashes."""
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
    """Return a number if the text is its canonical form, else the text."""
    if _NUMBER.match(text):
        number: int | float = float(text) if "." in text else int(text)
        if str(number) == text:
            return number
    return text


def _other_paths(deployment: Rendering) -> list[str]:
    """Return the other directories in arguments, which the container must mount."""
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
    platform_args: dict[str, tuple[str, ...] | None] = {}
    for argument in role.rendered_args.arguments:
        if argument.name in _OWN and argument.name != "disaggregation_mode":
            platform_args[argument.name] = None
    path = role.rendered_args.value("model_path") or ""
    if path.startswith(("/", ".")):
        platform_args["model_path"] = (path,)
    return RenderedCommand(role, platform_args)
