"""The engine version has no such argument.

## What it does
Finds server arguments that the parser of this SGLang version does not know: misspelled, not there
yet, or removed.

## Why it matters
The engine's parser refuses the whole command (`error: unrecognized arguments`, exit code 2). SGLang
had 145 flags in 0.4.6 and has 531 in 0.5.23; half of the commands that are documented somewhere are
refused by the newest release.

## Example
```bash
# on SGLang 0.5.23
python3 -m sglang.launch_server --model-path m --speculative-dflash-draft-window-size 64
```

## Use instead
```bash
python3 -m sglang.launch_server --model-path m --speculative-draft-window-size 64
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
    for problem in refused(plan, Refusal.UNKNOWN):
        yield verdict(problem, plan)


RULE = rule(
    "SPL001",
    "unknown-argument",
    Severity.ERROR,
    check,
    sources=("sglang server_args.py: ServerArgs.add_cli_args of each release",),
    doc=__doc__,
)
