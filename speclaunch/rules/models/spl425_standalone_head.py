"""STANDALONE is given a draft that cannot stand alone."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.models.architectures import EAGLE3_DRAFTS, EAGLE_HEADS, is_draft_class
from speclaunch.rules.models.common import draft_of

_NULL = ">=0.5.12"
"""From here on the STANDALONE worker captures no hidden states (0.5.12
speculative/eagle_worker.py:589, eagle_worker_v2.py:752)."""


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the draft's class is a head."""
    draft = draft_of(plan)
    if draft is None or draft.architecture is None or not is_draft_class(draft.architecture):
        return
    algorithm = "EAGLE3" if draft.is_eagle3 else "EAGLE"
    fails = draft.architecture in (*EAGLE_HEADS, *EAGLE3_DRAFTS) and plan.in_versions(_NULL)
    yield Verdict(
        f"STANDALONE is given {draft.architecture}, which works on the target's hidden states",
        at=("speculative_algorithm", "speculative_draft_model_path"),
        why="the STANDALONE worker captures no hidden states, and the draft's first layer fails on "
        "the first prefill"
        if fails
        else "the STANDALONE worker runs its draft as a separate model, without the target's "
        "embedding and output layer",
        fix=Fix(f"use {algorithm}", set={"speculative_algorithm": algorithm}),
        severity=Severity.ERROR if fails else Severity.WARNING,
    )


RULE = rule(
    "SPL425",
    "standalone-head",
    Severity.ERROR,
    check,
    algorithms=("STANDALONE",),
    also={Severity.WARNING: "before 0.5.12, and for other drafts than EAGLE's own"},
)
