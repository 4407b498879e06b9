"""An API key is written into the command.

## What it does
Finds `api_key` or `admin_api_key` with its value in a script, a compose file or a manifest.

## Why it matters
The file ends up in a repository, and everybody on the machine reads the key in the list of
processes. A key out of a variable (`"$API_KEY"`) is not in the file; SGLang takes it only as an
argument, so the list of processes still shows it to users of the same machine.

## Example
```bash
python3 -m sglang.launch_server --model-path m --api-key sk-abc123
```

## Use instead
```bash
python3 -m sglang.launch_server --model-path m --api-key "$SGLANG_API_KEY"
```

## Sources
- SGLang, server arguments (`--api-key`, `--admin-api-key`)
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.plan.request import Origin
from speclaunch.rules.interface import Fix, Severity, Verdict, rule


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict a key; nothing where it stands in a variable."""
    if plan.request.origin is Origin.RECIPE:  # it may come out of the environment
        return
    for name in ("api_key", "admin_api_key"):
        given = plan.request.given.get(name)
        if given is None or not given.known:
            continue
        yield Verdict(
            f"the value of {name} is written in the file",
            at=(name,),
            why="it ends up in the repository and in the machine's list of processes",
            fix=Fix("take it from a variable that the file does not set"),
        )


RULE = rule(
    "SPL802",
    "plain-api-key",
    Severity.WARNING,
    check,
    sources=("sglang server arguments, --api-key",),
    doc=__doc__,
)
