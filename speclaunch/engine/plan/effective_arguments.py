"""Every argument of a plan as a row: user value, effective value, and reason.

Also compares two plans (of different engine versions or recipes) and finds idle arguments, which
belong to features that are not known to be on. Reports collapse them, but never omit them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import HIDDEN, Place, Redactor, redact
from speclaunch.engine.plan.budget import MemoryBudget, MemoryUse
from speclaunch.engine.plan.plan import Change, Plan, Reason, UnknownValueError
from speclaunch.engine.plan.topics import target
from speclaunch.engine.releases.argument import ArgumentKind
from speclaunch.engine.releases.command import is_secret_argument
from speclaunch.engine.releases.renames import canonical, current_name


class Concern(StrEnum):
    """The subject of an argument; members are in report order."""

    SPECULATION = "speculation"
    MEMORY = "memory"
    SCHEDULING = "scheduling"
    ATTENTION = "attention"
    GRAPHS = "graphs"
    SERVING = "serving"


class ArgumentOutcome(StrEnum):
    """Origin of an argument's effective value: the user, the parser's default, or the engine."""

    ACCEPTED = "given"
    """The engine accepts the user's value unchanged."""
    DEFAULT = "default"
    """The argument is not set. The parser's default applies."""
    FILLED = "filled"
    """The argument is not set. The engine computes a value."""
    CHANGED = "changed"
    """The user sets a value, but the engine runs with another value."""
    UNKNOWN = "unknown"
    """The effective value depends on a missing fact."""


class EffectiveArgument(Struct, frozen=True):
    """An argument of a plan. Secret values are `HIDDEN`."""

    name: str
    """Argument name in the newest engine."""
    version_name: str
    """Argument name in the plan's version."""
    concern: Concern
    outcome: ArgumentOutcome
    is_set: bool
    user_value: Any
    effective: Any
    """Effective value; None also if it is unknown (see `outcome`)."""
    why: str
    source: str = ""
    """The engine's file and line; empty if the value comes from the user alone."""
    silent: bool = False
    """True if the engine does not log the change."""
    place: Place | None = None
    """Place of the user's value; None if the user sets none."""

    @property
    def notable(self) -> bool:
        """True if a short report shows the argument: set, changed, unknown, or always important."""
        return self.outcome is not ArgumentOutcome.DEFAULT or self.name in _RANK


_ALWAYS = (
    "speculative_algorithm",
    "speculative_draft_model_path",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "mem_fraction_static",
    "max_total_tokens",
    "max_running_requests",
    "context_length",
    "kv_cache_dtype",
    "dtype",
    "quantization",
    "page_size",
    "tp_size",
    "chunked_prefill_size",
    "attention_backend",
    "cuda_graph_max_bs_decode",
    "cuda_graph_bs_decode",
)
"""Arguments that always matter to speculation or memory, in report order."""
_RANK = {name: rank for rank, name in enumerate(_ALWAYS)}
_MEMORY = frozenset(
    {
        "mem_fraction_static",
        "max_total_tokens",
        "context_length",
        "kv_cache_dtype",
        "dtype",
        "quantization",
        "quantization_param_path",
        "page_size",
        "cpu_offload_gb",
        "swa_full_tokens_ratio",
        "enable_memory_saver",
        "load_format",
        "disable_radix_cache",
        "mamba_full_memory_ratio",
        "max_mamba_cache_size",
        "mamba_ssm_dtype",
    }
)
_MEMORY_WORDS = ("hicache", "hisparse", "mamba", "offload", "radix", "swa_", "kv_cache")
_SCHEDULING_WORDS = (
    *("schedule", "prefill_", "chunk", "running_requests", "queued", "overlap"),
    *("priority", "disaggregation", "load_balance", "mixed", "moe_", "deepep"),
)
_PARALLEL = frozenset(
    {"tp_size", "pp_size", "dp_size", "ep_size", "attn_dp_size", "attn_cp_size", "nnodes"}
    | {"node_rank", "enable_dp_attention", "enable_dp_lm_head", "moe_dense_tp_size"}
)
_NO_ARGUMENT = (ArgumentKind.HELP, ArgumentKind.IGNORED, ArgumentKind.REFUSED)


def effective_arguments(plan: Plan) -> tuple[EffectiveArgument, ...]:
    """Return every argument of the plan's version, by concern, most important first."""
    names = {
        canonical(argument.dest)
        for argument in plan.catalogue.arguments.values()
        if not argument.deprecated and argument.kind not in _NO_ARGUMENT
    }
    names |= set(plan.request.values) | set(plan.resolved) | set(plan.undecided)
    changes = {change.name: change for change in plan.changes}
    order = {concern: rank for rank, concern in enumerate(Concern)}
    rows = (_row(plan, name, changes) for name in names)
    return tuple(
        sorted(
            rows, key=lambda row: (order[row.concern], _RANK.get(row.name, len(_RANK)), row.name)
        )
    )


def concern_of(name: str) -> Concern:
    """Return the subject of an argument, derived from its name."""
    if name.startswith("speculative_") or name == "enable_multi_layer_eagle":
        return Concern.SPECULATION
    if "cuda_graph" in name or name.startswith("torch_compile") or name == "enable_torch_compile":
        return Concern.GRAPHS
    if name in _MEMORY or any(word in name for word in _MEMORY_WORDS):
        return Concern.MEMORY
    if "attention_backend" in name or name in ("sampling_backend", "mm_attention_backend"):
        return Concern.ATTENTION
    if name in _PARALLEL or any(word in name for word in _SCHEDULING_WORDS):
        return Concern.SCHEDULING
    return Concern.ATTENTION if "attn" in name or "attention" in name else Concern.SERVING


def _row(plan: Plan, name: str, changes: Mapping[str, Change]) -> EffectiveArgument:
    is_set = name in plan.request.values
    user_value, effective, unknown = None, None, ""
    try:
        user_value = plan.user_value(name)
        effective = plan.value(name)
    except UnknownValueError as error:
        unknown = str(error)
    change, reason = changes.get(name), plan.reasons.get(name)
    outcome = _outcome(plan, name, user_value, effective, unknown)
    why, source = _why(outcome, change, reason)
    hidden, redactor = is_secret_argument(name), Redactor()
    return EffectiveArgument(
        name,
        current_name(name, plan.catalogue) or name,
        concern_of(name),
        outcome,
        is_set,
        HIDDEN if hidden and user_value is not None else redactor.value(user_value),
        HIDDEN if hidden and effective is not None else redactor.value(effective),
        unknown or why,
        source,
        silent=outcome is ArgumentOutcome.CHANGED and change is not None and not change.logged,
        place=_place(plan, name, hidden=hidden) if is_set else None,
    )


def _place(plan: Plan, name: str, *, hidden: bool) -> Place:
    found = plan.place(name)
    if hidden and found.text is not None:
        return replace(found, text=f"{found.text.partition('=')[0]}={HIDDEN}")
    return found if found.text is None else replace(found, text=redact(found.text))


def _outcome(
    plan: Plan, name: str, user_value: Any, effective: Any, unknown: str
) -> ArgumentOutcome:
    if unknown:
        return ArgumentOutcome.UNKNOWN
    if name in plan.request.values:
        return ArgumentOutcome.ACCEPTED if _same(user_value, effective) else ArgumentOutcome.CHANGED
    if name in plan.resolved and not _same(effective, plan.default(name)):
        return ArgumentOutcome.FILLED
    return ArgumentOutcome.DEFAULT


def _why(outcome: ArgumentOutcome, change: Change | None, reason: Reason | None) -> tuple[str, str]:
    if change is not None and outcome is not ArgumentOutcome.ACCEPTED:
        return change.why, change.source
    if reason is not None and reason.why:
        return reason.why, reason.source
    if outcome is ArgumentOutcome.ACCEPTED:
        return "set by the user", ""
    if outcome is ArgumentOutcome.DEFAULT:
        return "default", ""
    return "computed by the engine", ""


def _same(value: Any, other: Any) -> bool:
    if isinstance(value, str) and isinstance(other, str):
        return value.casefold() == other.casefold()
    if isinstance(value, list | tuple) and isinstance(other, list | tuple):
        return list(value) == list(other)
    if isinstance(value, bool) != isinstance(other, bool):
        return False
    return bool(value == other)


class PlanDifference(Struct, frozen=True):
    """An argument that differs between two plans. `before` or `after` is None if the version of
    that plan lacks the argument."""

    name: str
    concern: Concern
    before: EffectiveArgument | None
    after: EffectiveArgument | None

    @property
    def value_differs(self) -> bool:
        """True if the effective values differ, or only one of them is known."""
        return _row_state(self.before) != _row_state(self.after)

    @property
    def is_default(self) -> bool:
        """True if both plans use the default of an argument that is not always important."""
        rows = [row for row in (self.before, self.after) if row is not None]
        return not any(row.notable for row in rows)

    @property
    def name_differs(self) -> bool:
        if self.before is None or self.after is None:
            return False
        return self.before.version_name != self.after.version_name


class BudgetNumber(Struct, frozen=True):
    """A value in two budgets. `before` or `after` is None if unknown."""

    name: str
    unit: str
    """`tokens`, `requests`, `fraction`, `bytes`; empty for text."""
    before: int | float | str | None
    after: int | float | str | None

    @property
    def differs(self) -> bool:
        return self.before != self.after

    @property
    def is_known(self) -> bool:
        return self.before is not None or self.after is not None


def compare(before: Plan, after: Plan) -> tuple[PlanDifference, ...]:
    """Return arguments whose effective values differ, and user-set arguments whose names differ.

    An argument that only one version has is included unless it has its default value.
    """
    return compare_rows(effective_arguments(before), effective_arguments(after))


def compare_rows(
    before: Iterable[EffectiveArgument], after: Iterable[EffectiveArgument]
) -> tuple[PlanDifference, ...]:
    """Return the differences between the rows of two plans, by concern."""
    old = {row.name: row for row in before}
    new = {row.name: row for row in after}
    gone = [row for row in old.values() if row.name not in new]
    order = {concern: rank for rank, concern in enumerate(Concern)}
    pairs = [PlanDifference(row.name, row.concern, old.get(row.name), row) for row in new.values()]
    pairs += [PlanDifference(row.name, row.concern, row, None) for row in gone]
    return tuple(sorted(filter(_matters, pairs), key=lambda pair: order[pair.concern]))


def _matters(pair: PlanDifference) -> bool:
    alone = pair.before if pair.after is None else pair.after if pair.before is None else None
    if alone is not None:
        return alone.outcome is not ArgumentOutcome.DEFAULT
    is_set = any(row is not None and row.is_set for row in (pair.before, pair.after))
    return pair.value_differs or (pair.name_differs and is_set)


def _row_state(row: EffectiveArgument | None) -> tuple[object, ...]:
    if row is None:
        return ("absent",)
    if row.outcome is ArgumentOutcome.UNKNOWN:
        return ("unknown",)
    value = row.effective
    return ("known", list(value) if isinstance(value, list | tuple) else value)


def compare_budgets(before: MemoryBudget, after: MemoryBudget) -> tuple[BudgetNumber, ...]:
    """Return the numbers of two budgets: verdict, remaining capacity, and memory uses.

    Bytes are per GPU of the first ranks, which hold the embedding and fill up first.
    """
    return tuple(_budget_numbers(before, after))


def _budget_numbers(before: MemoryBudget, after: MemoryBudget) -> Iterator[BudgetNumber]:
    yield BudgetNumber("fit", "", before.fit.value, after.fit.value)
    yield BudgetNumber("tokens in the KV cache", "tokens", before.tokens, after.tokens)
    running = before.running_requests, after.running_requests
    yield BudgetNumber("running requests", "requests", *running)
    at_context = before.requests_at_context, after.requests_at_context
    yield BudgetNumber("requests of the full context", "requests", *at_context)
    context = before.context_length, after.context_length
    yield BudgetNumber("context length", "tokens", *context)
    fraction = before.mem_fraction_static, after.mem_fraction_static
    yield BudgetNumber("mem_fraction_static", "fraction", *fraction)
    for end, word in enumerate(("lowest", "highest")):
        ends = (
            None if budget.working_fractions is None else budget.working_fractions[end]
            for budget in (before, after)
        )
        yield BudgetNumber(f"{word} fraction that works", "fraction", *ends)
    old, new = _shares(before), _shares(after)
    for use in MemoryUse:
        if use in old or use in new:
            before_bytes = old.get(use, 0) if old else None
            yield BudgetNumber(use.value, "bytes", before_bytes, new.get(use, 0) if new else None)


def _shares(budget: MemoryBudget) -> dict[MemoryUse, int]:
    if not budget.ranks:
        return {}
    return {share.use: share.size.bytes for share in budget.ranks[0].shares}


_On = Callable[[Plan], bool]


def _switch(name: str, off: tuple[Any, ...] = (None, False, "null")) -> _On:
    return lambda plan: plan.value_or_none(name) not in off


def _moe(plan: Plan) -> bool:
    return plan.facts.target is not None and bool(plan.facts.target.is_moe)


def _lora(plan: Plan) -> bool:
    try:
        return target.serves_adapters(plan)
    except UnknownValueError:
        return False


def _multimodal(plan: Plan) -> bool:
    return plan.facts.target is not None and plan.facts.target.is_multimodal


def _keys(*beginnings: str) -> _On:
    return lambda plan: (
        plan.facts.target is not None
        and any(key.startswith(beginnings) for key in plan.facts.target.config)
    )


def _replicated(plan: Plan) -> bool:
    return any(plan.value_or_none(name) not in (None, 1) for name in ("dp_size", "attn_dp_size"))


def _slides(plan: Plan) -> bool:
    config = {} if plan.facts.target is None else plan.facts.target.config
    return bool(config.get("sliding_window")) and config.get("use_sliding_window") is not False


def _quantized(part: str) -> _On:
    def on(plan: Plan) -> bool:
        own = plan.facts.target.quantization if plan.facts.target is not None else None
        return part in f"{plan.value_or_none('quantization')} {own}"

    return on


_FEATURES: tuple[tuple[tuple[str, ...], _On], ...] = (
    (("hicache_",), _switch("enable_hierarchical_cache")),
    (("disaggregation_",), _switch("disaggregation_mode")),
    (("dcp_",), _switch("dcp_size", (None, 1))),
    (("load_balance_method",), _replicated),
    (("log_requests_",), _switch("log_requests")),
    (("debug_tensor_dump_",), _switch("debug_tensor_dump_output_folder")),
    (("lora_", "max_lora"), _lora),
    (("eplb_", "ep_", "expert_", "moe_", "deepep_", "enable_eplb"), _moe),
    (("mm_", "encoder_", "image_", "video_", "enable_multimodal"), _multimodal),
    (("mamba_", "max_mamba", "linear_attn", "enable_mamba"), _keys("mamba", "linear_", "ssm_")),
    (("dsa_", "nsa_", "enable_dsa", "enable_nsa"), _keys("index_topk")),
    (("swa_",), _slides),
    (("fp4_",), _quantized("fp4")),
    (("fp8_",), _quantized("fp8")),
    (("export_metrics", "collect_tokens"), _switch("enable_metrics")),
    (("file_storage_",), lambda _: False),  # paths of API files, which serving does not read
)


def is_idle(plan: Plan, name: str) -> bool:
    """True if the argument belongs to a feature that is not known to be on."""
    for beginnings, is_on in _FEATURES:
        if name.startswith(beginnings):
            return not is_on(plan)
    return False
