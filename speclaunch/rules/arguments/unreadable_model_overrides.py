"""`json_model_override_args` is no JSON object.

## What it does
Finds a value of `json_model_override_args` that cannot be read as JSON, or is JSON and no object.

## Why it matters
The argument parser takes any text. The engine reads it later, when it looks for the model's config,
and dies with a `JSONDecodeError` (or an `AttributeError` where it is no object) that names no
argument. Quotes that a shell ate are the usual reason.

## Example
```bash
python -m sglang.launch_server --model-path Qwen/Qwen2.5-7B-Instruct \\
  --json-model-override-args {"max_position_embeddings": 65536}
```

## Use instead
```bash
python -m sglang.launch_server --model-path Qwen/Qwen2.5-7B-Instruct \\
  --json-model-override-args '{"max_position_embeddings": 65536}'
```

## Sources
- SGLang 0.4.6.post5 configs/model_config.py:64, 0.5.23 configs/model_config.py:612: `json.loads`
- 0.5.23 utils/hf_transformers/config.py:411: `model_override_args.items()`
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_NAME = "json_model_override_args"


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for text that the engine cannot read."""
    given = plan.given(_NAME)
    if given is None:
        return
    try:
        found = json.loads(given)
        if not found or isinstance(found, dict):
            return
        what = f"is {type(found).__name__} in JSON, not an object"
    except (ValueError, RecursionError) as error:
        what = f"is no JSON: {error}"
    yield Verdict(
        f"{_NAME} {what}",
        at=(_NAME,),
        why="the engine reads it only when it looks for the model's config, and dies there",
        fix=Fix("write a JSON object, in single quotes on a command line: '{\"key\": value}'"),
    )


RULE = rule(
    "SPL011",
    "unreadable-model-overrides",
    Severity.ERROR,
    check,
    sources=("sglang 0.5.23 utils/hf_transformers/config.py:411",),
    doc=__doc__,
)
