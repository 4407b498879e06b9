"""SpecV2: the speculation workers that support the overlap schedule.

- 0.5.3 to 0.5.10: off by default. `enable_beta_spec` switches it on up to 0.5.4,
  SGLANG_ENABLE_SPEC_V2 in later releases (0.5.10 server_args.py:2999, 0.5.3 server_args.py:1199).
- 0.5.11 and 0.5.12: on by default, except for an explicit tree (0.5.11 server_args.py:3459).
- From 0.5.13 on: EAGLE's only workers, with or without overlap
  (arg_groups/speculative_hook.py:288). From 0.5.14 on: the only workers of every algorithm
  (speculative/spec_info.py:216).
"""

from __future__ import annotations

from speclaunch.engine.plan.settings import Settings
from speclaunch.engine.plan.topics.algorithms import EAGLE_HANDLER
from speclaunch.engine.plan.topics.target import has_architecture

OVERLAP = "disable_overlap_schedule"
VARIABLE = "SGLANG_ENABLE_SPEC_V2"
SWITCH = "enable_beta_spec"
FIRST_BY_VARIABLE = "0.5.4.post1"
BY_SWITCH = f"<{FIRST_BY_VARIABLE}"
"""Releases that do not read SGLANG_ENABLE_SPEC_V2 (0.5.4 server_args.py:1296, 0.5.4.post1
:1436)."""
FIRST_BY_DEFAULT = "0.5.11"
BY_DEFAULT = f">={FIRST_BY_DEFAULT}"
STANDALONE_TOO = ">=0.5.8"
"""Releases with a V2 worker for STANDALONE (speculative/spec_info.py:52)."""
ONLY_EAGLE_WORKERS = ">=0.5.13"
FIRST_ONLY = "0.5.14"
ONLY_WORKERS = f">={FIRST_ONLY}"

_SET_BY_TARGET = {
    "MiMoV2FlashForCausalLM": ">=0.5.7,<0.5.11",
    "Step3p5ForCausalLM": ">=0.5.9,<0.5.11",
    "DeepseekV4ForCausalLM": ">=0.5.12,<0.5.14",
}
"""Targets for which the engine sets SGLANG_ENABLE_SPEC_V2 itself, and the releases that do so. The
user must have set EAGLE, because NEXTN becomes EAGLE only later (0.5.10 server_args.py:1794, 0.5.12
arg_groups/deepseek_v4_hook.py:44)."""


def is_requested(settings: Settings) -> bool:
    """True if SpecV2 is switched on: by the user, by default, or for this target.

    Raises UnknownValueError.
    """
    if settings.in_versions(BY_SWITCH):
        return bool(settings.value(SWITCH))
    if settings.env_flag(VARIABLE, settings.in_versions(BY_DEFAULT)):
        return True
    return settings.user_value("speculative_algorithm") == "EAGLE" and _sets_it(settings)


def _sets_it(settings: Settings) -> bool:
    names = [name for name, spans in _SET_BY_TARGET.items() if settings.in_versions(spans)]
    return has_architecture(settings, names)


def has_worker(settings: Settings) -> bool:
    """True if the version has a V2 worker (with overlap) for the algorithm.

    Source: `create_worker` of 0.5.8 to 0.5.12 (speculative/spec_info.py:52), before that the
    scheduler (0.5.7 managers/scheduler.py:502, 0.5.3 :669). Raises UnknownValueError.
    """
    if settings.in_versions(ONLY_WORKERS):
        return settings.algorithm is not None
    return settings.algorithm in _able(settings)


def _able(settings: Settings) -> frozenset[str]:
    if settings.in_versions("<0.5.3"):
        return frozenset()
    return EAGLE_HANDLER if settings.in_versions(STANDALONE_TOO) else frozenset({"EAGLE", "EAGLE3"})


def turns_overlap_on(settings: Settings) -> bool:
    """True if a requested SpecV2 forces the overlap schedule on (0.5.3 to 0.5.10).

    Applies to EAGLE, from 0.5.7 also to EAGLE3, and from 0.5.8 to STANDALONE. Raises
    UnknownValueError.
    """
    if settings.in_versions(BY_DEFAULT) or not has_worker(settings):
        return False
    return settings.algorithm == "EAGLE" or settings.in_versions(">=0.5.7")


def would_run(settings: Settings) -> bool:
    """True if a release from 0.5.3 to 0.5.12 would use the V2 worker for a chain. Ignores whether
    the user sets a tree. Raises UnknownValueError."""
    if not has_worker(settings) or not is_requested(settings):
        return False
    return turns_overlap_on(settings) or not settings.user_value(OVERLAP)


def runs(settings: Settings) -> bool:
    """True if the V2 workers run. Call it after `disable_overlap_schedule` is resolved.

    Raises UnknownValueError.
    """
    if settings.in_versions(ONLY_WORKERS):
        return settings.algorithm is not None
    if settings.in_versions(ONLY_EAGLE_WORKERS):
        return settings.algorithm in EAGLE_HANDLER
    return has_worker(settings) and not settings.value(OVERLAP)
