"""Resolves scheduling: data-parallel attention, concurrency, overlap, mixed chunks, and the draft
worker."""

from __future__ import annotations

from speclaunch.engine.facts.hardware import Vendor
from speclaunch.engine.plan.plan import ChangeKind
from speclaunch.engine.plan.resolution.working import Working
from speclaunch.engine.plan.topics import spec_v2, speculation
from speclaunch.engine.plan.topics.algorithms import (
    EAGLE_HANDLER,
    LIMITED,
    REJECTION,
    RUNNING,
    WHEN_SPECULATING,
    blocks_need_rejection,
)
from speclaunch.engine.plan.topics.parallel import (
    ATTENTION_RANKS,
    HEAD,
    HEAD_RESET,
    OWN_ARGUMENT,
    REPLICAS,
    RESET,
    SWITCH,
    attention_ranks,
)
from speclaunch.engine.plan.topics.spec_v2 import OVERLAP
from speclaunch.engine.plan.topics.target import has_architecture


def resolve_data_parallelism(working: Working) -> None:
    """Resolve `enable_dp_attention`, `dp_size` and `attn_dp_size`."""
    if working.in_versions(OWN_ARGUMENT):
        _rewrite(working)
    elif working.in_versions(RESET):
        _reset(working)


def resolve_all_to_all(working: Working) -> None:
    """Move `megamoe` from `moe_runner_backend` to `moe_a2a_backend` (0.5.18 and later)."""
    names = ("moe_runner_backend", "moe_a2a_backend")
    if working.in_versions("<0.5.18"):
        return
    with working.deciding(*names):
        if working.value("moe_runner_backend") == "megamoe":
            source = "sglang 0.5.18 server_args.py:3790, 0.5.23 arg_groups/mega_moe_hook.py:259"
            for name, value in zip(names, ("auto", "megamoe"), strict=True):
                working.set(name, value, "megamoe is an all-to-all backend, not a runner", source)


def _reset(working: Working) -> None:
    """Switch DP attention off if it has a single rank (0.5.2 and later)."""
    with working.deciding(SWITCH, HEAD):
        if working.number(REPLICAS, 1) != 1:
            return
        for name in (SWITCH, HEAD):
            if not working.value(name):
                continue
            if name == HEAD and not working.in_versions(HEAD_RESET):
                continue
            working.change(
                ChangeKind.DP_ATTENTION,
                name,
                False,
                f"{name} requires a dp_size above 1",
                "sglang 0.5.14 server_args.py:5046, 0.5.2 server_args.py:509",
                logged=False,
            )


def _rewrite(working: Working) -> None:
    """Move DP attention to `attn_dp_size`, and reset `enable_dp_lm_head` for a single rank (0.5.22
    and later)."""
    _renamed(working)
    with working.deciding(HEAD):
        ranks = working.number(REPLICAS, 1) * working.number(ATTENTION_RANKS, 1)
        head = working.value(HEAD)
        if ranks == 1 and head and working.value("ep_join_mode") != "scale":
            working.change(
                ChangeKind.DP_ATTENTION,
                HEAD,
                False,
                f"{HEAD} requires more than one data-parallel rank",
                "sglang 0.5.23 arg_groups/overrides.py:1369",
                logged=False,
            )


def _renamed(working: Working) -> None:
    """Replace `enable_dp_attention` and its `dp_size` with `attn_dp_size`
    (`handle_deprecated_dp_attention`, 0.5.22 and later)."""
    with working.deciding(SWITCH, ATTENTION_RANKS, REPLICAS):
        if not working.value(SWITCH):
            return
        source = "sglang 0.5.23 arg_groups/parallel_hook.py:39"
        ranks = working.number(REPLICAS, 1)
        if working.number(ATTENTION_RANKS, 1) == 1 and ranks != 1:
            why = f"DP attention uses dp_size as attn_dp_size ({ranks})"
            working.change(
                ChangeKind.DP_ATTENTION, ATTENTION_RANKS, ranks, why, source, logged=False
            )
            working.set(
                REPLICAS, 1, f"attn_dp_size now states the {ranks} ranks of DP attention", source
            )
            working.set(SWITCH, False, why, source)
            return
        why = f"{SWITCH} requires more than one rank"
        if working.number(ATTENTION_RANKS, 1) > 1:
            why = f"attn_dp_size replaces {SWITCH}"
        working.change(ChangeKind.DP_ATTENTION, SWITCH, False, why, source, logged=False)


def divide_chunks(working: Working) -> None:
    """Divide `chunked_prefill_size` by the ranks of DP attention (`_handle_data_parallelism`)."""
    name = "chunked_prefill_size"
    with working.deciding(name):
        ranks = attention_ranks(working)
        if ranks > 1:
            chunk = working.number(name)
            working.set(
                name,
                chunk // ranks,
                f"{chunk} tokens, divided among the {ranks} ranks of DP attention",
                "sglang 0.5.23 arg_groups/parallel_hook.py:331, 0.4.6 server_args.py:334",
            )


_WITHOUT_OVERLAP = frozenset({"NGRAM", "DFLASH", "FROZEN_KV_MTP"})
"""Algorithms that had no overlapped worker up to 0.5.13."""
_MIXED = frozenset({"EAGLE", "EAGLE3", "DFLASH", "DSPARK"})
"""Algorithms that support mixed chunks (`supports_mixed_chunk`, 0.5.19
speculative/spec_info.py:132)."""


def resolve_schedule(working: Working) -> None:
    """Set the scheduler's settings. Requires a resolved algorithm."""
    _multi_layer(working)
    _running_requests(working)
    _overlap(working)
    _mixed_chunk(working)


def _multi_layer(working: Working) -> None:
    """Switch on the multi-layer EAGLE worker for targets whose draft has several layers.

    Applies only if the user names EAGLE, not its alias NEXTN.
    """
    name = "enable_multi_layer_eagle"
    with working.deciding(name):
        if working.value(name) or working.user_value("speculative_algorithm") != "EAGLE":
            return
        found = working.architectures.multi_layer_eagle
        if has_architecture(working, found):
            working.change(
                ChangeKind.MULTI_LAYER_EAGLE,
                name,
                True,
                f"{working.architecture} has several layers of multi-token prediction",
                "sglang 0.5.23 arg_groups/overrides.py:350, 0.5.7 server_args.py:1218",
            )


def _running_requests(working: Working) -> None:
    with working.deciding(RUNNING):
        if working.user_value(RUNNING) is not None or _deepseek_v4_runs(working):
            return
        if working.algorithm not in LIMITED:
            return
        working.change(
            ChangeKind.RUNNING_REQUESTS,
            RUNNING,
            WHEN_SPECULATING,
            f"speculative decoding defaults this to {WHEN_SPECULATING}",
            "sglang 0.5.23 arg_groups/speculative_hook.py:1084, 0.4.6 server_args.py:384",
            logged=working.in_versions(">=0.5.4"),
        )


def _deepseek_v4_runs(working: Working) -> bool:
    """Set DeepSeek V4's request limit instead of speculation's (0.5.12 and later). Return True if
    set."""
    names = ("DeepseekV4ForCausalLM",)
    if working.in_versions("<0.5.12") or not has_architecture(working, names):
        return False
    why = "the engine's limit for DeepSeek V4"
    source = "sglang 0.5.23 arg_groups/deepseek_v4_hook.py:138, 0.5.12 :21"
    working.change(ChangeKind.RUNNING_REQUESTS, RUNNING, 256, why, source)
    return True


def _overlap(working: Working) -> None:
    with working.deciding(OVERLAP):
        stages = working.number("pp_size", 1)
        if stages > 1 and not working.value(OVERLAP):
            why = f"{stages} pipeline stages exclude the overlap schedule"
            source = "sglang 0.5.23 arg_groups/overrides.py:923, 0.5.10 server_args.py:2855"
            working.set(OVERLAP, True, why, source)
        algorithm = working.algorithm
        if algorithm is None:
            return
        if working.in_versions(">=0.5.16") and algorithm in EAGLE_HANDLER | {"NGRAM"}:
            _no_overlap_on_a_cpu(working)
        if working.in_versions(spec_v2.ONLY_WORKERS):
            return
        if algorithm not in EAGLE_HANDLER:
            if algorithm in _WITHOUT_OVERLAP:
                _without_overlap(working, f"{algorithm} has no overlapped worker in this version")
        elif working.in_versions(spec_v2.ONLY_EAGLE_WORKERS):
            if not spec_v2.is_requested(working):
                _without_overlap(working, f"{spec_v2.VARIABLE} is off", logged=False)
        elif working.in_versions(spec_v2.BY_DEFAULT):
            _v2_by_default(working)
        elif working.in_versions(">=0.5.3"):
            _v2_by_switch(working)
        else:
            _without_overlap(working, "EAGLE has no overlapped worker in this version")


def _without_overlap(working: Working, why: str, *, logged: bool = True) -> None:
    if working.value(OVERLAP):
        return
    working.change(
        ChangeKind.OVERLAP,
        OVERLAP,
        True,
        why,
        "sglang 0.5.11 server_args.py:3459, 0.5.4 server_args.py:1514, 0.4.6 server_args.py:386",
        logged=logged,
    )


def _no_overlap_on_a_cpu(working: Working) -> None:
    if not working.value(OVERLAP) and working.device == "cpu":
        working.change(
            ChangeKind.OVERLAP,
            OVERLAP,
            True,
            "speculation on a CPU excludes the overlap schedule",
            "sglang 0.5.23 arg_groups/speculative_hook.py:66",
        )


def _v2_by_default(working: Working) -> None:
    """Use the overlapped V2 worker in 0.5.11 and 0.5.12, unless the user sets a tree or switches it
    off (server_args.py:3459).

    Ignores a topk that the engine chooses later.
    """
    topk = working.user_value("speculative_eagle_topk")
    if topk is not None and topk > 1:
        _without_overlap(working, f"SpecV2 does not support trees (topk {topk}) in this version")
    elif not spec_v2.is_requested(working):
        _without_overlap(working, f"{spec_v2.VARIABLE} is off")


def _v2_by_switch(working: Working) -> None:
    """Use V1 without overlap in 0.5.3 to 0.5.10, unless V2 is switched on.

    If the algorithm does not support V2, 0.5.3 to 0.5.6 leave the overlap schedule unchanged.
    """
    requested = spec_v2.is_requested(working)
    if requested and spec_v2.turns_overlap_on(working):
        if working.value(OVERLAP):
            working.change(
                ChangeKind.OVERLAP,
                OVERLAP,
                False,
                "SpecV2 switches the overlap schedule on",
                "sglang 0.5.10 server_args.py:3003, 0.5.3 server_args.py:1203",
            )
    elif not requested or working.in_versions(">=0.5.7"):
        _without_overlap(working, "SpecV2 is off, and V1 has no overlap")


def _mixed_chunk(working: Working) -> None:
    """Switch `enable_mixed_chunk` off if the algorithm does not support mixed batches.

    0.4.6 leaves it on; 0.4.7 added the check.
    """
    name = "enable_mixed_chunk"
    with working.deciding(name):
        algorithm = working.algorithm
        if algorithm is None or not working.value(name):
            return
        if working.in_versions(">=0.5.19") and algorithm in _MIXED:
            return
        if working.in_versions("<0.4.7") or algorithm not in LIMITED | {"UNO"}:
            return
        working.change(
            ChangeKind.MIXED_CHUNK_OFF,
            name,
            False,
            f"{algorithm} cannot mix prefill and decode in a batch in this version",
            "sglang 0.5.23 arg_groups/speculative_hook.py:1108, 0.4.7 server_args.py:428",
        )


def resolve_adaptive(working: Working) -> None:
    """Switch `speculative_adaptive` off if the settings do not support it."""
    with working.deciding(speculation.ADAPTIVE):
        if working.in_versions("<0.5.11") or not working.value(speculation.ADAPTIVE):
            return
        reason = speculation.adaptive_refusal(working)
        if reason is not None:
            working.change(
                ChangeKind.ADAPTIVE_OFF,
                speculation.ADAPTIVE,
                False,
                reason,
                "sglang 0.5.23 speculative/adaptive_spec_params.py:56, 0.5.11 :18",
            )


def resolve_verification(working: Working) -> None:
    """Switch rejection sampling on for block verification (0.5.22 and later).

    On AMD GPUs, also switch it on for chains that support it (0.5.21 and later).
    """
    with working.deciding(REJECTION):
        if working.value(REJECTION):
            return
        if blocks_need_rejection(working):
            working.change(
                ChangeKind.REJECTION_SAMPLING_ON,
                REJECTION,
                True,
                "block verification compares sampled drafts with their distributions",
                "sglang 0.5.23 arg_groups/speculative_hook.py:173",
                logged=False,
            )
        elif _samples_by_rejection(working):
            working.change(
                ChangeKind.REJECTION_SAMPLING_ON,
                REJECTION,
                True,
                "AMD GPUs have no other kernel that samples during verification",
                "sglang 0.5.23 arg_groups/speculative_hook.py:1182, 0.5.21 :1074",
            )


def _samples_by_rejection(working: Working) -> bool:
    """True if the engine switches rejection sampling on for AMD GPUs
    (`_should_auto_enable_hip_rejection_sampling`). False for unknown hardware."""
    hardware = working.facts.hardware
    if hardware is None or hardware.vendor is not Vendor.AMD or working.in_versions("<0.5.21"):
        return False
    return (
        working.algorithm == "EAGLE"
        and working.value("speculative_token_map") is None
        and working.value("speculative_eagle_topk") == 1
        and working.value("speculative_accept_threshold_single") == 1.0
        and working.value("speculative_accept_threshold_acc") == 1.0
        and not working.value("enable_deterministic_inference")
    )
