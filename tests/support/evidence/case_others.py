"""Cases that might fail without a rule that foretells it."""

from __future__ import annotations

from typing import Any

from .case import EAGLE3, Case, chain
from .models import Made

MISSED = frozenset({"pool-of-ten"})
"""What fails, and that no rule foretells yet."""


def others() -> list[Case]:
    """What might fail without a rule that foretells it."""

    def odd(name: str, about: str, *pair: Any, **args: Any) -> Case:
        target, draft = pair or EAGLE3
        algorithm = args.pop("algorithm", "EAGLE3")
        tree = args.pop("tree", {})
        spoken = chain(algorithm, **tree) if algorithm else {}
        missed = name in MISSED
        return Case(("OTHER",), name, about, "", target, draft, spoken | args, missed=missed)

    target, head = Made("cycle-8"), "llama-eagle3"
    return [
        odd("pool-of-ten", "a KV cache of 10 tokens", max_total_tokens=10),
        odd("draft-without-context", "a draft whose config has no max_position_embeddings", target,
            Made(head, {"max_position_embeddings": None})),
        odd("no-aux-states", "a draft with use_aux_hidden_state false", target,
            Made(head, {"eagle_config": {"use_aux_hidden_state": False}})),
    ]  # fmt: skip
