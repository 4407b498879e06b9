"""Facts of a recipe: the engine version to check, the rules' results, and its requirements."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks import (
    CheckedRequest,
    Finding,
    Lookup,
    Rule,
    SkippedRule,
    check_request,
    findings_across,
    unsilenced,
)
from speclaunch.core import COMMAND_LINE, InputError, Place, Problem
from speclaunch.deployments import Recipe, from_recipe
from speclaunch.engine import (
    BACKENDS,
    Hardware,
    Plan,
    Runtime,
    UnknownValueError,
    UnknownVersion,
    Vendor,
    declared,
    gpus_needed,
    held_versions,
    memory_verdict,
    render_args,
    resolve_version,
)
from speclaunch.engine import load as load_catalogue
from speclaunch.serving.doctor.machine_facts import RecipeNeeds

if TYPE_CHECKING:
    from speclaunch.checks import EngineQuerier

_CPU = "cpu"


class RecipeResults(Struct, frozen=True):
    """Results of the rules for a recipe. `plan` belongs to the first requested version."""

    plan: Plan
    findings: tuple[Finding, ...]
    skipped: tuple[SkippedRule, ...]
    versions: tuple[str, ...]
    examined: tuple[CheckedRequest, ...] = ()
    """Results by version, for further queries."""


def is_cpu(recipe: Recipe) -> bool:
    """True if a recipe runs on the CPU engine."""
    deployment = recipe.deployment
    return (deployment.engine.python or deployment.hardware.name) == _CPU


def versions_to_check(
    recipe: Recipe, requested: tuple[str, ...], installed: str | None
) -> tuple[str, ...]:
    """Return the versions of `--engine`, else the recipe's pin, else the installed version if it
    fits, else the newest that fits. Raises InputError if none of them can serve the recipe.
    """
    engine = recipe.deployment.engine
    for version in requested:
        if not engine.bounds.contains(version):
            name, needs = recipe.deployment.name, " and ".join(engine.needs)
            message = f"{name} cannot be served by SGLang {version}: it needs {needs}"
            raise InputError(Problem(message, Place(COMMAND_LINE, text=f"--engine {version}")))
    if requested:
        return requested
    if engine.catalogue is not None:
        near = recipe.path.parent
        return (declared(engine.catalogue, engine.python, engine.pinned, near),)
    if engine.pinned is not None:
        return (resolve_version(engine.pinned).held,)
    if installed is not None and engine.specifier.contains(installed):
        try:
            return (resolve_version(installed).held,)
        except UnknownVersion:  # the environment's line reports it
            pass
    fitting = [version for version in held_versions() if engine.specifier.contains(version)]
    if not fitting:
        message = f"no known release can serve it: it needs {' and '.join(engine.needs)}"
        raise InputError(Problem(message, recipe.place("engine", "version")))
    return (fitting[-1],)


def check_recipe(
    recipe: Recipe,
    versions: tuple[str, ...],
    lookup: Lookup,
    rules: tuple[Rule, ...],
    inherited: Mapping[str, str],
) -> RecipeResults:
    """Return the rules' results for a recipe, at each version."""
    examined: list[CheckedRequest] = []
    for version in versions:
        catalogue = load_catalogue(version)
        deployment = recipe.deployment
        rendered = render_args(deployment.args, deployment.engine.env, catalogue)
        request = from_recipe(recipe, rendered, catalogue, inherited)
        examined.append(check_request(request, lookup, rules))
    findings = [finding for result in examined for finding in result.results.findings]
    skipped = [reason for result in examined for reason in result.results.skipped]
    return RecipeResults(
        examined[0].plan,
        tuple(unsilenced(findings, recipe.path)),
        tuple(dict.fromkeys(skipped)),
        versions,
        tuple(examined),
    )


def with_other_roles(
    results: RecipeResults, recipe: Recipe, lookup: Lookup, rules: tuple[Rule, ...]
) -> RecipeResults:
    """Return the results with findings across the roles of a recipe, at each version."""

    more = [
        finding
        for version in results.versions
        for finding in findings_across(recipe, version, lookup, rules)
    ]
    return replace(results, findings=(*results.findings, *more))


def with_engine_checks(
    results: RecipeResults, asker: EngineQuerier, recipe: Recipe, python: Path | None
) -> RecipeResults:
    """Return the results with the engines' own checks, each for its version. Raises
    NoJudgeError.
    """
    from speclaunch.checks import engine_findings  # noqa: PLC0415

    findings, skipped = list(results.findings), list(results.skipped)
    for checked in results.examined:
        opinion = asker.opinion(checked.plan, python, checked.results.blamed)
        if opinion is not None:
            more = engine_findings(opinion, checked.plan, checked.results.findings)
            findings += unsilenced(more.findings, recipe.path)
            skipped += more.skipped
    return replace(results, findings=tuple(findings), skipped=tuple(dict.fromkeys(skipped)))


def known_python(runtime: object) -> Path | None:
    """Return the interpreter of a detected engine."""
    return runtime.interpreter if isinstance(runtime, Runtime) and runtime.executed else None


def _specifier(stated: str) -> str:
    """Return a version bound in pip's syntax: `==0.5.23` for `0.5.23`."""
    return f"=={stated}" if stated[:1].isdigit() else stated


def target_of(
    recipe: Recipe,
    plan: Plan | None,
    *,
    version: str,
    requested: tuple[str, ...],
    installed: str | None,
    hardware: str | None,
    elsewhere: bool,
    meant_for: str | None,
    compiled: bool,
    own_variables: frozenset[str],
) -> RecipeNeeds:
    """Return the recipe's requirements on the machine. `plan` is None if the rules could not
    run.
    """
    engine = recipe.deployment.engine
    target = RecipeNeeds(
        name=recipe.deployment.name,
        version=version,
        needs=",".join(map(_specifier, engine.needs)) or engine.version,
        pinned=engine.pinned if not requested else None,
        fits=installed is None
        or (engine.bounds if requested else engine.specifier).contains(installed),
        requested=requested,
        python=engine.python,
        cpu=is_cpu(recipe),
        hardware=hardware,
        elsewhere=elsewhere,
        meant_for=meant_for,
        device=_CPU if is_cpu(recipe) else None,
        compiled=compiled,
        own_variables=own_variables,
    )
    if plan is None:
        return target
    fraction = plan.value_or_none("mem_fraction_static")
    backends = {str(value) for name in BACKENDS if (value := plan.value_or_none(name)) is not None}
    return replace(
        target,
        device=_device(recipe, plan),
        gpus=_gpus(plan),
        tensor_parallel=_int_value(plan, "tp_size"),
        mem_fraction=float(fraction) if isinstance(fraction, int | float) else None,
        attention_backends=tuple(sorted(backends)),
        algorithm=_algorithm(plan),
        budget=memory_verdict(plan),
        dummy_weights=plan.value_or_none("load_format") == "dummy",
    )


def is_elsewhere(declared: Hardware | None, found: object) -> bool:
    """True if `--hardware` names a different machine."""
    if declared is None or declared.vendor is Vendor.CPU:
        return False
    if not isinstance(found, Hardware) or found.vendor is not declared.vendor:
        return True
    known = found.memory_mib is not None and declared.memory_mib is not None
    near = known and abs(found.memory_mib - declared.memory_mib) < 0.1 * declared.memory_mib  # type: ignore[operator]
    return found.capability != declared.capability or not near or found.count < declared.count


def _gpus(plan: Plan) -> int | None:
    """Return the number of GPUs that each machine needs. Each replica of plain data parallelism has
    separate GPUs.
    """
    try:
        return gpus_needed(plan)
    except UnknownValueError:
        return None


def _device(recipe: Recipe, plan: Plan) -> str | None:
    """Return the recipe's configured device; a GPU by default."""
    if is_cpu(recipe):
        return _CPU
    configured = plan.value_or_none("device")
    return "cuda" if configured is None else str(configured)


def _algorithm(plan: Plan) -> str | None:
    try:
        return plan.algorithm
    except UnknownValueError:
        return None


def _int_value(plan: Plan, name: str) -> int | None:
    value = plan.value_or_none(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
