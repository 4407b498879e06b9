"""An option of DSPARK's ragged verification without that mode.

## What it does
Finds `speculative_dspark_align_verify_tokens_to_graph_tier` outside of
`SGLANG_RAGGED_VERIFY_MODE=compact`, and `speculative_dspark_sps_table_path` in the mode `static`.

## Why it matters
Both belong to verification with different lengths per request. The default mode is `static`, in
which the engine logs that the option will be a no-op.

## Example
```yaml
args:
  speculative_algorithm: DSPARK
  speculative_draft_model_path: a-dspark-draft
  speculative_dspark_align_verify_tokens_to_graph_tier: true
```

## Use instead
```yaml
engine:
  env: {SGLANG_RAGGED_VERIFY_MODE: compact}
args:
  speculative_algorithm: DSPARK
  speculative_draft_model_path: a-dspark-draft
  speculative_dspark_align_verify_tokens_to_graph_tier: true
```

## Sources
- SGLang 0.5.16 arg_groups/speculative_hook.py:412, 0.5.23 arg_groups/speculative_hook.py:868
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_MODE = "SGLANG_RAGGED_VERIFY_MODE"
_ALIGN = "speculative_dspark_align_verify_tokens_to_graph_tier"
_TABLE = "speculative_dspark_sps_table_path"


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for each option that does nothing."""
    mode = plan.env(_MODE) or "static"
    idle = {
        _ALIGN: bool(plan.given(_ALIGN)) and mode != "compact",
        _TABLE: bool(plan.given(_TABLE)) and mode == "static",
    }
    for name in (name for name, is_idle in idle.items() if is_idle):
        yield Verdict(
            f"{name} does nothing with {_MODE} {mode}",
            at=(name, _MODE),
            why="the engine logs that it will be a no-op",
            fix=Fix(f"take it away, or set {_MODE} to compact", set={name: None}, safe=True),
        )


RULE = rule(
    "SPL626",
    "dspark-ragged-options",
    Severity.WARNING,
    check,
    algorithms=("DSPARK",),
    versions=">=0.5.16",  # same either way: the arguments exist from 0.5.16
    sources=(
        "sglang 0.5.23 arg_groups/speculative_hook.py:868",
        "sglang 0.5.16 arg_groups/speculative_hook.py:412",
    ),
    doc=__doc__,
)
