"""A KV cache of a type that an MLA backend does not take."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.plan.topics.attention import BEFORE_RENAMED
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import attention_backend, runs_on

_TYPES = (
    ("trtllm_mla", ">=0.5.1,<0.5.4", ("fp8_e4m3", "auto")),
    ("trtllm_mla", ">=0.5.4,<0.5.7", ("fp8_e4m3", "fp4_e2m1", "auto")),
    ("trtllm_mla", ">=0.5.7,<0.5.21", ("fp8_e4m3", "fp4_e2m1", "bf16", "auto")),
    ("trtllm_mla", ">=0.5.21", ("fp8_e4m3", "bf16", "auto")),
    ("tokenspeed_mla", f">=0.5.12,{BEFORE_RENAMED}", ("fp8_e4m3",)),
    ("cutedsl_mla", ">=0.5.13", ("fp8_e4m3", "bf16", "bfloat16", "auto")),
)


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict a backend."""
    for backend, versions, types in _TYPES:
        dtype = plan.value("kv_cache_dtype")
        if dtype in types or not plan.in_versions(versions):
            continue
        if _is_used(plan, backend):
            yield Verdict(
                f"{backend} supports kv_cache_dtype {', '.join(types)}, not {dtype}",
                at=("kv_cache_dtype", "decode_attention_backend", "attention_backend"),
                why="the engine refuses the type for this backend",
                fix=Fix("set it to fp8_e4m3", set={"kv_cache_dtype": "fp8_e4m3"}),
            )


def _is_used(plan: Plan, backend: str) -> bool:
    """Whether it decodes, or is named for both phases; only trtllm_mla can be a default."""
    if backend == plan.given("decode_attention_backend"):
        return True
    if backend == plan.given("attention_backend"):
        return backend == attention_backend(plan)  # not where the phases agree on another one
    return backend == "trtllm_mla" and runs_on(plan, backend, (1,))


RULE = rule("SPL318", "backend-kv-dtype", Severity.ERROR, check)
