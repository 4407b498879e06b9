"""What `speclaunch plan` is asked: recipes and versions, each to be planned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from speclaunch.errors import COMMAND_LINE, ExitCode, InputError, Place, Problem, SpeclaunchError
from speclaunch.facts.engines import names
from speclaunch.facts.hardware_choice import choose_hardware
from speclaunch.facts.hardware_probe import probe_hardware
from speclaunch.launch.prepare import Prepared, prepare
from speclaunch.planning.planned_deployment import PlannedDeployment, Wish, planned
from speclaunch.recipe.find_recipe import recipes, shown_overrides
from speclaunch.recipe.load import Recipe, load, select_role
from speclaunch.record import record
from speclaunch.rules.examine import Lookup
from speclaunch.rules.finding import Severity
from speclaunch.rules.interface import Rule

if TYPE_CHECKING:
    from speclaunch.asking.asker import Asker
    from speclaunch.planning.role_plans import DeploymentPlan


@record
class Side:
    """One of the plans that are asked for."""

    prepared: Prepared
    label: str


def with_roles(
    words: Sequence[str], engine: str | None, config_dirs: Sequence[Path]
) -> Recipe | None:
    """The recipe whose roles are asked for, side by side; None where one plan, or several recipes
    or versions are asked for. Raises InputError."""
    named = recipes(words)
    if len(named) != 1 or (engine is not None and len(names(engine)) > 1):
        return None
    (name, overrides), *_ = named
    found = load(name, overrides, config_dirs)
    return found if len(found.parts) > 1 else None


def sides(
    words: Sequence[str],
    engine: str | None,
    config_dirs: Sequence[Path],
    role: str | None = None,
) -> list[Side]:
    """Every recipe, or the one role of it, at every version. Raises InputError that names all that
    is wrong."""
    named = recipes(words)
    versions: Sequence[str | None] = [None] if engine is None else names(engine)
    if len(named) > 1 and len(versions) > 1:
        raise InputError(
            Problem(
                "several recipes and several versions were given",
                Place(COMMAND_LINE, text=f"--engine {','.join(map(str, versions))}"),
                "compare recipes at one version, or versions of one recipe",
            )
        )
    problems: list[Problem] = []
    found: list[Side] = []
    alike = len({name for name, _ in named}) < len(named)
    for name, overrides in named:
        try:
            whole = load(name, overrides, config_dirs)
            recipe = select_role(whole, role, "plans of one role are compared")
        except InputError as error:
            problems += error.problems
            continue
        label = recipe.deployment.name
        if alike:
            label = " ".join([label, *shown_overrides(overrides)])
        for version in versions:
            try:
                found.append(Side(prepare(recipe, version, dry_run=True), label))
            except InputError as error:
                problems += error.problems
    if problems:
        raise InputError(dict.fromkeys(problems))
    return found


def wish(
    best: bool, requests: int | None, context: int | None, *, fit: bool, several: bool
) -> Wish | None:
    """The load of `--best`; None without it. Raises InputError."""
    if not best:
        if requests is not None or context is not None:
            raise InputError(
                Problem("--requests and --context set the load of --best", help="add --best")
            )
        return None
    if fit:
        raise InputError(Problem("--fit cannot be combined with --best"))
    if several:
        raise InputError(Problem("--best takes one recipe and one version"))
    return Wish(requests, context)


def planned_side(
    side: Side,
    found: Lookup,
    rules: Iterable[Rule],
    *,
    fit: bool,
    wish: Wish | None,
    asker: Asker | None = None,
) -> PlannedDeployment:
    """The plan of one side, with the hardware that it is for. Raises NoJudgeError."""
    prepared = side.prepared
    name, cpu = prepared.recipe.deployment.hardware.name, prepared.cpu is not None
    chosen, note = choose_hardware(found.hardware, name, probe_hardware, cpu=cpu), ""
    if chosen.unknown is not None:
        help_ = f"; {chosen.unknown.help}" if chosen.unknown.help else ""
        note = f"the recipe is for the GPUs of this machine, and {chosen.unknown.why}{help_}"
    here = replace(found, hardware=chosen.hardware)
    return planned(
        prepared,
        here,
        rules,
        label=side.label,
        hardware_note=note,
        fit=fit,
        wish=wish,
        asker=asker,
    )


def roles_exit_code(found: DeploymentPlan, *, strict: bool) -> ExitCode:
    """1 where a role will not serve, or not with the others."""
    failing = found.fails or (strict and found.has_warnings)
    return ExitCode.FAILED if failing else ExitCode.CLEAN


def exit_code(plans: Sequence[PlannedDeployment], *, strict: bool) -> ExitCode:
    """1 where a plan has findings of error severity, or a budget that fails."""
    failing = any(one.fails for one in plans)
    failing |= strict and any(one.count(Severity.WARNING) for one in plans)
    return ExitCode.FAILED if failing else ExitCode.CLEAN


class OptionUnansweredError(SpeclaunchError):
    """`--fit` or `--best` was asked, and nobody can tell (exit 3; 1 where the plan fails)."""

    exit_code = ExitCode.NOTHING


def unanswered(option: str, planned: PlannedDeployment, code: ExitCode) -> OptionUnansweredError:
    """What to say where the question of `option` has no answer."""
    facts = planned.plan.facts
    helps = [] if facts.hardware else ["name the hardware, for example --hardware h100:8"]
    helps += [f"{fact.what}: {fact.help or fact.why}" for fact in facts.unknown]
    error = OptionUnansweredError(
        Problem(f"{option} cannot be answered: {planned.unanswered}", help="; ".join(helps) or None)
    )
    if code is not ExitCode.CLEAN:
        error.exit_code = code
    return error
