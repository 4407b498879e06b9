"""What a failed start showed, as far as the ladder can use it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from speclaunch.launch.attempt import Attempt
from speclaunch.launch.diagnosis.interface import Cause, Diagnosis, Direction
from speclaunch.launch.log.marks import Phase
from speclaunch.plan.fit.knobs import FRACTION
from speclaunch.plan.plan import Plan
from speclaunch.record import record

ABOVE = "mem_fraction_static_above"
"""`Diagnosis.numbers`: the least fraction that the engine's message names."""
_TOKENS = re.compile(r"([\d,]+) tokens")
_POOL_TOO_LARGE = frozenset({"pool-exceeds-machine", "killed-filling-pool"})
_LOADS = (Phase.WEIGHTS, Phase.DRAFT_WEIGHTS)


@record
class Observation:
    """A failed start that memory explains."""

    changes: Mapping[str, Any]
    """All changes against the recipe that it ran with."""
    fraction: float | None
    """`mem_fraction_static` that was in effect; None where nobody knows it."""
    cause: Cause
    phase: Phase
    served: bool
    least: float | None = None
    """The fraction at which nothing is left for the pool, from figures that the engine printed."""
    tokens: int | None = None
    """KV tokens that the engine allocated."""
    missing_gib: float = 0.0
    """What an allocation asked for beyond what was free."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """The changes without the fraction."""
        return {name: value for name, value in self.changes.items() if name != FRACTION}

    @property
    def pool_too_large(self) -> bool:
        """Whether the machine did not have the memory for the pool itself, and nobody knows how
        much it has. Smaller graphs or chunks, which come after the pool, do not help."""
        return self.cause.name in _POOL_TOO_LARGE

    @property
    def direction(self) -> Direction | None:
        """Which way the fraction should go; None where that would not help."""
        return self.cause.directions.get(FRACTION)


def observe(attempt: Attempt, plan: Plan) -> Observation | None:
    """What an attempt showed; None where memory does not explain how it ended. `plan` is what it
    ran with."""
    diagnosis = attempt.diagnosis
    if diagnosis is None or diagnosis.cause is None or not diagnosis.cause.memory:
        return None
    return Observation(
        dict(attempt.changes),
        _fraction(attempt, plan, diagnosis),
        diagnosis.cause,
        diagnosis.phase,
        attempt.served or diagnosis.served,
        _least(diagnosis),
        _tokens(attempt),
        _missing(diagnosis),
    )


def _fraction(attempt: Attempt, plan: Plan, diagnosis: Diagnosis) -> float | None:
    found = attempt.changes.get(FRACTION)
    for value in (
        found,
        diagnosis.numbers.get(FRACTION),
        diagnosis.settings.get(FRACTION),
        plan.value_or_none(FRACTION),
    ):
        if isinstance(value, int | float) and 0 < value < 1:
            return float(value)
    return None


def _least(diagnosis: Diagnosis) -> float | None:
    """From the message, else from the free memory before and after the weights were loaded."""
    named = diagnosis.numbers.get(ABOVE)
    if named is not None and 0 < named < 1:
        return float(named)
    free = [
        (milestone.phase, milestone.numbers["avail_gb"])
        for milestone in diagnosis.milestones
        if "avail_gb" in milestone.numbers
    ]
    begin = next((gib for phase, gib in free if phase in _LOADS), None)
    before_pool: list[float] = []
    for phase, gib in free:
        if phase not in _LOADS:
            break
        before_pool.append(gib)
    if not begin or len(before_pool) < 2:
        return None
    least = 1 - before_pool[-1] / begin
    return least if 0 < least < 1 else None


def _tokens(attempt: Attempt) -> int | None:
    if attempt.tokens is not None:
        return attempt.tokens
    for step in attempt.steps:
        found = _TOKENS.search(step.detail) if step.phase is Phase.KV_POOL else None
        if found is not None:
            return int(found[1].replace(",", ""))
    return None


def _missing(diagnosis: Diagnosis) -> float:
    asked, free = diagnosis.numbers.get("asked_gib"), diagnosis.numbers.get("free_gib")
    if asked is None or free is None:
        return 0.0
    return max(0.0, float(asked) - float(free))
