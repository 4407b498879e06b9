"""The embedding of a DFLASH draft's mask token is all zeros."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_EMBEDDINGS = (
    "model.embed_tokens.weight",
    "model.language_model.embed_tokens.weight",
    "language_model.model.embed_tokens.weight",
)


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the target's row for the mask token is empty, or there is none."""
    draft, target = plan.facts.draft, plan.facts.target
    if draft is None or target is None or target.tensors is None:
        return
    from speclaunch.rules.checkpoints.dflash_loader import mask_token  # noqa: PLC0415

    token = mask_token(draft)
    headers = target.tensors.headers.tensors
    name = next((one for one in _EMBEDDINGS if one in headers), None)
    if token is None or name is None or len(headers[name].shape) != 2:
        return
    if token >= headers[name].shape[0]:
        problem = f"has {headers[name].shape[0]} rows"
    else:
        row = target.tensors.row(name, token)
        if row is None or not row.all_zero:
            return
        problem = "has a row of zeros for it"
    yield Verdict(
        f"the draft's mask token is {token}, and the target's {name} {problem}",
        at=("speculative_draft_model_path", "model_path"),
        why="each place that is to be drafted starts from the embedding of the mask token: without "
        "one the draft cannot tell them apart from nothing, and its tokens are rejected",
        fix=Fix("name the draft's own mask_token_id, and a target that was trained with it"),
    )


RULE = rule("SPL959", "mask-embedding", Severity.WARNING, check, algorithms=("DFLASH",))
