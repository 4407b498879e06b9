"""The config ties the output layer to the embedding, and the files hold another one."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.checkpoints.subject import Subject, subject
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_HEAD = "lm_head.weight"


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the output layer of the files is another than their embedding."""
    found = subject(plan)
    if found is None or found.loader is None or not found.is_whole:
        return
    from speclaunch.rules.checkpoints.dimensions import is_tied  # noqa: PLC0415

    if not is_tied(found.checkpoint) or not _is_another(found):
        return
    yield Verdict(
        f"the config ties the output layer to the embedding, and the files hold {_HEAD}, which is "
        "another",
        at=(found.argument,),
        why="with tie_word_embeddings the engine drops the output layer of the files and takes the "
        "embedding for it: other tokens are proposed, and they are rejected",
        fix=Fix("set tie_word_embeddings to false in config.json"),
    )


def _is_another(found: Subject) -> bool:
    head = found.headers.get(_HEAD)
    if head is None:
        return False
    if head.shape[:1] != (found.checkpoint.vocab_size,):
        return True  # of a reduced vocabulary: no embedding has as many rows
    names = ("model.embed_tokens.weight", "embed_tokens.weight")
    embedding = next((one for one in names if one in found.headers), None)
    if embedding is None:
        return False  # the target's is taken, and what that holds is not known here
    both = found.tensors.fingerprint(_HEAD), found.tensors.fingerprint(embedding)
    return None not in both and both[0] != both[1]


RULE = rule("SPL960", "tied-head", Severity.WARNING, check)
