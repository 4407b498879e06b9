"""JSON of `speclaunch plan`: a stable contract for scripts.

`docs/reference/plan.schema.json` is generated from these models; a test compares them. Within
version 1, keys are never removed or redefined; new keys may be added. A record reads the attributes
of its source directly; the functions below build records with a different shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec.json
from msgspec import Struct, convert, field
from msgspec.structs import asdict

from speclaunch.app.output.formats_services import checkpoint_json, finding_json
from speclaunch.core import COMMAND_LINE, json_value
from speclaunch.engine import (
    ArgumentOutcome,
    EffectiveArgument,
    Plan,
    UnknownValueError,
    draft_in_pool,
    parallel,
    spec_v2,
)
from speclaunch.measure import Coverage, NoCoverage, PlanComparison, PlannedDeployment

if TYPE_CHECKING:
    from speclaunch.engine import MemoryBudget
    from speclaunch.measure import Advice, DeploymentPlan, Fitting


def _json_value(value: Any) -> Any:
    """Convert a value for JSON; non-finite numbers and unknown types become text."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Struct):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(key): _json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_json_value(item) for item in value]
    return str(value)


class _Record(Struct, frozen=True, forbid_unknown_fields=True):
    """Record built from an object's attributes of the same names, or from its own JSON."""


class ArgumentRecord(_Record, frozen=True):
    """One server argument. `why`: the source of its effective value."""

    name: str
    spelling: str
    concern: Literal["speculation", "memory", "scheduling", "attention", "graphs", "serving"]
    outcome: Literal["given", "default", "filled", "changed", "unknown"]
    is_given: bool
    given: Any
    effective: Any
    why: str
    source: str | None
    changed: bool
    silent: bool
    unknown: str | None
    derived: bool
    path: str | None
    line: int | None


class DerivedRecord(_Record, frozen=True):
    """Values that the engine computes without an argument; null if a fact is missing."""

    spec_v2: bool | None
    draft_in_pool: bool | None
    attention_ranks: int | None
    replicas: int | None


class Bytes(_Record, frozen=True):
    """A size in bytes, its explanation, and whether it is exact."""

    bytes: int
    why: str
    exact: bool


class ShareRecord(Bytes, frozen=True):
    """One use of a GPU's memory."""

    use: str


class Rank(_Record, frozen=True):
    """Memory of the ranks that have the same budget."""

    ranks: list[int]
    memory_bytes: int
    short_bytes: int
    shares: list[ShareRecord]


class MemoryRecord(_Record, frozen=True):
    """The memory budget; unknown values are null."""

    fit: Literal["fits", "tight", "fails", "unknown"]
    why: str
    phase: str | None
    message: str | None
    ranks: list[Rank]
    target_kv_bytes_per_token: Bytes | None
    draft_kv_bytes_per_token: Bytes | None
    tokens: int | None
    running_requests: int | None
    context_length: int | None
    requests_at_context: int | None
    mem_fraction_static: float | None
    working_fractions: list[float] | None
    unknown: list[str]
    notes: list[str]


class MarginChoice(_Record, frozen=True):
    """One `mem_fraction_static` and its result. `spare_bytes`: free memory of a GPU in the best
    case."""

    fraction: float = field(name="mem_fraction_static")
    tokens: int
    running_requests: int
    requests_at_context: int | None
    spare_bytes: int


class FractionMargins(_Record, frozen=True):
    """The largest fractions that certainly work, are likely to work, and work only in the best case
    (`edge`); null if none does. No fraction below `least` works."""

    least: float
    certain: MarginChoice | None
    likely: MarginChoice | None
    edge: MarginChoice


class GraphSpan(_Record, frozen=True):
    """Consecutive batch sizes that are decoded in the same way."""

    first: int
    last: int
    covered: Literal["captured", "padded", "uncovered"]


class Graphs(_Record, frozen=True):
    """The CUDA graphs of decode. `why`: reason if none or unknown; else a remark, if any."""

    known: bool
    why: str | None
    captured: list[int]
    batches: int | None
    spans: list[GraphSpan]
    average_padding: float | None
    worst_padding: float | None
    worst_batch: int | None


class FindingRecord(_Record, frozen=True):
    """A finding, as `lint` writes it."""

    code: str
    rule: str
    severity: Literal["error", "warning", "info"]
    message: str
    why: str
    fix: str | None
    applicability: Literal["safe", "unsafe"] | None
    path: str
    line: int | None
    column: int | None
    source: str
    url: str | None


class SkippedRuleRecord(_Record, frozen=True):
    """A rule without a result, and the reason."""

    code: str
    rule: str
    reason: str


class CheckpointRecord(_Record, frozen=True):
    """Sources of the facts of a checkpoint. `unread`: facts that no source has."""

    name: str
    provenance: Literal["directory", "cache", "repository", "index", "hub"] | None
    where: str | None
    read: str | None
    revision: str | None
    doubt: str | None
    assumed: str | None
    unread: list[str]


class UnknownFactRecord(_Record, frozen=True):
    """A fact that is unknown, the reason, and the remedy."""

    what: str
    why: str
    help: str | None = field(name="fix")


class SuggestedChange(_Record, frozen=True):
    """One argument to change: its effective value and the suggested value."""

    name: str
    before: Any
    value: Any
    why: str
    cost: str


class AlternativeRecord(_Record, frozen=True):
    """Another change that would make the deployment fit if no settings do."""

    what: str
    verdict: str
    fits: bool
    changes: dict[str, Any]


class SuggestionRecord(_Record, frozen=True):
    """Result of `--fit`. If `fit` is `fits` and `changes` is empty, nothing needs to change."""

    fit: Literal["fits", "tight", "fails", "unknown"]
    why: str
    objective: str
    cost: str
    changes: list[SuggestedChange]
    overrides: list[str]
    diff: list[str]
    command: str | None
    tokens: int | None
    alternatives: list[AlternativeRecord]
    margins: FractionMargins | None


class BestForLoad(_Record, frozen=True):
    """Result of `--best` for `requests` concurrent requests of `context` tokens each.

    `fits`: all have room. `tight`: all have room only in the best case. `fails`: only
    `requests_with_room` requests have room. `unknown`: not predictable."""

    fit: Literal["fits", "tight", "fails", "unknown"]
    why: str
    requests: int | None
    context: int | None
    requests_with_room: int
    tokens_needed: int
    arguments: dict[str, Any]
    graph_sizes: list[int]
    margins: FractionMargins | None
    overrides: list[str]
    diff: list[str]
    assumed: list[str]
    command: str | None
    alternatives: list[AlternativeRecord]


class ContradictionRecord(_Record, frozen=True):
    """A value that speclaunch and the engine compute differently: a bug in speclaunch. `report`:
    one line to paste into a bug report."""

    name: str
    ours: Any
    engine: Any
    report: str


class EngineCheckRecord(_Record, frozen=True):
    """Result of the engine check (`--ask`). `accepted` is null if it did not run; `why` is the
    reason. `filled`: unknown arguments that now have the engine's values."""

    release: str
    accepted: bool | None
    why: str | None
    filled: list[str]
    contradictions: list[ContradictionRecord]


class PlanRecord(_Record, frozen=True, kw_only=True):
    """One plan."""

    recipe: str
    label: str
    path: str
    engine: str
    hardware: str | None
    hardware_note: str | None
    arguments: list[ArgumentRecord]
    derived: DerivedRecord
    budget: MemoryRecord
    margins: FractionMargins | None
    graphs: Graphs
    findings: list[FindingRecord]
    unjudged: list[SkippedRuleRecord]
    checkpoints: list[CheckpointRecord]
    unknown: list[UnknownFactRecord]
    argv: list[str]
    env: dict[str, str | None]
    notes: list[str]
    suggestion: SuggestionRecord | None
    best: BestForLoad | None
    engine_says: EngineCheckRecord | None


class PlanDocument(PlanRecord, frozen=True):
    """`speclaunch plan recipe=R --output-format json`."""

    version: Literal[1] = 1


class ChangedArgument(_Record, frozen=True):
    """An argument that differs between plans; `before` or `after` is null if a version lacks it."""

    name: str
    concern: str
    before: ArgumentRecord | None
    after: ArgumentRecord | None


class ChangedNumber(_Record, frozen=True):
    """A number that differs between the two budgets."""

    name: str
    unit: str
    before: int | float | str | None
    after: int | float | str | None


class ComparisonRecord(_Record, frozen=True):
    """Differences between two plans; `before` and `after` are indices into `plans`."""

    before: int
    after: int
    title: str
    arguments: list[ChangedArgument]
    findings_gained: list[FindingRecord]
    findings_lost: list[FindingRecord]
    budget: list[ChangedNumber]
    command: list[str]


class ComparisonDocument(_Record, frozen=True, kw_only=True):
    """JSON of `plan` for several recipes or versions."""

    version: Literal[1] = 1
    plans: list[PlanRecord]
    comparisons: list[ComparisonRecord]


class RoleRecord(_Record, frozen=True):
    """One role of a recipe; `gpus`: GPUs of one server, or null if unknown."""

    role: str
    replicas: int
    hosts: int | None
    gpus_of_a_host: int | None
    gpus: int | None
    plan: PlanRecord


class RolesDocument(_Record, frozen=True, kw_only=True):
    """`speclaunch plan recipe=R --output-format json` of a recipe with several roles. `findings`:
    findings of rules that compare roles. Hosts and GPUs are totals of all servers."""

    version: Literal[1] = 1
    recipe: str
    engine: str
    servers: int
    hosts: int | None
    gpus: int | None
    roles: list[RoleRecord]
    findings: list[FindingRecord]


def plan_document(planned: PlannedDeployment) -> str:
    """Return one plan as JSON; see docs/reference/plan.md."""
    return _text(PlanDocument(**asdict(_plan(planned))))


def comparison_document(plans: Sequence[PlannedDeployment], found: Sequence[PlanComparison]) -> str:
    """Return several plans and their differences as JSON."""
    document = {
        "plans": [_plan(planned) for planned in plans],
        "comparisons": [_comparison(comparison, number) for number, comparison in enumerate(found)],
    }
    return _text(convert(document, ComparisonDocument, from_attributes=True))


def roles_document(found: DeploymentPlan) -> str:
    """Return the plans of a recipe's roles, and findings of rules that compare roles, as JSON."""
    document = {
        "recipe": found.name,
        "engine": found.version,
        "servers": found.servers,
        "hosts": found.hosts,
        "gpus": found.gpus,
        "roles": [
            {
                "role": role.role,
                "replicas": role.replicas,
                "hosts": role.hosts,
                "gpus_of_a_host": role.gpus_of_a_host,
                "gpus": role.gpus,
                "plan": _plan(role.planned),
            }
            for role in found.roles
        ],
        "findings": [finding_json(finding) for finding in found.findings],
    }
    return _text(convert(document, RolesDocument))


def _text(document: Struct) -> str:
    return msgspec.json.format(msgspec.json.encode(json_value(document)), indent=2).decode()


def _plan(planned: PlannedDeployment) -> PlanRecord:
    answer = planned.engine_check
    check = None if answer is None else _json_value(answer) | {"why": answer.why or None}
    return convert(
        {
            "recipe": planned.name,
            "label": planned.label,
            "path": planned.path,
            "engine": planned.version,
            "hardware": planned.hardware,
            "hardware_note": planned.hardware_note or None,
            "arguments": [_argument(row) for row in planned.rows],
            "derived": _derived(planned.plan),
            "budget": _memory(planned.budget),
            "margins": planned.margins,
            "graphs": _graphs(planned.coverage),
            "findings": [finding_json(finding) for finding in planned.findings],
            "unjudged": planned.skipped,
            "checkpoints": [checkpoint_json(c) for c in planned.plan.facts.checkpoints],
            "unknown": planned.plan.facts.unknown,
            "argv": planned.command.argv,
            "env": planned.command.env,
            "notes": planned.command.notes,
            "suggestion": None if planned.fitting is None else _suggestion(planned.fitting),
            "best": None if planned.advice is None else _best(planned.advice),
            "engine_says": check,
        },
        PlanRecord,
        from_attributes=True,
    )


def _memory(found: MemoryBudget) -> dict[str, Any]:
    return {name: getattr(found, name, None) for name in MemoryRecord.__struct_fields__} | {
        "target_kv_bytes_per_token": found.target_kv,
        "draft_kv_bytes_per_token": found.draft_kv,
        "ranks": [
            {
                "ranks": rank.ranks,
                "memory_bytes": rank.memory_bytes,
                "short_bytes": rank.short_bytes,
                "shares": [
                    {
                        "bytes": share.size.bytes,
                        "why": share.size.why,
                        "exact": share.size.exact,
                        "use": share.use,
                    }
                    for share in rank.shares
                ],
            }
            for rank in found.ranks
        ],
    }


def _best(found: Advice) -> dict[str, Any]:
    best, load = found.best, found.best.load
    return {
        "fit": best.fit,
        "why": best.why,
        "requests": load.requests or None,
        "context": load.context or None,
        "requests_with_room": best.requests,
        "tokens_needed": best.tokens_needed,
        "arguments": _json_value(best.changes),
        "graph_sizes": best.graph_sizes,
        "margins": best.margins,
        "overrides": found.overrides,
        "diff": found.diff,
        "assumed": load.assumed,
        "command": found.command,
        "alternatives": _json_value(best.alternatives),
    }


def _suggestion(found: Fitting) -> dict[str, Any]:
    suggestion = found.suggestion
    return {
        "fit": suggestion.fit,
        "why": suggestion.why,
        "objective": suggestion.objective,
        "cost": suggestion.cost,
        "changes": _json_value(suggestion.changes),
        "overrides": found.overrides,
        "diff": found.diff,
        "command": found.command,
        "tokens": suggestion.after.tokens if suggestion.after is not None else None,
        "alternatives": _json_value(suggestion.alternatives),
        "margins": suggestion.margins,
    }


def _argument(row: EffectiveArgument) -> dict[str, Any]:
    place = row.place
    return {
        "name": row.name,
        "spelling": row.version_name,
        "concern": row.concern,
        "outcome": row.outcome,
        "is_given": row.is_set,
        "given": _json_value(row.user_value),
        "effective": _json_value(row.effective),
        "why": row.why,
        "source": row.source or None,
        "changed": row.outcome is ArgumentOutcome.CHANGED,
        "silent": row.silent,
        "unknown": row.why if row.outcome is ArgumentOutcome.UNKNOWN else None,
        "derived": False,  # always false in `version` 1: derived facts have their own record
        "path": place.path if place is not None else None,
        "line": place.line if place is not None and place.path != COMMAND_LINE else None,
    }


_DERIVED: Mapping[str, Callable[[Plan], Any]] = {
    "attention_ranks": parallel.attention_ranks,
    "replicas": parallel.replicas,
    "spec_v2": spec_v2.runs,
    "draft_in_pool": draft_in_pool,
}
"""Functions that compute the fields of `DerivedRecord`, by field."""


def _derived(plan: Plan) -> dict[str, Any]:
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
        return dict.fromkeys(Graphs.__struct_fields__) | known
    worst = found.worst
    return {
        "known": True,
        "why": found.note or None,
        "captured": found.sizes,
        "batches": found.most,
        "spans": list(found.spans()),
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
                "name": difference.name,
                "concern": difference.concern,
                "before": None if difference.before is None else _argument(difference.before),
                "after": None if difference.after is None else _argument(difference.after),
            }
            for difference in found.arguments
        ],
        "findings_gained": [finding_json(finding) for finding in found.gained],
        "findings_lost": [finding_json(finding) for finding in found.lost],
        "budget": [row for row in found.budget if row.differs],
        "command": found.command,
    }
