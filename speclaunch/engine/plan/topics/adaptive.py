"""Adaptive speculation: when the engine drops it, and the defaults that it sets.

`adaptive_unsupported_reason`: sglang 0.5.23 speculative/adaptive_spec_params.py:56, 0.5.11 :18.
From 0.5.14 it is checked before the parameters are filled in, so an unset topk counts as 1; earlier
releases check afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.engine.plan.settings import Settings
from speclaunch.engine.plan.topics.parallel import attention_ranks
from speclaunch.engine.plan.topics.spec_v2 import OVERLAP

ADAPTIVE = "speculative_adaptive"
ALGORITHMS = ("EAGLE", "EAGLE3")
"""Algorithms that support adaptive steps."""
DECIDED_FIRST = ">=0.5.14"
_TOPK = "speculative_eagle_topk"
_NOT_WITH = ("enable_multi_layer_eagle", "enable_two_batch_overlap", "enable_pdmux")


def refusal(settings: Settings) -> str | None:
    """Return why the engine drops `speculative_adaptive`; None if it does not. Raises
    UnknownValueError."""
    return next(_refusals(settings), None)


def _refusals(settings: Settings) -> Iterator[str]:
    """Yield the reasons in the engine's order."""
    algorithm = settings.algorithm
    if algorithm not in ALGORITHMS:
        yield (
            f"only EAGLE and EAGLE3 support adaptive speculation, not {algorithm}"
            if algorithm
            else "speculation is off"
        )
    early = settings.in_versions(DECIDED_FIRST)
    topk = settings.user_value(_TOPK) if early else settings.value(_TOPK)
    if topk != 1 and not (early and topk is None):
        yield f"adaptive speculation needs speculative_eagle_topk 1, not {topk}"
    if attention_ranks(settings) > 1:
        yield "DP attention ranks would not agree on the steps"
    if settings.in_versions("<0.5.12") and not settings.value(OVERLAP):
        yield "0.5.11 supports adaptive speculation only without the overlap schedule"
    for switch in _NOT_WITH:
        if settings.value(switch):
            yield f"{switch} does not support adaptive speculation"


def candidate_steps(settings: Settings) -> tuple[int, ...]:
    """Return the step counts that adaptive speculation switches between if no file sets them.

    The middle count is the initial one (`candidate_steps` of 0.5.23
    speculative/adaptive_spec_params.py, also in 0.5.13).
    """
    found = {1, 3, 7}
    found |= {0} if settings.in_versions(DECIDED_FIRST) else set()
    found |= {5} if settings.in_versions(">=0.5.20") else set()
    return tuple(sorted(found))


FIRST_STEPS = 3
"""Initial number of steps."""


def fills_parameters(settings: Settings) -> bool:
    """True if adaptive speculation sets missing steps and topk (0.5.14 and later,
    arg_groups/speculative_hook.py:487). Raises UnknownValueError."""
    if not settings.in_versions(DECIDED_FIRST) or not settings.user_value(ADAPTIVE):
        return False
    return refusal(settings) is None
