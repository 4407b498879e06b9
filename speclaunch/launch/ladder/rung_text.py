"""A rung in words: what it is called, why it is taken, what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speclaunch.launch.attempt import Attempt, Rung
from speclaunch.launch.diagnosis.interface import Direction
from speclaunch.launch.ladder.observations import Observation
from speclaunch.plan.budget import Fit, MemoryBudget
from speclaunch.plan.fit.knobs import FRACTION, STEPS, TOKENS, TOPK
from speclaunch.plan.fit.predict import Predictor
from speclaunch.plan.fit.price import cost, say
from speclaunch.plan.plan import Plan
from speclaunch.plan.topics.graphs import MOST, SIZES

_NAMES = {
    MOST: "fewer CUDA graphs",
    SIZES: "fewer CUDA graphs",
    STEPS: "smaller draft tree",
    TOPK: "smaller draft tree",
    TOKENS: "smaller draft tree",
    "max_running_requests": "fewer running requests",
    "chunked_prefill_size": "smaller prefill chunks",
    "max_total_tokens": "fewer KV tokens",
}


def rung_of(
    predictor: Predictor,
    now: Observation,
    last: Attempt,
    changes: Mapping[str, Any],
    why: str,
    predicted: MemoryBudget | None,
) -> Rung:
    """The rung from the last attempt to `changes`, which are all changes against the recipe."""
    added = {
        name: value
        for name, value in changes.items()
        if name not in last.changes or last.changes[name] != value
    }
    before = predictor.plan(last.changes)
    moved = [_move(before, now, name, value) for name, value in added.items()]
    moves = "; ".join(text for text in moved if text)
    recipe = predictor.budget({})
    after = predictor.plan(changes)
    total = cost(
        predictor.plan({}),
        after,
        recipe if recipe.fit is not Fit.UNKNOWN else None,
        predicted,
    )
    return Rung(_name(now, added), added, f"{now.cause.title}: {moves}; {why}", total, predicted)


def _name(now: Observation, added: Mapping[str, Any]) -> str:
    found = []
    if FRACTION in added:
        up = now.fraction is not None and added[FRACTION] > now.fraction
        found.append(f"{'raise' if up else 'lower'} {FRACTION}")
    for name in added:
        if name != FRACTION:
            raised = now.cause.directions.get(name) is Direction.RAISE
            found.append(f"raise {name}" if raised else _NAMES.get(name, f"change {name}"))
    return ", ".join(dict.fromkeys(found))


def _move(before: Plan, now: Observation, name: str, value: Any) -> str | None:
    """From what to what; None where the engine had chosen the same."""
    was = now.fraction if name == FRACTION else before.value_or_none(name)
    if isinstance(was, float):
        was = round(was, 3)
    if was == value:
        return None
    if was is None or isinstance(was, list):
        return say(name, value)
    return f"{name} {was} → {value}"
