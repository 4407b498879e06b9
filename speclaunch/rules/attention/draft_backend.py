"""A draft on an attention backend that has nothing for drafts.

## What it does
Finds EAGLE, EAGLE3 and STANDALONE whose draft would run on a backend outside of the engine's map
of draft backends: torch_native, cutlass_mla, wave, dual_chunk_flash_attn, and those that a later
release added.

## Why it matters
The draft inherits the target's backends. Its worker stops when it is built, after the weights are
loaded: `EAGLE is not supported in decode attention backend torch_native`. From 0.5.3 a draft of one
step needs a backend only for what was accepted (draft extend).

## Example
```yaml
args:
  attention_backend: torch_native
  speculative_algorithm: EAGLE
```

## Use instead
```yaml
args:
  attention_backend: triton
  speculative_algorithm: EAGLE
```
or, from 0.5.7 on, a backend of its own: `speculative_draft_attention_backend: triton`.

## Sources
- SGLang 0.4.6 speculative/eagle_worker.py:153, 0.5.3 speculative/draft_utils.py:38,
  0.5.23 speculative/draft_utils.py:96
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.attention.draft import (
    DRAFTS,
    backends_of_draft,
    draft_backends,
    extend_backends,
)
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import number

_OWN_RULE = ("flex_attention", "hpc_ops", "minicpm_flashattn", "minicpm_flashinfer", "intel_xpu")
"""Backends that SPL304 reports."""


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the draft cannot be built."""
    steps, extend = backends_of_draft(plan)
    wanted = [(extend, "prefill_attention_backend", extend_backends(plan))]
    if plan.in_versions("<0.5.3") or number(plan, "speculative_num_steps") != 1:
        wanted.append((steps, "decode_attention_backend", draft_backends(plan)))
    refused = {
        backend: name
        for backend, name, known in wanted
        if backend is not None and backend not in known and backend not in _OWN_RULE
    }
    for backend, name in refused.items():
        yield Verdict(
            f"a draft of SGLang {plan.request.version} does not run on {backend}",
            at=("speculative_draft_attention_backend", name, "attention_backend"),
            why=f"the draft worker stops: ValueError: EAGLE is not supported in attention backend "
            f"{backend}",
            fix=Fix(
                "give the draft a backend of its own (speculative_draft_attention_backend, 0.5.7 "
                "and later), or use triton or flashinfer for both"
            ),
        )


RULE = rule(
    "SPL312",
    "draft-backend",
    Severity.ERROR,
    check,
    algorithms=DRAFTS,
    sources=(
        "sglang 0.5.23 speculative/draft_utils.py:96",
        "sglang 0.4.6.post5 speculative/eagle_worker.py:218",
    ),
    doc=__doc__,
)
