"""What else would make a deployment fit, where no setting does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from speclaunch.errors import SpeclaunchError
from speclaunch.plan.budget import Fit, MemoryUse, RankBudget
from speclaunch.plan.fit.predict import Predictor, tightest
from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.plan.topics import parallel
from speclaunch.plan.topics.memory import draft_in_pool
from speclaunch.record import record

_GIB = 1 << 30
_MOST_RANKS = 16
_FP8 = 80
"""The least compute capability for 8-bit weights (sglang 0.5.23 layers/quantization/fp8.py:329)."""


@record
class Alternative:
    """Something beyond the settings that the ladder steps."""

    what: str
    changes: Mapping[str, Any]
    """Server arguments; empty where it is not a matter of arguments (another GPU)."""
    verdict: str
    """What the budget says of it."""
    fits: bool


def alternatives(predictor: Predictor, smallest: Mapping[str, Any]) -> tuple[Alternative, ...]:
    """What would make it fit, judged with everything else at its floor (`smallest`)."""
    found: list[Alternative] = []
    for what, changes in _options(predictor.plan({})):
        if "tp_size" in changes and any(one.fits for one in found):
            continue  # fewer GPUs are enough
        judged = _judge(predictor, what, changes, smallest)
        if judged is not None:
            found.append(judged)
    bigger = _bigger(predictor, smallest)
    return (*found, bigger) if bigger is not None else tuple(found)


def _options(plan: Plan) -> Iterator[tuple[str, dict[str, Any]]]:
    if plan.device != "cpu":
        yield from _on_gpus(plan)
    if plan.value_or_none("speculative_draft_model_path") is not None and not _refuses_ngram(plan):
        yield (
            "no draft model (`speculation=ngram`)",
            {
                "speculative_algorithm": "NGRAM",
                "speculative_draft_model_path": None,
                "speculative_num_steps": None,
                "speculative_eagle_topk": None,
            },
        )


def _on_gpus(plan: Plan) -> Iterator[tuple[str, dict[str, Any]]]:
    ranks = int(plan.value_or_none("tp_size") or 1)
    hardware = plan.facts.hardware
    at_hand = hardware.known_count if hardware is not None else None
    while ranks * 2 <= _MOST_RANKS:
        ranks *= 2
        here = "" if at_hand is None or ranks <= at_hand else f" ({at_hand} here)"
        yield f"tensor parallelism over {ranks} GPUs{here}", {"tp_size": ranks}
    target = plan.facts.target
    quantised = target is not None and target.quantization is not None
    capability = hardware.capability if hardware is not None else None
    able = capability is None or capability >= _FP8
    if able and not quantised and plan.value_or_none("quantization") is None:
        yield "weights quantised to 8 bits (a smaller target)", {"quantization": "fp8"}
    if plan.value_or_none("kv_cache_dtype") in (None, "auto") and plan.device == "cuda":
        yield "a KV cache of 8 bits", {"kv_cache_dtype": "fp8_e5m2"}


def _refuses_ngram(plan: Plan) -> bool:
    try:
        return parallel.NGRAM.holds(plan)
    except UnknownValueError:
        return True


def _judge(
    predictor: Predictor, what: str, changes: Mapping[str, Any], smallest: Mapping[str, Any]
) -> Alternative | None:
    """None where the budget cannot tell. Of several ranks the least that fit is enough."""
    try:
        bounds = predictor.bounds({**smallest, **changes})
    except (SpeclaunchError, UnknownValueError, ValueError):
        return None  # this version or this model cannot do it
    if bounds is None:
        return None
    if bounds.width <= 0:
        return Alternative(what, changes, "does not fit, either", False)
    text = f"fits with mem_fraction_static from {bounds.low:.3f} to {bounds.high:.3f}"
    return Alternative(what, changes, text, True)


def _bigger(predictor: Predictor, smallest: Mapping[str, Any]) -> Alternative | None:
    budget = predictor.budget(smallest)
    rank = tightest(budget)
    if rank is None or budget.fit is not Fit.FAILS:
        return None
    needed = needs(rank)
    cpu = predictor.plan(smallest).device == "cpu"
    what, whose = ("more main memory", "the machine") if cpu else ("a larger GPU", "each GPU")
    text = f"the smallest configuration needs more than {needed / _GIB:.1f} GiB of {whose}"
    return Alternative(what, {}, text, False)


def needs(rank: RankBudget) -> int:
    """Bytes of everything but the KV cache and what is free."""
    idle = {MemoryUse.FREE, MemoryUse.TARGET_KV, MemoryUse.DRAFT_KV}
    return sum(share.size.bytes for share in rank.shares if share.use not in idle)


def binding(predictor: Predictor, changes: Mapping[str, Any]) -> str:
    """Why no fraction works for these changes: the two sides with their numbers."""
    bounds, rank = predictor.bounds(changes), tightest(predictor.budget(changes))
    if bounds is None or rank is None:
        return predictor.budget(changes).why
    plan = predictor.plan(changes)
    charged = draft_in_pool(plan)
    one, beside = ("the machine", "") if plan.device == "cpu" else ("a GPU", " beside CUDA")
    kept = [
        f"{s.use} {s.size.bytes / _GIB:.1f} GiB" for s in rank.shares if _static(s.use, charged)
    ]
    rest = [f"{s.use} {s.size.bytes / _GIB:.1f} GiB" for s in rank.shares if _slack(s.use, charged)]
    if bounds.low >= 1:
        taken = " and ".join(kept) or "the weights"
        return f"{one} has {rank.memory_bytes / _GIB:.1f} GiB, and {taken} do not fit{beside}"
    return (
        f"of the {rank.memory_bytes / _GIB:.1f} GiB of {one}, {' and '.join(kept) or 'the weights'}"
        f" need mem_fraction_static above {bounds.low:.3f}, and {', '.join(rest) or 'the rest'}"
        f" need it below {bounds.high:.3f}"
    )


def _static(use: MemoryUse, charged: bool) -> bool:
    return use in (MemoryUse.TARGET_WEIGHTS, MemoryUse.STATE) or (
        use is MemoryUse.DRAFT_WEIGHTS and charged
    )


def _slack(use: MemoryUse, charged: bool) -> bool:
    return use in (MemoryUse.GRAPHS, MemoryUse.ACTIVATIONS) or (
        use is MemoryUse.DRAFT_WEIGHTS and not charged
    )
