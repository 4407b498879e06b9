"""Data-parallel attention, switched off or under its new name; an all-to-all backend's alias."""

from __future__ import annotations

from speclaunch.plan.changes import ChangeKind
from speclaunch.plan.resolution.working import Working
from speclaunch.plan.topics.parallel import (
    ATTENTION_RANKS,
    HEAD,
    HEAD_RESET,
    OWN_ARGUMENT,
    REPLICAS,
    RESET,
    SWITCH,
    attention_ranks,
)


def resolve_data_parallelism(working: Working) -> None:
    """What becomes of `enable_dp_attention`, `dp_size` and `attn_dp_size`."""
    if working.in_versions(OWN_ARGUMENT):
        _rewrite(working)
    elif working.in_versions(RESET):
        _reset(working)


def resolve_all_to_all(working: Working) -> None:
    """The runner megamoe is another name of the all-to-all backend (0.5.18 and later)."""
    names = ("moe_runner_backend", "moe_a2a_backend")
    if working.in_versions("<0.5.18"):
        return
    with working.deciding(*names):
        if working.value("moe_runner_backend") == "megamoe":
            source = "sglang 0.5.18 server_args.py:3790, 0.5.23 arg_groups/mega_moe_hook.py:259"
            for name, value in zip(names, ("auto", "megamoe"), strict=True):
                working.set(name, value, "megamoe is an all-to-all backend, not a runner", source)


def _reset(working: Working) -> None:
    """One rank is none (0.5.2 and later)."""
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
                "it needs a dp_size above 1",
                "sglang 0.5.14 server_args.py:5046, 0.5.2 server_args.py:509",
                said=False,
            )


def _rewrite(working: Working) -> None:
    """Attention ranks under their new name, and no LM head of its own for one rank (0.5.22+)."""
    _renamed(working)
    with working.deciding(HEAD):
        ranks = working.number(REPLICAS, 1) * working.number(ATTENTION_RANKS, 1)
        head = working.value(HEAD)
        if ranks == 1 and head and working.value("ep_join_mode") != "scale":
            working.change(
                ChangeKind.DP_ATTENTION,
                HEAD,
                False,
                "there is one data-parallel rank",
                "sglang 0.5.23 arg_groups/overrides.py:1369",
                said=False,
            )


def _renamed(working: Working) -> None:
    """`handle_deprecated_dp_attention`: dp_size becomes attn_dp_size (0.5.22 and later)."""
    with working.deciding(SWITCH, ATTENTION_RANKS, REPLICAS):
        if not working.value(SWITCH):
            return
        source = "sglang 0.5.23 arg_groups/parallel_hook.py:39"
        ranks = working.number(REPLICAS, 1)
        if working.number(ATTENTION_RANKS, 1) == 1 and ranks != 1:
            why = "enable_dp_attention with a dp_size is attn_dp_size now"
            working.change(ChangeKind.DP_ATTENTION, ATTENTION_RANKS, ranks, why, source, said=False)
            working.set(REPLICAS, 1, f"its {ranks} ranks are attn_dp_size now", source)
            working.set(SWITCH, False, why, source)
            return
        why = "it needs more than one rank"
        if working.number(ATTENTION_RANKS, 1) > 1:
            why = "attn_dp_size alone sets it now"
        working.change(ChangeKind.DP_ATTENTION, SWITCH, False, why, source, said=False)


def divide_chunks(working: Working) -> None:
    """Each rank of DP attention prefills its share of a chunk (`_handle_data_parallelism`)."""
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
