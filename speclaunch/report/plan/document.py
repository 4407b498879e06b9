"""A plan, or the difference of plans, as JSON.

A record of `schema.py` reads the attributes of its source by itself; here is only what has another
shape there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from speclaunch.errors import COMMAND_LINE
from speclaunch.plan.effective_arguments import ArgumentOutcome, EffectiveArgument
from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.plan.topics import parallel, spec_v2
from speclaunch.plan.topics.memory import draft_in_pool
from speclaunch.planning.comparison import PlanComparison
from speclaunch.planning.planned_deployment import Coverage, NoCoverage, PlannedDeployment
from speclaunch.report.findings_json import checkpoint_json, finding_json
from speclaunch.report.plan import schema

if TYPE_CHECKING:
    from speclaunch.planning.advice import Advice, Fitting
    from speclaunch.planning.plan_requests import DeploymentPlan


def plan_document(planned: PlannedDeployment) -> str:
    """One plan; see docs/reference/plan.md."""
    return schema.PlanDocument(**dict(_plan(planned))).model_dump_json(indent=2)


def comparison_document(plans: Sequence[PlannedDeployment], found: Sequence[PlanComparison]) -> str:
    """Several plans, and what changes from each to the next."""
    return schema.ComparisonDocument.model_validate(
        {
            "plans": [_plan(planned) for planned in plans],
            "comparisons": [_comparison(one, number) for number, one in enumerate(found)],
        }
    ).model_dump_json(indent=2)


def roles_document(found: DeploymentPlan) -> str:
    """The roles of a recipe, and what needs several of them."""
    return schema.RolesDocument.model_validate(
        {
            "recipe": found.name,
            "engine": found.version,
            "servers": found.servers,
            "hosts": found.hosts,
            "gpus": found.gpus,
            "roles": [
                {
                    "role": one.role,
                    "replicas": one.replicas,
                    "hosts": one.hosts,
                    "gpus_of_a_host": one.gpus_of_a_host,
                    "gpus": one.gpus,
                    "plan": _plan(one.planned),
                }
                for one in found.roles
            ],
            "findings": [finding_json(finding) for finding in found.findings],
        }
    ).model_dump_json(indent=2)


def _plan(planned: PlannedDeployment) -> schema.PlanRecord:
    return schema.PlanRecord.model_validate(
        {
            "recipe": planned.name,
            "label": planned.label,
            "path": planned.path,
            "engine": planned.version,
            "hardware": planned.hardware,
            "hardware_note": planned.hardware_note or None,
            "arguments": [_argument(row) for row in planned.rows],
            "derived": _derived(planned.plan),
            "budget": planned.budget,
            "margins": planned.margins,
            "graphs": _graphs(planned.coverage),
            "findings": [finding_json(finding) for finding in planned.findings],
            "unjudged": planned.unjudged,
            "checkpoints": [checkpoint_json(one) for one in planned.plan.facts.checkpoints],
            "unknown": planned.plan.facts.unknown,
            "argv": planned.command.argv,
            "env": planned.command.env,
            "notes": planned.command.notes,
            "suggestion": None if planned.fitting is None else _suggestion(planned.fitting),
            "best": None if planned.advice is None else _best(planned.advice),
            "engine_says": planned.engine_says,
        }
    )


def _best(found: Advice) -> dict[str, Any]:
    best, load = found.best, found.best.load
    return {
        "fit": best.fit,
        "why": best.why,
        "requests": load.requests or None,
        "context": load.context or None,
        "requests_with_room": best.requests,
        "tokens_needed": best.tokens_needed,
        "arguments": best.changes,
        "graph_sizes": best.graph_sizes,
        "margins": best.margins,
        "overrides": found.overrides,
        "diff": found.diff,
        "assumed": load.assumed,
        "command": found.command,
        "alternatives": best.alternatives,
    }


def _suggestion(found: Fitting) -> dict[str, Any]:
    suggestion = found.suggestion
    return {
        "fit": suggestion.fit,
        "why": suggestion.why,
        "objective": suggestion.objective,
        "cost": suggestion.cost,
        "changes": suggestion.changes,
        "overrides": found.overrides,
        "diff": found.diff,
        "command": found.command,
        "tokens": suggestion.after.tokens if suggestion.after is not None else None,
        "alternatives": suggestion.alternatives,
        "margins": suggestion.margins,
    }


def _argument(row: EffectiveArgument) -> dict[str, Any]:
    place = row.place
    return {
        "name": row.name,
        "spelling": row.spelling,
        "concern": row.concern,
        "outcome": row.outcome,
        "is_given": row.is_given,
        "given": row.given,
        "effective": row.effective,
        "why": row.why,
        "source": row.source,
        "changed": row.outcome is ArgumentOutcome.CHANGED,
        "silent": row.silent,
        "unknown": row.why if row.outcome is ArgumentOutcome.UNKNOWN else None,
        "derived": False,  # of `version` 1: what is no argument has a place of its own
        "path": place.path if place is not None else None,
        "line": place.line if place is not None and place.path != COMMAND_LINE else None,
    }


_DERIVED: Mapping[str, Callable[[Plan], Any]] = {
    "attention_ranks": parallel.attention_ranks,
    "replicas": parallel.replicas,
    "spec_v2": spec_v2.runs,
    "draft_in_pool": draft_in_pool,
}
"""What the engine works out without an argument for it: the fields of `schema.DerivedRecord`."""


def _derived(plan: Plan) -> dict[str, Any]:
    """The derived facts; None where one is not known."""
    found: dict[str, Any] = {}
    for name, ask in _DERIVED.items():
        try:
            found[name] = ask(plan)
        except UnknownValueError:
            found[name] = None
    return found


def _graphs(found: Coverage | NoCoverage) -> dict[str, Any]:
    if isinstance(found, NoCoverage):
        known = {"known": not found.unknown, "why": found.why, "captured": [], "spans": []}
        return dict.fromkeys(schema.Graphs.model_fields) | known
    worst = found.worst
    return {
        "known": True,
        "why": found.note or None,
        "captured": found.sizes,
        "batches": found.most,
        "spans": found.spans(),
        "average_padding": round(found.average_waste, 4),
        "worst_padding": round(found.waste(worst), 4) if worst is not None else 0.0,
        "worst_batch": worst,
    }


def _comparison(found: PlanComparison, number: int) -> dict[str, Any]:
    return {
        "before": number,
        "after": number + 1,
        "title": found.title,
        "arguments": [
            {
                "name": one.name,
                "concern": one.concern,
                "before": None if one.before is None else _argument(one.before),
                "after": None if one.after is None else _argument(one.after),
            }
            for one in found.arguments
        ],
        "findings_gained": [finding_json(finding) for finding in found.gained],
        "findings_lost": [finding_json(finding) for finding in found.lost],
        "budget": [one for one in found.budget if one.differs],
        "command": found.command,
    }
