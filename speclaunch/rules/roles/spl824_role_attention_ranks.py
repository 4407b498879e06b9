"""The attention ranks of prefill and decode do not fit each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from speclaunch.plan.divided_models import LATENT
from speclaunch.plan.gpu_ranks import gpu_ranks
from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.roles.sides import Conflict, conflicts, is_side, said_differently


def check(_plan: Plan) -> Iterator[Verdict]:
    """Nothing can be said of one server by itself."""
    return iter(())


def check_across(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """One verdict a decode server whose ranks of attention do not fit those of prefill."""
    return conflicts(plans, _conflict)


_SIZES = ("tp_size", "attn_dp_size", "dp_size", "enable_dp_attention")
_EQUAL = "<0.4.8"
"""Without latent attention the engine takes equal numbers alone."""


def _conflict(prefill: Plan, decode: Plan) -> Conflict | None:
    theirs, ours = gpu_ranks(prefill).attention, gpu_ranks(decode).attention
    if theirs == ours:
        return None
    at = said_differently(prefill, decode, _SIZES)
    said = f"attention has {ours} ranks for decode and {theirs} for prefill"
    if max(theirs, ours) % min(theirs, ours):
        return Conflict(
            f"{said}: neither divides the other",
            at,
            "each rank of decode is assigned whole ranks of prefill, by division without a rest: "
            "requests go to ranks that do not exist, or have parts of the KV cache missing",
            Fix("choose tp_size over the ranks of DP attention so that one divides the other"),
        )
    if _is_latent(decode):
        return None
    if decode.in_versions(_EQUAL):
        return Conflict(
            said,
            at,
            "each request fails: AssertionError: PD with different TP sizes per DP rank is not "
            "yet supported for non-MLA models",
            Fix("give both roles as many ranks of attention"),
        )
    return Conflict(
        said,
        at,
        "without latent attention each head is cut out and sent by itself; the engine warns: "
        "Performance is NOT guaranteed when using different TP sizes for non-MLA models",
        Fix("give both roles as many ranks of attention"),
        Severity.WARNING,
    )


def _is_latent(plan: Plan) -> bool:
    target = plan.facts.target
    if target is None:
        raise UnknownValueError("whether the model has latent attention is not known")
    return target.kv_lora_rank is not None or target.architecture in LATENT


RULE = rule(
    "SPL824",
    "role-attention-ranks",
    Severity.ERROR,
    check,
    check_across=check_across,
    compares=is_side,
    also={Severity.WARNING: "where the engine takes it, and it is slow"},
    says=("PD with different TP sizes per DP rank",),
)
