"""The command names no model.

## What it does
Finds commands without `--model-path`, or with an empty one: a variable that was not set.

## Why it matters
The engine's parser refuses them: `the following arguments are required: --model-path/--model`
(exit code 2). An empty one passes the parser, and fails when the model's config is looked up.

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
from speclaunch.rules.interface import Fix, Severity, Verdict, rule


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict a refused word, or for the empty one."""
    for problem in refused(plan, Refusal.MISSING):
        yield verdict(problem, plan)
    model = plan.request.given.get("model_path")
    if model is not None and model.known and model.value == "":
        yield Verdict(
            "--model-path is empty",
            at=("model_path",),
            why="the engine finds no config.json in a model without a name",
            fix=Fix("name the model; was a variable not set?"),
        )


RULE = rule(
    "SPL004",
    "missing-model",
    Severity.ERROR,
    check,
    sources=("sglang 0.5.23 server_args.py: --model-path is required",),
    doc=__doc__,
)
