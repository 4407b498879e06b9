"""Every argument of a plan as one row: what was given, what the engine makes of it, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any

from speclaunch.engine.argument import ArgumentKind
from speclaunch.engine.canonical import current_name
from speclaunch.engine.command import is_secret_argument
from speclaunch.errors import Place
from speclaunch.plan.changes import Change, Reason
from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.plan.request import canonical
from speclaunch.record import record
from speclaunch.redaction import HIDDEN, Redactor, redact


class Concern(StrEnum):
    """What an argument is about; the order is that of a report."""

    SPECULATION = "speculation"
    MEMORY = "memory"
    SCHEDULING = "scheduling"
    ATTENTION = "attention"
    GRAPHS = "graphs"
    SERVING = "serving"


class ArgumentOutcome(StrEnum):
    """What became of an argument."""

    GIVEN = "given"
    """The engine takes it as it was given."""
    DEFAULT = "default"
    """Not given: the value is the parser's default."""
    FILLED = "filled"
    """Not given: the engine works the value out."""
    CHANGED = "changed"
    """Given, and the engine runs with another value."""
    UNKNOWN = "unknown"
    """It depends on a fact that is missing."""


@record
class EffectiveArgument:
    """One argument. Values of secrets are `HIDDEN`."""

    name: str
    """The engine's newest name of it."""
    spelling: str
    """The name that the plan's version has for it."""
    concern: Concern
    outcome: ArgumentOutcome
    is_given: bool
    given: Any
    effective: Any
    """None, too, where it is unknown: see `outcome`."""
    why: str
    source: str = ""
    """The engine's file and line; empty where the value is nobody's doing but the user's."""
    silent: bool = False
    """The engine changes it without a word."""
    place: Place | None = None
    """Where it was given."""

    @property
    def notable(self) -> bool:
        """Whether a short report shows it: given, changed, unknown, or of weight in any case."""
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
"""What matters to speculation or to memory whether it was given or not, in a report's order."""
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
    """Every argument of the plan's version, by concern, the weightiest first."""
    names = {
        canonical(argument.dest)
        for argument in plan.catalogue.arguments.values()
        if not argument.deprecated and argument.kind not in _NO_ARGUMENT
    }
    names |= set(plan.request.given) | set(plan.resolved) | set(plan.undecided)
    changes = {change.name: change for change in plan.changes}
    order = {concern: rank for rank, concern in enumerate(Concern)}
    rows = (_row(plan, name, changes) for name in names)
    return tuple(
        sorted(
            rows, key=lambda row: (order[row.concern], _RANK.get(row.name, len(_RANK)), row.name)
        )
    )


def concern_of(name: str) -> Concern:
    """What an argument is about, told from its name."""
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
    is_given = name in plan.request.given
    given, effective, unknown = None, None, ""
    try:
        given = plan.given(name)
        effective = plan.value(name)
    except UnknownValueError as error:
        unknown = str(error)
    change, reason = changes.get(name), plan.reasons.get(name)
    outcome = _outcome(plan, name, given, effective, unknown)
    why, source = _why(outcome, change, reason)
    hidden, redactor = is_secret_argument(name), Redactor()
    return EffectiveArgument(
        name,
        current_name(name, plan.catalogue) or name,
        concern_of(name),
        outcome,
        is_given,
        HIDDEN if hidden and given is not None else redactor.value(given),
        HIDDEN if hidden and effective is not None else redactor.value(effective),
        unknown or why,
        source,
        silent=outcome is ArgumentOutcome.CHANGED and change is not None and not change.said,
        place=_place(plan, name, hidden=hidden) if is_given else None,
    )


def _place(plan: Plan, name: str, *, hidden: bool) -> Place:
    found = plan.place(name)
    if hidden and found.text is not None:
        return replace(found, text=f"{found.text.partition('=')[0]}={HIDDEN}")
    return found if found.text is None else replace(found, text=redact(found.text))


def _outcome(plan: Plan, name: str, given: Any, effective: Any, unknown: str) -> ArgumentOutcome:
    if unknown:
        return ArgumentOutcome.UNKNOWN
    if name in plan.request.given:
        return ArgumentOutcome.GIVEN if _same(given, effective) else ArgumentOutcome.CHANGED
    if name in plan.resolved and not _same(effective, plan.default(name)):
        return ArgumentOutcome.FILLED
    return ArgumentOutcome.DEFAULT


def _why(outcome: ArgumentOutcome, change: Change | None, reason: Reason | None) -> tuple[str, str]:
    """The sentence and its source. What was changed says why; else the reason that was kept."""
    if change is not None and outcome is not ArgumentOutcome.GIVEN:
        return change.why, change.source
    if reason is not None and reason.why:
        return reason.why, reason.source
    if outcome is ArgumentOutcome.GIVEN:
        return "as given", ""
    if outcome is ArgumentOutcome.DEFAULT:
        return "default", ""
    return "computed by the engine", ""


def _same(one: Any, other: Any) -> bool:
    """Whether two values are the same to a reader: neither lists and tuples nor cases differ."""
    if isinstance(one, str) and isinstance(other, str):
        return one.casefold() == other.casefold()
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return list(one) == list(other)
    if isinstance(one, bool) != isinstance(other, bool):
        return False
    return bool(one == other)
