"""This version has no class for a model."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.plan.plan import Plan
from speclaunch.plan.topics.drafts import own_path
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.models.architectures import has_no_class
from speclaunch.rules.models.common import PLUGINS

_DRAFTS = ("EAGLE", "STANDALONE")
"""The algorithms whose draft may be of any class; SPL407 tells of those of EAGLE3."""

_OWN = (None, "auto", "sglang")
"""Values of `model_impl` with which its own classes come first; 0.4.6 does not have it."""


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for each model that has no class."""
    if plan.env(PLUGINS) or plan.value("model_impl") not in _OWN:
        return
    for name, checkpoint in _models(plan):
        if checkpoint is not None and has_no_class(checkpoint, plan):
            named = " and ".join(checkpoint.architectures)
            yield Verdict(
                f"SGLang {plan.version} has no {named}",
                at=(name,),
                why="it has no class of that name, and Transformers has none that it could run; "
                "the engine fails while it loads the model",
                fix=Fix("use an engine that has it, or correct `architectures` in the config.json"),
            )


def _models(plan: Plan) -> Iterator[tuple[str, Checkpoint | None]]:
    yield "model_path", plan.facts.target
    if plan.algorithm in _DRAFTS and own_path(plan) is not None:
        yield "speculative_draft_model_path", plan.facts.draft


RULE = rule("SPL429", "unknown-class", Severity.ERROR, check)
