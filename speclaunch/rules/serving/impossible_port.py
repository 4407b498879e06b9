"""A port that does not exist.

## What it does
Looks at the port numbers of a deployment: `port`, `nccl_port`, `grpc_port`,
`disaggregation_bootstrap_port`.

## Why it matters
Ports are numbers from 1 to 65535. SGLang mostly does not check them (`grpc_port` apart); the
server fails when it binds the port, after the model is loaded.

## Example
```yaml
args:
  port: 300000
```

## Use instead
```yaml
args:
  port: 30000
```

## Sources
- SGLang 0.5.16 server_args.py:3330 (`must be between 1 and 65535`)
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_PORTS = ("port", "nccl_port", "grpc_port", "disaggregation_bootstrap_port")
_HIGHEST = 65535


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict a port that is out of range."""
    for name in _PORTS:
        value = plan.given(name)
        if value is None or 0 < int(value) <= _HIGHEST:
            continue
        yield Verdict(
            f"{name} is {value}; ports are 1 to {_HIGHEST}",
            at=(name,),
            why="the server fails when it binds the port, after the model is loaded",
            fix=Fix("choose a free port", set={name: None}),
        )


RULE = rule(
    "SPL803",
    "impossible-port",
    Severity.ERROR,
    check,
    sources=("sglang 0.5.16 server_args.py:3330",),
    doc=__doc__,
)
