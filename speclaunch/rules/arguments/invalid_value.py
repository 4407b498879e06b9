"""The value of an argument is none that the engine takes.

## What it does
Finds values of a wrong type, values that are not among the choices of this version, flags without
the value they need, and flags that this version only has to refuse them.

## Why it matters
The engine's parser refuses the whole command (`argument --x: invalid choice`, exit code 2). Choices
differ between versions: `--speculative-algorithm` takes `DFLASH` from 0.5.11 on.

## Example
```bash
# on SGLang 0.5.10.post1
python3 -m sglang.launch_server --model-path m --speculative-algorithm DFLASH
```

## Use instead
```bash
python3 -m sglang.launch_server --model-path m --speculative-algorithm EAGLE3
```

## Sources
- The parsers of all releases, as `speclaunch engine catalogue` shows them
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.arguments.common import Refusal, refused, verdict
from speclaunch.rules.interface import Severity, Verdict, rule


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict a refused word."""
    for problem in refused(plan, Refusal.VALUE):
        yield verdict(problem, plan)


RULE = rule(
    "SPL003",
    "invalid-value",
    Severity.ERROR,
    check,
    sources=("sglang server_args.py: ServerArgs.add_cli_args of each release",),
    doc=__doc__,
)
