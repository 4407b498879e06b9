"""A shortened argument fits several.

## What it does
Finds flags that are the beginning of several of this version's flags.

## Why it matters
argparse accepts a flag that is cut short as long as only one flag begins with it. With each release
there are more: `--cuda-graph-max-bs` was a flag up to 0.5.19, and from 0.5.20 it is the ambiguous
beginning of `--cuda-graph-max-bs-decode` and `--cuda-graph-max-bs-prefill` (exit code 2).

## Example
```bash
# on SGLang 0.5.23
python3 -m sglang.launch_server --model-path m --cuda-graph-max-bs 8
```

## Use instead
```bash
python3 -m sglang.launch_server --model-path m --cuda-graph-max-bs-decode 8
```

## Sources
- SGLang 0.5.20 server_args.py; issues #38304, #38265
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.arguments.common import Refusal, refused, verdict
from speclaunch.rules.interface import Severity, Verdict, rule


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict a refused word."""
    for problem in refused(plan, Refusal.AMBIGUOUS):
        yield verdict(problem, plan)


RULE = rule(
    "SPL002",
    "ambiguous-argument",
    Severity.ERROR,
    check,
    sources=("sglang 0.5.20 server_args.py: the alias --cuda-graph-max-bs is gone",),
    doc=__doc__,
)
