"""`SGLANG_RAGGED_VERIFY_MODE` has three values.

## What it does
Finds a value other than `static`, `cap-accept` and `compact` where there is speculation.

## Why it matters
The mode concerns DSPARK. The engine reads it for every algorithm when it resolves its arguments,
and refuses a word that it does not know: `invalid SGLANG_RAGGED_VERIFY_MODE=…`. Upper case and an
empty value count as unknown.

## Example
```yaml
engine:
  env: {SGLANG_RAGGED_VERIFY_MODE: "off"}
args:
  speculative_algorithm: EAGLE
```

## Use instead
```yaml
engine:
  env: {SGLANG_RAGGED_VERIFY_MODE: static}
args:
  speculative_algorithm: EAGLE
```

## Sources
- SGLang 0.5.16 speculative/spec_info.py:201, 0.5.23 speculative/ragged_verify.py:24
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_NAME = "SGLANG_RAGGED_VERIFY_MODE"
_MODES = ("static", "cap-accept", "compact")


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the word is unknown."""
    mode = plan.env(_NAME)
    if mode is None or mode in _MODES or plan.algorithm is None:
        return
    yield Verdict(
        f"{_NAME} {mode!r} is none of {', '.join(_MODES)}",
        at=(_NAME,),
        why=f"the engine refuses: invalid SGLANG_RAGGED_VERIFY_MODE={mode!r}",
        fix=Fix("static is the default", env={_NAME: "static"}),
    )


RULE = rule(
    "SPL123",
    "ragged-verify-mode",
    Severity.ERROR,
    check,
    versions=">=0.5.16",
    sources=("sglang 0.5.23 speculative/ragged_verify.py:24", "sglang 0.5.16 spec_info.py:201"),
    doc=__doc__,
)
