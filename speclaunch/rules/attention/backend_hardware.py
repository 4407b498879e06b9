"""An attention backend on a GPU that it was not made for.

## What it does
Finds trtllm_mla, trtllm_mha, tokenspeed_mla, cutedsl_mla, fa3 and cutlass_mla on a GPU whose
compute capability the version does not accept for them.

## Why it matters
The TensorRT-LLM family is refused while the engine validates its arguments (`TRTLLM MHA backend is
only supported on Blackwell GPUs (SM100).`), fa3 while it loads: `FlashAttention v3 Backend requires
SM>=80 and SM<=90.` Which GPUs are accepted has grown; trtllm_mha decodes on Hopper from 0.5.10 and
prefills there from 0.5.19.

## Example
```yaml
engine:
  version: "0.5.9"
args:
  attention_backend: trtllm_mha     # on an H100
```

## Use instead
```yaml
args:
  attention_backend: fa3
```

## Sources
- SGLang 0.5.1 server_args.py:502, 0.5.9 server_args.py:1877 and :1899, 0.5.10.post1
  server_args.py:2370, 0.5.23 arg_groups/attention_hook.py:197 and overrides.py:1173
- SGLang 0.4.10 model_executor/model_runner.py:1429, 0.5.23
  layers/attention/attention_registry.py:247
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from speclaunch.plan.plan import Plan
from speclaunch.rules.attention.gpu import generation
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_ARGUMENTS = ("prefill_attention_backend", "decode_attention_backend", "attention_backend")


@dataclass(frozen=True, slots=True)
class _Backend:
    """A backend, the phases and versions that it is about, and the GPU generations it runs on."""

    name: str
    versions: str
    generations: tuple[int, ...]
    said: str
    phases: tuple[int, ...] = (0, 1)
    """0: prefill, 1: decode."""


_MLA = "TRTLLM MLA backend is only supported on Blackwell GPUs"
_MHA = "TRTLLM MHA backend is only supported on Blackwell GPUs (SM100)."
_PREFILL = "TRTLLM MHA backend for prefill is only supported on Blackwell GPUs (SM100)."
_ALL = "TRTLLM MHA backend for prefill requires Hopper (SM90), Blackwell (SM100), or SM120 GPUs."
_DECODE = "TRTLLM MHA backend for decode is only supported on Hopper (SM90), Blackwell (SM100) "
_CUTE = "CuteDSL MLA backend is only supported on Blackwell GPUs (SM100)."
_BACKENDS = (
    _Backend("trtllm_mla", ">=0.4.10,<0.5.4", (10,), _MLA, (1,)),
    _Backend("trtllm_mla", ">=0.5.4,<0.5.9", (10, 12), _MLA, (1,)),
    _Backend("trtllm_mla", ">=0.5.9", (10, 11, 12), _MLA, (1,)),
    _Backend("trtllm_mha", ">=0.5.1,<0.5.10", (10,), _MHA),
    _Backend("trtllm_mha", ">=0.5.10,<0.5.19", (10,), _PREFILL, (0,)),
    _Backend("trtllm_mha", ">=0.5.19", (9, 10, 12), _ALL, (0,)),
    _Backend("trtllm_mha", ">=0.5.10", (9, 10, 12), _DECODE + "and (SM120) GPUs.", (1,)),
    _Backend(
        "tokenspeed_mla",
        ">=0.5.12,<0.5.23",
        (10, 11, 12),
        "tokenspeed_mla backend is only supported on Blackwell GPUs (SM100/SM12x).",
        (1,),
    ),
    _Backend("cutedsl_mla", ">=0.5.13", (10,), _CUTE),
    _Backend("tokenspeed_mla", ">=0.5.23", (10,), _CUTE, (1,)),
    _Backend(
        "fa3",
        ">=0.4.10",
        (8, 9),
        "FlashAttention v3 Backend requires SM>=80 and SM<=90.",
    ),
)


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict a backend that the GPU does not run."""
    seen: set[str] = set()
    for row in _BACKENDS:
        if row.name in seen or not plan.in_versions(row.versions):
            continue
        if not _is_given(plan, row) or generation(plan) in row.generations:
            continue
        seen.add(row.name)
        yield Verdict(
            f"{row.name} does not run on {_hardware(plan)} in SGLang {plan.request.version}",
            at=(*(_ARGUMENTS[phase] for phase in row.phases), "attention_backend"),
            why=f"the engine stops: {row.said}",
            fix=Fix("leave the backend to the engine", set=dict.fromkeys(_ARGUMENTS)),
        )


def _is_given(plan: Plan, row: _Backend) -> bool:
    """Whether the user gave it for one of the phases: the engine's own choice always runs."""
    both = plan.given("attention_backend")
    return row.name in [plan.given(_ARGUMENTS[phase]) or both for phase in row.phases]


def _hardware(plan: Plan) -> str:
    hardware = plan.facts.hardware
    if hardware is None or hardware.capability is None:  # same either way: only the words
        return "this hardware"
    return f"{hardware.name} (SM{hardware.capability})"


RULE = rule(
    "SPL319",
    "backend-hardware",
    Severity.ERROR,
    check,
    sources=(
        "sglang 0.5.23 arg_groups/attention_hook.py:197",
        "sglang 0.5.9 server_args.py:1899",
    ),
    doc=__doc__,
)
