"""Header of a journal, known before the launch: recipe, plan, engine, hardware, command."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from speclaunch.core import is_secret_variable
from speclaunch.deployments import Prepared, accept_lengths, shown_overrides
from speclaunch.engine import Hardware, Plan, canonical, is_secret_argument, is_secret_text
from speclaunch.serving.launch.journal import (
    BudgetEntry,
    EngineEntry,
    HardwareEntry,
    JournalHeader,
    PlanEntry,
    RecipeEntry,
)

if TYPE_CHECKING:
    from speclaunch.deployments import Deployment

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
    """Return the command as JSON values, with its secrets redacted."""
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
    """Return the relevant variables, including inherited variables, with secrets redacted."""
    inherited = {n: v for n, v in os.environ.items() if _OF_THE_ENGINE.match(n)}
    merged: dict[str, str | None] = {**inherited, **prepared.overlay}
    return {
        name: "***" if value and (is_secret_variable(name) or is_secret_text(value)) else value
        for name, value in merged.items()
    }


def recipe_diff(changes: Mapping[str, Any], deployment: Deployment) -> list[str]:
    """Return the overrides that reproduce these changes on the recipe's command line."""
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
