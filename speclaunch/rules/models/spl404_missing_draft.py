"""No draft is named, and the target cannot draft for itself."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.plan.topics.algorithms import EAGLE_HANDLER
from speclaunch.plan.topics.drafts import own_path
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.models.architectures import drafts_for_itself, is_draft_class
from speclaunch.rules.models.common import PLUGINS
from speclaunch.rules.models.known_drafts import known_drafts


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the target is its own draft and is none."""
    if own_path(plan) is not None:
        return
    target = plan.facts.target
    architecture = target.architecture if target is not None else None
    certain = plan.algorithm == "EAGLE3" and not plan.env(PLUGINS)
    if plan.algorithm == "EAGLE":
        if architecture is None:
            raise UnknownValueError("the target's architecture is not known")
        if drafts_for_itself(architecture, plan) or is_draft_class(architecture):
            return
    named = f" ({architecture})" if architecture else ""
    yield Verdict(
        f"{plan.algorithm} has no draft: the target{named} is loaded a second time as its own "
        "draft",
        at=("speculative_draft_model_path", "speculative_algorithm"),
        why="the engine then fails while it starts: the target's class has no set_embed or no "
        "hot_token_id (sglang issue #36528)"
        if certain
        else "the engine starts; the draft takes the target's memory again and saves no time",
        fix=Fix(f"use NGRAM, or name a draft that was made for this target{known_drafts(plan)}"),
        severity=Severity.ERROR if certain else Severity.WARNING,
    )


RULE = rule(
    "SPL404",
    "missing-draft",
    Severity.ERROR,
    check,
    algorithms=EAGLE_HANDLER,
    also={Severity.WARNING: "for EAGLE and STANDALONE, and where plugins are loaded"},
)
