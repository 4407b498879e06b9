"""Data-parallel attention: switched off, or under its new name."""

from __future__ import annotations

from speclaunch.plan.resolution.working import Working


def resolve_data_parallelism(working: Working) -> None:
    """What becomes of `enable_dp_attention`, `dp_size` and `attn_dp_size`."""
    if working.since("0.5.22"):
        _rewrite(working)
    elif working.since("0.5.2"):
        _reset(working)


def _reset(working: Working) -> None:
    """One rank is none (0.5.2 and later)."""
    with working.deciding("enable_dp_attention", "enable_dp_lm_head"):
        if working.number("dp_size", 1) != 1:
            return
        for name in ("enable_dp_attention", "enable_dp_lm_head"):
            if not working.value(name):
                continue
            if name == "enable_dp_lm_head" and not working.since("0.5.3"):
                continue
            working.change(
                "SPL910",
                name,
                False,
                "it needs a dp_size above 1",
                "sglang 0.5.14 server_args.py:5046, 0.5.2 server_args.py:509",
                said=False,
            )


def _rewrite(working: Working) -> None:
    """Attention ranks under their new name, and no LM head of its own for one rank (0.5.22+)."""
    _renamed(working)
    with working.deciding("enable_dp_lm_head"):
        ranks = working.number("dp_size", 1) * working.number("attn_dp_size", 1)
        head = working.value("enable_dp_lm_head")
        if ranks == 1 and head and working.value("ep_join_mode") != "scale":
            working.change(
                "SPL910",
                "enable_dp_lm_head",
                False,
                "there is one data-parallel rank",
                "sglang 0.5.23 arg_groups/overrides.py:1369",
                said=False,
            )


def _renamed(working: Working) -> None:
    """`handle_deprecated_dp_attention`: dp_size becomes attn_dp_size (0.5.22 and later)."""
    with working.deciding("enable_dp_attention", "attn_dp_size", "dp_size"):
        if not working.value("enable_dp_attention"):
            return
        source = "sglang 0.5.23 arg_groups/parallel_hook.py:39"
        ranks = working.number("dp_size", 1)
        if working.number("attn_dp_size", 1) == 1 and ranks != 1:
            why = "enable_dp_attention with a dp_size is attn_dp_size now"
            working.change("SPL910", "attn_dp_size", ranks, why, source, said=False)
            working.set("dp_size", 1, f"its {ranks} ranks are attn_dp_size now", source)
            working.set("enable_dp_attention", False, why, source)
            return
        why = "it needs more than one rank"
        if working.number("attn_dp_size", 1) > 1:
            why = "attn_dp_size alone says it now"
        working.change("SPL910", "enable_dp_attention", False, why, source, said=False)


def attention_ranks(working: Working) -> int:
    """Ranks of data-parallel attention; 1 where there is none. Raises UnknownValueError."""
    if working.since("0.5.22"):
        return working.number("attn_dp_size", 1)
    return working.number("dp_size", 1) if working.value("enable_dp_attention") else 1


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
