"""An FP4 KV cache on an attention backend that does not read it."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.plan.topics.attention import BACKENDS
from speclaunch.rules.attention.draft import is_mla
from speclaunch.rules.attention.gpu import generation
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import attention_backend, attention_backends

_TYPES = ("nvfp4", "fp4_mx_block16")
_OLD_TYPE = "fp4_e2m1"
"""Refused by its name from 0.5.16 on."""
_PLAIN = ("triton", "torch_native", "flex_attention", "trtllm_mha")
_LATENT = ("flashinfer", "trtllm_mla", "cutlass_mla")
_EARLY = "flashmla"
"""What reads it without and with latent attention, where both phases run on it. cutlass_mla is no
choice from 0.5.20 on."""


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where both phases run on one backend that is not in the list."""
    asked = plan.given("kv_cache_dtype")
    if asked not in _TYPES and not (asked == _OLD_TYPE and plan.in_versions(">=0.5.7,<0.5.16")):
        return
    if generation(plan) is None:  # refused whatever the backend is: SPL321
        return
    prefill, decode = attention_backends(plan)
    backend = attention_backend(plan)
    if prefill != decode or prefill == "fa4":
        return
    known = _LATENT if is_mla(plan.facts.target) else _PLAIN
    if known is _LATENT and plan.in_versions("<0.5.16"):
        known = (*_LATENT, _EARLY)
    if backend in known:
        return
    yield Verdict(
        f"{backend} does not read a KV cache of type {asked}",
        at=("kv_cache_dtype", *BACKENDS),
        why=f"the engine refuses: KV4 expects attention_backend to be one of {', '.join(known)}",
        fix=Fix(f"use {known[0]}", set={"attention_backend": known[0]}),
    )


RULE = rule(
    "SPL327",
    "fp4-kv-backend",
    Severity.ERROR,
    check,
    says=("KV4 MHA expects attention_backend", "KV4 MLA expects attention_backend"),
)
