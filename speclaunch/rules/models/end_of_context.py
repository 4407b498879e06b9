"""An old engine writes draft tokens beyond its table at the end of the context.

## What it does
Finds more than four draft tokens on an engine before 0.5.1.

## Why it matters
The table that maps a request's tokens to the KV cache has a row of context length + 4. A request
that comes near the end of the context still gets all of its draft tokens, and from the fifth on
they are written past the row: `scatter gather kernel index out of bounds`, or an illegal memory
access. 0.5.1 makes the row longer by the number of draft tokens. Requests that end well before the
context does are not affected.

## Example
```yaml
engine: {version: 0.4.10.post2}
args:
  model_path: meta-llama/Llama-3.1-8B-Instruct
  context_length: 2048
  speculative_algorithm: EAGLE
  speculative_draft_model_path: lmsys/sglang-EAGLE-LLaMA3-Instruct-8B
  speculative_num_steps: 5
  speculative_eagle_topk: 8
  speculative_num_draft_tokens: 64
```

## Use instead
SGLang 0.5.1 or later, or steps 3, topk 1, 4 draft tokens.

## Sources
- SGLang pull request 9388 (its example ends here)
- SGLang 0.4.10.post2 model_executor/model_runner.py:1168, 0.5.1.post3
  model_executor/model_runner.py:1249
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_SPARE = 4
"""Places that a row of the table has beyond the context length."""


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the draft tokens do not fit behind the context."""
    tokens = plan.value("speculative_num_draft_tokens")
    if tokens is None or int(tokens) <= _SPARE:
        return
    yield Verdict(
        f"{tokens} draft tokens at the end of the context need more than the {_SPARE} spare places",
        at=("speculative_num_draft_tokens", "speculative_algorithm"),
        why="before 0.5.1 the request's row in the token table is context length + 4: a request "
        "that reaches the end of the context ends in an illegal memory access",
        fix=Fix("use SGLang 0.5.1 or later, or keep requests shorter than the context"),
    )


RULE = rule(
    "SPL424",
    "end-of-context",
    Severity.WARNING,
    check,
    algorithms=("EAGLE", "EAGLE3"),
    versions="<0.5.1",
    sources=(
        "sglang pull request #9388",
        "sglang 0.4.10.post2 model_executor/model_runner.py:1168",
        "sglang 0.5.1.post3 model_executor/model_runner.py:1249",
    ),
    doc=__doc__,
)
