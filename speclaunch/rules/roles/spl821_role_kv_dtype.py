"""Prefill and decode cache keys and values in different types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.roles.sides import Conflict, conflicts, is_side


def check(_plan: Plan) -> Iterator[Verdict]:
    """Nothing can be said of one server by itself."""
    return iter(())


def check_across(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """One verdict a decode server whose KV cache has another type than that of prefill."""
    return conflicts(plans, _conflict)


_ASKED = ">=0.5.10"
"""The decode server compares the names when it first meets a prefill server."""
_WIDE = ("auto", "bf16", "bfloat16")
"""Not told apart where nobody compares names: two bytes each, for nearly every checkpoint."""


def _conflict(prefill: Plan, decode: Plan) -> Conflict | None:
    theirs, ours = prefill.value("kv_cache_dtype"), decode.value("kv_cache_dtype")
    asked = decode.in_versions(_ASKED)
    if theirs == ours or (not asked and theirs in _WIDE and ours in _WIDE):
        return None
    said = "each request fails in the decode server: RuntimeError: KV cache dtype mismatch"
    if not asked:
        said = "nothing compares them before 0.5.10: the bytes of one type are read as another"
    return Conflict(
        f"kv_cache_dtype is {ours} for decode and {theirs} for prefill",
        ("kv_cache_dtype",),
        said,
        Fix("give both roles the same kv_cache_dtype"),
    )


RULE = rule(
    "SPL821",
    "role-kv-dtype",
    Severity.ERROR,
    check,
    check_across=check_across,
    compares=is_side,
    says=("KV cache dtype mismatch: prefill server has kv_cache_dtype={}",),
)
