"""What failed starts showed, and how that corrects the predictions of the memory budget."""

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
from speclaunch.serving.launch.diagnosis.interface import Cause, Diagnosis, Direction
from speclaunch.serving.launch.log.marks import Phase
from speclaunch.serving.launch.start import Attempt

ABOVE = "mem_fraction_static_above"
"""`Diagnosis.numbers`: the least fraction that the engine's message names."""
_TOKENS = re.compile(r"([\d,]+) tokens")
_POOL_TOO_LARGE = frozenset({"pool-exceeds-machine", "killed-filling-pool"})
_LOADS = (Phase.WEIGHTS, Phase.DRAFT_WEIGHTS)


class Observation(Struct, frozen=True):
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


# The budget's prediction, put right by what failed starts showed.
#
# Two errors are kept apart. Weights and other processes move the lower end of the fractions that
# work: the engine often prints figures that tell it exactly. Graphs and activations, which are only
# estimated, move the upper end: each failure there shows by how much the estimate is short at the
# least, as a share of itself, and that share is carried over to other settings.

_RUNNING, _CHUNK = "max_running_requests", "chunked_prefill_size"
RESERVE = EXPECTED - 1
"""The estimates of graphs and activations are the engine's own, which mean to be on the safe side:
so much less (as a share of them) than is likely by them is left free."""
_MARGIN = 0.002
"""What a fraction must be above one that was too low, or below one that was too high."""
_POOL_ROOM = 0.01
"""Above the least fraction there is a pool, but a pool of a few tokens serves nobody."""
_GROWTH = (0.25, 1.0, 2.0)
"""By how much more is left free than failures showed, as a share of the estimates: after the first
failed start, the second, more. The second restart is to be the last."""
_LEAST_GROWN = 0.06
"""Of the memory: estimates that were found to be short are taken for at least this."""
_BLINDLY, _AGAIN = 0.6, 0.5
"""What is left of a pool that a machine could not give, after the first and after later ones."""
_HUNGRY = 0.75
"""How far up in what could work a pool is sized that was too small for the requests."""
_HOPELESS = 0.006
"""Of the memory: a range that is narrower than this is not worth another restart."""
_CONSISTENT = 3
"""So many starts that ran out of memory beyond the pool are no accident: with less left beyond it
than they show to be missing, another one is not tried."""
_SCARCE = -0.75
"""The estimates are not expected to be too large by more than this share of themselves."""
ROOM_FOR_ERROR = 0.03
"""Rather step one more setting than aim at a range of fractions that is narrower than this."""
_LATER = 0.6
"""What of the estimate is expected of activations that the engine did not come to."""
_FIXED = 0.3
"""Of what graphs take, this share does not shrink with the largest of them."""
ENOUGH_MORE = 1.5
"""A pool that was too small for the requests has to grow by this factor."""


class Excess(Struct, frozen=True):
    """By how much a failure showed the estimates to be short, as fractions of the memory."""

    least: float
    estimated: float
    plan: Plan
    captured: bool
    """Whether graphs took it; else what a batch needs while it runs."""

    def scale(self, plan: Plan) -> float:
        """What share of it other settings are expected to have: graphs shrink with the largest
        batch; a batch only where both its prompts and its drafts do."""
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
    """What was learned of the budget of one deployment on one machine."""

    predictor: Predictor
    observations: Sequence[Observation]
    shift: float
    """By how much the lower end is above (or below) the predicted one."""
    excesses: tuple[Excess, ...] = ()

    def bounds(
        self, changes: Mapping[str, Any], reserve: float | None = None, room: float = _POOL_ROOM
    ) -> Bounds | None:
        """The fractions that should work for some changes; None where the budget is not known.

        `reserve` is the share of the estimates to keep free, whatever growth failed starts suggest;
        `room` is what the pool is to have.
        """
        predicted = self.predictor.bounds(changes)
        if predicted is None:
            return None
        low = max(predicted.low + self.shift + room, self.too_low(changes) + _MARGIN)
        estimated = self.predictor.estimated(changes)
        more = self._more(changes, estimated)
        if reserve is not None:
            more = max(reserve * estimated, self._shown(changes))
        high = min(predicted.high - more, self.too_high(changes) - _MARGIN)
        return Bounds(low, min(high, self._pool_ceiling(low)))

    def below(self, changes: Mapping[str, Any]) -> Bounds | None:
        """The same, but not above what the engine asked to be lowered the last time."""
        bounds, last = self.bounds(changes), self.observations[-1]
        if bounds is None or last.direction is not Direction.LOWER or last.fraction is None:
            return bounds
        return Bounds(bounds.low, min(bounds.high, last.fraction))

    def last_chance(self, changes: Mapping[str, Any]) -> Bounds | None:
        """Around the middle of what could work at the very best; nothing where that is hopeless,
        or was found not to work."""
        widest = self.bounds(changes, _SCARCE, _MARGIN)
        if widest is None or widest.width < _HOPELESS:
            return None
        last = self.observations[-1]
        hungry = last.served and last.direction is Direction.RAISE
        middle = widest.low + widest.width * (_HUNGRY if hungry else 0.5)
        return Bounds(middle - _MARGIN, middle + _MARGIN)

    def _more(self, changes: Mapping[str, Any], estimated: float) -> float:
        """What is kept free beyond the estimates (or less than them), as a fraction."""
        more = RESERVE * estimated
        growth = _GROWTH[min(len(self.observations), len(_GROWTH)) - 1]
        for excess in self.excesses:
            scaled = excess.least * excess.scale(self.predictor.plan(changes))
            more = max(more, scaled + growth * max(estimated, excess.estimated, _LEAST_GROWN))
        return more

    def _shown(self, changes: Mapping[str, Any]) -> float:
        """What several failed starts showed to be missing at the least, for these changes."""
        if len(self.excesses) < _CONSISTENT:
            return -1.0
        plan = self.predictor.plan(changes)
        return max((one.least * one.scale(plan) for one in self.excesses), default=-1.0)

    def _pool_ceiling(self, low: float) -> float:
        """After a pool that was too large for a machine: how far it has to go down towards the
        lower end. How much memory there really is was not seen."""
        failed = [one.fraction for one in self.observations if one.pool_too_large and one.fraction]
        if not failed:
            return 1.0
        part = _BLINDLY if len(failed) == 1 else _AGAIN
        return low + part * max(0.0, min(failed) - low)

    def too_low(self, changes: Mapping[str, Any]) -> float:
        """The largest fraction that was too low for these changes."""
        return too_low(self.observations, changes)

    def too_high(self, changes: Mapping[str, Any]) -> float:
        """The smallest fraction that was too high for just these changes."""
        return too_high(self.observations, changes)


def too_low(observations: Sequence[Observation], changes: Mapping[str, Any]) -> float:
    """The largest fraction that was too low. Fewer requests or draft tokens help only where the
    engine said so; graphs do not."""
    found = 0.0
    for seen in observations:
        if seen.direction is not Direction.RAISE:
            continue
        if len(seen.cause.directions) > 1 and key(seen.settings) != key(without(changes)):
            continue
        found = max(found, seen.fraction or 0.0, seen.least or 0.0)
    return found


def too_high(observations: Sequence[Observation], changes: Mapping[str, Any]) -> float:
    """The smallest fraction that was too high for just these settings; 1 where none was."""
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
    """The changes without the fraction."""
    return {name: value for name, value in changes.items() if name != "mem_fraction_static"}


def calibrate(predictor: Predictor, observations: Sequence[Observation]) -> Calibration:
    """What the observations say of the predictions."""
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
    """Where the engine came beyond the pool, the fraction was not too low."""
    most = 1.0
    for seen in observations:
        bounds = predictor.bounds(seen.changes)
        if bounds is None or seen.fraction is None or seen.direction is not Direction.LOWER:
            continue
        most = min(most, seen.fraction - _POOL_ROOM - bounds.low)
    return most


def needed_tokens(predictor: Predictor, observations: Sequence[Observation]) -> float:
    """Predicted KV tokens that the next settings need: clearly more than those that served and
    had no room for the requests. 0 where nothing is known."""
    short = [
        predictor.budget(seen.changes).tokens or 0
        for seen in observations
        if seen.served and seen.direction is Direction.RAISE
    ]
    return max(short, default=0) * ENOUGH_MORE


def _moved(predictor: Predictor, seen: Observation) -> float | None:
    """By how much the lower end is off, where the failure tells."""
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
    limit = predictor.plan(seen.changes).request.given.get("max_total_tokens")
    if not budget.tokens or budget.target_kv is None or start is None or limit is not None:
        return None
    cell = budget.target_kv.bytes
    if budget.draft_kv is not None and draft_in_pool(predictor.plan(seen.changes)):
        cell += budget.draft_kv.bytes
    return (budget.tokens - tokens) * cell / start


def _excess(predictor: Predictor, seen: Observation) -> Excess | None:
    """By how much the estimates are short at the least; None where they could still be right. What
    the engine did not come to before it failed needs room on top."""
    bounds = predictor.bounds(seen.changes)
    if seen.direction is not Direction.LOWER or seen.fraction is None or bounds is None:
        return None
    if seen.pool_too_large:  # it did not come to them
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
