"""A draft is named for a target that carries its own.

## What it does
Finds EAGLE (NEXTN) with a separate draft checkpoint where the target's config declares its own
multi-token-prediction layer and this version takes it from there.

## Why it matters
`speculative_draft_model_path` can be left out for these models: the engine loads the layer from
the target's checkpoint, and warns `DeepSeek MTP does not require setting
speculative_draft_model_path.` A separate copy of the layer must be kept in step with the target by
hand. It is right for a quantised target whose weights lack the layer.

## Example
```yaml
args:
  model_path: deepseek-ai/DeepSeek-R1
  speculative_algorithm: NEXTN
  speculative_draft_model_path: lmsys/DeepSeek-R1-NextN
```

## Use instead
```yaml
args:
  model_path: deepseek-ai/DeepSeek-R1
  speculative_algorithm: NEXTN
```

## Sources
- SGLang 0.4.6.post5 server_args.py:399, 0.5.23 arg_groups/speculative_hook.py:1155
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.models.architectures import drafts_for_itself
from speclaunch.rules.models.common import draft_path

_PATH = "speculative_draft_model_path"


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the target is known to carry the layer."""
    path, target = draft_path(plan), plan.facts.target
    if path is None or target is None or target.architecture is None:
        return
    if not drafts_for_itself(target.architecture, plan):
        return
    if not target.mtp_layers or target.mtp_weights is False:
        return
    yield Verdict(
        f"{target.architecture} carries its own multi-token-prediction layer; {path} is not needed",
        at=(_PATH,),
        why="the engine loads the layer from the target's checkpoint when no draft is named",
        fix=Fix("leave the draft out", set={_PATH: None}),
    )


RULE = rule(
    "SPL405",
    "needless-draft-path",
    Severity.INFO,
    check,
    algorithms=("EAGLE",),
    sources=(
        "sglang 0.5.23 arg_groups/speculative_hook.py:1155",
        "sglang 0.4.6.post5 server_args.py:399",
    ),
    doc=__doc__,
)
