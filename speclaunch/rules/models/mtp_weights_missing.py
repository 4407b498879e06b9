"""The multi-token-prediction layer is declared, and its weights are not there.

## What it does
Looks, where the target drafts for itself, whether the index of its weights holds the layers that
its config declares.

## Why it matters
Quantised copies often leave the layer out and keep `num_nextn_predict_layers` in the config. The
engine loads the draft without a word about weights that it did not find: its layer stays
uninitialised, hardly any token is accepted, and serving is slower than without speculation.

## Example
```yaml
args:  # its index has no tensor of layer 78
  model_path: lukealonso/GLM-5-NVFP4
  speculative_algorithm: NEXTN
```

## Use instead
A copy that keeps the layer, or the original checkpoint's layer as `speculative_draft_model_path`.

## Sources
- SGLang pull request 17166 (a copy of GLM-4.7 whose index lacks the layer)
- SGLang 0.5.23 models/deepseek_common/deepseek_weight_loader.py
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.models.common import draft_path


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the index is known to lack what the config declares."""
    target = plan.facts.target
    if draft_path(plan) is not None or target is None:
        return
    if not target.mtp_layers or target.mtp_weights is not False:
        return
    yield Verdict(
        f"the config declares {target.mtp_layers} multi-token-prediction layer(s), the index of "
        "the weights holds none",
        at=("model_path", "speculative_algorithm"),
        why="the engine does not say which weights it did not find: the draft's layer stays "
        "uninitialised and its tokens are rejected",
        fix=Fix("take a copy that keeps the layer, or name one as speculative_draft_model_path"),
    )


RULE = rule(
    "SPL412",
    "mtp-weights-missing",
    Severity.WARNING,
    check,
    algorithms=("EAGLE",),
    sources=(
        "sglang 0.5.23 models/deepseek_common/deepseek_weight_loader.py",
        "sglang pull request #17166",
    ),
    doc=__doc__,
)
