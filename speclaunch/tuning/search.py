"""Which setting to try next, until the best one that is predicted was tried."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from speclaunch.record import record
from speclaunch.tuning.model import Trial
from speclaunch.tuning.objective import Objective, known
from speclaunch.tuning.setting import Setting

_WORTH = 1.02
"""A setting is tried where it is predicted to be so many times as good as the best that was."""


@record
class Next:
    """What to do: try a setting, or (None) stop."""

    setting: Setting | None
    why: str


def first_settings(space: Sequence[Setting], given: Setting | None) -> tuple[Setting, ...]:
    """What the model needs: the recipe's own, a short and a long chain, and a tree; of NGRAM, which
    spreads a longer draft over more branches, one between."""
    chains = sorted((one for one in space if one.topk == 1), key=lambda one: one.tokens)
    trees = sorted((one for one in space if one.topk > 1), key=lambda one: one.tokens)
    found: list[Setting] = [given] if given is not None and given in space else []
    found += chains[-1:] + chains[:1]
    found += trees[len(trees) // 2 :][:1]
    if not any(one.steps for one in space):
        found += chains[len(chains) // 2 :][:1]
    return tuple(dict.fromkeys(found))


def next_trial(
    aim: Objective,
    space: Sequence[Setting],
    given: Setting | None,
    trials: Sequence[Trial],
    most: int,
) -> Next:
    """The next setting. `most`: settings in all."""
    tried = {one.setting for one in trials}
    for one in first_settings(space, given):
        if one not in tried and len(tried) < most:
            return Next(one, "the model needs it")
    if len(tried) >= most:
        return Next(None, f"{most} settings were tried")
    left = [one for one in space if one not in tried]
    if not left:
        return Next(None, "all settings were tried")
    model = known(aim, trials)
    found = max(left, key=model.score)
    gain = math.exp(model.score(found) - max(map(model.score, tried)))
    beside = _beside(space, tried, max(tried, key=model.score))
    if gain < _WORTH and beside is not None:
        return Next(beside, "it is next to the best so far")
    if gain < _WORTH:
        return Next(None, "no other setting is predicted to be better")
    return Next(found, f"predicted to be {gain:.2f} times as good as the best so far")


def _beside(space: Sequence[Setting], tried: Collection[Setting], best: Setting) -> Setting | None:
    """Of NGRAM, whose acceptance no model tells: a neighbour of the best that was not tried."""
    if any(one.steps for one in space):
        return None
    order = sorted({*space, best}, key=lambda one: one.tokens)
    at = order.index(best)
    near = [order[other] for other in (at - 1, at + 1) if 0 <= other < len(order)]
    return next((one for one in near if one not in tried), None)


def ranked(aim: Objective, trials: Sequence[Trial]) -> tuple[Setting, ...]:
    """The settings that were tried, the best first."""
    if not trials:
        return ()
    model = known(aim, trials)
    return tuple(
        sorted(dict.fromkeys(one.setting for one in trials), key=lambda one: -model.score(one))
    )
