"""The command names no model.

## What it does
Finds commands without `--model-path`.

## Why it matters
The engine's parser refuses them: `the following arguments are required: --model-path/--model`
(exit code 2).

## Example
```bash
python3 -m sglang.launch_server --speculative-algorithm NGRAM
```

## Use instead
```bash
python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --speculative-algorithm NGRAM
```

## Sources
- SGLang 0.5.23 server_args.py: `model_path` is required
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.arguments.common import Refusal, refused, verdict
from speclaunch.rules.interface import Severity, Verdict, rule


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict a refused word."""
    for problem in refused(plan, Refusal.MISSING):
        yield verdict(problem, plan)


RULE = rule(
    "SPL004",
    "missing-model",
    Severity.ERROR,
    check,
    sources=("sglang 0.5.23 server_args.py: --model-path is required",),
    doc=__doc__,
)
