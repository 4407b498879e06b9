"""Values that several rules ask a plan for."""

from __future__ import annotations

from speclaunch.engine import BOTH, FA3_GIVES_WAY, PHASES, Plan, UnknownValueError


def number(plan: Plan, name: str) -> int | None:
    """The effective value of an argument that is a whole number."""
    value = plan.value(name)
    return None if value is None else int(value)


def tree_capacity(steps: int, topk: int) -> int:
    """The most tokens that a draft tree has for verification, the target's own one included.

    The first step scores `topk` tokens, each later one `topk` for each of `topk` branches
    (select_top_k_tokens in 0.4.6 speculative/eagle_utils.py to 0.5.23 speculative/spec_utils.py).
    """
    return 1 + topk + (steps - 1) * topk * topk


def attention_backend(plan: Plan, name: str = BOTH) -> str | None:
    """The effective value of one of the three backend arguments.

    Where resolution cannot tell for want of a fact, what the user wrote: no release puts another
    backend in its place, but for DeepSeek V4 and for fa3 with a hierarchical cache
    (plan/resolution/attention_models.py and attention.py).
    """
    try:
        found = plan.value(name)
    except UnknownValueError:
        found = plan.given(name)
        if found is None and name not in PHASES and runs_on_cpu(plan):
            return "intel_amx"
        inherited = plan.given(BOTH) is not None or runs_on_cpu(plan)
        if (found is None and not inherited) or _may_change_it(plan):
            raise
    return None if found is None else str(found)


def runs_on_cpu(plan: Plan) -> bool:
    """Whether the default is that of a CPU: intel_amx, which gives way to torch_native where there
    is no AMX. No rule that asks here tells the two apart; before 0.4.10 nobody needs to ask."""
    try:
        return plan.device == "cpu"
    except UnknownValueError:
        return False


def _may_change_it(plan: Plan) -> bool:
    """Whether the engine may put its own in the place of a backend that was given."""
    if plan.value("enable_hierarchical_cache") and plan.in_versions(FA3_GIVES_WAY):
        return True  # fa3 gives way when it decodes
    target = plan.facts.target
    if target is not None and target.architecture is not None:
        return target.architecture.startswith("DeepseekV4")
    return "v4" in str(plan.given("model_path")).lower()


def attention_backends(plan: Plan) -> tuple[str | None, str | None]:
    """The backends of prefill and of decode: each its own, else `attention_backend`."""
    prefill, decode = (attention_backend(plan, name) or attention_backend(plan) for name in PHASES)
    return prefill, decode


def verifying_backend(plan: Plan) -> str | None:
    """The target's backend that verifies drafts: that of prefill, unless told. Raises
    UnknownValueError."""
    prefill, decode = attention_backends(plan)
    return decode if plan.value("speculative_attention_mode") == "decode" else prefill


def runs_on(plan: Plan, backend: str, phases: tuple[int, ...] = (0, 1)) -> bool:
    """Whether prefill (0) or decode (1) runs on a backend.

    Raises UnknownValueError only where no phase that can be told runs on it, and one cannot.
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
    """The effective page size; as given where resolution cannot tell whether it is changed."""
    try:
        found = plan.value("page_size")
    except UnknownValueError:
        found = plan.given("page_size")
        if found is None:
            raise
    return 1 if found is None else int(found)
