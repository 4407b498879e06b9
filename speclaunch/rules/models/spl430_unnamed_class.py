"""A config.json does not name the model's class."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.plan.topics.drafts import own_path
from speclaunch.rules.interface import Fix, Severity, Verdict, rule


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the draft's config names no class."""
    draft = plan.facts.draft
    if own_path(plan) is None or draft is None or draft.architectures:
        return
    if draft.model_type is None:  # nothing is known of it, or transformers refuses it before
        return
    yield Verdict(
        f"the config.json of {draft.name} has no `architectures`",
        at=("speculative_draft_model_path",),
        why="the engine takes the class of the model from there: `'NoneType' object is not "
        "subscriptable` as the configuration of the draft is made",
        fix=Fix("name its class in the config.json, as `[LlamaForCausalLM]`"),
    )


RULE = rule(
    "SPL430", "unnamed-class", Severity.ERROR, check, algorithms=("EAGLE", "EAGLE3", "STANDALONE")
)
