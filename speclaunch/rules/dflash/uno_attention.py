"""UNO needs FlashAttention 3 for prefill and decode.

## What it does
Finds UNO on another attention backend than fa3.

## Why it matters
The engine refuses it while it reads its arguments: `UNO requires FA3 for both prefill and decode
attention`. By itself it takes fa3 on Hopper only.

## Example
```yaml
args:
  speculative_algorithm: UNO
  uno_lora_path: an-uno-lora
  speculative_num_draft_tokens: 8
  attention_backend: flashinfer
```

## Use instead
```yaml
args:
  speculative_algorithm: UNO
  uno_lora_path: an-uno-lora
  speculative_num_draft_tokens: 8
  attention_backend: fa3
```

## Sources
- SGLang 0.5.20 arg_groups/speculative_hook.py:503, 0.5.23 arg_groups/speculative_hook.py:608
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_PHASES = ("prefill_attention_backend", "decode_attention_backend")


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for each phase on another backend."""
    for name in _PHASES:
        backend = plan.value(name) or plan.value("attention_backend")
        if backend is None:
            raise UnknownValueError("the attention backend is not known")
        if backend != "fa3":
            yield Verdict(
                f"UNO needs fa3, and {name} is {backend}",
                at=(name, "attention_backend", "speculative_algorithm"),
                why="the engine refuses: UNO requires FA3 for both prefill and decode attention",
                fix=Fix(
                    "set attention_backend to fa3",
                    set={**dict.fromkeys(_PHASES), "attention_backend": "fa3"},
                ),
            )


RULE = rule(
    "SPL645",
    "uno-attention",
    Severity.ERROR,
    check,
    algorithms=("UNO",),
    versions=">=0.5.20",
    sources=(
        "sglang 0.5.23 arg_groups/speculative_hook.py:608",
        "sglang 0.5.20 arg_groups/speculative_hook.py:503",
    ),
    doc=__doc__,
)
