"""Targets with layers of linear attention (Mamba, gated delta nets): their states are cached
beside the KV cache, which at times excludes the overlapped schedule or the prefix cache."""

from __future__ import annotations

from speclaunch.plan.resolution.working import Working

STRATEGY = "mamba_radix_cache_strategy"
OVERLAP = "disable_overlap_schedule"
RADIX = "disable_radix_cache"
_EARLY: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("0.5.5", "0.5.8", ("Qwen3NextForCausalLM",)),
    # the branch slipped below another model in 0.5.8 (server_args.py:1542)
    ("0.5.8", "0.5.9", ("Glm4MoeForCausalLM",)),
    (
        "0.5.6",
        "0.5.9",
        (
            "NemotronHForCausalLM",
            "FalconH1ForCausalLM",
            "JetNemotronForCausalLM",
            "JetVLMForConditionalGeneration",
        ),
    ),
)
"""Targets whose cached states switch the overlapped schedule off, first and next release."""
_WITHOUT_PAGES_OF_ONE = (
    ("0.5.6", "0.5.9", ("Qwen3NextForCausalLM",)),
    ("0.5.7", "0.5.9", _EARLY[2][2]),
)
"""Targets whose cached states give way to trtllm_mha (0.5.6 server_args.py:1321, 0.5.7 :1342)."""
_NO_STATES_CACHED = ("KimiLinearForCausalLM", "BailingMoeV2_5ForCausalLM")


def resolve_hybrid(working: Working) -> None:
    """The strategy of the states' cache, and what it switches off."""
    with working.deciding(STRATEGY, OVERLAP, RADIX):
        old = working.since("0.5.7") and not working.since("0.5.14")
        if old and working.value(STRATEGY) == "auto":
            source = "sglang 0.5.10 server_args.py:967"
            working.set(STRATEGY, "no_buffer", "what auto is in this version", source)
        if not working.since("0.5.9"):
            _early(working)
            return
        known = working.architectures.hybrid
        if not known or not working.may_be(known) or working.architecture not in known:
            return
        layers = working.target.config.get("layer_types") or ()
        if working.architecture.startswith("GraniteMoeHybrid") and "mamba" not in layers:
            return
        if working.since("0.5.14"):
            _strategy(working)
        else:
            _without_buffer(working)


def _strategy(working: Working) -> None:
    """`_handle_mamba_radix_cache` (0.5.14 and later)."""
    if working.value(RADIX) or working.value(STRATEGY) != "auto":
        return
    wanted = not working.value(OVERLAP) or (working.value("page_size") or 1) > 1
    able = working.value("linear_attn_backend") in (None, "triton")
    if wanted and able and working.architecture in working.architectures.extra_buffer:
        why = f"{working.architecture} has it, for the overlapped schedule or pages above 1"
        source = "sglang 0.5.23 arg_groups/overrides.py:483"
        working.set(STRATEGY, "extra_buffer", why, source)
        return
    why = "nothing here has or wants a buffer beside the cache of the states"
    working.set(STRATEGY, "no_buffer", why, "sglang 0.5.23 arg_groups/overrides.py:485")
    _overlap_off(working)


def _without_buffer(working: Working) -> None:
    """`_handle_mamba_radix_cache` (0.5.9 to 0.5.13)."""
    if working.architecture in _NO_STATES_CACHED and not (
        working.since("0.5.13") and working.architecture == _NO_STATES_CACHED[1]
    ):
        _radix_off(working, "the states of this model are not cached in this version")
        return
    if working.value(STRATEGY) != "no_buffer" or working.value(RADIX):
        return
    if working.since("0.5.11") and (working.value("page_size") or 1) != 1:
        why = "states without a buffer of their own are cached in pages of 1"
        working.set("page_size", 1, why, "sglang 0.5.11 server_args.py:2427")
    if working.given("speculative_algorithm") is None:
        if working.value("attention_backend") == "trtllm_mha":
            _radix_off(working, "trtllm_mha has no pages of 1, which the cached states need")
        else:
            _overlap_off(working)
    elif not working.since("0.5.10"):
        _radix_off(working, "speculation does not go with cached states in this version")


def _early(working: Working) -> None:
    """0.5.5 to 0.5.8 (0.5.5 server_args.py:1084, 0.5.8 :1411)."""
    known = [name for _, _, names in (*_EARLY, *_WITHOUT_PAGES_OF_ONE) for name in names]
    if not working.since("0.5.5") or not working.may_be((*known, _NO_STATES_CACHED[0])):
        return
    architecture = working.architecture
    if architecture == _NO_STATES_CACHED[0]:
        _radix_off(working, "the states of this model are not cached in this version")
        return
    if working.value(RADIX) or working.value(STRATEGY) == "extra_buffer":
        return
    speculates = working.given("speculative_algorithm") is not None
    if working.since("0.5.8") and architecture == "NemotronHForCausalLM" and speculates:
        _radix_off(working, "speculation does not go with cached states in this version")
    elif _in(_WITHOUT_PAGES_OF_ONE, working) and _runs_trtllm(working):
        _radix_off(working, "trtllm_mha has no pages of 1, which the cached states need")
    elif _in(_EARLY, working):
        _overlap_off(working)


def _in(rows: tuple[tuple[str, str, tuple[str, ...]], ...], working: Working) -> bool:
    return any(
        working.architecture in names and working.since(first) and not working.since(after)
        for first, after, names in rows
    )


def _runs_trtllm(working: Working) -> bool:
    return bool(working.value("attention_backend") == "trtllm_mha")


def _overlap_off(working: Working) -> None:
    if working.value(OVERLAP):
        return
    working.change(
        "SPL904",
        OVERLAP,
        True,
        "the cached states of linear attention do not go with it in this version",
        "sglang 0.5.23 arg_groups/overrides.py:487, 0.5.10 server_args.py:2193",
    )


def _radix_off(working: Working, why: str) -> None:
    if not working.value(RADIX):
        working.change("SPL920", RADIX, True, why, "sglang 0.5.9 server_args.py:1717")
