"""The CPU engine's tiny models, made before they are served."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from speclaunch.cpu.artifacts import ensure_model, has_model
from speclaunch.cpu.manifest import is_installed
from speclaunch.errors import LaunchError
from speclaunch.launch.prepare import Prepared

Busy = Callable[[str], contextlib.AbstractContextManager[None]]
"""Tells what takes a few seconds."""


def _quietly(_what: str) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def tiny_models(prepared: Prepared) -> Iterator[Path]:
    """Yield the arguments that name a model which speclaunch makes for the CPU engine."""
    if prepared.cpu is None:
        return
    for value in prepared.recipe.deployment.args.values():
        if isinstance(value, str) and Path(value).parent == prepared.cpu.models:
            yield Path(value)


def ensure_cpu_models(prepared: Prepared, busy: Busy = _quietly) -> None:
    """Write the models of a deployment of the CPU engine that are not there yet; nothing is done
    for other deployments. Their facts are known only then.

    Raises LaunchError where the engine is not installed, InstallError where a model cannot be
    written.
    """
    engine = prepared.cpu
    if engine is None:
        return
    if not is_installed(engine):
        raise LaunchError("the CPU engine is not installed", help="speclaunch engine install cpu")
    for path in tiny_models(prepared):
        if has_model(engine, path.name):
            continue
        with busy(f"the tiny model {path.name}"):
            ensure_model(engine, path.name)
