"""What can be tuned of a deployment: its algorithm, its own setting, and those it may take."""

from __future__ import annotations

import os

from speclaunch.bench.engines import Order
from speclaunch.bench.sides import Side, with_overrides
from speclaunch.errors import InputError, LaunchError, Problem
from speclaunch.launch.free_port import free_port
from speclaunch.plan.plan import UnknownValueError
from speclaunch.rules.examine import examine
from speclaunch.rules.registry import all_rules
from speclaunch.tuning.setting import NGRAM, Setting, settings


def algorithm_of(side: Side) -> str:
    """As the engine resolves it. Raises InputError where there is nothing to tune."""
    try:
        found = side.plan.algorithm
    except UnknownValueError:
        found = None
    name = side.prepared.recipe.deployment.name
    if side.expected.simulated:
        raise InputError(
            Problem(
                f"{name}: {side.expected.simulated} makes its acceptance up, which says nothing of "
                "its settings",
                help=f"unset {side.expected.simulated}",
            )
        )
    if found is None:
        raise InputError(Problem(f"{name} does not speculate: there is nothing to tune"))
    if not settings(found):
        raise InputError(
            Problem(
                f"{name}: {found} has no settings to tune",
                help="its width is that of its draft; EAGLE, EAGLE3, MTP, STANDALONE and NGRAM "
                "can be tuned",
            )
        )
    return found


def possible(side: Side, algorithm: str, most: int | None = None) -> tuple[Setting, ...]:
    """The settings that this release takes on this hardware: no rule has an error for them.

    `most`: draft tokens at most. Raises InputError where there is none.
    """
    found = []
    for one in settings(algorithm, most):
        try:
            changed = side.prepared.changed(one.arguments(algorithm))
        except LaunchError:
            continue
        judged = examine(changed.request(os.environ), side.lookup, all_rules()).judgement
        if not judged.errors:
            found.append(one)
    if not found:
        raise InputError(Problem("no setting passes the rules", help="speclaunch plan says why"))
    return tuple(found)


def own_setting(side: Side, algorithm: str) -> Setting | None:
    """The recipe's own setting, as the engine resolves it; None where that is not known."""

    def number(name: str) -> int:
        return int(side.plan.value(name) or 0)

    try:
        tokens = number("speculative_num_draft_tokens")
        if algorithm == NGRAM:
            return Setting(0, 1, tokens)
        return Setting(number("speculative_num_steps"), number("speculative_eagle_topk"), tokens)
    except UnknownValueError:
        return None


def order_of(side: Side, setting: Setting, algorithm: str, name: str | None = None) -> Order:
    """How the deployment is launched with a setting, on a port of its own."""
    order = side.order(free_port())
    words = with_overrides(order.words, override_words(setting, algorithm))
    return Order(name or order.name, words, order.port)


def override_words(setting: Setting, algorithm: str) -> tuple[str, ...]:
    """The setting as words of a command line."""
    return tuple(f"args.{name}={value}" for name, value in setting.arguments(algorithm).items())
