"""Values that several rules ask a plan for."""

from __future__ import annotations

from speclaunch.plan.plan import Plan


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
