"""Recovery ladder: after a failed start, choose the next settings or end recovery.

The result depends only on the recipe's `recovery` section, the deployment and the attempts so far.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from speclaunch.deployments import RecoveryPolicy, fit_limits
from speclaunch.engine import (
    DEFAULT_LIMITS,
    FRACTION,
    MOST,
    SIZES,
    STEPS,
    TOKENS,
    TOPK,
    Alternative,
    BudgetOf,
    Fit,
    FitCandidate,
    FitLimits,
    MemoryBudget,
    MemoryPhase,
    Plan,
    PlanWith,
    Predictor,
    Search,
    Steppable,
    alternatives,
    arguments,
    best,
    binding,
    candidate_of,
    canonical,
    cost,
    format_setting,
    key,
    levels,
    steps_down,
    with_fraction,
)
from speclaunch.engine import budget as predict_budget
from speclaunch.serving.launch.calibration import (
    ROOM_FOR_ERROR,
    Observation,
    calibrate,
    needed_tokens,
    observe,
    too_high,
    too_low,
    without,
)
from speclaunch.serving.launch.diagnosis.interface import Cause, Diagnosis, Direction
from speclaunch.serving.launch.diagnosis.remedy import value_to_try
from speclaunch.serving.launch.engine_log import Phase
from speclaunch.serving.launch.planner import Attempt, LadderEnd, Rung

if TYPE_CHECKING:
    from speclaunch.deployments import Recovery


_TOO_LARGE = frozenset({"weights-do-not-fit", "weights-exceed-machine"})

_CHANCES = 2
"""Maximum number of starts with all settings at their floors if no fraction is safe."""


# Settings in order, stepped one by one: without a known budget, or by request.

_CLOSE = 0.01
"""Minimum distance between two fractions that still allows trying a value between them."""
_POOL = 0.05
"""Distance from the fraction that leaves nothing for the KV pool to the lowest fraction tried."""
_PATIENCE = 2
"""Number of times the fraction is lowered before another setting is changed."""
_UNKNOWN_TOO_HIGH, _UNKNOWN_TOO_LOW = 0.7, 0.9
"""Fractions to try if an unknown fraction was too high or too low."""

Step = tuple[Mapping[str, Any], str]
"""All changes to the recipe, and the reason for the new changes."""


def walk(
    settings: Recovery, predictor: Predictor, seen: Sequence[Observation], tried: set[str]
) -> Step | None:
    """Return the next settings to try by `recovery.order`, with a reason; None if none are left."""
    for changes, why in _options(settings, predictor, seen):
        if key(changes) not in tried and _differs(seen[-1], changes):
            return changes, why
    return None


def demanded(limits: FitLimits, predictor: Predictor, now: Observation) -> Mapping[str, Any] | None:
    """Return the settings from which the search starts; None if no step is possible.

    If the diagnosis names the fraction, return the failed settings. Otherwise, lower by one step
    the first setting that the diagnosis names.
    """
    if now.direction is not None:
        return now.settings
    stepped = next(_named(limits, predictor, now), None)
    return None if stepped is None else {**now.settings, **stepped}


def _named(
    limits: FitLimits, predictor: Predictor, now: Observation
) -> Iterator[Mapping[str, Any]]:
    """Yield one step down for each setting that the diagnosis says to lower."""
    lower = {name for name, way in now.cause.directions.items() if way is Direction.LOWER}
    plan = predictor.plan(now.changes)
    for knob in limits.order:
        if arguments(knob) & lower:
            yield from steps_down(plan, knob, limits.floors)[:1]


def _options(
    settings: Recovery, predictor: Predictor, seen: Sequence[Observation]
) -> Iterator[Step]:
    now, limits = seen[-1], fit_limits(settings)
    if now.direction is None:
        for step in _named(limits, predictor, now):
            yield {**now.changes, **step}, "the engine requests it"
        return
    low, high = too_low(seen, now.changes), too_high(seen, now.changes)
    raising = now.direction is Direction.RAISE
    if raising and Steppable.FRACTION in settings.order:
        yield from _fraction(settings, now, low, high)
        if high >= 1:
            return  # graphs and drafts are not the obstacle
    later = _waits(settings, seen)
    for knob in settings.order:
        if knob is Steppable.FRACTION:
            if not raising and not later:
                yield from _fraction(settings, now, low, high)
            continue
        steps = steps_down(predictor.plan(now.changes), knob, limits.floors)
        if steps:
            # The documents name one value each; otherwise halve, because each step costs a restart.
            named = settings.policy is RecoveryPolicy.ORDER
            step = steps[-1] if named else steps[len(steps) // 2]
            changes = {**now.changes, **step}
            if raising:
                changes = with_fraction(changes, round(high, 3))
            yield changes, "the next setting in order"
    if later and Steppable.FRACTION in settings.order:
        yield from _fraction(settings, now, low, high)
    yield from _minimal(settings, now, low)


def _waits(settings: Recovery, seen: Sequence[Observation]) -> bool:
    """True if the fraction was lowered often enough and another setting is next. With `policy:
    order`, the fraction is first lowered to its floor."""
    if settings.policy is RecoveryPolicy.ORDER or seen[-1].direction is not Direction.LOWER:
        return False
    same = key(seen[-1].settings)
    return sum(key(observation.settings) == same for observation in seen) > _PATIENCE


def _fraction(settings: Recovery, now: Observation, low: float, high: float) -> Iterator[Step]:
    least, base = settings.floors.mem_fraction_static, now.fraction
    most = min(high, settings.limits.mem_fraction_static)
    if now.direction is Direction.RAISE:
        value = _UNKNOWN_TOO_LOW if base is None else base + settings.fraction_step
        if now.least is not None:
            value = max(value, now.least + _POOL)
        found = _between(value, low, most, closed=high >= 1)
        why = "the engine requests a higher value"
    else:
        value = _UNKNOWN_TOO_HIGH if base is None else base - settings.fraction_step
        found = _between(max(value, least), low, most, closed=low <= 0)
        why = "the engine needs more memory outside the pool"
    if found is not None and found >= least and (base is None or abs(found - base) > _CLOSE / 2):
        if low > 0 and high < 1:
            why = f"between {low:.3f} (too low) and {high:.3f} (too high)"
        yield with_fraction(now.changes, found), why


def _between(value: float, low: float, high: float, *, closed: bool) -> float | None:
    """Return the value if it is between the bounds, otherwise their middle; None if the bounds
    meet. `closed`: True if `high` itself is allowed."""
    if high - low < _CLOSE:
        return None
    if closed:
        value = min(value, high)
        inside = low < value <= high
    else:
        inside = low + _CLOSE / 2 < value < high - _CLOSE / 2
    return round(value if inside else (low + high) / 2, 3)


def _minimal(settings: Recovery, now: Observation, low: float) -> Iterator[Step]:
    if not settings.minimal:
        return
    least = {canonical(name): value for name, value in settings.minimal.items()}
    changes = {**now.changes, **least}
    fraction = least.get(FRACTION)
    if isinstance(fraction, int | float) and fraction <= low:
        most = settings.limits.mem_fraction_static
        changes[FRACTION] = round(min(most, low + _POOL), 3)
    yield changes, "the minimal configuration"


def _differs(now: Observation, changes: Mapping[str, Any]) -> bool:
    fraction = changes.get(FRACTION)
    if fraction is not None and now.fraction is not None and abs(fraction - now.fraction) > 1e-6:
        return True
    return key(without(changes)) != key(now.settings)


class Ladder:
    """Recovery ladder of a deployment. `plan_with` resolves the deployment with changed
    arguments."""

    def __init__(
        self, settings: Recovery, plan_with: PlanWith, budget: BudgetOf = predict_budget
    ) -> None:
        self._settings = settings
        self._limits = fit_limits(settings)
        self._predictor = Predictor(plan_with, budget)

    def next(self, attempts: Sequence[Attempt]) -> Rung | LadderEnd:
        """Return the next rung or the end after these attempts, the last of which failed.

        The same attempts give the same result. Raises ValueError if there are no attempts.
        """
        if not attempts:
            raise ValueError("there is no attempt to continue from")
        if self._settings.policy is RecoveryPolicy.OFF:
            return LadderEnd("recovery is off", "add `recovery=default` to try other settings")
        now = self._observed(attempts[-1])
        if now is None:
            return self._weights(attempts[-1]) or _unexplained(attempts[-1])
        if not now.cause.directions:
            return self._nothing_helps(now)
        if len(attempts) >= self._settings.max_attempts:
            return LadderEnd(
                f"{len(attempts)} attempts failed, the limit of recovery.max_attempts",
                "raise recovery.max_attempts, or read the diagnosis of the last attempt",
            )
        named = self._named_first(now, attempts[-1])
        if named is not None:
            return named
        seen = [found for attempt in attempts if (found := self._observed(attempt)) is not None]
        return self._step(attempts, seen)

    def _observed(self, attempt: Attempt) -> Observation | None:
        return observe(attempt, self._predictor.plan(attempt.changes))

    def _named_first(self, now: Observation, last: Attempt) -> Rung | LadderEnd | None:
        """Return the rung that raises `max_total_tokens`, or the end if recovery may not change it.
        None if the diagnosis does not name this setting first, or the setting does not limit the
        pool."""
        name, direction = next(iter(now.cause.directions.items()))
        if direction is not Direction.RAISE or name != Steppable.POOL.value:
            return None
        limit = self._predictor.plan(now.changes).value_or_none(name)
        if not isinstance(limit, int) or (now.tokens is not None and now.tokens < limit):
            return None  # the memory limits the pool, not the recipe
        if Steppable.POOL not in self._settings.order:
            return LadderEnd(f"{now.cause.title}, and recovery may not change {name}", _remedy(now))
        changes = {**now.changes, name: int(value_to_try(name, direction, limit) or limit * 2)}
        return rung_of(self._predictor, now, last, changes, "the diagnosis names it first")

    def _step(self, attempts: Sequence[Attempt], seen: Sequence[Observation]) -> Rung | LadderEnd:
        now, last = seen[-1], attempts[-1]
        tried = {key(attempt.changes) for attempt in attempts}
        budgeted = self._settings.policy is RecoveryPolicy.BUDGET
        if budgeted and self._predictor.bounds(now.changes) is not None:
            found = self._by_budget(seen, tried)
            if found is not None:
                expects = (
                    f"the budget expects mem_fraction_static from {found.bounds.low:.3f} to "
                    f"{found.bounds.high:.3f} to work"
                )
                return rung_of(self._predictor, now, last, found.changes, expects)
            return self._nothing_helps(now)
        walked = walk(self._settings, self._predictor, seen, tried)
        if walked is None:
            return self._nothing_helps(now)
        return rung_of(self._predictor, now, last, *walked)

    def _by_budget(self, seen: Sequence[Observation], tried: set[str]) -> FitCandidate | None:
        """Return the safe settings with the smallest loss. If none are safe, return all settings at
        their floors, which have the best chance; None once they have failed too often."""
        now = seen[-1]
        base = demanded(self._limits, self._predictor, now)
        if base is None:
            return None
        calibration = calibrate(self._predictor, seen)
        steps = levels(self._predictor, base, self._limits)
        search = Search(
            self._predictor,
            self._limits,
            calibration.below,
            self._predictor.budget({}).tokens or None,
            int(needed_tokens(self._predictor, seen)),
            lambda changes: key(changes) in tried or not _moves_named(now, changes),
            ROOM_FOR_ERROR,
        )
        found = best(search, steps)
        if found is not None:
            return found
        smallest = steps.smallest()
        if sum(key(observation.settings) == key(smallest) for observation in seen) >= _CHANCES:
            return None
        bold = replace(search, bounds_of=calibration.last_chance, least_tokens=0)
        return candidate_of(bold, smallest)

    def _weights(self, last: Attempt) -> LadderEnd | None:
        """Return the ladder's end if no step helps because the weights exceed the memory; otherwise
        None."""
        cause = last.diagnosis.cause if last.diagnosis is not None else None
        if cause is None or cause.name not in _TOO_LARGE:
            return None
        smallest = levels(self._predictor, without(last.changes), self._limits).smallest()
        others = alternatives(self._predictor, smallest)
        budget = self._predictor.budget(last.changes)
        why = f": {budget.why}" if budget.fit is Fit.FAILS else ""
        help = _instead(others) or cause.remedy or None  # noqa: A001
        return LadderEnd(f"{cause.title}{why}", help)

    def _nothing_helps(self, now: Observation) -> LadderEnd:
        if now.direction is None and now.cause.directions:
            names = ", ".join(now.cause.directions)
            why = f"{now.cause.title}, and recovery has no further value for {names}"
            return LadderEnd(why, _remedy(now))
        least, most = now.least or now.fraction, self._limits.most_fraction
        is_raised = now.direction is Direction.RAISE and most < DEFAULT_LIMITS.most_fraction
        if is_raised and least is not None and least >= most:
            limit = "recovery.limits.mem_fraction_static"
            why = f"{now.cause.title}, and {limit} is {most:g}"
            return LadderEnd(why, f"set {limit} above {least:.3g}")
        budget = self._predictor.budget(now.changes)
        if budget.fit is Fit.UNKNOWN:
            why = f"{now.cause.title}, and no setting is left to try"
            return LadderEnd(why, _remedy(now))
        smallest = levels(self._predictor, now.settings, self._limits).smallest()
        others = alternatives(self._predictor, smallest)
        why = (
            "no setting that recovery may change makes the deployment fit: "
            f"{binding(self._predictor, smallest)}"
        )
        return LadderEnd(f"{why}{self._both(now)}", _instead(others) or _remedy(now))

    def _both(self, now: Observation) -> str:
        fraction = now.fraction
        if fraction is None or now.direction is None:
            return ""
        way = "more" if now.direction is Direction.RAISE else "less"
        return f"; the engine needed {way} than {format_setting(FRACTION, round(fraction, 3))}"


def _moves_named(now: Observation, changes: Mapping[str, Any]) -> bool:
    """True if a setting that the cause names differs from its value in the failed attempt."""
    named = set(now.cause.directions)
    for knob in Steppable:
        if arguments(knob) & named:
            named |= arguments(knob)
    fraction = changes.get(FRACTION)
    if FRACTION in named and fraction is not None and fraction != now.fraction:
        return True
    return any(changes.get(name) != now.changes.get(name) for name in named - {FRACTION})


def _unexplained(last: Attempt) -> LadderEnd:
    diagnosis = last.diagnosis
    if diagnosis is None or diagnosis.cause is None:
        return LadderEnd(
            "the cause is unknown, so no setting is changed", "read the end of the log"
        )
    cause = diagnosis.cause
    return LadderEnd(f"{cause.title}: not a memory problem, so no setting is changed")


def _remedy(now: Observation) -> str | None:
    return now.cause.remedy or None


def _instead(found: Sequence[Alternative]) -> str | None:
    """Return up to three alternatives that fit, as text. If none fits, return the verdicts on those
    that change no setting; None if there are none."""
    good = [alternative for alternative in found if alternative.fits]
    if good:
        return "; or ".join(
            f"{alternative.what}: {alternative.verdict}" for alternative in good[:3]
        )
    verdicts = [
        f"{alternative.what}: {alternative.verdict}"
        for alternative in found
        if not alternative.changes
    ]
    return "; ".join(verdicts) or None


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
) -> Rung:
    """Return the rung that leads from the last attempt to `changes` (all changes to the recipe)."""
    added = {
        name: value
        for name, value in changes.items()
        if name not in last.changes or last.changes[name] != value
    }
    before = predictor.plan(last.changes)
    moved = [_move(before, now, name, value) for name, value in added.items()]
    moves = "; ".join(text for text in moved if text)
    recipe, predicted = (
        None if budget.fit is Fit.UNKNOWN else budget
        for budget in (predictor.budget({}), predictor.budget(changes))
    )
    total = cost(predictor.plan({}), predictor.plan(changes), recipe, predicted)
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
    """Return the setting's change to `value` as text; None if the failed attempt had this value."""
    was = now.fraction if name == FRACTION else before.value_or_none(name)
    if isinstance(was, float):
        was = round(was, 3)
    if was == value:
        return None
    if was is None or isinstance(was, list):
        return format_setting(name, value)
    return f"{name} {was} → {value}"


_LOWER = Cause(
    "forecast-out-of-memory",
    "out of memory",
    "A start that runs out of memory outside the KV cache.",
    "",
    memory=True,
    directions=MappingProxyType({FRACTION: Direction.LOWER}),
)
_RAISE = Cause(
    "forecast-no-room-for-the-pool",
    "no room for the KV cache",
    "A start whose mem_fraction_static leaves nothing for the KV cache.",
    "",
    memory=True,
    directions=MappingProxyType({FRACTION: Direction.RAISE}),
)
_PHASES = {
    MemoryPhase.DRAFT_WEIGHTS: Phase.DRAFT_WEIGHTS,
    MemoryPhase.KV_POOL: Phase.KV_POOL,
    MemoryPhase.GRAPHS: Phase.GRAPHS,
    MemoryPhase.SERVING: Phase.READY,
}


def outlook(
    settings: Recovery, plan_with: PlanWith, budget: BudgetOf = predict_budget
) -> tuple[tuple[Rung, ...], LadderEnd]:
    """Return the rungs in order, each with the budget's prediction, and the end of the ladder.

    Each start is assumed to fail as the budget predicts. If the budget predicts a fit, the start is
    assumed to run out of memory during graph capture. This gives the longest possible ladder.
    """
    ladder = Ladder(settings, plan_with, budget)
    predictor = Predictor(plan_with, budget)
    attempts: list[Attempt] = []
    rungs: list[Rung] = []
    changes: Mapping[str, Any] = {}
    while True:
        failed = _failure(predictor.budget(changes))
        rung = rungs[-1] if rungs else None
        attempts.append(Attempt(len(attempts) + 1, changes, rung, diagnosis=failed))
        found = ladder.next(attempts)
        if isinstance(found, LadderEnd):
            return tuple(rungs), found
        rungs.append(found)
        changes = {**changes, **found.changes}


def _failure(budget: MemoryBudget) -> Diagnosis:
    fails = budget.fit is Fit.FAILS
    if fails and budget.phase is MemoryPhase.KV_POOL:
        return Diagnosis(Phase.KV_POOL, cause=_RAISE)
    if fails and budget.phase is MemoryPhase.TARGET_WEIGHTS:
        return Diagnosis(Phase.WEIGHTS, cause=_NOTHING)
    phase = _PHASES.get(budget.phase, Phase.GRAPHS) if fails and budget.phase else Phase.GRAPHS
    return Diagnosis(phase, cause=_LOWER)


_NOTHING = Cause(
    "forecast-weights-do-not-fit",
    "the weights do not fit in memory",
    "The target's weights do not fit in the available memory.",
    "",
    memory=True,
)
