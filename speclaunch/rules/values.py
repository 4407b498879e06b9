"""Values that several rules ask a plan for."""

from __future__ import annotations

from speclaunch.plan.plan import Plan, UnknownValueError

EAGLE_HANDLER = frozenset({"EAGLE", "EAGLE3", "STANDALONE"})
"""The algorithms of `_handle_eagle_family`, which checks steps, topk and tokens together."""

_ALGORITHMS = (
    ("0", ("EAGLE", "EAGLE3", "NEXTN")),
    ("0.5.2", ("STANDALONE",)),
    ("0.5.3", ("NGRAM",)),
    ("0.5.11", ("DFLASH",)),
    ("0.5.12", ("FROZEN_KV_MTP", "NONE")),
    ("0.5.16", ("DSPARK",)),
    ("0.5.20", ("UNO",)),
)
"""Which names each release added (speculative/spec_info.py; before 0.5.12 the parser's choices)."""


def attention_dp_size(plan: Plan) -> int:
    """Ranks of data-parallel attention; 1 where there is none.

    Up to 0.5.21 `enable_dp_attention` makes the DP ranks attention ranks, and a `dp_size` of 1
    switches it off (0.5.2+, server_args.py). From 0.5.22 that pair is rewritten to `attn_dp_size`
    (arg_groups/parallel_hook.py:55).
    """
    own = plan.value("attn_dp_size")
    if own is not None and int(own) > 1:
        return int(own)
    if not plan.value("enable_dp_attention"):
        return 1
    return int(plan.value("dp_size") or 1)


def algorithm_names(plan: Plan) -> frozenset[str]:
    """The speculative algorithms that this version knows, plugins aside."""
    return frozenset(
        name for since, names in _ALGORITHMS if plan.in_versions(f">={since}") for name in names
    )


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


def adaptive_refusal(plan: Plan) -> str | None:
    """Why `speculative_adaptive` is dropped; None where it stays (adaptive_spec_params.py).

    From 0.5.14 it is decided before the engine fills in topk, so that none is as good as 1.
    """
    early = plan.in_versions(">=0.5.14")
    name = "speculative_eagle_topk"
    if plan.algorithm not in ("EAGLE", "EAGLE3"):
        return f"only EAGLE and EAGLE3 support it, not {plan.algorithm}"
    topk = plan.given(name) if early else plan.value(name)
    if topk != 1 and not (early and topk is None):
        return f"it needs speculative_eagle_topk 1, not {topk}"
    if attention_dp_size(plan) > 1:
        return "DP attention ranks would not agree on the steps"
    if plan.in_versions("<0.5.12") and not plan.value("disable_overlap_schedule"):
        return "0.5.11 implements it only without the overlap schedule"
    for switch in ("enable_multi_layer_eagle", "enable_two_batch_overlap", "enable_pdmux"):
        if plan.value(switch):
            return f"{switch} does not support it"
    return None


def adaptive_fills_parameters(plan: Plan) -> bool:
    """Whether adaptive speculation sets missing steps and topk (0.5.14 and later)."""
    return (
        plan.in_versions(">=0.5.14")
        and bool(plan.given("speculative_adaptive"))
        and adaptive_refusal(plan) is None
    )


def target_sets_parameters(plan: Plan) -> bool:
    """Whether the target is one whose own draft gives steps, topk and tokens (0.5.21 and later,
    `_handle_iquest_q1_mtp_draft`)."""
    target = plan.facts.target
    return (
        plan.in_versions(">=0.5.21")
        and target is not None
        and target.architecture == "IQuestQ1ForCausalLM"
    )


_PHASES = ("prefill_attention_backend", "decode_attention_backend")


def attention_backend(plan: Plan, name: str = "attention_backend") -> str | None:
    """The effective value of one of the three backend arguments.

    Where resolution cannot tell for want of a fact, what the user wrote: no release puts another
    backend in its place, but for DeepSeek V4 and for fa3 with a hierarchical cache
    (plan/resolution/attention_models.py and attention.py).
    """
    try:
        found = plan.value(name)
    except UnknownValueError:
        found = plan.given(name)
        if found is None and name not in _PHASES and runs_on_cpu(plan):
            return "intel_amx"
        inherited = name in _PHASES and (
            plan.given("attention_backend") is not None or runs_on_cpu(plan)
        )
        if (found is None and not inherited) or _may_change_it(plan):
            raise
    return None if found is None else str(found)


def runs_on_cpu(plan: Plan) -> bool:
    """Whether the default is that of a CPU: intel_amx, which gives way to torch_native where there
    is no AMX. No rule that asks here tells the two apart."""
    try:
        return plan.device == "cpu" and plan.in_versions(">=0.4.10")
    except UnknownValueError:
        return False


def _may_change_it(plan: Plan) -> bool:
    """Whether the engine may put its own in the place of a backend that was given."""
    if plan.value("enable_hierarchical_cache") and plan.in_versions("<0.5.14"):
        return True  # fa3 gives way when it decodes
    target = plan.facts.target
    if target is not None and target.architecture is not None:
        return target.architecture.startswith("DeepseekV4")
    return "v4" in str(plan.given("model_path")).lower()


def attention_backends(plan: Plan) -> tuple[str | None, str | None]:
    """The backends of prefill and of decode: each its own, else `attention_backend`."""
    prefill, decode = (attention_backend(plan, name) or attention_backend(plan) for name in _PHASES)
    return prefill, decode


def runs_on(plan: Plan, backend: str, phases: tuple[int, ...] = (0, 1)) -> bool:
    """Whether prefill (0) or decode (1) runs on a backend.

    Raises UnknownValueError only where no phase that can be told runs on it, and one cannot.
    """
    unknown: UnknownValueError | None = None
    for phase in phases:
        try:
            if (attention_backend(plan, _PHASES[phase]) or attention_backend(plan)) == backend:
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


_SPEC_V2_ARCHITECTURES = {
    "MiMoV2FlashForCausalLM": ">=0.5.7,<0.5.11",
    "Step3p5ForCausalLM": ">=0.5.9,<0.5.11",
    "DeepseekV4ForCausalLM": ">=0.5.12,<0.5.14",
}
"""Targets for which the engine itself sets SGLANG_ENABLE_SPEC_V2 when the algorithm is EAGLE."""


def spec_v2_requested(plan: Plan) -> bool:
    """Whether the V2 worker is switched on, by the flag, the variable or its default.

    Up to 0.5.4 there is `enable_beta_spec`, then to 0.5.13 SGLANG_ENABLE_SPEC_V2 (on by default
    from 0.5.11).
    """
    if plan.in_versions("<0.5.4.post1"):
        return bool(plan.value("enable_beta_spec"))
    if plan.env_flag("SGLANG_ENABLE_SPEC_V2", plan.in_versions(">=0.5.11")):
        return True
    target = plan.facts.target
    versions = target and _SPEC_V2_ARCHITECTURES.get(target.architecture or "")
    return bool(versions) and plan.in_versions(str(versions)) and plan.algorithm == "EAGLE"


def runs_spec_v2(plan: Plan) -> bool:
    """Whether a release from 0.5.3 to 0.5.12 takes the overlapped V2 worker for EAGLE, EAGLE3 or
    STANDALONE, topk aside (`_handle_speculative_decoding`, `create_worker`)."""
    algorithms = {"EAGLE", "EAGLE3"}
    if plan.in_versions(">=0.5.8"):
        algorithms.add("STANDALONE")
    if plan.algorithm not in algorithms or not spec_v2_requested(plan):
        return False
    forced = plan.algorithm == "EAGLE" or plan.in_versions(">=0.5.7")
    if plan.in_versions("<0.5.11") and forced:
        return True  # the engine switches the overlap schedule on, whatever was asked
    return not plan.given("disable_overlap_schedule")
