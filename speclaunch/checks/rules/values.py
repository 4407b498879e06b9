"""Plan values shared by several rules."""

from __future__ import annotations

from speclaunch.engine import BOTH, FA3_GIVES_WAY, PHASES, Plan, UnknownValueError


def number(plan: Plan, name: str) -> int | None:
    """Return the effective value of an integer argument."""
    value = plan.value(name)
    return None if value is None else int(value)


def tree_capacity(steps: int, topk: int) -> int:
    """Return the maximum tokens of a draft tree for verification, including the target's own.

    The first step scores `topk` tokens, each later step `topk` for each of `topk` branches
    (select_top_k_tokens in 0.4.6 speculative/eagle_utils.py to 0.5.23 speculative/spec_utils.py).
    """
    return 1 + topk + (steps - 1) * topk * topk


def attention_backend(plan: Plan, name: str = BOTH) -> str | None:
    """Return the effective value of one of the three backend arguments.

    If resolution lacks a fact, this is the user's value. Releases replace it only for DeepSeek V4
    and for fa3 with a hierarchical cache (plan/resolution/attention_models.py, attention.py).
    """
    try:
        found = plan.value(name)
    except UnknownValueError:
        found = plan.user_value(name)
        if found is None and name not in PHASES and runs_on_cpu(plan):
            return "intel_amx"
        inherited = plan.user_value(BOTH) is not None or runs_on_cpu(plan)
        if (found is None and not inherited) or _may_change_it(plan):
            raise
    return None if found is None else str(found)


def runs_on_cpu(plan: Plan) -> bool:
    """True on a CPU, where the default backend is intel_amx, or torch_native without AMX.

    Its callers treat both alike, and need it only from 0.4.10 on.
    """
    try:
        return plan.device == "cpu"
    except UnknownValueError:
        return False


def _may_change_it(plan: Plan) -> bool:
    """True if the engine may replace a backend that the user set."""
    if plan.value("enable_hierarchical_cache") and plan.in_versions(FA3_GIVES_WAY):
        return True  # fa3 is replaced for decode
    target = plan.facts.target
    if target is not None and target.architecture is not None:
        return target.architecture.startswith("DeepseekV4")
    return "v4" in str(plan.user_value("model_path")).lower()


def attention_backends(plan: Plan) -> tuple[str | None, str | None]:
    """Return the backends of prefill and decode: each its own, else `attention_backend`."""
    prefill, decode = (attention_backend(plan, name) or attention_backend(plan) for name in PHASES)
    return prefill, decode


def verifying_backend(plan: Plan) -> str | None:
    """Return the target's backend that verifies drafts: prefill's, unless decode is set.

    Raises UnknownValueError.
    """
    prefill, decode = attention_backends(plan)
    return decode if plan.value("speculative_attention_mode") == "decode" else prefill


def runs_on(plan: Plan, backend: str, phases: tuple[int, ...] = (0, 1)) -> bool:
    """True if prefill (0) or decode (1) runs on a backend.

    Raises UnknownValueError only if no known phase runs on it and a phase is unknown.
    """
    unknown: UnknownValueError | None = None
    for phase in phases:
        try:
            if (attention_backend(plan, PHASES[phase]) or attention_backend(plan)) == backend:
                return True
        except UnknownValueError as error:
            unknown = error
    if unknown is not None:
        raise unknown
    return False


def page_size(plan: Plan) -> int:
    """Return the effective page size; the user's if resolution cannot determine it."""
    try:
        found = plan.value("page_size")
    except UnknownValueError:
        found = plan.user_value("page_size")
        if found is None:
            raise
    return 1 if found is None else int(found)
