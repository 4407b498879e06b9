"""Header of a journal, known before the launch: recipe, plan, engine, hardware, command."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from speclaunch.core import is_secret_variable
from speclaunch.deployments import Prepared, shown_overrides
from speclaunch.engine import Hardware, Plan, canonical, is_secret_argument, is_secret_text
from speclaunch.serving.launch.journal import plain

if TYPE_CHECKING:
    from speclaunch.deployments import Deployment

_OF_THE_ENGINE = re.compile(
    r"(SGLANG|SGL|CUDA|NCCL|HF|TORCH|PYTORCH|TRITON|FLASHINFER|OMP|VLLM|NVIDIA)_|"
    r"LD_LIBRARY_PATH$|LD_PRELOAD$|PYTHONPATH$|PATH$"
)
"""Inherited variables that change the engine's behavior."""


def about(
    prepared: Prepared, plan: Plan | None, hardware: Hardware | None, overrides: Sequence[str]
) -> dict[str, Any]:
    """Return the parts of a journal that are known before the first attempt, without any secret."""
    deployment = prepared.recipe.deployment
    return {
        "recipe": {
            "name": deployment.name,
            "path": str(prepared.recipe.path),
            "overrides": shown_overrides(overrides),
            "args": {
                name: "***"
                if value is not None and (is_secret_argument(name) or is_secret_text(value))
                else value
                for name, value in deployment.args.items()
            },
        },
        "engine": {"version": prepared.version, "python": prepared.python},
        "hardware": _hardware(hardware),
        "address": prepared.address.url,
        "model": prepared.model,
        "plan": None if plan is None else summary(plan),
    }


def summary(plan: Plan) -> dict[str, Any]:
    """Return the effective settings that differ from the explicit ones, and the memory budget."""
    return {
        "resolved": plain(dict(plan.resolved)),
        "undecided": plain(dict(plan.undecided)),
        "reasons": {name: reason.why for name, reason in plan.reasons.items()},
        "changes": [change.why for change in plan.changes],
        "budget": _budget(plan),
    }


def command(prepared: Prepared) -> list[str]:
    """Return the command line with its secrets redacted."""
    argv = list(prepared.program)
    for argument in prepared.rendered_args.arguments:
        hidden = argument.secret or any(map(is_secret_text, argument.values))
        argv += [argument.flag, "***"] if hidden else argument.tokens
    return argv


def document(prepared: Prepared) -> dict[str, Any]:
    """Return the command for programs that read our output, with its secrets redacted."""
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
    """Return the relevant variables, including inherited ones, with their secrets redacted."""
    inherited = {n: v for n, v in os.environ.items() if _OF_THE_ENGINE.match(n)}
    merged: dict[str, str | None] = {**inherited, **prepared.overlay}
    return {
        name: "***" if value and (is_secret_variable(name) or is_secret_text(value)) else value
        for name, value in merged.items()
    }


def recipe_diff(changes: Mapping[str, Any], deployment: Deployment) -> list[str]:
    """Return changes as overrides that give the same start on the recipe's command line."""
    overrides = []
    for name, value in changes.items():
        for other in deployment.args:
            if other != name and canonical(other) == canonical(name):
                overrides.append(f"~args.{other}")
        overrides.append(f"++args.{name}={_hydra(value)}")
    return overrides


def _hydra(value: Any) -> str:
    """Return a value in Hydra's override grammar."""
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"[{','.join(_hydra(item) for item in value)}]"
    if isinstance(value, str) and not re.fullmatch(r"[A-Za-z_][\w./-]*", value):
        return json.dumps(value)
    return json.dumps(value) if not isinstance(value, str) else value


def _hardware(hardware: Hardware | None) -> dict[str, Any] | None:
    if hardware is None:
        return None
    return {
        "name": hardware.name,
        "count": hardware.count,
        "memory_mib": hardware.memory_mib,
        "driver": hardware.driver,
        "declared": hardware.declared,
        "gpus": [gpu.index for gpu in hardware.gpus],
    }


def _budget(plan: Plan) -> dict[str, Any] | None:
    from speclaunch.engine import memory_verdict  # noqa: PLC0415  all of memory/

    found = memory_verdict(plan)
    return {
        "fit": found.fit.value,
        "why": found.why,
        "phase": found.phase.value if found.phase else None,
        "tokens": found.tokens,
        "running_requests": found.running_requests,
        "mem_fraction_static": found.mem_fraction_static,
    }
