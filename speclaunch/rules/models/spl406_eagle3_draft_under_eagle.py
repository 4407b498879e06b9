"""EAGLE runs an EAGLE-3 draft."""

from __future__ import annotations

import re
from collections.abc import Iterator

from speclaunch.patterns import lazy
from speclaunch.plan.plan import Plan
from speclaunch.plan.topics.drafts import own_path
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_NAMED = lazy(r"eagle[-_.]?3(?![0-9.])", re.IGNORECASE)
"""How people name an EAGLE-3 draft: Qwen3-8B_eagle3, EAGLE3-gpt-oss-20b, kimi-k2.5-eagle3."""


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for a draft that says it is an EAGLE-3 one, or that is only named so."""
    path = own_path(plan)
    if path is None:
        return
    draft = plan.facts.draft
    is_eagle3 = draft.is_eagle3 if draft is not None else None
    if is_eagle3 is None:
        is_eagle3 = _NAMED.search(path.rstrip("/").rpartition("/")[2]) is not None
        told = "is named like an EAGLE-3 draft"
    else:
        told = "is an EAGLE-3 draft"
    if not is_eagle3:
        return
    yield Verdict(
        f"EAGLE is given {path}, which {told}",
        at=("speculative_algorithm",),
        why="under EAGLE the target's three hidden states are not captured and the draft's fc "
        "layer is skipped silently: the accept length is about 1 (sglang issue #21272)",
        fix=Fix("use EAGLE3", set={"speculative_algorithm": "EAGLE3"}),
    )


RULE = rule("SPL406", "eagle3-draft-under-eagle", Severity.WARNING, check, algorithms=("EAGLE",))
