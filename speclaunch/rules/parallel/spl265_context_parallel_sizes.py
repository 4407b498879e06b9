"""Context-parallel or MoE data-parallel ranks do not divide the ranks that there are."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.architectures import architectures
from speclaunch.plan.plan import Plan
from speclaunch.plan.topics.parallel import OWN_ARGUMENT, attention_ranks
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import number

_CONTEXT = "attn_cp_size"
_MOE = "moe_dp_size"
_SAME = ">=0.5.11"
_CHOSEN_BY = {
    "enable_dsa_prefill_context_parallel": "",
    "enable_prefill_context_parallel": ">=0.5.13",
    "enable_prefill_cp": "",
}
"""Switches by which the engine sets `attn_cp_size` itself, for DeepSeek's models (0.5.9
server_args.py:1216, 0.5.13 :1907 and :1992, 0.5.14 :3585 and :3670)."""


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict a size."""
    ranks = number(plan, "tp_size") or 1
    context, moe = number(plan, _CONTEXT) or 1, number(plan, _MOE) or 1
    if context > 1 and not _is_chosen(plan):
        own = plan.in_versions(OWN_ARGUMENT)  # before: replicas, too, whose attention is their own
        replicas = attention_ranks(plan) if own else number(plan, "dp_size") or 1
        if ranks % (replicas * context):
            yield Verdict(
                f"{replicas} data-parallel times {context} context-parallel ranks do not divide "
                f"tp_size {ranks}",
                at=(_CONTEXT, "tp_size"),
                why="the engine stops: AssertionError: tp_size must be divisible by attn_cp_size",
                fix=Fix("choose an attn_cp_size that divides tp_size"),
            )
    if moe > 1 and ranks % moe:
        yield Verdict(
            f"moe_dp_size {moe} does not divide tp_size {ranks}",
            at=(_MOE, "tp_size"),
            why="the engine stops: AssertionError: tp_size must be divisible by moe_dp_size",
            fix=Fix("choose a moe_dp_size that divides tp_size"),
        )
    if moe > 1 and int(plan.value("pp_size")) > 1:
        yield Verdict(
            "moe_dp_size does not work with pipeline parallelism",
            at=(_MOE, "pp_size"),
            why="the engine stops: AssertionError: PP is not supported with context parallelism",
            fix=Fix("remove pp_size", set={"pp_size": None}),
        )
    if moe > 1:
        yield from _beside(plan, ranks, context, moe)


def _beside(plan: Plan, ranks: int, context: int, moe: int) -> Iterator[Verdict]:
    """Expert-parallel and context-parallel ranks beside MoE data-parallel ones."""
    experts = int(plan.value("ep_size"))
    own = plan.value("moe_a2a_backend") == "none"  # another one sets ep_size to tp_size
    if own and experts > 1 and experts * moe != ranks:
        yield Verdict(
            f"ep_size {experts} times moe_dp_size {moe} is not tp_size {ranks}",
            at=("ep_size", _MOE),
            why="the engine stops: AssertionError: ep_size * moe_dp_size must be equal to tp_size",
            fix=Fix(f"remove {_MOE}", set={_MOE: None}),
        )
    if context != moe and not _is_chosen(plan) and plan.in_versions(_SAME):
        yield Verdict(
            f"moe_dp_size {moe} is not attn_cp_size {context}",
            at=(_MOE,),
            why="the engine stops: AssertionError: attn_cp_size != moe_dp_size is only supported "
            "when moe_dp_size == 1",
            fix=Fix(f"remove {_MOE}", set={_MOE: None}),
        )


def _is_chosen(plan: Plan) -> bool:
    """Whether the engine may set `attn_cp_size` itself: not where the target is known to have
    heads of its own, and is none of DeepSeek V4."""
    if not any(plan.value(name) and plan.in_versions(since) for name, since in _CHOSEN_BY.items()):
        return False
    target = plan.facts.target
    if target is None or str(target.architecture).startswith("DeepseekV4"):
        return True
    return architectures(plan.request.version).uses_mla(target) is not False


RULE = rule("SPL265", "context-parallel-sizes", Severity.ERROR, check)
