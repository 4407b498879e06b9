"""A plan, or the difference of plans, as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from speclaunch.errors import COMMAND_LINE
from speclaunch.plan.budget import Budget, RankBudget, Size
from speclaunch.plan.effective_arguments import ArgumentOutcome, EffectiveArgument
from speclaunch.plan.fit.alternatives import Alternative
from speclaunch.plan.memory.margins import Choice, Margins
from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.planning.comparison import Comparison
from speclaunch.planning.coverage import Coverage, NoCoverage
from speclaunch.planning.planned_deployment import PlannedDeployment
from speclaunch.report.findings_json import checkpoint_json, finding_json
from speclaunch.report.plan import schema
from speclaunch.rules.finding import Finding

if TYPE_CHECKING:
    from speclaunch.planning.advice import Advice, Fitting
    from speclaunch.planning.asked import EngineSays
    from speclaunch.planning.role_plans import DeploymentPlan


def plan_document(planned: PlannedDeployment) -> str:
    """One plan; see docs/reference/plan.md."""
    record = dict(_plan(planned))
    return schema.PlanDocument(**record).model_dump_json(indent=2)


def comparison_document(plans: Sequence[PlannedDeployment], found: Sequence[Comparison]) -> str:
    """Several plans, and what changes from each to the next."""
    return schema.ComparisonDocument(
        plans=[_plan(planned) for planned in plans],
        comparisons=[_comparison(one, number) for number, one in enumerate(found)],
    ).model_dump_json(indent=2)


def roles_document(found: DeploymentPlan) -> str:
    """The roles of a recipe, and what needs several of them."""
    return schema.RolesDocument(
        recipe=found.name,
        engine=found.version,
        servers=found.servers,
        hosts=found.hosts,
        gpus=found.gpus,
        roles=[
            schema.RoleRecord(
                role=one.role,
                replicas=one.replicas,
                hosts=one.hosts,
                gpus_of_a_host=one.gpus_of_a_host,
                gpus=one.gpus,
                plan=_plan(one.planned),
            )
            for one in found.roles
        ],
        findings=[_finding(finding) for finding in found.findings],
    ).model_dump_json(indent=2)


def _plan(planned: PlannedDeployment) -> schema.PlanRecord:
    return schema.PlanRecord(
        recipe=planned.name,
        label=planned.label,
        path=planned.path,
        engine=planned.version,
        hardware=planned.hardware,
        hardware_note=planned.hardware_note or None,
        arguments=[_argument(row) for row in planned.rows],
        derived=_derived(planned.plan),
        budget=_budget(planned.budget),
        margins=None if planned.margins is None else _margins(planned.margins),
        graphs=_graphs(planned.coverage),
        findings=[_finding(finding) for finding in planned.findings],
        unjudged=[
            schema.UnjudgedRecord(code=one.code, rule=one.rule, reason=one.reason)
            for one in planned.unjudged
        ],
        checkpoints=[
            schema.CheckpointRecord(**checkpoint_json(one))
            for one in planned.plan.facts.checkpoints
        ],
        unknown=[
            schema.UnknownFactRecord(what=fact.what, why=fact.why, fix=fact.help)
            for fact in planned.plan.facts.unknown
        ],
        argv=list(planned.command.argv),
        env=dict(planned.command.env),
        notes=list(planned.command.notes),
        suggestion=None if planned.fitting is None else _suggestion(planned.fitting),
        best=None if planned.advice is None else _best(planned.advice),
        engine_says=None if planned.engine_says is None else _engine_says(planned.engine_says),
    )


def _engine_says(said: EngineSays) -> schema.EngineSaysRecord:
    return schema.EngineSaysRecord(
        release=said.release,
        accepted=said.accepted,
        why=said.why or None,
        filled=list(said.filled),
        contradictions=[
            schema.ContradictionRecord(
                name=one.name,
                ours=_plain(one.ours),
                engine=_plain(one.engine),
                report=one.report,
            )
            for one in said.contradictions
        ],
    )


def _margins(found: Margins) -> schema.FractionMargins:
    return schema.FractionMargins(
        least=found.least,
        certain=None if found.certain is None else _choice(found.certain),
        likely=None if found.likely is None else _choice(found.likely),
        edge=_choice(found.edge),
    )


def _choice(one: Choice) -> schema.MarginChoice:
    return schema.MarginChoice(
        mem_fraction_static=one.fraction,
        tokens=one.tokens,
        running_requests=one.running_requests,
        requests_at_context=one.requests_at_context,
        spare_bytes=one.spare_bytes,
    )


def _best(found: Advice) -> schema.BestForLoad:
    best = found.best
    return schema.BestForLoad(
        fit=best.fit.value,
        why=best.why,
        requests=best.load.requests or None,
        context=best.load.context or None,
        requests_with_room=best.requests,
        tokens_needed=best.tokens_needed,
        arguments=_plain(best.changes),
        graph_sizes=list(best.graph_sizes),
        margins=None if best.margins is None else _margins(best.margins),
        overrides=list(found.overrides),
        diff=list(found.diff),
        assumed=list(best.load.assumed),
        command=found.command,
        alternatives=[_alternative(one) for one in best.alternatives],
    )


def _alternative(one: Alternative) -> schema.AlternativeRecord:
    return schema.AlternativeRecord(
        what=one.what,
        verdict=one.verdict,
        fits=one.fits,
        changes=_plain(one.changes),
    )


def _suggestion(found: Fitting) -> schema.SuggestionRecord:
    suggestion = found.suggestion
    return schema.SuggestionRecord(
        fit=suggestion.fit.value,
        why=suggestion.why,
        objective=suggestion.objective,
        cost=suggestion.cost,
        changes=[
            schema.SuggestedChange(
                name=change.name,
                before=_plain(change.before),
                value=_plain(change.value),
                why=change.why,
                cost=change.cost,
            )
            for change in suggestion.changes
        ],
        overrides=list(found.overrides),
        diff=list(found.diff),
        command=found.command,
        tokens=suggestion.after.tokens if suggestion.after is not None else None,
        alternatives=[_alternative(one) for one in suggestion.alternatives],
        margins=None if suggestion.margins is None else _margins(suggestion.margins),
    )


def _argument(row: EffectiveArgument) -> schema.ArgumentRecord:
    unknown = row.outcome is ArgumentOutcome.UNKNOWN
    place = row.place
    return schema.ArgumentRecord(
        name=row.name,
        spelling=row.spelling,
        concern=row.concern.value,
        outcome=row.outcome.value,
        is_given=row.is_given,
        given=_plain(row.given),
        effective=_plain(row.effective),
        why=row.why,
        source=row.source or None,
        changed=row.outcome is ArgumentOutcome.CHANGED,
        silent=row.silent,
        unknown=row.why if unknown else None,
        derived=False,  # of `version` 1: what is no argument has a place of its own
        path=place.path if place is not None else None,
        line=place.line if place is not None and place.path != COMMAND_LINE else None,
    )


def _derived(plan: Plan) -> schema.DerivedRecord:
    """What the engine works out without an argument for it; None where a fact is missing."""
    found: dict[str, Any] = {}
    for name in schema.DerivedRecord.model_fields:
        try:
            found[name] = getattr(plan.derived, name)
        except UnknownValueError:
            found[name] = None
    return schema.DerivedRecord(**found)


def _budget(budget: Budget) -> schema.MemoryRecord:
    return schema.MemoryRecord(
        fit=budget.fit.value,
        why=budget.why,
        phase=budget.phase.value if budget.phase is not None else None,
        message=budget.message,
        ranks=[_rank(rank) for rank in budget.ranks],
        target_kv_bytes_per_token=_size(budget.target_kv),
        draft_kv_bytes_per_token=_size(budget.draft_kv),
        tokens=budget.tokens,
        running_requests=budget.running_requests,
        context_length=budget.context_length,
        requests_at_context=budget.requests_at_context,
        mem_fraction_static=budget.mem_fraction_static,
        working_fractions=(
            None if budget.working_fractions is None else list(budget.working_fractions)
        ),
        unknown=list(budget.unknown),
        notes=list(budget.notes),
    )


def _rank(rank: RankBudget) -> schema.Rank:
    return schema.Rank(
        ranks=list(rank.ranks),
        memory_bytes=rank.memory_bytes,
        short_bytes=rank.short_bytes,
        shares=[
            schema.ShareRecord(
                use=share.use.value,
                bytes=share.size.bytes,
                why=share.size.why,
                exact=share.size.exact,
            )
            for share in rank.shares
        ],
    )


def _size(size: Size | None) -> schema.Bytes | None:
    return None if size is None else schema.Bytes.model_validate(size)


def _graphs(found: Coverage | NoCoverage) -> schema.Graphs:
    if isinstance(found, NoCoverage):
        return schema.Graphs(
            known=not found.unknown,
            why=found.why,
            captured=[],
            batches=None,
            spans=[],
            average_padding=None,
            worst_padding=None,
            worst_batch=None,
        )
    worst = found.worst
    return schema.Graphs(
        known=True,
        why=found.note or None,
        captured=list(found.sizes),
        batches=found.most,
        spans=[
            schema.GraphSpan(first=span.first, last=span.last, covered=span.covered.value)
            for span in found.spans()
        ],
        average_padding=round(found.average_waste, 4),
        worst_padding=round(found.waste(worst), 4) if worst is not None else 0.0,
        worst_batch=worst,
    )


def _comparison(found: Comparison, number: int) -> schema.ComparisonRecord:
    return schema.ComparisonRecord(
        before=number,
        after=number + 1,
        title=found.title,
        arguments=[
            schema.ChangedArgument(
                name=one.name,
                concern=one.concern.value,
                before=None if one.before is None else _argument(one.before),
                after=None if one.after is None else _argument(one.after),
            )
            for one in found.arguments
        ],
        findings_gained=[_finding(finding) for finding in found.gained],
        findings_lost=[_finding(finding) for finding in found.lost],
        budget=[
            schema.ChangedNumber(name=one.name, unit=one.unit, before=one.before, after=one.after)
            for one in found.budget
            if one.differs
        ],
        command=list(found.command),
    )


def _finding(finding: Finding) -> schema.FindingRecord:
    return schema.FindingRecord(**finding_json(finding))


def _plain(value: Any) -> Any:
    """A value that JSON has: no NaN, no tuple, nothing but text for what it does not know."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return str(value)
