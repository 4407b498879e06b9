"""Plans that `speclaunch plan` computes, for recipes, versions and roles, and their comparison."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise, product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks import Finding, Lookup, Rule, Severity, findings_across
from speclaunch.core import COMMAND_LINE, ExitCode, InputError, Place, Problem, SpeclaunchError
from speclaunch.deployments import (
    Prepared,
    Recipe,
    load,
    prepare,
    recipes,
    select_role,
    shown_overrides,
)
from speclaunch.engine import (
    ArgumentOutcome,
    BudgetNumber,
    EffectiveArgument,
    Plan,
    PlanDifference,
    UnknownValueError,
    choose_hardware,
    compare_budgets,
    compare_rows,
    gpus_needed,
    is_idle,
    names,
    probe_hardware,
)
from speclaunch.measure.advice.planned_deployment import LoadRequest, PlannedDeployment, planned

if TYPE_CHECKING:
    from speclaunch.checks import EngineQuerier


class PlanComparison(Struct, frozen=True):
    """Changes from one plan to another."""

    before: PlannedDeployment
    after: PlannedDeployment
    arguments: tuple[PlanDifference, ...]
    budget: tuple[BudgetNumber, ...]
    lost: tuple[Finding, ...]
    gained: tuple[Finding, ...]
    command: tuple[str, ...]
    """Lines of the command that differ, prefixed with `- ` or `+ `."""

    @property
    def telling(self) -> tuple[PlanDifference, ...]:
        """Arguments with a meaningful difference: a different value of an enabled feature."""
        return tuple(
            difference
            for difference in self.arguments
            if difference.value_differs and not self._is_negligible(difference)
        )

    @property
    def renamed(self) -> tuple[PlanDifference, ...]:
        return tuple(difference for difference in self.arguments if not difference.value_differs)

    @property
    def idle(self) -> tuple[PlanDifference, ...]:
        """Unset arguments whose difference has no effect."""
        return tuple(
            difference
            for difference in self.arguments
            if difference.value_differs and self._is_negligible(difference)
        )

    def _is_negligible(self, difference: PlanDifference) -> bool:
        if any(row is not None and row.is_set for row in (difference.before, difference.after)):
            return False
        if is_idle(self.before.plan, difference.name) and is_idle(self.after.plan, difference.name):
            return True
        values = [row.effective for row in (difference.before, difference.after) if row is not None]
        # `none` means that the engine decides; before, it decided on off
        return difference.is_default and len(values) == 2 and None in values and not any(values)

    @property
    def title(self) -> str:
        """Both sides on one line: `R: SGLang 0.5.12 → 0.5.23`."""
        before, after = self.before, self.after
        if before.label == after.label:
            return f"{before.label}: SGLang {before.version} \N{RIGHTWARDS ARROW} {after.version}"
        if before.version == after.version:
            return f"{before.label} \N{RIGHTWARDS ARROW} {after.label} on SGLang {before.version}"
        return f"{head(before)} \N{RIGHTWARDS ARROW} {head(after)}"

    @property
    def names(self) -> tuple[str, str]:
        before, after = self.before, self.after
        if before.version != after.version:
            return before.version, after.version
        return (before.label, after.label) if before.label != after.label else ("before", "after")

    @property
    def same(self) -> bool:
        budget = any(number.differs for number in self.budget)
        return not (self.arguments or self.lost or self.gained or self.command or budget)


_RENAMED = "SPL005"


def compared(before: PlannedDeployment, after: PlannedDeployment) -> PlanComparison:
    """Compare two plans. Findings that differ only in the version are the same."""
    # A name that changes with the version is reported with the arguments.
    versions = before.version != after.version
    findings = [
        [finding for finding in planned.findings if not (versions and finding.code == _RENAMED)]
        for planned in (before, after)
    ]
    old = {_key(finding, before): finding for finding in findings[0]}
    new = {_key(finding, after): finding for finding in findings[1]}
    return PlanComparison(
        before,
        after,
        compare_rows(before.rows, after.rows),
        compare_budgets(before.budget, after.budget),
        tuple(finding for key, finding in old.items() if key not in new),
        tuple(finding for key, finding in new.items() if key not in old),
        tuple(_changed_lines(before.command.lines, after.command.lines)),
    )


def compared_in_turn(plans: Sequence[PlannedDeployment]) -> tuple[PlanComparison, ...]:
    """Return a comparison of each plan with the next."""
    return tuple(compared(before, after) for before, after in pairwise(plans))


def head(planned: PlannedDeployment) -> str:
    """Return a plan's label and version, for titles."""
    return f"{planned.label} on SGLang {planned.version}"


def _key(finding: Finding, planned: PlannedDeployment) -> tuple[str, str, str]:
    message = finding.message.replace(planned.version, "")
    return finding.code, finding.severity.value, message


def _changed_lines(before: Sequence[str], after: Sequence[str]) -> list[str]:
    lines = difflib.unified_diff(before, after, n=0, lineterm="")
    changed = [line for line in lines if not line.startswith(("--- ", "+++ ", "@@"))]
    return [f"{line[0]} {line[1:]}" for line in changed]


class PlanSide(Struct, frozen=True):
    """A deployment to plan, with its label."""

    prepared: Prepared
    label: str


def with_roles(
    words: Sequence[str], engine: str | None, config_dirs: Sequence[Path]
) -> Recipe | None:
    """Return the recipe in `words` if it has several roles to plan together, else None.

    Always None for several recipes or versions. Raises InputError.
    """
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
    *,
    all_roles: bool = False,
) -> list[PlanSide]:
    """Return one side per recipe (or its selected role) and version.

    `all_roles`: plan every role if none is selected. Raises InputError with all problems.
    """
    named = recipes(words)
    versions: Sequence[str | None] = [None] if engine is None else names(engine)
    if len(named) > 1 and len(versions) > 1:
        raise InputError(
            "cannot compare several recipes at several versions",
            Place(COMMAND_LINE, text=f"--engine {','.join(map(str, versions))}"),
            "compare recipes at one version, or versions of one recipe",
        )
    problems: list[Problem] = []
    found: list[PlanSide] = []
    has_duplicates = len({name for name, _ in named}) < len(named)
    for name, overrides in named:
        try:
            complete = load(name, overrides, config_dirs)
            several = complete.parts if all_roles and role is None else ()
            roles = several or (
                select_role(complete, role, "only plans of one role can be compared"),
            )
        except InputError as error:
            problems += error.problems
            continue
        added = shown_overrides(overrides) if has_duplicates else []
        for recipe, version in product(roles, versions):
            try:
                prepared = prepare(recipe, version, dry_run=True)
            except InputError as error:
                problems += error.problems
            else:
                found.append(PlanSide(prepared, " ".join([recipe.deployment.name, *added])))
    if problems:
        raise InputError(dict.fromkeys(problems))
    return found


def requested_load(
    best: bool, requests: int | None, context: int | None, *, fit: bool, several: bool
) -> LoadRequest | None:
    """Return the load of `--best`; None if the option is not set. Raises InputError."""
    if not best:
        if requests is not None or context is not None:
            raise InputError("--requests and --context need --best", help="add --best")
        return None
    if fit:
        raise InputError("--fit cannot be combined with --best", help="remove --fit or --best")
    if several:
        help_ = "name one recipe and one version"
        raise InputError("--best needs a single recipe and version", help=help_)
    return LoadRequest(requests, context)


def planned_side(
    side: PlanSide,
    found: Lookup,
    rules: Iterable[Rule],
    *,
    fit: bool,
    requested_load: LoadRequest | None,
    asker: EngineQuerier | None = None,
) -> PlannedDeployment:
    """Return the plan of one side on its hardware. Raises NoJudgeError."""
    prepared = side.prepared
    name, cpu = prepared.recipe.deployment.hardware.name, prepared.cpu is not None
    chosen, note = choose_hardware(found.hardware, name, probe_hardware, cpu=cpu), ""
    if chosen.unknown is not None:
        help_ = f"; {chosen.unknown.help}" if chosen.unknown.help else ""
        note = f"the recipe uses this machine's GPUs, but {chosen.unknown.why}{help_}"
    here = replace(found, hardware=chosen.hardware)
    return planned(
        prepared,
        here,
        rules,
        label=side.label,
        hardware_note=note,
        fit=fit,
        requested_load=requested_load,
        asker=asker,
    )


def roles_exit_code(found: DeploymentPlan, *, strict: bool) -> ExitCode:
    """Return 1 if a role will not serve (`strict`: or there are warnings); else 0."""
    failing = found.fails or (strict and found.has_warnings)
    return ExitCode.FAILED if failing else ExitCode.CLEAN


def exit_code(plans: Sequence[PlannedDeployment], *, strict: bool) -> ExitCode:
    """Return 1 if a plan has errors (`strict`: or warnings) or does not fit in memory; else 0."""
    failing = any(planned.fails for planned in plans)
    failing |= strict and any(planned.count(Severity.WARNING) for planned in plans)
    return ExitCode.FAILED if failing else ExitCode.CLEAN


class OptionUnansweredError(SpeclaunchError):
    """Raised if `--fit` or `--best` has no result (exit code 3; 1 if the plan fails)."""

    exit_code = ExitCode.NOTHING


def unanswered(option: str, planned: PlannedDeployment, code: ExitCode) -> OptionUnansweredError:
    """Return the error for an `option` without a result."""
    facts = planned.plan.facts
    helps = [] if facts.hardware else ["name the hardware, for example --hardware h100:8"]
    helps += [f"{fact.what}: {fact.help or fact.why}" for fact in facts.unknown]
    error = OptionUnansweredError(
        f"{option} has no result: {planned.unanswered}", help="; ".join(helps) or None
    )
    if code is not ExitCode.CLEAN:
        error.exit_code = code
    return error


class RolePlan(Struct, frozen=True):
    """A role's number of servers, hosts per server, and plan of one server."""

    role: str
    replicas: int
    hosts: int | None
    """Number of hosts of one server; None if unknown."""
    gpus_of_a_host: int | None
    planned: PlannedDeployment

    @property
    def gpus(self) -> int | None:
        """Number of GPUs of one server; None if unknown."""
        return _combined(prod, self.hosts, self.gpus_of_a_host)


class DeploymentPlan(Struct, frozen=True):
    """A recipe's role plans at one version. `findings`: cross-role findings."""

    name: str
    version: str
    roles: tuple[RolePlan, ...]
    findings: tuple[Finding, ...]

    @property
    def servers(self) -> int:
        return sum(role.replicas for role in self.roles)

    @property
    def hosts(self) -> int | None:
        return _combined(sum, *(_combined(prod, r.replicas, r.hosts) for r in self.roles))

    @property
    def gpus(self) -> int | None:
        return _combined(sum, *(_combined(prod, r.replicas, r.gpus) for r in self.roles))

    @property
    def fails(self) -> bool:
        errors = any(finding.severity is Severity.ERROR for finding in self.findings)
        return errors or any(role.planned.fails for role in self.roles)

    @property
    def has_warnings(self) -> bool:
        warned = any(finding.severity is Severity.WARNING for finding in self.findings)
        return warned or any(role.planned.count(Severity.WARNING) for role in self.roles)

    def differing(self) -> list[tuple[str, tuple[EffectiveArgument | None, ...]]]:
        """Return the arguments that differ between roles, each with one entry per role or None."""
        rows = [{row.name: row for row in role.planned.rows} for role in self.roles]
        names = dict.fromkeys(name for some in rows for name in some)
        found = [(name, tuple(some.get(name) for some in rows)) for name in names]
        return [(name, some) for name, some in found if len({_value(row) for row in some}) > 1]


def plans_of_roles(
    recipe: Recipe, version: str | None, lookup: Lookup, rules: Sequence[Rule]
) -> DeploymentPlan:
    """Return the plans of all roles. Raises InputError with all problems, and NoJudgeError."""
    sides = [
        PlanSide(prepare(role, version, dry_run=True), str(role.role)) for role in recipe.parts
    ]
    roles: list[RolePlan] = []
    for side, role in zip(sides, recipe.parts, strict=True):
        planned = planned_side(side, lookup, rules, fit=False, requested_load=None)
        own = recipe.deployment.roles[str(role.role)]
        hosts = planned.plan.value_or_none("nnodes")
        gpus = _gpus_needed(planned.plan)
        roles.append(RolePlan(str(role.role), own.replicas, hosts, gpus, planned))
    newest = sides[0].prepared
    across = findings_across(recipe, newest.catalogue.version, lookup, rules)
    return DeploymentPlan(recipe.deployment.name, newest.version, tuple(roles), across)


def _gpus_needed(plan: Plan) -> int | None:
    try:
        return gpus_needed(plan)
    except UnknownValueError:
        return None


def _value(row: EffectiveArgument | None) -> str:
    return "" if row is None else f"{row.outcome is ArgumentOutcome.UNKNOWN} {row.effective!r}"


def _combined(combine: Callable[[list[int]], int], *numbers: int | None) -> int | None:
    """Return the sum or product of the numbers; None if any is unknown."""
    known = [number for number in numbers if number is not None]
    return combine(known) if len(known) == len(numbers) else None
