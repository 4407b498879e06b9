"""Rules about SpecV2, which overlaps drafting and scheduling: 0.5.3 to 0.5.13."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.checks.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.checks.rules.values import number
from speclaunch.engine import VARIABLE, Plan, spec_v2

_AT = ("speculative_eagle_topk", spec_v2.VARIABLE, spec_v2.SWITCH)
_REFUSED = "the engine refuses: Spec v2 currently only supports topk = 1 for speculative decoding."
_UNCHECKED = (
    "the engine does not check it: the worker treats the first tokens of the tree as the "
    "accepted path; the output is gibberish, or the server stops with `Sizes of tensors must "
    "match`"
)


@rule("SPL201")
def spec_v2_topk(plan: Plan) -> Iterator[Verdict]:
    """Report SpecV2 with a tree, up to 0.5.12; it verifies only chains."""
    topk = plan.user_value("speculative_eagle_topk")
    if topk is None or topk <= 1 or not spec_v2.would_run(plan):
        return
    if plan.in_versions(spec_v2.BY_DEFAULT):
        yield _fallback(plan, topk)
        return
    switched = plan.in_versions(spec_v2.BY_SWITCH)
    own = "set speculative_eagle_topk to 1: the target enables SpecV2"
    fix = Fix(own, set={"speculative_eagle_topk": 1, "speculative_num_draft_tokens": None})
    if switched or plan.env_flag(spec_v2.VARIABLE):  # same either way: only the remedy differs
        fix = Fix(
            "set speculative_eagle_topk to 1, or disable SpecV2 to draft a tree",
            set={spec_v2.SWITCH: None},
            env={spec_v2.VARIABLE: None},
            safe=True,
        )
    # reported for 0.5.3, but not certain
    yield Verdict(
        f"SpecV2 of SGLang {plan.request.version} needs speculative_eagle_topk 1, not {topk}",
        at=_AT,
        why=_REFUSED if plan.in_versions(">=0.5.7") else _UNCHECKED,
        severity=Severity.WARNING if plan.in_versions("<0.5.4") else Severity.ERROR,
        fix=fix,
    )


def _fallback(plan: Plan, topk: int) -> Verdict:
    return Verdict(
        f"speculative_eagle_topk {topk} makes SGLang {plan.request.version} fall back from "
        "SpecV2: it runs without the overlap schedule",
        at=_AT,
        why="the engine logs: Spec v1 is used for eagle/eagle3/standalone speculative decoding "
        "because spec v2 currently only supports topk = 1.",
        severity=Severity.WARNING,
        fix=Fix(
            "set speculative_eagle_topk to 1, or set disable_overlap_schedule: true to accept it; "
            "SpecV2 verifies trees from 0.5.13",
        ),
    )


@rule("SPL202")
def spec_v2_auto_topk(plan: Plan) -> Iterator[Verdict]:
    """Report SpecV2 with a tree that the engine chose but SpecV2 cannot verify, up to 0.5.12."""
    if plan.is_set("speculative_eagle_topk"):
        return
    if not spec_v2.would_run(plan):
        return
    topk = number(plan, "speculative_eagle_topk")
    if topk in (None, 1):
        return
    steps = int(plan.value("speculative_num_steps"))  # the engine chooses both
    yield Verdict(
        f"the engine chooses speculative_eagle_topk {topk} for this target, and SpecV2 of SGLang "
        f"{plan.request.version} verifies only topk 1",
        at=("speculative_algorithm", spec_v2.VARIABLE),
        why=(
            "the engine chooses it after its check and refuses nothing; the worker treats the "
            "first tokens of the tree as the accepted path"
        ),
        fix=Fix(
            f"set the parameters: {steps} steps, topk 1, {steps + 1} draft tokens",
            set={
                "speculative_num_steps": steps,
                "speculative_eagle_topk": 1,
                "speculative_num_draft_tokens": steps + 1,
            },
            safe=True,
        ),
    )


@rule("SPL203")
def spec_v2_without_effect(plan: Plan) -> Iterator[Verdict]:
    """Report a request for SpecV2 that has no effect in this version or for this algorithm."""
    if plan.value(spec_v2.SWITCH) and not spec_v2.has_worker(plan):
        yield _no_worker(plan, spec_v2.SWITCH, Fix("remove it", set={spec_v2.SWITCH: None}))
    if plan.env(VARIABLE) is None:
        return
    away = Fix("remove it", env={VARIABLE: None}, safe=True)
    if plan.in_versions(spec_v2.ONLY_WORKERS):
        on = plan.env_flag(VARIABLE)
        if not on:  # same either way: only the remedy differs
            away = Fix(
                "remove it; disable_overlap_schedule selects the synchronous worker",
                set={"disable_overlap_schedule": True},
                env={VARIABLE: None},
            )
        yield Verdict(
            f"{VARIABLE} has no effect in SGLang {plan.request.version}, which always runs SpecV2",
            at=(VARIABLE,),
            why="0.5.14 removed the variable and the old workers",
            fix=away,
            severity=Severity.INFO if on else Severity.WARNING,
        )
    elif plan.in_versions(spec_v2.BY_SWITCH):
        since = spec_v2.FIRST_BY_VARIABLE
        yield Verdict(
            f"SGLang {plan.request.version} has no {VARIABLE}: {since} introduced it",
            at=(VARIABLE,),
            why="the release does not read it; speculation runs without the overlap schedule",
            fix=away,
        )
    elif (
        not plan.in_versions(spec_v2.BY_DEFAULT)
        and plan.env_flag(VARIABLE)
        and plan.algorithm is not None
        and not spec_v2.has_worker(plan)
    ):
        yield _no_worker(plan, VARIABLE, away)


def _no_worker(plan: Plan, name: str, fix: Fix) -> Verdict:
    able = "only EAGLE and EAGLE3 have one before 0.5.8"
    if plan.in_versions(spec_v2.STANDALONE_TOO):
        able = "only EAGLE, EAGLE3 and STANDALONE have one"
    return Verdict(
        f"{plan.algorithm or 'a server without speculation'} has no SpecV2 worker in SGLang "
        f"{plan.request.version}, and {name} requests it",
        at=(name,),
        why=able,
        fix=fix,
    )
