"""Code from the hub runs as it is today.

## What it does
Finds `trust_remote_code` with a model of the hub (`organisation/name`) that brings code of its own
(`auto_map` in its config) and no `revision`.

## Why it matters
The model repository's Python code runs in the engine, in the version that is there when the
server starts. A commit hash as `revision` makes it the code that was looked at. SGLang has its own
classes for most models and needs only a config or a tokenizer of that code.

## Example
```yaml
args:
  model_path: XiaomiMiMo/MiMo-7B-RL
  trust_remote_code: true
```

## Use instead
```yaml
args:
  model_path: XiaomiMiMo/MiMo-7B-RL
  revision: 0123456789abcdef0123456789abcdef01234567  # the commit that was looked at
  trust_remote_code: true
```
or without `trust_remote_code`, where it starts as well.

## Sources
- Hugging Face transformers, AutoModel (`trust_remote_code`, `code_revision`)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_HUB = re.compile(r"[\w-][\w.-]*/[\w.-]+")


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for a model of the hub that is known to bring code."""
    if not plan.given("trust_remote_code") or plan.is_given("revision"):
        return
    model, target = plan.given("model_path"), plan.facts.target
    if target is None or not target.config.get("auto_map") or not _HUB.fullmatch(str(model)):
        return
    yield Verdict(
        f"the code in {model} runs as it is when the server starts",
        at=("trust_remote_code",),
        why="trust_remote_code without a revision runs whatever the repository holds that day",
        fix=Fix("pin it: revision, with the commit that was looked at"),
    )


RULE = rule(
    "SPL804",
    "remote-code",
    Severity.INFO,
    check,
    sources=("Hugging Face transformers, trust_remote_code",),
    doc=__doc__,
)
