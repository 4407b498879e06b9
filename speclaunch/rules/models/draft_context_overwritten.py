"""The draft is run beyond its own context length.

## What it does
Finds a draft that is shorter than the served context where
`SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN` (or SGLang's CI variable) lets the engine go on.

## Why it matters
From 0.5.3 the engine writes the target's length over the draft's `max_position_embeddings`: the
draft then proposes at positions that it was not trained for, and fewer of its tokens are accepted
the longer a request gets. In 0.5.1 and 0.5.2 the draft keeps its short table of positions, and
long requests read beyond its end (illegal memory access).

## Example
```yaml
engine:
  env: {SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN: "1"}
args:  # the target has 8192, the draft 2048
  model_path: meta-llama/Meta-Llama-3-8B-Instruct
  speculative_algorithm: EAGLE
  speculative_draft_model_path: lmsys/sglang-EAGLE-LLaMA3-Instruct-8B
```

## Use instead
A `context_length` within the draft's own, a draft that was trained for longer contexts, or the
same with an eye on the accept length of long requests.

## Sources
- SGLang 0.5.23 configs/model_config.py:1309 (`Overriding the draft model's
  max_position_embeddings`), 0.5.3 configs/model_config.py:278; 0.5.2 configs/model_config.py:186
- SGLang issues 6783, 12349
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.models.common import (
    OVERWRITE,
    context_of,
    context_overwritten,
    draft_of,
    served_context,
)


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where a draft that is too short is used all the same."""
    if not context_overwritten(plan):
        return
    own, served = context_of(draft_of(plan), plan), served_context(plan)
    if own is None or served is None or served <= own:
        return
    yield Verdict(
        f"the draft was made for {own} tokens and is run up to {served}",
        at=(OVERWRITE, "SGLANG_IS_IN_CI", "context_length", "speculative_draft_model_path"),
        why="this version does not lengthen the draft's table of positions: longer requests "
        "read beyond its end (illegal memory access)"
        if plan.in_versions("<0.5.3")
        else "the engine overwrites the draft's max_position_embeddings; beyond the length that "
        "it was trained for, fewer of its tokens are accepted",
        fix=Fix(
            f"serve what the draft can (context_length: {own}), or watch the accept length of "
            "long requests",
            set={"context_length": own},
        ),
    )


RULE = rule(
    "SPL403",
    "draft-context-overwritten",
    Severity.WARNING,
    check,
    algorithms=("EAGLE", "EAGLE3", "STANDALONE", "DFLASH", "DSPARK"),
    versions=">=0.5.1",
    sources=(
        "sglang 0.5.23 configs/model_config.py:1309",
        "sglang 0.5.2 configs/model_config.py:186",
        "sglang issue #12349",
    ),
    doc=__doc__,
)
