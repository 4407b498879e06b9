"""Prefill and decode of one model do not speculate alike.

## What it does
Looks at deployments of one model that are lint together, in one directory: where one decodes
(`disaggregation_mode: decode`) and no prefill server has the same algorithm and draft.

## Why it matters
The decode server continues from what the prefill server hands over: the KV cache of the target, of
the draft, and the last hidden state. A prefill server that does not speculate hands over nothing
for the draft. SGLang 0.5.14 served such a pair with lower accuracy and without a word, 0.5.15
failed; with DP attention the two can wait for each other for ever (issue 32527). Neither server
can see it: each of the two commands is right by itself.

## Example
```bash
# prefill.sh
python3 -m sglang.launch_server --model-path m --disaggregation-mode prefill
# decode.sh
python3 -m sglang.launch_server --model-path m --disaggregation-mode decode \\
  --speculative-algorithm EAGLE
```

## Use instead
```bash
# prefill.sh
python3 -m sglang.launch_server --model-path m --disaggregation-mode prefill \\
  --speculative-algorithm EAGLE
```

## Sources
- SGLang issue 32527; pull request 23918 (EAGLE added to the prefill side of the test)
- SGLang 0.5.23 disaggregation/common/conn.py:1734
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.serving.across import pairs


def check(_plan: Plan) -> Iterator[Verdict]:
    """Nothing can be said of one deployment by itself."""
    return iter(())


def check_across(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """One verdict a decode server whose prefill servers all speculate otherwise."""
    for decode, partners in pairs(plans):
        ours = decode.algorithm, decode.draft
        if any((partner.algorithm, partner.draft) == ours for partner in partners):
            continue
        other = partners[0]
        same = other.algorithm == decode.algorithm
        subject = "draft" if same else "algorithm"
        theirs = other.draft if same else other.algorithm
        mine = decode.draft if same else decode.algorithm
        yield (
            decode.plan,
            Verdict(
                f"decode and prefill of {decode.model} differ in the speculative {subject}: "
                f"{mine or 'none'} here, {theirs or 'none'} in {other.plan.request.place}",
                at=("speculative_algorithm", "speculative_draft_model_path", "disaggregation_mode"),
                why="the prefill server hands over what the draft continues from; a pair that "
                "differs loses accuracy, fails, or hangs (sglang issue #32527)",
                fix=Fix("give both roles the same speculative arguments"),
            ),
        )


RULE = rule(
    "SPL806",
    "different-roles",
    Severity.WARNING,
    check,
    sources=("sglang issue #32527", "sglang 0.5.23 disaggregation/common/conn.py:1734"),
    doc=__doc__,
    check_across=check_across,
)
