"""Prefill and decode serve different models, or revisions of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.roles.sides import Conflict, conflicts, is_side, model_of


def check(_plan: Plan) -> Iterator[Verdict]:
    """Nothing can be said of one server by itself."""
    return iter(())


def check_across(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """One verdict a decode server without a prefill server of its model, or of its revision."""
    return conflicts(plans, _conflict, of_any_model=True)


def _other_model(prefill: Plan, decode: Plan) -> Conflict:
    theirs, ours = prefill.value("model_path"), decode.value("model_path")
    return Conflict(
        f"decode serves {ours}, and prefill {theirs}",
        ("model_path",),
        "decode continues from the KV cache of another model: the output is wrong, or the transfer "
        "fails",
        Fix("serve the same model in both roles"),
    )


def _conflict(prefill: Plan, decode: Plan) -> Conflict | None:
    if model_of(prefill) != model_of(decode):
        return _other_model(prefill, decode)
    theirs, ours = prefill.value("revision"), decode.value("revision")
    if theirs == ours:
        return None
    return Conflict(
        f"revision is {ours or 'not set'} for decode and {theirs or 'not set'} for prefill",
        ("revision", "model_path"),
        "decode continues from a KV cache that other weights have made: nothing compares them, and "
        "the output may differ",
        Fix("give both roles the same revision"),
    )


RULE = rule(
    "SPL822",
    "role-model",
    Severity.WARNING,
    check,
    check_across=check_across,
    compares=is_side,
)
