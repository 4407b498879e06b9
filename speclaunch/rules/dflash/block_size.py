"""The size of a DFLASH block: one positive number, by either name.

## What it does
Finds a `speculative_dflash_block_size` or `speculative_num_draft_tokens` that is not positive, and
the two given with different values.

## Why it matters
For DFLASH both names mean the same: the tokens of a block that is drafted and verified at once.
The engine refuses two values (`For DFLASH they must match.`) and a block size of 0 or less. It
accepts a `speculative_num_draft_tokens` below 1, and fails when it builds the draft's state.

## Example
```yaml
args:
  speculative_algorithm: DFLASH
  speculative_draft_model_path: z-lab/Qwen3-4B-DFlash-b16
  speculative_num_draft_tokens: 8
  speculative_dflash_block_size: 16
```

## Use instead
```yaml
args:
  speculative_algorithm: DFLASH
  speculative_draft_model_path: z-lab/Qwen3-4B-DFlash-b16
  speculative_num_draft_tokens: 16
```

## Sources
- SGLang 0.5.11 server_args.py:3360 and :3367, 0.5.23 arg_groups/speculative_hook.py:370 and :377
- SGLang 0.5.11 speculative/dflash_utils.py:453, 0.5.14 speculative/dflash_info_v2.py:166
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_BLOCK = "speculative_dflash_block_size"
_TOKENS = "speculative_num_draft_tokens"


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for a size that is none, else one where the two differ."""
    block, tokens = plan.given(_BLOCK), plan.given(_TOKENS)
    for name, value in ((_BLOCK, block), (_TOKENS, tokens)):
        if value is not None and int(value) <= 0:
            yield Verdict(
                f"{name} {value} is not a size",
                at=(name,),
                why=f"DFLASH requires a positive number of tokens in a block, got {value}",
                fix=Fix("leave it to the draft's config", set={name: None}),
            )
            return
    if block is not None and tokens is not None and int(block) != int(tokens):
        yield Verdict(
            f"{_TOKENS} {tokens} and {_BLOCK} {block} differ",
            at=(_BLOCK, _TOKENS),
            why="the engine refuses: For DFLASH they must match.",
            fix=Fix(f"keep one of them, here {_BLOCK}", set={_TOKENS: None}),
        )


RULE = rule(
    "SPL605",
    "dflash-block-size",
    Severity.ERROR,
    check,
    algorithms=("DFLASH",),
    sources=(
        "sglang 0.5.23 arg_groups/speculative_hook.py:370",
        "sglang 0.5.11 server_args.py:3360",
    ),
    doc=__doc__,
)
