"""The plans of the roles of one recipe, side by side: what each is, and what all of it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from speclaunch.launch.prepare import prepare
from speclaunch.lint.recipe_findings import findings_across
from speclaunch.plan.effective_arguments import ArgumentOutcome, EffectiveArgument
from speclaunch.plan.placement import gpus_needed
from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.planning.plan_requests import Side, planned_side
from speclaunch.planning.planned_deployment import PlannedDeployment
from speclaunch.recipe.load import Recipe
from speclaunch.record import record
from speclaunch.rules.examine import Lookup
from speclaunch.rules.finding import Finding, Severity
from speclaunch.rules.interface import Rule


@record
class RolePlan:
    """One role: how many servers, of how many hosts, and the plan of one of them."""

    role: str
    replicas: int
    hosts: int | None
    """Of one server; None: it is not known."""
    gpus_of_a_host: int | None
    planned: PlannedDeployment

    @property
    def gpus(self) -> int | None:
        """Of one server."""
        return _product(self.hosts, self.gpus_of_a_host)


@record
class DeploymentPlan:
    """All roles of a recipe at one version. `findings` are those that need several roles."""

    name: str
    version: str
    roles: tuple[RolePlan, ...]
    findings: tuple[Finding, ...]

    @property
    def servers(self) -> int:
        """All of them."""
        return sum(one.replicas for one in self.roles)

    @property
    def hosts(self) -> int | None:
        """Of all servers."""
        return _sum(_product(one.replicas, one.hosts) for one in self.roles)

    @property
    def gpus(self) -> int | None:
        """Of all servers."""
        return _sum(_product(one.replicas, one.gpus) for one in self.roles)

    @property
    def fails(self) -> bool:
        """Whether a role will not serve, or not with the others."""
        errors = any(one.severity is Severity.ERROR for one in self.findings)
        return errors or any(one.planned.fails for one in self.roles)

    @property
    def has_warnings(self) -> bool:
        """Whether there is something to be warned of."""
        warned = any(one.severity is Severity.WARNING for one in self.findings)
        return warned or any(one.planned.count(Severity.WARNING) for one in self.roles)

    def differing(self) -> list[tuple[str, tuple[EffectiveArgument | None, ...]]]:
        """The arguments that are not the same in all roles, each as every role has it."""
        rows = [{row.name: row for row in one.planned.rows} for one in self.roles]
        names = dict.fromkeys(name for some in rows for name in some)
        found = [(name, tuple(some.get(name) for some in rows)) for name in names]
        return [(name, some) for name, some in found if len({_value(row) for row in some}) > 1]


def plans_of_roles(
    recipe: Recipe, version: str | None, lookup: Lookup, rules: Sequence[Rule]
) -> DeploymentPlan:
    """The plans of all roles. Raises InputError with all that is wrong, and NoJudgeError."""
    sides = [Side(prepare(role, version, dry_run=True), str(role.role)) for role in recipe.parts]
    roles: list[RolePlan] = []
    for side, role in zip(sides, recipe.parts, strict=True):
        planned = planned_side(side, lookup, rules, fit=False, wish=None)
        own = recipe.deployment.roles[str(role.role)]
        hosts = _known(lambda plan: plan.value("nnodes"), planned.plan)
        gpus = _known(gpus_needed, planned.plan)
        roles.append(RolePlan(str(role.role), own.replicas, hosts, gpus, planned))
    newest = sides[0].prepared
    across = findings_across(recipe, newest.catalogue.version, lookup, rules)
    return DeploymentPlan(recipe.deployment.name, newest.version, tuple(roles), across)


def _known(ask: Callable[[Plan], int | None], plan: Plan) -> int | None:
    try:
        return ask(plan)
    except UnknownValueError:
        return None


def _value(row: EffectiveArgument | None) -> str:
    return "" if row is None else f"{row.outcome is ArgumentOutcome.UNKNOWN} {row.effective!r}"


def _product(*numbers: int | None) -> int | None:
    found = 1
    for one in numbers:
        if one is None:
            return None
        found *= one
    return found


def _sum(numbers: Iterable[int | None]) -> int | None:
    found = 0
    for one in numbers:
        if one is None:
            return None
        found += one
    return found
