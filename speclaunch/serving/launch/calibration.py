"""Corrections of the memory budget's predictions, learned from failed starts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from speclaunch.engine import (
    EXPECTED,
    FRACTION,
    TOKENS,
    Bounds,
    MemoryUse,
    Plan,
    Predictor,
    UnknownValueError,
    captured_sizes,
    draft_in_pool,
    key,
    memory_at_start,
    shares,
)
from speclaunch.serving.launch.diagnosis.interface import ABOVE, Cause, Diagnosis, Direction
from speclaunch.serving.launch.engine_log import Phase
from speclaunch.serving.launch.planner import Attempt

_TOKENS = re.compile(r"([\d,]+) tokens")
_POOL_TOO_LARGE = frozenset({"pool-exceeds-machine", "killed-filling-pool"})
_LOADS = (Phase.WEIGHTS, Phase.DRAFT_WEIGHTS)


class Observation(Struct, frozen=True):
    """A start that ran out of memory, as evidence for `calibrate`."""

    changes: Mapping[str, Any]
    """All changes to the recipe in this attempt."""
    fraction: float | None
    """Effective `mem_fraction_static`; None if unknown."""
    cause: Cause
    phase: Phase
    served: bool
    least: float | None = None
    """Fraction that leaves nothing for the pool, according to the engine's log; None if unknown."""
    tokens: int | None = None
    """KV tokens that the engine allocated; None if unknown."""
    missing_gib: float = 0.0
    """GiB by which an allocation exceeded the free memory."""

    @property
    def settings(self) -> Mapping[str, Any]:
        return without(self.changes)

    @property
    def pool_too_large(self) -> bool:
        """True if the machine had too little memory for the pool itself, and its total memory is
        unknown. Smaller graphs or chunks do not help, because the pool is allocated first."""
        return self.cause.name in _POOL_TOO_LARGE

    @property
    def direction(self) -> Direction | None:
        """Direction in which to change the fraction; None if changing it would not help."""
        return self.cause.directions.get(FRACTION)


def observe(attempt: Attempt, plan: Plan) -> Observation | None:
    """Return the observation of an attempt that ran with `plan`; None if memory was not the cause
    of its end."""
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
    for value in (
        attempt.changes.get(FRACTION),
        diagnosis.numbers.get(FRACTION),
        diagnosis.settings.get(FRACTION),
        plan.value_or_none(FRACTION),
    ):
        if isinstance(value, int | float) and 0 < value < 1:
            return float(value)
    return None


def _least(diagnosis: Diagnosis) -> float | None:
    """Return the least possible fraction, from the engine's message or from the free memory before
    and after loading the weights; None if unknown."""
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
    requested, free = diagnosis.numbers.get("asked_gib"), diagnosis.numbers.get("free_gib")
    if requested is None or free is None:
        return 0.0
    return max(0.0, float(requested) - float(free))


# Corrections of the budget's prediction by failed starts.
#
# Two errors are separate. Weights and other processes move the lower end of the fractions that
# work; the engine often prints figures that state it exactly. Graphs and activations, which are
# only estimated, move the upper end. Each failure there shows a minimum error of the estimate, as a
# share of the estimate, and that share is applied to other settings.

_RUNNING, _CHUNK = "max_running_requests", "chunked_prefill_size"
RESERVE = EXPECTED - 1
"""Correction of the estimates for graphs and activations, as a (negative) share of them. SGLang's
own estimates are deliberately high. With the correction, only the likely amount is left free."""
_MARGIN = 0.002
"""Minimum distance from a fraction that was too low or too high."""
_POOL_ROOM = 0.01
"""Minimum share of the memory for the pool: a pool of a few tokens is useless."""
_GROWTH = (0.25, 1.0, 2.0)
"""Free memory to add to the observed excess, as shares of the estimates: after the first failed
start, the second, and later ones. The second restart should be the last."""
_LEAST_GROWN = 0.06
"""Lower limit of the estimates that `_GROWTH` multiplies, as a share of the memory."""
_BLINDLY, _AGAIN = 0.6, 0.5
"""Factors that shrink a pool that is too large for the machine: after the first failure, and after
later failures."""
_HUNGRY = 0.75
"""Position in the possible range (0: lower end) to try after the pool was too small."""
_HOPELESS = 0.006
"""Minimum width of a range worth another restart, as a share of the memory."""
_CONSISTENT = 3
"""Number of failures outside the pool that rules out chance. From this number on, settings that
leave less memory free than the observed excess are not tried."""
_SCARCE = -0.75
"""Largest correction expected for estimates that are too high, as a (negative) share of them."""
ROOM_FOR_ERROR = 0.03
"""Minimum width of a range of fractions; in a narrower range, another setting is changed
instead."""
_LATER = 0.6
"""Expected share of the memory estimated for stages that a failed start did not reach."""
_FIXED = 0.3
"""Share of the graphs' memory that does not shrink with the largest graph."""
ENOUGH_MORE = 1.5
"""Factor by which to enlarge a pool that was too small for the requests."""


class Excess(Struct, frozen=True):
    """Memory that a failed start used beyond the estimates, as a share of the total."""

    least: float
    estimated: float
    plan: Plan
    captured: bool
    """True if graph capture exceeded the memory, False if a running batch did."""

    def scale(self, plan: Plan) -> float:
        """Return the share of this excess to expect with the settings of `plan`.

        Graph memory shrinks with draft tokens times the largest captured batch. Batch memory
        shrinks only if both the prompt chunks and the drafts of all running requests shrink.
        """
        if self.least <= 0:
            return 1.0
        drafts = _number(plan, TOKENS) / _number(self.plan, TOKENS)
        if self.captured:
            graphs = drafts * _largest(plan) / max(1, _largest(self.plan))
            return min(1.0, _FIXED + (1 - _FIXED) * graphs)
        running = _number(plan, _RUNNING) / _number(self.plan, _RUNNING)
        prompts = _number(plan, _CHUNK) / _number(self.plan, _CHUNK)
        return min(1.0, max(running * drafts, prompts))


def _number(plan: Plan, name: str) -> int:
    value = plan.value_or_none(name)
    return max(1, int(value)) if isinstance(value, int) else 1


def _largest(plan: Plan) -> int:
    try:
        return max(captured_sizes(plan), default=1)
    except UnknownValueError:
        return 1


class Calibration(Struct, frozen=True):
    """Corrections of the budget for one deployment on one machine."""

    predictor: Predictor
    observations: Sequence[Observation]
    shift: float
    """Offset of the range's lower end from its predicted value; negative if lower."""
    excesses: tuple[Excess, ...] = ()

    def bounds(
        self, changes: Mapping[str, Any], reserve: float | None = None, room: float = _POOL_ROOM
    ) -> Bounds | None:
        """Return the range of fractions that should work with these changes; None if the budget is
        unknown.

        `reserve`: share of the estimates to leave free, regardless of what failed starts suggest.
        `room`: minimum share of the memory for the pool.
        """
        predicted = self.predictor.bounds(changes)
        if predicted is None:
            return None
        low = max(predicted.low + self.shift + room, too_low(self.observations, changes) + _MARGIN)
        estimated = self.predictor.estimated(changes)
        more = self._more(changes, estimated)
        if reserve is not None:
            more = max(reserve * estimated, self._shown(changes))
        high = min(predicted.high - more, too_high(self.observations, changes) - _MARGIN)
        return Bounds(low, min(high, self._pool_ceiling(low)))

    def below(self, changes: Mapping[str, Any]) -> Bounds | None:
        """Return `bounds`, capped at the last tried fraction if that was too high; None if
        unknown."""
        bounds, last = self.bounds(changes), self.observations[-1]
        if bounds is None or last.direction is not Direction.LOWER or last.fraction is None:
            return bounds
        return Bounds(bounds.low, min(bounds.high, last.fraction))

    def last_chance(self, changes: Mapping[str, Any]) -> Bounds | None:
        """Return a narrow range of fractions to try last, within the widest possible range; None if
        that range is unknown or too narrow."""
        widest = self.bounds(changes, _SCARCE, _MARGIN)
        if widest is None or widest.width < _HOPELESS:
            return None
        last = self.observations[-1]
        hungry = last.served and last.direction is Direction.RAISE
        middle = widest.low + widest.width * (_HUNGRY if hungry else 0.5)
        return Bounds(middle - _MARGIN, middle + _MARGIN)

    def _more(self, changes: Mapping[str, Any], estimated: float) -> float:
        """Return the memory to leave free beyond the estimates, as a fraction; negative if less
        than estimated is enough."""
        more = RESERVE * estimated
        growth = _GROWTH[min(len(self.observations), len(_GROWTH)) - 1]
        for excess in self.excesses:
            scaled = excess.least * excess.scale(self.predictor.plan(changes))
            more = max(more, scaled + growth * max(estimated, excess.estimated, _LEAST_GROWN))
        return more

    def _shown(self, changes: Mapping[str, Any]) -> float:
        """Return the minimum excess with these changes; -1 until enough failed starts prove one."""
        if len(self.excesses) < _CONSISTENT:
            return -1.0
        plan = self.predictor.plan(changes)
        return max((excess.least * excess.scale(plan) for excess in self.excesses), default=-1.0)

    def _pool_ceiling(self, low: float) -> float:
        """Return the largest fraction to try after a pool was too large for the machine; 1 if none
        was. It is between `low` and the failed fraction, because the total memory is unknown."""
        failed = [
            observation.fraction
            for observation in self.observations
            if observation.pool_too_large and observation.fraction
        ]
        if not failed:
            return 1.0
        part = _BLINDLY if len(failed) == 1 else _AGAIN
        return low + part * max(0.0, min(failed) - low)


def too_low(observations: Sequence[Observation], changes: Mapping[str, Any]) -> float:
    """Return the largest fraction that was too low; 0 if none was. A failure that other changes can
    fix counts only for the same settings."""
    found = 0.0
    for seen in observations:
        if seen.direction is not Direction.RAISE:
            continue
        if len(seen.cause.directions) > 1 and key(seen.settings) != key(without(changes)):
            continue
        found = max(found, seen.fraction or 0.0, seen.least or 0.0)
    return found


def too_high(observations: Sequence[Observation], changes: Mapping[str, Any]) -> float:
    """Return the smallest fraction that was too high for exactly these settings; 1 if none was."""
    same = key(without(changes))
    return min(
        (
            seen.fraction
            for seen in observations
            if seen.direction is Direction.LOWER
            and seen.fraction is not None
            and key(seen.settings) == same
        ),
        default=1.0,
    )


def without(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes except `mem_fraction_static`."""
    return {name: value for name, value in changes.items() if name != FRACTION}


def calibrate(predictor: Predictor, observations: Sequence[Observation]) -> Calibration:
    """Return the corrections of the predictions, derived from the failed starts."""
    shift: float | None = None
    excesses: list[Excess] = []
    for seen in observations:
        moved = _moved(predictor, seen)
        if moved is not None:
            shift = moved if shift is None else max(shift, moved)
        excess = _excess(predictor, seen)
        if excess is not None:
            excesses.append(excess)
    shift = min(shift or 0.0, _most_shift(predictor, observations))
    return Calibration(predictor, tuple(observations), shift, tuple(excesses))


def _most_shift(predictor: Predictor, observations: Sequence[Observation]) -> float:
    """Return the upper limit of the shift. If the engine allocated the pool, its fraction was not
    too low."""
    most = 1.0
    for seen in observations:
        bounds = predictor.bounds(seen.changes)
        if bounds is None or seen.fraction is None or seen.direction is not Direction.LOWER:
            continue
        most = min(most, seen.fraction - _POOL_ROOM - bounds.low)
    return most


def needed_tokens(predictor: Predictor, observations: Sequence[Observation]) -> float:
    """Return the predicted KV tokens that the next settings need: `ENOUGH_MORE` times the largest
    pool that was too small for the requests; 0 if there was none."""
    short = [
        predictor.budget(seen.changes).tokens or 0
        for seen in observations
        if seen.served and seen.direction is Direction.RAISE
    ]
    return max(short, default=0) * ENOUGH_MORE


def _moved(predictor: Predictor, seen: Observation) -> float | None:
    """Return the observed offset of the range's lower end; None if the failure shows none."""
    bounds = predictor.bounds(seen.changes)
    if bounds is None:
        return None
    if seen.least is not None:
        return seen.least - bounds.low
    if seen.tokens is not None and seen.fraction is not None and not seen.served:
        return _by_tokens(predictor, seen, seen.tokens)
    if seen.direction is Direction.RAISE and seen.fraction is not None:
        return max(0.0, seen.fraction - bounds.low)
    return None


def _by_tokens(predictor: Predictor, seen: Observation, tokens: int) -> float | None:
    budget = predictor.budget(seen.changes)
    start = memory_at_start(budget)
    limit = predictor.plan(seen.changes).request.values.get("max_total_tokens")
    if not budget.tokens or budget.target_kv is None or start is None or limit is not None:
        return None
    cell = budget.target_kv.bytes
    if budget.draft_kv is not None and draft_in_pool(predictor.plan(seen.changes)):
        cell += budget.draft_kv.bytes
    return (budget.tokens - tokens) * cell / start


def _excess(predictor: Predictor, seen: Observation) -> Excess | None:
    """Return the minimum excess over the estimates, including stages that the engine did not reach;
    None if the estimates may be right."""
    bounds = predictor.bounds(seen.changes)
    if seen.direction is not Direction.LOWER or seen.fraction is None or bounds is None:
        return None
    if seen.pool_too_large:  # it did not reach the graphs
        return None
    budget = predictor.budget(seen.changes)
    start = memory_at_start(budget)
    missing = 0.0 if start is None else seen.missing_gib * (1 << 30) / start
    later: tuple[MemoryUse, ...] = ()
    if not seen.served and seen.phase in (Phase.KV_POOL, Phase.GRAPHS):
        later = (MemoryUse.ACTIVATIONS,)
    elif not seen.served and seen.phase is Phase.DRAFT_WEIGHTS:
        later = (MemoryUse.ACTIVATIONS, MemoryUse.DRAFT_KV)
    least = bounds.high - seen.fraction + missing + shares(budget, *later) * _LATER
    estimated = predictor.estimated(seen.changes)
    if least <= RESERVE * estimated:
        return None
    captured = seen.phase is Phase.GRAPHS and not seen.served
    return Excess(least, estimated, predictor.plan(seen.changes), captured)
