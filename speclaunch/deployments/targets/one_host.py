"""Render for one host: a shell script, slime's rollout arguments, a Docker Compose file.

slime passes every server argument with the prefix `--sglang-` to its SGLang engines, except those
that it sets itself (`sources/slime.py`, with sources).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from speclaunch.core import Problem
from speclaunch.deployments.recipe.load import OF_A_HOST
from speclaunch.deployments.sources.slime import GPUS, OWN, prefixed
from speclaunch.deployments.targets.interface import (
    COMMENT,
    FILL_IN,
    HF_TOKEN,
    ROUTER,
    ComposeDialect,
    RenderedCommand,
    Renderer,
    Rendering,
    Role,
    RouterOptions,
    SpeclaunchFrom,
    argument_words,
    documents,
    is_secret_env,
    name_of,
    platform_args_of,
    uses_hub,
)
from speclaunch.deployments.targets.kubernetes import container_refusals, header
from speclaunch.deployments.targets.launching import (
    PATH,
    RECIPE_DIR,
    RECIPE_FILE,
    Mount,
    cache_variables,
    launch_words,
    launches_in,
    mounts,
    probes_of,
    program_of,
    start_comment,
    start_seconds,
    volume_refusals,
)
from speclaunch.deployments.targets.pods import (
    ENGINE,
    LEAVES_FIRST,
    PROGRAM,
    api_key_of,
    grace_seconds,
    is_disaggregated,
    own_words,
    router_refusals,
    start_words,
    upstream_words,
)
from speclaunch.engine import ROUTER_IMAGE, RenderedArgument, argument_text, exports, shell_command


class ShellRenderer(Renderer):
    """Renderer of a Bash script that execs the engine, so that signals reach it."""

    target = "shell"
    single_server = True
    carries_speclaunch = False

    def refuses(self, deployment: Rendering) -> Sequence[Problem]:
        (role,) = deployment.roles
        lacks = [name for name in OF_A_HOST if role.rendered_args.value(name) is None]
        if role.nodes == 1 or not lacks:
            return ()
        verb = "is" if len(lacks) == 1 else "are"
        return (
            Problem(
                f"a script starts one of the {role.nodes} ranks of {deployment.name}, but "
                f"{' and '.join(lacks)} {verb} not set",
                help=f"add {' '.join(OF_A_HOST.values())}, or render to leaderworkerset, "
                "rolebasedgroup, kubernetes or slurm",
            ),
        )

    def render(self, deployment: Rendering) -> str:
        (role,) = deployment.roles
        notes = "".join(f"# {note}\n" for note in role.rendered_args.notes)
        environment = exports(role.env)
        command = shell_command(("exec", *role.program), role.rendered_args.arguments, {})
        parts = [f"#!/usr/bin/env bash\n# {deployment.title}\n{notes}set -euo pipefail\n"]
        return "\n".join([*parts, *([environment] if environment else []), command])


SET_BY_SLIME = {name: own.does for name, own in OWN.items() if name != "tp_size"}
"""Omitted server arguments, with reasons. tp_size becomes a slime option."""

_PARALLEL = ("tp_size", "pp_size")
"""Arguments whose product is slime's --rollout-num-gpus-per-engine."""


class SlimeRenderer(Renderer):
    """Renderer of an `SGLANG_ARGS=( … )` array, as in slime's scripts."""

    target = "slime"
    single_server = True
    carries_speclaunch = False

    def refuses(self, deployment: Rendering) -> Sequence[Problem]:
        """Return a problem if slime itself sets all arguments, so the array would be empty."""
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


_LOOPBACK = ("127.0.0.1", "localhost", "::1", "")
_MIB = 1 << 20


class DockerComposeRenderer(Renderer):
    """Renderer of a Compose file with a service for each server and for the router."""

    target = "docker-compose"
    suffix = ".yaml"

    def refuses(self, deployment: Rendering) -> Sequence[Problem]:
        return (
            *container_refusals(deployment, self.target),
            *router_refusals(deployment),
            *_compose_refusals(deployment),
        )

    def render(self, deployment: Rendering) -> str:
        head = [
            *header(deployment),
            *_needed_gpus(deployment),
            "Compose marks a server without output as unhealthy, but restarts only exited "
            "containers. Use it only on an attended machine.",
        ]
        return documents(head, [self._file(deployment)])

    def _file(self, deployment: Rendering) -> Mapping[str, Any]:
        services: dict[str, Any] = {}
        for role, number, first in _servers(deployment):
            services[_name(role, number)] = _service(deployment, role, number, first)
        if deployment.router is not None:
            services[ROUTER] = _router(deployment, deployment.router)
        found: dict[str, Any] = {"name": name_of(deployment), "services": services}
        named = {
            mount.name: None
            for role in deployment.roles
            for mount in mounts(deployment, role)
            if mount.store is None
        }
        if named:
            found["volumes"] = {name: {} for name in named}
        if deployment.recipe is not None:
            text = deployment.recipe.replace("$", "$$")
            found["configs"] = {"recipe": {"content": text}}
        return found

    def commands(self, deployment: Rendering) -> tuple[RenderedCommand, ...]:
        return tuple(
            RenderedCommand(role, platform_args_of(role), _own_variables(deployment, role, first))
            for role, _, first in _servers(deployment)
        )

    def launches(self, text: str) -> tuple[tuple[str, ...], ...]:
        return launches_in(text)

    def recipe_in(self, text: str) -> str | None:
        content = yaml.safe_load(text).get("configs", {}).get("recipe", {}).get("content")
        return None if content is None else str(content).replace("$$", "$")


def _compose_refusals(deployment: Rendering) -> Iterator[Problem]:
    for role in deployment.roles:
        if role.nodes > 1:
            yield Problem(
                f"docker-compose runs everything on one host, but a server of {deployment.name} "
                f"needs {role.nodes} hosts (nnodes of {role.name})",
                help="render to leaderworkerset, rolebasedgroup, kubernetes or slurm",
            )
    options = deployment.options
    yield from volume_refusals(deployment, "docker-compose")
    if deployment.router is not None and deployment.router.replicas > 1:
        yield Problem(
            "docker-compose can publish only one router on a host port",
            help="set router.replicas to 1",
        )
    if deployment.runs_speclaunch and options.speclaunch is SpeclaunchFrom.WHEEL:
        yield Problem(
            "docker-compose cannot install speclaunch before a start (deploy.speclaunch: wheel)",
            help="set deploy.speclaunch to image (it contains speclaunch) or mounted (a directory)",
        )


def _servers(deployment: Rendering) -> Iterator[tuple[Role, int, int]]:
    """Yield each server's role, its number in the role, and the index of its first GPU."""
    first = 0
    for role in deployment.roles:
        for number in range(role.replicas):
            yield role, number, first
            first += role.gpus_per_node


def _needed_gpus(deployment: Rendering) -> Iterator[str]:
    total = sum(role.gpus_per_node * role.replicas for role in deployment.roles)
    if not total:
        return
    kinds = " and ".join(dict.fromkeys(role.gpu for role in deployment.roles if role.gpu))
    numbers = "number 0" if total == 1 else f"numbers 0 to {total - 1}"
    text = f"The host needs {total} GPU{'s' * (total > 1)}{f' ({kinds})' * bool(kinds)}: {numbers}."
    host = next((role.gpus_of_host for role in deployment.roles if role.gpus_of_host), None)
    if host is not None and host < total:
        text += f" {FILL_IN} a larger host: the recipe's hardware has {host}."
    yield text


def _name(role: Role, number: int) -> str:
    return role.name if role.replicas == 1 else f"{role.name}-{number}"


def _service(deployment: Rendering, role: Role, number: int, first_gpu: int) -> dict[str, Any]:
    dialect = ComposeDialect()
    platform_args = platform_args_of(role)
    words = argument_words(role, platform_args, dialect)
    program: Sequence[str] = ENGINE
    if deployment.runs_speclaunch:
        program, words = program_of(deployment), launch_words(deployment, role, platform_args)
    times = probes_of(role).liveness
    scheme = "https" if role.tls else "http"
    url = f"{scheme}://127.0.0.1:{role.port}{PATH}"
    found: dict[str, Any] = {
        "image": role.image,
        "entrypoint": list(program),
        "command": words,
        "environment": _environment(deployment, role, dialect, first_gpu),
    }
    published = _published(deployment, role)
    if published is not None:
        found["ports"] = [published if number == 0 else published.partition(":")[2]]
    found |= {
        f"{COMMENT}health": f"Worst-case startup: {start_comment(role)}.",
        "healthcheck": {
            "test": ["CMD", "curl", "--fail", "--silent", "--max-time", str(times.timeout), url],
            "interval": f"{times.period}s",
            "timeout": f"{times.timeout}s",
            "retries": times.failures,
            "start_period": f"{start_seconds(role)}s",
        },
        "restart": "unless-stopped",
        "stop_grace_period": f"{grace_seconds(deployment, role) - LEAVES_FIRST}s",
        "shm_size": f"{-(-role.needs.shm_bytes // _MIB)}m",
        "volumes": [_volume(mount) for mount in mounts(deployment, role)],
    }
    if deployment.runs_speclaunch:
        found["configs"] = [{"source": "recipe", "target": f"{RECIPE_DIR}/{RECIPE_FILE}"}]
    return found | _devices(role, first_gpu)


def _published(deployment: Rendering, role: Role) -> str | None:
    """Return a server's port mapping; None behind a router.

    The port is bound to loopback if the recipe listens only on loopback.
    """
    if deployment.router is not None:
        return None
    host = role.rendered_args.value("host") or ""
    port = f"{role.port}:{role.port}" if role.replicas == 1 else f"{role.port}"
    return f"127.0.0.1:{port}" if host in _LOOPBACK and role.replicas == 1 else port


def _environment(
    deployment: Rendering, role: Role, dialect: ComposeDialect, first: int
) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in role.rendered_args.env.items():
        if value is None:
            continue
        secret = is_secret_env(name, value)
        found[name] = dialect.text(value, name, secret=secret)
    found |= cache_variables(deployment, role)
    found |= _amd_gpus(role, first)
    found |= _secrets(deployment, role)
    return found


def _amd_gpus(role: Role, first: int) -> dict[str, str]:
    """Return the variable that selects a server's GPUs, because AMD containers see all GPUs."""
    if role.vendor != "amd" or not role.gpus_per_node:
        return {}
    ids = range(first, first + role.gpus_per_node)
    return {"HIP_VISIBLE_DEVICES": ",".join(map(str, ids))}


def _secrets(deployment: Rendering, role: Role) -> dict[str, str]:
    """Return the secrets that Compose passes on from its user's environment."""
    found: dict[str, str] = {}
    if deployment.runs_speclaunch:  # the recipe needs them inside the container
        dialect = ComposeDialect()
        argument_words(role, {}, dialect)
        found |= {name: dialect.variable(name) for name in dialect.variables}
    if uses_hub(role) and HF_TOKEN not in role.rendered_args.env:
        found[HF_TOKEN] = f"${{{HF_TOKEN}:-}}"
    return found


def _own_variables(deployment: Rendering, role: Role, first: int) -> dict[str, str]:
    found = cache_variables(deployment, role) | _amd_gpus(role, first)
    if uses_hub(role) and HF_TOKEN not in role.rendered_args.env:
        found[HF_TOKEN] = ""
    return found


def _volume(mount: Mount) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "volume", "source": mount.name, "target": mount.path}
    if mount.store is not None:
        found |= {"type": "bind", "source": mount.store}
    if mount.read_only:
        found["read_only"] = True
    return found


def _devices(role: Role, first: int) -> dict[str, Any]:
    """Return the service keys that give a server its GPUs. AMD servers get all GPUs."""
    if not role.gpus_per_node:
        return {}
    ids = [str(first + number) for number in range(role.gpus_per_node)]
    if role.vendor == "amd":
        return {
            "devices": ["/dev/kfd", "/dev/dri"],
            "group_add": ["video", "render"],
            "security_opt": ["seccomp=unconfined"],
        }
    reserved = {"driver": "nvidia", "device_ids": ids, "capabilities": ["gpu"]}
    return {"deploy": {"resources": {"reservations": {"devices": [reserved]}}}}


def _router(deployment: Rendering, router: RouterOptions) -> dict[str, Any]:
    dialect = ComposeDialect()
    words = start_words(deployment, router)
    if is_disaggregated(deployment):
        words.append("--pd-disaggregation")
    else:
        words.append("--worker-urls")
    for role, number, _ in _servers(deployment):
        url = f"http://{_name(role, number)}:{role.port}"
        words += upstream_words(role, url)
    words += api_key_of(deployment, dialect) + own_words(router, dialect)
    return {
        "image": ROUTER_IMAGE,
        "entrypoint": list(PROGRAM),
        "command": words,
        "ports": [f"{router.port}:{router.port}"],
        "restart": "unless-stopped",
        "depends_on": {
            _name(role, number): {"condition": "service_started"}
            for role, number, _ in _servers(deployment)
        },
    }
