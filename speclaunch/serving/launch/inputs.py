"""Inputs of an engine's process, and the journal's header, which records them without secrets."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from speclaunch.core import LaunchError, expand_user, is_secret_variable, make_private
from speclaunch.deployments import Prepared, Recipe, accept_lengths, shown_overrides
from speclaunch.engine import (
    Hardware,
    Plan,
    RenderedArgument,
    canonical,
    config_refuses,
    is_installed,
    is_secret_argument,
    is_secret_text,
)
from speclaunch.serving.cpu_engine.programs import ensure_model, has_model
from speclaunch.serving.launch.journal import (
    BudgetEntry,
    EngineEntry,
    HardwareEntry,
    JournalHeader,
    PlanEntry,
    RecipeEntry,
    default_directory,
)
from speclaunch.serving.launch.unfinished_work import new_folder

if TYPE_CHECKING:
    from speclaunch.deployments import Deployment


_NOTIFICATION = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""Variables for speclaunch only. The engine and its children must not notify systemd."""


def new_run_dir(recipe: Recipe) -> Path:
    """Create and return a directory for one launch, readable by this user only."""
    base = recipe.deployment.launch.log_dir
    parent = expand_user(base).absolute() if base else default_directory()
    if not base:
        with contextlib.suppress(OSError):  # new_folder reports it
            make_private(parent)
    name = recipe.deployment.name.replace("/", "-")  # a role's name is NAME/ROLE
    remedy = "set launch.log_dir or SPECLAUNCH_HOME to another directory"
    return new_folder(parent, name, LaunchError, remedy)


def engine_argv(prepared: Prepared, secrets_file: Path | None) -> list[str]:
    """Return the engine's argv; secrets that `secrets_file` may contain are passed in that file."""
    argv = list(prepared.program)
    if secrets_file is not None:
        argv += ["--config", str(secrets_file)]
    for argument in prepared.rendered_args.arguments:
        if secrets_file is None or not _may_be_in_file(argument, prepared):
            argv += argument.tokens
    return argv


def secrets_file_of(prepared: Prepared, directory: Path) -> tuple[Path, str] | None:
    """Return the path and the text of the private file with secret arguments, for the engine's
    `--config`.

    None if there are no secrets, if the user sets `--config`, or if the release lacks `--config`
    (before 0.5.3).
    """
    secrets = {
        argument.flag.removeprefix("--"): str(argument.values[0])
        for argument in prepared.rendered_args.arguments
        if _may_be_in_file(argument, prepared)
    }
    taken = prepared.catalogue.by_name("config") is None or prepared.rendered_args.value("config")
    if not secrets or taken:
        return None
    return directory / "secrets.yaml", yaml.safe_dump(secrets)


def _may_be_in_file(argument: RenderedArgument, prepared: Prepared) -> bool:
    """True if an argument is a secret that the engine can read from its `--config` file."""
    key = argument.flag.removeprefix("--")
    single = len(argument.values) == 1
    return argument.secret and single and not config_refuses(key, prepared.catalogue)


def engine_environment(prepared: Prepared) -> dict[str, str]:
    """Return the complete environment of the engine."""
    env = {**os.environ, **{name: v for name, v in prepared.overlay.items() if v is not None}}
    for name, value in prepared.overlay.items():
        if value is None:
            env.pop(name, None)
    without_notification(env)  # only speclaunch notifies systemd
    return env


def without_notification(environment: MutableMapping[str, str]) -> None:
    """Remove systemd's notification variables from `environment`, in place."""
    for name in _NOTIFICATION:
        environment.pop(name, None)


Busy = Callable[[str], contextlib.AbstractContextManager[None]]
"""Function that returns a context manager to report the named operation to the user."""


def _quietly(_what: str) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def tiny_models(prepared: Prepared) -> Iterator[Path]:
    """Yield the paths of the tiny models that a deployment uses on the CPU engine."""
    if prepared.cpu is None:
        return
    for value in prepared.recipe.deployment.args.values():
        if isinstance(value, str) and Path(value).parent == prepared.cpu.models:
            yield Path(value)


def ensure_cpu_models(prepared: Prepared, busy: Busy = _quietly) -> None:
    """Write the missing models of a CPU engine deployment; do nothing for other deployments.

    Read facts of the models only after this call. Raises LaunchError if the engine is not
    installed, and InstallError if a model cannot be written.
    """
    engine = prepared.cpu
    if engine is None:
        return
    if not is_installed(engine):
        raise LaunchError(
            "the CPU engine is not installed", help=f"install it with `{engine.install_command}`"
        )
    for path in tiny_models(prepared):
        if has_model(engine, path.name):
            continue
        with busy(f"the tiny model {path.name}"):
            ensure_model(engine, path.name)


_OF_THE_ENGINE = re.compile(
    r"(SGLANG|SGL|CUDA|NCCL|HF|TORCH|PYTORCH|TRITON|FLASHINFER|OMP|VLLM|NVIDIA)_|"
    r"LD_LIBRARY_PATH$|LD_PRELOAD$|PYTHONPATH$|PATH$"
)
"""Inherited variables that change the engine's behavior."""


def header(
    prepared: Prepared, plan: Plan | None, hardware: Hardware | None, overrides: Sequence[str]
) -> JournalHeader:
    """Return the header of a journal, without secrets."""
    deployment = prepared.recipe.deployment
    args = {
        name: "***"
        if value is not None and (is_secret_argument(name) or is_secret_text(value))
        else value
        for name, value in deployment.args.items()
    }
    return JournalHeader(
        RecipeEntry(
            deployment.name, str(prepared.recipe.path), tuple(shown_overrides(overrides)), args
        ),
        EngineEntry(prepared.version, prepared.python),
        None if hardware is None else _hardware(hardware),
        prepared.address.url,
        prepared.model,
        None if plan is None else _plan(plan),
        accept_lengths(prepared.recipe),
    )


def _plan(plan: Plan) -> PlanEntry:
    return PlanEntry(
        dict(plan.resolved),
        dict(plan.undecided),
        {name: reason.why for name, reason in plan.reasons.items()},
        tuple(change.why for change in plan.changes),
        _budget(plan),
    )


def command(prepared: Prepared) -> list[str]:
    """Return the command line with its secrets redacted."""
    argv = list(prepared.program)
    for argument in prepared.rendered_args.arguments:
        hidden = argument.secret or any(map(is_secret_text, argument.values))
        argv += [argument.flag, "***"] if hidden else argument.tokens
    return argv


def document(prepared: Prepared) -> dict[str, Any]:
    """Return the command as a JSON object, with its secrets redacted."""
    hidden = set(prepared.secrets)
    return {
        "version": 1,
        "recipe": prepared.recipe.deployment.name,
        "engine": prepared.version,
        "argv": command(prepared),
        "env": {name: "***" if v in hidden else v for name, v in prepared.overlay.items()},
        "notes": list(prepared.rendered_args.notes),
    }


def environment(prepared: Prepared) -> dict[str, str | None]:
    """Return the variables that affect the engine, set or inherited, with secrets redacted. None
    means that the variable is unset."""
    inherited = {n: v for n, v in os.environ.items() if _OF_THE_ENGINE.match(n)}
    merged: dict[str, str | None] = {**inherited, **prepared.overlay}
    return {
        name: "***" if value and (is_secret_variable(name) or is_secret_text(value)) else value
        for name, value in merged.items()
    }


def recipe_diff(changes: Mapping[str, Any], deployment: Deployment) -> list[str]:
    """Return the command-line overrides that apply these changes to the recipe."""
    overrides = []
    for name, value in changes.items():
        for other in deployment.args:
            if other != name and canonical(other) == canonical(name):
                overrides.append(f"~args.{other}")
        overrides.append(f"++args.{name}={_hydra(value)}")
    return overrides


def _hydra(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"[{','.join(_hydra(item) for item in value)}]"
    if isinstance(value, str) and not re.fullmatch(r"[A-Za-z_][\w./-]*", value):
        return json.dumps(value)
    return json.dumps(value) if not isinstance(value, str) else value


def _hardware(hardware: Hardware) -> HardwareEntry:
    return HardwareEntry(
        hardware.name,
        hardware.count,
        hardware.memory_mib,
        hardware.driver,
        hardware.declared,
        tuple(gpu.index for gpu in hardware.gpus),
    )


def _budget(plan: Plan) -> BudgetEntry:
    from speclaunch.engine import memory_verdict  # noqa: PLC0415  all of memory/

    found = memory_verdict(plan)
    return BudgetEntry(
        found.fit.value,
        found.why,
        found.phase.value if found.phase else None,
        found.tokens,
        found.running_requests,
        found.mem_fraction_static,
    )
