"""Rules about settings that the engine changes on its own."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from speclaunch.checks.rules.interface import Verdict, rule
from speclaunch.engine import Change, ChangeKind, Plan

_KINDS = {
    "SPL902": ChangeKind.CHOSEN_PARAMETERS,
    "SPL903": ChangeKind.RUNNING_REQUESTS,
    "SPL904": ChangeKind.OVERLAP,
    "SPL905": ChangeKind.MIXED_CHUNK_OFF,
    "SPL906": ChangeKind.TARGET_IS_DRAFT,
    "SPL907": ChangeKind.ALGORITHM,
    "SPL908": ChangeKind.PAGE_SIZE,
    "SPL909": ChangeKind.DRAFT_QUANTIZATION,
    "SPL910": ChangeKind.DP_ATTENTION,
    "SPL911": ChangeKind.ONE_BLOCK,
    "SPL912": ChangeKind.NGRAM_TOPK,
    "SPL914": ChangeKind.MULTI_LAYER_EAGLE,
    "SPL915": ChangeKind.TOPK_LOWERED,
    "SPL916": ChangeKind.REJECTION_SAMPLING_ON,
    "SPL917": ChangeKind.PREFILL_GRAPHS_OFF,
}
"""The kind of change that a rule reports; some kinds have no rule."""
_QUIETLY = "; the engine does not log it"


def _changed(kind: ChangeKind, plan: Plan) -> Iterator[Verdict]:
    """Yield a verdict for each change of a kind: the old value, the new value, and the reason."""
    for change in plan.changes:
        if change.kind is kind:
            yield Verdict(
                _sentence(plan, change),
                at=(change.name, "speculative_algorithm"),
                why=change.why + ("" if change.logged else _QUIETLY),
            )


def _sentence(plan: Plan, change: Change) -> str:
    name = plan.written_name(change.name)
    if change.before is None:
        return f"{name} will be {_shown(change.after)}"
    return f"{name} will be {_shown(change.after)}, not {_shown(change.before)}"


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


for _code, _kind in _KINDS.items():
    rule(_code)(partial(_changed, _kind))
