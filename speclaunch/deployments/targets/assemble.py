"""Assemble prepared roles and their plans into the Rendering that every target gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import yaml
from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import InputError, is_secret_variable
from speclaunch.deployments.recipe.load import Recipe
from speclaunch.deployments.targets.interface import (
    Baseline,
    DeployOptions,
    Monitoring,
    Needs,
    Observed,
    Renderer,
    Rendering,
    Role,
    RouterOptions,
    SpeclaunchFrom,
)
from speclaunch.deployments.targets.kubernetes import (
    KubernetesRenderer,
    LeaderWorkerSetRenderer,
    RoleBasedGroupRenderer,
)
from speclaunch.deployments.targets.monitoring import (
    GrafanaRenderer,
    PrometheusRulesRenderer,
    PrometheusScrapeRenderer,
)
from speclaunch.deployments.targets.one_host import (
    DockerComposeRenderer,
    ShellRenderer,
    SlimeRenderer,
)
from speclaunch.deployments.targets.prepare import Prepared
from speclaunch.deployments.targets.ray import RayRenderer
from speclaunch.deployments.targets.slurm import SlurmRenderer, SrtSlurmRenderer
from speclaunch.engine import (
    FromEnvironment,
    Hardware,
    Plan,
    Template,
    UnknownValueError,
    Vendor,
    from_environment,
    gpu,
    gpus_needed,
    is_secret_argument,
    is_written_secret,
    official_image,
    parallel,
    start_time,
    weight_files,
)


def own_recipe(recipe: Recipe, prepared: Sequence[Prepared]) -> str:
    """Return the recipe's text. Each role repeats the shared values and inherits nothing."""
    deployment = recipe.deployment
    document: dict[str, Any] = {"name": deployment.name, "description": deployment.description}
    if recipe.parts:
        document["args"] = {}
        document["roles"] = {}
        for part in prepared:
            context = part.recipe.server_context
            role = _sections(part)
            if context is not None and context.replicas is not None:
                role = {"replicas": context.replicas.value, **role}
            document["roles"][str(part.recipe.role)] = role
    else:
        document |= _sections(prepared[0])
    written = _written(document)
    return str(yaml.safe_dump(written, sort_keys=False, allow_unicode=True, width=1 << 30))


def _sections(prepared: Prepared) -> dict[str, Any]:
    deployment = prepared.recipe.deployment
    engine: dict[str, Any] = {"version": prepared.version}
    if prepared.cpu is not None:
        engine["python"] = "cpu"
    env = {name: _secret_or(name, value) for name, value in deployment.engine.env.items()}
    if env:
        engine["env"] = env
    return {
        "args": {
            name: _Reference((name.upper(),)) if _is_hidden(name, value) else value
            for name, value in deployment.args.items()
        },
        "engine": engine,
        **settings_of(prepared),
    }


def settings_of(prepared: Prepared) -> dict[str, Any]:
    """Return the hardware, launch and recovery settings, except the local log directory."""
    deployment = prepared.recipe.deployment
    return {
        "hardware": {"name": deployment.hardware.name},
        "launch": _plain_section(deployment.launch, without=("log_dir",)),
        "recovery": _plain_section(deployment.recovery),
    }


class _Reference:
    """Value composed of environment variables."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names


def _is_hidden(name: str, value: Any) -> bool:
    if is_written_secret(value):
        return True
    return is_secret_argument(name) and value is not None and not from_environment(value)


def _secret_or(name: str, value: str | None) -> Any:
    named = is_secret_variable(name) and not from_environment(value)
    if value is not None and (named or is_written_secret(value)):
        return _Reference((name,))
    return value


def _written(value: Any) -> Any:
    """Return a value for OmegaConf, with literal dollars escaped and references as `oc.env`."""
    if isinstance(value, _Reference):
        return "".join(f"${{oc.env:{name}}}" for name in value.names)
    if isinstance(value, FromEnvironment):
        return _template(value.template)
    if isinstance(value, str):
        return str(value).replace("${", "\\${")
    if isinstance(value, Mapping):
        return {str(key): _written(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_written(item) for item in value]
    return value


def _template(template: Template) -> str:
    parts = []
    for part in template:
        if isinstance(part, str):
            parts.append(part.replace("${", "\\${"))
        elif part.default is None:
            parts.append(f"${{oc.env:{part.name}}}")
        else:
            parts.append(f"${{oc.env:{part.name},{_template(part.default)}}}")
    return "".join(parts)


def _plain_section(section: Any, without: Sequence[str] = ()) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in type(section).model_fields:
        if name in without:
            continue
        value = getattr(section, name)
        nested = hasattr(type(value), "model_fields")
        found[name] = _plain_section(value) if nested else _enumless(value)
    return found


def _enumless(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_enumless(item) for item in value]
    return str(value) if isinstance(value, str) and type(value) is not str else value


SERVER = "server"
"""Role name for a recipe without roles."""
_GIB = 1 << 30
_OF_A_PROCESS = 6 * _GIB
"""Host memory of a scheduler in bytes: torch, the CUDA context and pinned buffers."""
_OF_A_SERVER = 8 * _GIB
"""Host memory in bytes of the tokenizer, the detokenizer and the HTTP server."""
_SHM_OF_A_RANK = 2 * _GIB
"""Share of /dev/shm per rank in bytes, for NCCL's rings and all-reduce buffers."""
_LEAST_SHM = 8 * _GIB


class Assembled(Struct, frozen=True):
    """Rendering, with the prepared recipe of each role."""

    rendering: Rendering
    prepared: tuple[Prepared, ...]


def assemble(
    recipe: Recipe,
    prepared: Sequence[Prepared],
    plans: Sequence[Plan],
    *,
    bare: bool = False,
    carries_speclaunch: bool = True,
    program: tuple[str, ...] | None = None,
    baseline: Baseline | None = None,
) -> Assembled:
    """Return the rendering of a recipe's `prepared` roles: all of its roles, or one.

    `plans` has the plan of each role, which states the needs of its nodes. With `bare`, or without
    `carries_speclaunch` (a target that cannot start speclaunch), the text starts the engine itself,
    regardless of the recipe. `program` is the engine's entry point if it differs from this
    machine's. Raises InputError and LaunchError.
    """
    roles = tuple(_role(part, plan, program) for part, plan in zip(prepared, plans, strict=True))
    deployment = recipe.deployment
    router = deployment.router if len(prepared) == len(recipe.roles) else None
    rendering = Rendering(
        deployment.name,
        deployment.description,
        roles,
        RouterOptions(router.args, router.port, router.replicas) if router is not None else None,
        _options(recipe),
        has_roles=bool(recipe.parts),
        baseline=baseline,
    )
    if rendering.options.speclaunch is not None and not bare and carries_speclaunch:
        roles = tuple(
            replace(role, starts=_starts(part)) for role, part in zip(roles, prepared, strict=True)
        )
        rendering = replace(rendering, roles=roles, recipe=own_recipe(recipe, prepared))
    return Assembled(rendering, tuple(prepared))


def _starts(prepared: Prepared) -> int:
    deployment = prepared.recipe.deployment
    off = prepared.is_left_alone or deployment.recovery.policy == "off"
    return 1 if off else deployment.recovery.max_attempts


def _options(recipe: Recipe) -> DeployOptions:
    deploy = recipe.deployment.deploy
    if deploy.models is not None and deploy.model_cache is not None:
        message = "deploy.model_cache is the former name of deploy.models, and both are set"
        raise InputError(message, help="remove deploy.model_cache")
    return DeployOptions(
        image=deploy.image,
        speclaunch=SpeclaunchFrom(deploy.speclaunch) if deploy.speclaunch else None,
        speclaunch_source=deploy.speclaunch_source,
        namespace=deploy.namespace,
        rdma=deploy.rdma,
        models=deploy.models or deploy.model_cache,
        jit_cache=deploy.jit_cache,
        shared_dir=deploy.shared_dir,
        drain_seconds=deploy.drain_seconds,
        monitoring=Monitoring(deploy.monitoring) if deploy.monitoring else None,
        slurm=deploy.slurm,
    )


def _role(prepared: Prepared, plan: Plan, program: tuple[str, ...] | None) -> Role:
    recipe = prepared.recipe
    deployment = recipe.deployment
    cpu = prepared.cpu is not None or deployment.args.get("device") == "cpu"
    hardware = plan.facts.hardware
    vendor = Vendor.CPU if cpu else hardware.vendor if hardware is not None else Vendor.NVIDIA
    gpus = 0 if vendor is Vendor.CPU else _known(lambda: gpus_needed(plan), 1)
    context = recipe.server_context
    replicas = context.replicas if context is not None else None
    return Role(
        name=recipe.role or SERVER,
        program=program or prepared.program,
        rendered_args=prepared.rendered_args,
        env=prepared.overlay,
        replicas=int(replicas.value) if replicas is not None and replicas.known else 1,
        nodes=_nodes(plan),
        gpus_per_node=gpus,
        vendor=vendor.value,
        gpu=hardware.name if hardware is not None and gpus else None,
        gpus_of_host=hardware.known_count if hardware is not None and gpus else None,
        image=deployment.deploy.image or _official(prepared, vendor, hardware),
        port=prepared.address.port,
        tls=prepared.address.tls,
        grace_seconds=round(deployment.launch.grace_seconds),
        ready_seconds=round(deployment.launch.ready_timeout_seconds),
        own_engine=prepared.cpu is not None,
        needs=_needs(plan, gpus),
        observed=_observed(plan),
    )


def _observed(plan: Plan) -> Observed:
    algorithm = _known(lambda: plan.algorithm, plan.value_or_none("speculative_algorithm"))
    return Observed(
        metrics=bool(plan.value_or_none("enable_metrics")),
        algorithm=algorithm,
        verifies=algorithm is not None and plan.value_or_none("disaggregation_mode") != "prefill",
        draft_tokens=plan.value_or_none("speculative_num_draft_tokens"),
        ranks=_known(lambda: parallel.attention_ranks(plan) * parallel.replicas(plan), 1),
        graphs=_known(lambda: gpu.decode_is_captured(plan), True),
        interval=plan.value_or_none("decode_log_interval") or Observed().interval,
        watchdog=plan.value_or_none("watchdog_timeout"),
    )


_T = TypeVar("_T")


def _known(read: Callable[[], _T], otherwise: _T) -> _T:
    try:
        return read()
    except UnknownValueError:
        return otherwise


def _official(prepared: Prepared, vendor: Vendor, hardware: Hardware | None) -> str | None:
    if prepared.cpu is not None or prepared.version != prepared.catalogue.version:
        return None
    name = hardware.name if hardware is not None else ""
    return official_image(prepared.version, vendor=vendor.value, gpu=name)


def _nodes(plan: Plan) -> int:
    try:
        return max(1, int(plan.value("nnodes") or 1))
    except (UnknownValueError, ValueError):
        return 1


def _needs(plan: Plan, gpus: int) -> Needs:
    ranks = max(1, gpus)
    shm = max(_LEAST_SHM, ranks * _SHM_OF_A_RANK)
    offloaded = sum(int(plan.value_or_none(n) or 0) for n in ("cpu_offload_gb", "hicache_size"))
    own = _OF_A_SERVER + ranks * (_OF_A_PROCESS + offloaded * _GIB) + shm
    try:
        time, size = start_time(plan), weight_files(plan)
    except UnknownValueError as error:
        return Needs(memory_bytes=own, shm_bytes=shm, cpus=4 * ranks, unknown=str(error))
    return Needs(
        start_seconds=time.seconds,
        start_why=time.why,
        memory_bytes=own + (size if gpus == 0 else 0),
        shm_bytes=shm,
        cpus=4 * ranks,
        weight_bytes=size,
    )


RENDERERS: dict[str, type[Renderer]] = {
    renderer.target: renderer
    for renderer in (
        ShellRenderer,
        SlimeRenderer,
        DockerComposeRenderer,
        KubernetesRenderer,
        LeaderWorkerSetRenderer,
        RoleBasedGroupRenderer,
        SlurmRenderer,
        SrtSlurmRenderer,
        RayRenderer,
        PrometheusRulesRenderer,
        PrometheusScrapeRenderer,
        GrafanaRenderer,
    )
}
