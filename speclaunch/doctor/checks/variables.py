"""Environment variables that change what an engine does."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from speclaunch.doctor.line import Line, State
from speclaunch.doctor.surroundings import Surroundings
from speclaunch.engine.catalogue import Catalogue, UnknownVersion, held_versions, resolve_version
from speclaunch.engine.catalogue import load as load_catalogue
from speclaunch.engine.command import is_secret_variable
from speclaunch.engine.renames import dead_variable
from speclaunch.facts.runtime import Runtime
from speclaunch.plan.request import ENGINE_VARIABLES

_OTHERS = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_LAUNCH_BLOCKING",
    "HF_ENDPOINT",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_HUB_OFFLINE",
    "TRANSFORMERS_OFFLINE",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "OMP_NUM_THREADS",
    "LD_PRELOAD",
    "PYTHONPATH",
)
_FAMILIES = ("NCCL_", "FLASHINFER_")
_SHOWN_CHARACTERS = 60
_SLOW = "CUDA_LAUNCH_BLOCKING"


def check(found: Surroundings) -> Iterator[Line]:
    """What is set; of the engine's own variables those that its version does not read.

    With a recipe the rules judge the engine's own (SPL007, SPL008).
    """
    own = found.target.own_variables if found.target is not None else frozenset()
    shown = [name for name in sorted(found.env) if _matters(name) and name not in own]
    wrong: list[Line] = []
    if found.target is None:
        catalogue = _catalogue(found)
        wrong = [
            line
            for name in shown
            if name.startswith(ENGINE_VARIABLES) and (line := _engine_variable(name, catalogue))
        ]
    yield from wrong
    if found.env.get(_SLOW, "") not in ("", "0"):
        why = "every kernel is waited for: a fraction of the speed"
        said = _said(_SLOW, found.env[_SLOW])
        yield Line("variables", State.WARNING, said, why, f"unset {_SLOW}", command=True)
    if shown:
        listed = ", ".join(_said(name, found.env[name]) for name in shown)
        yield Line("variables", State.NOTE if not wrong else State.OK, listed)
    else:
        yield Line("variables", State.OK, "none that changes the engine is set")


def _matters(name: str) -> bool:
    return name in _OTHERS or name.startswith((*ENGINE_VARIABLES, *_FAMILIES))


def _said(name: str, value: str) -> str:
    if is_secret_variable(name):
        return f"{name}=***"
    return f"{name}={value[:_SHOWN_CHARACTERS]}{'…' * (len(value) > _SHOWN_CHARACTERS)}"


def _engine_variable(name: str, catalogue: Catalogue) -> Line | None:
    version = catalogue.version
    dead = dead_variable(name, version)
    declared = catalogue.variables.get(name)
    if dead is not None or (declared is not None and not declared.read):
        why = dead.afterwards if dead is not None else "declared in that release, and read nowhere"
        said = f"{name} does nothing in SGLang {version}"
        return Line("variables", State.WARNING, said, why, f"unset {name}", command=True)
    if declared is not None:
        if not declared.deprecated:
            return None
        fix = f"use {declared.replacement}" if declared.replacement else None
        said = f"{name} is deprecated in SGLang {version}"
        return Line("variables", State.NOTE, said, "", fix)
    near = get_close_matches(name, catalogue.variables, n=1, cutoff=0.8)
    return Line(
        "variables",
        State.WARNING,
        f"SGLang {version} has no variable {name}",
        "it is silently ignored",
        f"did you mean {near[0]}?" if near else f"unset {name}",
        command=not near,
    )


def _catalogue(found: Surroundings) -> Catalogue:
    """Of the installed engine; where there is none, the newest."""
    runtime = found.runtime
    if isinstance(runtime, Runtime) and runtime.sglang:
        try:
            return load_catalogue(resolve_version(runtime.sglang).held)
        except UnknownVersion:
            pass
    return load_catalogue(held_versions()[-1])
