"""This version cannot hand the target's embedding to the draft."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.models.architectures import lacks_eagle3, lacks_shared_embedding
from speclaunch.rules.models.common import PLUGINS


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the target's class is known to lack the method."""
    target = plan.facts.target
    name = target.architecture if target is not None else None
    if name is None or not lacks_shared_embedding(name, plan) or plan.env(PLUGINS):
        return
    algorithm = plan.algorithm
    if algorithm == "EAGLE3" and lacks_eagle3(name, plan):  # SPL415 says so
        return
    if plan.value("pp_size") > 1:  # from 0.5.21 on, a stage without the embedding goes on
        return
    yield Verdict(
        f"{name} cannot be the target of {algorithm} in SGLang {plan.version}",
        at=("speculative_algorithm", "model_path"),
        why="its class has no get_embed_and_head, which gives the draft the target's embedding and "
        "output head; the engine fails while it starts",
        fix=Fix("use NGRAM or STANDALONE, or a newer engine"),
    )


RULE = rule("SPL434", "shared-embedding", Severity.ERROR, check, algorithms=("EAGLE", "EAGLE3"))
