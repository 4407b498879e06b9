"""A STANDALONE draft that does not speak the target's tokens."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.models.common import pair
from speclaunch.rules.models.known_drafts import known_drafts

_PADDING = 128
"""By how much the vocabularies of one family of models are padded differently (Qwen2.5)."""


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the vocabularies are known to differ."""
    both = pair(plan)
    if both is None:
        return
    checked = plan.in_versions(">=0.5.15")
    sizes = _sizes(*both, 0 if checked else _PADDING)
    difference = sizes or _ids(*both)
    if difference is None:
        return
    rejected = "the draft's tokens are other words to the target, and are rejected"
    if sizes is not None and checked:
        why = (
            "the engine refuses: STANDALONE speculative decoding requires the draft model to share "
            "the same vocabulary as the target model"
        )
    elif checked:
        # tokenizer_path is the target's: a draft worker has no tokenizer, and what would compare
        # them compares nothing (0.5.23 managers/tp_worker.py:326, 0.5.15 :280)
        why = f"the engine compares the sizes; it does not compare the tokenizers: {rejected}"
    else:
        why = f"this version does not check it: {rejected}"
    yield Verdict(
        f"the vocabularies of target and draft differ: {difference}",
        at=("speculative_draft_model_path", "model_path"),
        why=why,
        fix=Fix(f"use NGRAM, or name a draft with the target's vocabulary{known_drafts(plan)}"),
        severity=None if sizes is not None and checked else Severity.WARNING,
    )


def _sizes(target: Checkpoint, draft: Checkpoint, tolerated: int) -> str | None:
    ours, theirs = target.vocab_size, draft.vocab_size
    if ours is None or theirs is None or abs(ours - theirs) <= tolerated:
        return None
    return f"{ours} and {theirs} tokens"


def _ids(target: Checkpoint, draft: Checkpoint) -> str | None:
    digests = target.tokenizer_digest, draft.tokenizer_digest
    if None in digests or digests[0] == digests[1]:
        return None
    return "their tokenizers give tokens different ids"


RULE = rule(
    "SPL411",
    "standalone-vocabulary",
    Severity.ERROR,
    check,
    algorithms=("STANDALONE",),
    also={
        Severity.WARNING: "before 0.5.15, which does not check it, and for other ids of the tokens"
    },
)
