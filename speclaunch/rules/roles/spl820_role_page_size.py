"""Prefill and decode have pages of different sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.roles.sides import Conflict, conflicts, is_side


def check(_plan: Plan) -> Iterator[Verdict]:
    """Nothing can be said of one server by itself."""
    return iter(())


def check_across(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """One verdict a decode server whose pages are not those of prefill."""
    return conflicts(plans, _conflict)


_AT = ("page_size", "attention_backend", "decode_attention_backend", "prefill_attention_backend")
"""What decides it: a backend may have pages of its own."""
_ASKED = ">=0.5.8"
"""The decode server compares them when it first meets a prefill server."""


def _conflict(prefill: Plan, decode: Plan) -> Conflict | None:
    (theirs, sure), (ours, also_sure) = _pages(prefill), _pages(decode)
    if theirs == ours:
        return None
    said = "each request fails in the decode server: RuntimeError: Page size mismatch"
    if not decode.in_versions(_ASKED):
        said = "nothing compares them before 0.5.8: pages are written to the wrong addresses, and "
        said += "the output is wrong"
    return Conflict(
        f"page_size is {ours} for decode and {theirs} for prefill",
        _AT,
        said,
        Fix("give both roles the same page_size"),
        None if sure and also_sure else Severity.WARNING,
    )


def _pages(plan: Plan) -> tuple[object, bool]:
    """The tokens of a page, and whether the engine leaves it at that: what was written, where a
    fact is missing that decides whether a backend has pages of its own."""
    try:
        return plan.value("page_size"), True
    except UnknownValueError:
        if plan.given("page_size") is None:
            raise
        return plan.given("page_size"), False


RULE = rule(
    "SPL820",
    "role-page-size",
    Severity.ERROR,
    check,
    check_across=check_across,
    compares=is_side,
    also={Severity.WARNING: "where a fact is missing that decides the size"},
    says=("Page size mismatch: prefill server has page_size={}",),
)
