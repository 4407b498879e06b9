"""A Domino draft whose config the engine does not take.

## What it does
Finds a DFLASH draft with `projector_type: domino` that lacks `gru_hidden_dim` or `emb_dim`, says
`emb_dim` twice, has no true or false as `shift_label`, another `pure_draft_prefix_len` than 1, or
blocks of one token.

## Why it matters
Domino is a head that orders the tokens of a DFLASH block (0.5.20 and later). The engine reads
these fields when it loads the draft and refuses what it cannot rebuild, e.g. `DFLASH Domino
currently requires pure_draft_prefix_len=1`.

## Example
```yaml
args:
  speculative_algorithm: DFLASH
  speculative_draft_model_path: a-domino-draft-with-pure_draft_prefix_len-2
```

## Use instead
```yaml
args:
  speculative_algorithm: DFLASH
  speculative_draft_model_path: a-domino-draft-with-pure_draft_prefix_len-1
```

## Sources
- SGLang 0.5.20 speculative/dflash_utils.py:785, 0.5.23 speculative/dflash_utils.py:768
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.dflash.common import block_tokens, dflash_config, outer_and_nested
from speclaunch.rules.interface import Fix, Severity, Verdict, rule


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for each field that is wrong."""
    config = dflash_config(plan)
    if config.get("projector_type") != "domino":
        return
    outer, nested = outer_and_nested(plan, "emb_dim")
    prefix, label = config.get("pure_draft_prefix_len"), config.get("shift_label")
    block, tokens = getattr(plan.facts.draft, "block_size", None), block_tokens(plan)
    wrong = {
        f"emb_dim {nested} in dflash_config and {outer} outside": None not in (outer, nested)
        and outer != nested,
        f"shift_label {label!r}, which must be true or false": not isinstance(label, bool),
        f"pure_draft_prefix_len {prefix}, which must be 1": prefix != 1,
        "no gru_hidden_dim": config.get("gru_hidden_dim") is None,
        "no emb_dim": config.get("emb_dim") is None,
        f"blocks of {min(size for size in (block, tokens, 2) if size is not None)} token": 1
        in (block, tokens),
    }
    for what in (what for what, holds in wrong.items() if holds):
        yield Verdict(
            f"the Domino draft has {what}",
            at=("speculative_draft_model_path",),
            why="the engine reads it when it loads the draft, and refuses to rebuild the head",
            fix=Fix("use another draft, or another number of draft tokens"),
        )


RULE = rule(
    "SPL609",
    "domino-checkpoint",
    Severity.ERROR,
    check,
    algorithms=("DFLASH",),
    versions=">=0.5.20",
    sources=(
        "sglang 0.5.23 speculative/dflash_utils.py:768",
        "sglang 0.5.20 speculative/dflash_utils.py:785",
    ),
    doc=__doc__,
)
