"""The server listens on every address and asks for no key.

## What it does
Finds a `host` of 0.0.0.0 or :: without `api_key`.

## Why it matters
Whoever reaches the machine can send requests, and use the engine's other endpoints as well: flush
the cache, load other weights, start a profile. Behind a proxy or inside a closed network that is
meant; on a machine with a public address it is not. SGLang's default is 127.0.0.1.

## Example
```yaml
args:
  host: 0.0.0.0
```

## Use instead
A `host` that only the proxy reaches, or an `api_key` (see SPL802 for how to pass it).

## Sources
- SGLang, server arguments (`--host`, `--api-key`)
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.plan.request import Origin
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_OPEN = ("0.0.0.0", "::")  # noqa: S104


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for an open address that the user gave."""
    if plan.given("host") not in _OPEN or plan.is_given("api_key"):
        return
    if plan.request.origin is Origin.SLIME:  # its engines are reached by its own router
        return
    yield Verdict(
        f"the server listens on {plan.given('host')} and asks for no api_key",
        at=("host",),
        why="whoever reaches the machine can use every endpoint, those that change weights too",
        fix=Fix("keep it inside a closed network, listen on one address, or set an api_key"),
    )


RULE = rule(
    "SPL801",
    "open-address",
    Severity.INFO,
    check,
    sources=("sglang server arguments, --host and --api-key",),
    doc=__doc__,
)
