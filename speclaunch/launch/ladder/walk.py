"""The order of settings, walked one by one: where the budget is not known, or not wanted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from speclaunch.launch.diagnosis.interface import Direction
from speclaunch.launch.ladder.calibration import Observation, too_high, too_low, without
from speclaunch.plan.fit.knobs import FRACTION, arguments, steps_down
from speclaunch.plan.fit.predict import Predictor, key, with_fraction
from speclaunch.plan.request import canonical
from speclaunch.recipe.values import RecoveryPolicy, Steppable

if TYPE_CHECKING:
    from speclaunch.recipe.schema import Recovery

_CLOSE = 0.01
"""Nothing is looked for between fractions that are nearer to each other than this."""
_POOL = 0.05
"""Of the memory, for the pool: above the fraction at which nothing is left for it."""
_PATIENCE = 2
"""So often the fraction is lowered before another setting is stepped."""
_UNKNOWN_TOO_HIGH, _UNKNOWN_TOO_LOW = 0.7, 0.9
"""What to try where nobody knows which fraction it was."""

Step = tuple[Mapping[str, Any], str]
"""All changes against the recipe, and why these."""


def walk(
    settings: Recovery, predictor: Predictor, seen: Sequence[Observation], tried: set[str]
) -> Step | None:
    """The next settings in order that were not tried; None where there are none."""
    for changes, why in _options(settings, predictor, seen):
        if key(changes) not in tried and _differs(seen[-1], changes):
            return changes, why
    return None


def demanded(
    settings: Recovery, predictor: Predictor, now: Observation
) -> Mapping[str, Any] | None:
    """The settings to go on from: as they are, or, where the engine names settings and the
    fraction is not among them, with the first of those stepped. None where none can be."""
    if now.direction is not None:
        return now.settings
    stepped = next(_named(settings, predictor, now), None)
    return None if stepped is None else {**now.settings, **stepped}


def _named(
    settings: Recovery, predictor: Predictor, now: Observation
) -> Iterator[Mapping[str, Any]]:
    """Steps of what the engine says to lower."""
    lower = {name for name, way in now.cause.directions.items() if way is Direction.LOWER}
    plan = predictor.plan(now.changes)
    for knob in settings.order:
        if arguments(knob) & lower:
            yield from steps_down(plan, knob, settings.floors)[:1]


def _options(
    settings: Recovery, predictor: Predictor, seen: Sequence[Observation]
) -> Iterator[Step]:
    now = seen[-1]
    if now.direction is None:
        for step in _named(settings, predictor, now):
            yield {**now.changes, **step}, "the engine asks for it"
        return
    low, high = too_low(seen, now.changes), too_high(seen, now.changes)
    raising = now.direction is Direction.RAISE
    if raising and Steppable.FRACTION in settings.order:
        yield from _fraction(settings, now, low, high)
        if high >= 1:
            return  # graphs and drafts are not what is in the way
    later = _waits(settings, seen)
    for knob in settings.order:
        if knob is Steppable.FRACTION:
            if not raising and not later:
                yield from _fraction(settings, now, low, high)
            continue
        steps = steps_down(predictor.plan(now.changes), knob, settings.floors)
        if steps:
            # The documents name one value each; else by halves, as each costs a restart.
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
    """Whether the fraction was lowered often enough for these settings, so that others have their
    turn. The documents go down to their floor first."""
    if settings.policy is RecoveryPolicy.ORDER or seen[-1].direction is not Direction.LOWER:
        return False
    same = key(seen[-1].settings)
    return sum(key(one.settings) == same for one in seen) > _PATIENCE


def _fraction(settings: Recovery, now: Observation, low: float, high: float) -> Iterator[Step]:
    least = settings.floors.mem_fraction_static
    most = min(high, settings.limits.mem_fraction_static)
    if now.direction is Direction.RAISE:
        base = now.fraction
        value = _UNKNOWN_TOO_LOW if base is None else base + settings.fraction_step
        if now.least is not None:
            value = max(value, now.least + _POOL)
        found = _between(value, low, most, closed=high >= 1)
        why = "the engine asks for a higher one"
    else:
        base = now.fraction
        value = _UNKNOWN_TOO_HIGH if base is None else base - settings.fraction_step
        found = _between(max(value, least), low, most, closed=low <= 0)
        why = "the engine needs more memory outside the pool"
    if found is not None and found >= least and (base is None or abs(found - base) > _CLOSE / 2):
        if low > 0 and high < 1:
            why = f"between {low:.3f}, too low, and {high:.3f}, too high"
        yield with_fraction(now.changes, found), why


def _between(value: float, low: float, high: float, *, closed: bool) -> float | None:
    """The value where it lies between the bounds, else their middle; None where they meet.
    `closed`: the bound on the side of the value may be taken itself."""
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
    """Whether a value differs from what was in effect."""
    fraction = changes.get(FRACTION)
    if fraction is not None and now.fraction is not None and abs(fraction - now.fraction) > 1e-6:
        return True
    return key(without(changes)) != key(now.settings)
