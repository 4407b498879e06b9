"""DP attention with sizes that do not go together."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.plan.topics.dp_attention import HEAD, HEAD_ALONE, NO_RANKS, REPLICAS_TOO
from speclaunch.plan.topics.parallel import ATTENTION_RANKS, REPLICAS, SWITCH, attention_ranks
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import number

_AT = (ATTENTION_RANKS, SWITCH, REPLICAS, "tp_size")


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict a size that does not go with the others."""
    ranks = attention_ranks(plan)
    tp = number(plan, "tp_size") or 1
    if ranks > 1 and tp % ranks:
        yield Verdict(
            f"{ranks} ranks of DP attention do not divide tp_size {tp}",
            at=(ATTENTION_RANKS, REPLICAS, "tp_size"),
            why="the engine stops: AssertionError, without a message, where it requires tp_size "
            "% dp_size == 0. The attention ranks are ranks of tp_size",
            fix=Fix(f"set tp_size to a multiple of {ranks}"),
        )
    if NO_RANKS.applies(plan):
        yield Verdict(
            f"enable_dp_attention needs a dp_size above 1 in SGLang {plan.request.version}",
            at=_AT,
            why=f"the engine stops: AssertionError: {NO_RANKS.said}",
            fix=Fix("remove enable_dp_attention", set={SWITCH: None}, safe=True),
        )
    if REPLICAS_TOO.applies(plan):
        yield Verdict(
            f"dp_size {plan.given(REPLICAS)} on top of attn_dp_size {plan.given(ATTENTION_RANKS)}: "
            "replicas of a server with DP attention are not supported",
            at=(REPLICAS, ATTENTION_RANKS),
            why=f"the engine refuses: {REPLICAS_TOO.said}",
            fix=Fix("remove dp_size", set={REPLICAS: None}),
        )
    if HEAD_ALONE.applies(plan):
        yield Verdict(
            "enable_dp_lm_head needs DP attention",
            at=(HEAD,),
            why=f"the engine stops: AssertionError: {HEAD_ALONE.said}",
            fix=Fix("remove it", set={HEAD: None}, safe=True),
        )


RULE = rule("SPL256", "dp-attention-sizes", Severity.ERROR, check)
