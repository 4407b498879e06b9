"""Tunable settings of speculation: a deployment's algorithm, its own setting, and alternatives."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from speclaunch.checks import all_rules, check_request, tree_capacity
from speclaunch.core import InputError, LaunchError, Problem
from speclaunch.deployments import with_overrides
from speclaunch.engine import (
    EAGLE_HANDLER,
    PATH,
    UnknownValueError,
    published_acceptance,
    start_setting,
)
from speclaunch.measure.bench.engines import EngineOrder
from speclaunch.measure.bench.sides import LaunchedSide
from speclaunch.serving import free_port

_STEPS = (1, 2, 3, 4, 5, 6, 7, 8)
_TOPK = (1, 2, 4, 8)
_TREES = (4, 6, 8, 12, 16, 24, 32, 48, 64)
_NGRAM = (2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32)
NGRAM = "NGRAM"


class DraftSetting(Struct, frozen=True):
    """Draft settings; `steps` is 0 for NGRAM, which looks up an entire tree at once."""

    steps: int
    topk: int
    tokens: int
    """Tokens per verify step, including the root."""

    @property
    def arguments(self) -> dict[str, Any]:
        """Return the settings as server arguments."""
        if not self.steps:
            return {"speculative_num_draft_tokens": self.tokens}
        return {
            "speculative_num_steps": self.steps,
            "speculative_eagle_topk": self.topk,
            "speculative_num_draft_tokens": self.tokens,
        }

    def __str__(self) -> str:
        if not self.steps:
            return f"{self.tokens} draft tokens"
        return f"steps {self.steps}, topk {self.topk}, {self.tokens} draft tokens"


def settings(algorithm: str, most: int | None = None) -> tuple[DraftSetting, ...]:
    """Return all useful settings, with at most `most` draft tokens.

    A release or the memory may reject some of them.
    """
    return tuple(
        setting for setting in _settings(algorithm) if most is None or setting.tokens <= most
    )


def _settings(algorithm: str) -> Iterator[DraftSetting]:
    if algorithm == NGRAM:
        for tokens in _NGRAM:
            yield DraftSetting(0, 1, tokens)
    elif algorithm in EAGLE_HANDLER:  # the width of other algorithms is fixed by their draft
        for steps in _STEPS:
            for topk in _TOPK:
                if topk == 1:
                    yield DraftSetting(steps, 1, steps + 1)
                    continue
                for tokens in _TREES:
                    if steps < tokens <= tree_capacity(steps, topk):
                        yield DraftSetting(steps, topk, tokens)


def algorithm_of(side: LaunchedSide) -> str:
    """Return the algorithm that the engine resolves. Raises InputError if nothing is tunable."""
    try:
        found = side.plan.algorithm
    except UnknownValueError:
        found = None
    name = side.prepared.recipe.deployment.name
    if side.expected.simulated:
        raise InputError(
            Problem(
                f"{name}: {side.expected.simulated} simulates acceptance, so settings cannot be "
                "measured",
                help=f"unset {side.expected.simulated}",
            )
        )
    if found is None:
        raise InputError(Problem(f"{name} does not speculate: there is nothing to tune"))
    if not settings(found):
        raise InputError(
            Problem(
                f"{name}: {found} has no settings to tune",
                help="its width is fixed by its draft; EAGLE, EAGLE3, MTP, STANDALONE and NGRAM "
                "can be tuned",
            )
        )
    return found


def possible(
    side: LaunchedSide, algorithm: str, most: int | None = None
) -> tuple[DraftSetting, ...]:
    """Return the settings that this release accepts on this hardware: no rule reports an error.

    `most`: maximum draft tokens. Raises InputError if there are none.
    """
    found = []
    for setting in settings(algorithm, most):
        try:
            changed = side.prepared.changed(setting.arguments)
        except LaunchError:
            continue
        result = check_request(changed.request(os.environ), side.lookup, all_rules()).results
        if not result.errors:
            found.append(setting)
    if not found:
        raise InputError(Problem("no setting passes the rules", help="`speclaunch plan` shows why"))
    return tuple(found)


def own_setting(side: LaunchedSide, algorithm: str) -> DraftSetting | None:
    """Return the recipe's own setting as the engine resolves it; None if unknown."""

    def number(name: str) -> int:
        return int(side.plan.value(name) or 0)

    try:
        tokens = number("speculative_num_draft_tokens")
        if algorithm == NGRAM:
            return DraftSetting(0, 1, tokens)
        return DraftSetting(
            number("speculative_num_steps"), number("speculative_eagle_topk"), tokens
        )
    except UnknownValueError:
        return None


def published_setting(side: LaunchedSide, algorithm: str) -> DraftSetting | None:
    """Return the published setting to beat: the draft's fastest chain, else 5/1/6; None for NGRAM.

    See `speclaunch.engine.start_setting`.
    """
    if algorithm == NGRAM:
        return None
    try:
        target, draft = side.plan.value("model_path"), side.plan.value(PATH)
    except UnknownValueError:
        return None
    found = published_acceptance(str(target), str(draft) if draft else None, own=not draft)
    return DraftSetting(*start_setting(found).setting)


def order_of(side: LaunchedSide, setting: DraftSetting, name: str | None = None) -> EngineOrder:
    """Return the launch order of the deployment with a setting, on a free port."""
    order = side.order(free_port())
    words = with_overrides(order.words, override_words(setting))
    return EngineOrder(name or order.name, words, order.port)


def override_words(setting: DraftSetting) -> tuple[str, ...]:
    """Return the setting as overrides."""
    return tuple(f"args.{name}={value}" for name, value in setting.arguments.items())
