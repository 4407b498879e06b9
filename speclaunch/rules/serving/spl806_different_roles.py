"""Prefill and decode of one model do not speculate alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.roles.sides import Conflict, conflicts, is_side

_HANDS_OVER_NOTHING = "NGRAM"
"""It has no KV cache of a draft, and needs no hidden states: decode may have it alone."""
_ALGORITHM = "speculative_algorithm"
_CHECKED = ">=0.5.15"
"""Up to 0.5.14 such a pair was served without a word, from 0.5.15 on it fails."""


def check(_plan: Plan) -> Iterator[Verdict]:
    """Nothing can be said of one deployment by itself."""
    return iter(())


def check_across(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """One verdict a decode server whose prefill servers speculate otherwise."""
    return conflicts(plans, _conflict)


def _conflict(prefill: Plan, decode: Plan) -> Conflict | None:
    theirs, ours = _algorithm(prefill), _algorithm(decode)
    if theirs != ours:
        return _said("algorithm", ours, theirs, decode)
    if ours is None:
        return None
    for subject, name in (
        ("draft", "speculative_draft_model_path"),
        ("topk", "speculative_eagle_topk"),
    ):
        one, other = decode.given(name), prefill.given(name)
        if one != other:
            return _said(subject, one, other, decode, name)
    return None


def _algorithm(plan: Plan) -> str | None:
    return None if plan.algorithm == _HANDS_OVER_NOTHING else plan.algorithm


def _said(subject: str, ours: object, theirs: object, decode: Plan, *names: str) -> Conflict:
    fails = decode.in_versions(_CHECKED)
    return Conflict(
        f"decode and prefill of {decode.value('model_path')} differ in the speculative {subject}: "
        f"{_shown(ours)} for decode, {_shown(theirs)} for prefill",
        (*names, _ALGORITHM, "disaggregation_mode"),
        "decode continues from the KV cache of the draft and the hidden states that prefill hands "
        "over, in buffers whose sizes follow from speculation; a pair that differs "
        + ("fails or hangs" if fails else "loses accuracy without a message")
        + " (sglang issue #32527)",
        Fix("give both roles the same speculative arguments"),
    )


def _shown(value: object) -> str:
    return "none" if value is None else str(value)


RULE = rule(
    "SPL806",
    "different-roles",
    Severity.WARNING,
    check,
    check_across=check_across,
    compares=is_side,
)
