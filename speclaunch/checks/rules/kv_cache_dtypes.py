"""Rules about KV cache dtypes by attention backend, model and GPU."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.checks.rules.attention import is_mla
from speclaunch.checks.rules.attention_platforms import generation
from speclaunch.checks.rules.interface import Fix, Verdict, rule
from speclaunch.checks.rules.values import attention_backend, attention_backends, runs_on
from speclaunch.engine import (
    BACKENDS,
    BEFORE_RENAMED,
    BOTH,
    PHASES,
    Plan,
    architecture_of,
    architectures,
    target_of,
)

_DTYPE = "kv_cache_dtype"
_BACKEND_KV_DTYPE_TYPES = (
    ("trtllm_mla", ">=0.5.1,<0.5.4", ("fp8_e4m3", "auto")),
    ("trtllm_mla", ">=0.5.4,<0.5.7", ("fp8_e4m3", "fp4_e2m1", "auto")),
    ("trtllm_mla", ">=0.5.7,<0.5.21", ("fp8_e4m3", "fp4_e2m1", "bf16", "auto")),
    ("trtllm_mla", ">=0.5.21", ("fp8_e4m3", "bf16", "auto")),
    ("tokenspeed_mla", f">=0.5.12,{BEFORE_RENAMED}", ("fp8_e4m3",)),
    ("cutedsl_mla", ">=0.5.13", ("fp8_e4m3", "bf16", "bfloat16", "auto")),
)


@rule("SPL318")
def backend_kv_dtype(plan: Plan) -> Iterator[Verdict]:
    """Report a KV cache dtype that an MLA backend does not support."""
    for backend, versions, types in _BACKEND_KV_DTYPE_TYPES:
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
    """True if it decodes, or is set for both phases. Only trtllm_mla can be a default."""
    if backend == plan.user_value("decode_attention_backend"):
        return True
    if backend == plan.user_value("attention_backend"):
        return backend == attention_backend(plan)  # not if both phases set another backend
    return backend == "trtllm_mla" and runs_on(plan, backend, (1,))


_ANY = tuple(range(1, 20))
_KV_DTYPE_HARDWARE_TYPES = (
    ("nvfp4", ">=0.5.16", (10, 12), "--kv-cache-dtype=nvfp4 requires Blackwell SM100 or SM120."),
    ("mxfp8", ">=0.5.16", (10, 11, 12), "--kv-cache-dtype mxfp8 requires an SM100+ GPU"),
    ("fp4_mx_block16", ">=0.5.16", _ANY, "KV4 is not tested on non-CUDA platforms."),
    ("fp4_e2m1", ">=0.5.7,<0.5.16", _ANY, "KV4 is not tested on non-CUDA platforms."),
    ("fp4_e2m1", ">=0.5.16", (), "it is deprecated. Use fp4_mx_block16."),
)
"""Dtypes, versions, GPU generations and messages. fp4_e2m1 is refused on every GPU from 0.5.16 on
(mem_cache/kv_cache_dtype.py:57), and no choice from 0.5.21 on."""


@rule("SPL321")
def kv_dtype_hardware(plan: Plan) -> Iterator[Verdict]:
    """Report a KV cache dtype that the GPU cannot compute with."""
    requested = plan.user_value(_DTYPE)
    for name, versions, generations, message in _KV_DTYPE_HARDWARE_TYPES:
        if requested != name or not plan.in_versions(versions):
            continue
        if not generations or generation(plan) not in generations:
            yield Verdict(
                f"{'this hardware' if generations else f'SGLang {plan.version}'} does not support "
                f"a KV cache of type {name}",
                at=(_DTYPE,),
                why=f"the engine refuses: {message}",
                fix=Fix("let the engine choose", set={_DTYPE: None}),
            )


_SPARSE_KV_DTYPE_TYPES = ("auto", "bf16", "bfloat16", "fp8_e4m3")
_FAMILY = (
    "DeepseekV3ForCausalLM",
    "DeepseekV32ForCausalLM",
    "MistralLarge3ForCausalLM",
    "GlmMoeDsaForCausalLM",
    "LongcatFlashForCausalLM",
)
"""Architectures of `sparse_attention` whose arguments all releases check."""


@rule("SPL326")
def sparse_kv_dtype(plan: Plan) -> Iterator[Verdict]:
    """Report a KV cache dtype that DeepSeek's sparse attention does not read."""
    dtype = plan.user_value(_DTYPE)
    if dtype is None or dtype in _SPARSE_KV_DTYPE_TYPES or plan.device != "cuda":
        return
    name = architecture_of(plan)
    if name not in _FAMILY or name not in architectures(plan.request.version).sparse_attention:
        return
    if target_of(plan).config.get("index_topk") is None:
        return
    yield Verdict(
        f"the sparse attention of {target_of(plan).architecture} does not support a KV cache of "
        f"type {dtype}",
        at=(_DTYPE,),
        why="the engine refuses: DeepSeek DSA only supports bf16/bfloat16 or fp8_e4m3 "
        "kv_cache_dtype",
        fix=Fix("set it to fp8_e4m3", set={_DTYPE: "fp8_e4m3"}),
    )


_FP4_KV_BACKEND_TYPES = ("nvfp4", "fp4_mx_block16")
_OLD_TYPE = "fp4_e2m1"
"""Type refused by its name from 0.5.16 on."""
_PLAIN = ("triton", "torch_native", "flex_attention", "trtllm_mha")
_FP4_KV_BACKEND_LATENT = ("flashinfer", "trtllm_mla", "cutlass_mla")
_FP4_KV_BACKEND_EARLY = "flashmla"
"""Backends that read it without and with latent attention, if both phases run on them. cutlass_mla
is no choice from 0.5.20 on."""


@rule("SPL327")
def fp4_kv_backend(plan: Plan) -> Iterator[Verdict]:
    """Report an FP4 KV cache on an attention backend that does not read it."""
    requested = plan.user_value("kv_cache_dtype")
    if requested not in _FP4_KV_BACKEND_TYPES and not (
        requested == _OLD_TYPE and plan.in_versions(">=0.5.7,<0.5.16")
    ):
        return
    if generation(plan) is None:  # refused with any backend: SPL321
        return
    prefill, decode = attention_backends(plan)
    backend = attention_backend(plan)
    if prefill != decode or prefill == "fa4":
        return
    known = _FP4_KV_BACKEND_LATENT if is_mla(plan.facts.target) else _PLAIN
    if known is _FP4_KV_BACKEND_LATENT and plan.in_versions("<0.5.16"):
        known = (*_FP4_KV_BACKEND_LATENT, _FP4_KV_BACKEND_EARLY)
    if backend in known:
        return
    yield Verdict(
        f"{backend} does not support a KV cache of type {requested}",
        at=("kv_cache_dtype", *BACKENDS),
        why=f"the engine refuses: KV4 expects attention_backend to be one of {', '.join(known)}",
        fix=Fix(f"use {known[0]}", set={"attention_backend": known[0]}),
    )


_BACKEND = "trtllm_mha"
_BLACKWELL = 10
_ALGORITHM = "speculative_algorithm"
_NATIVE_FP4_CACHE_REFUSED = ("DFLASH", "DSPARK", "STANDALONE", "FROZEN_KV_MTP")
_BREADTH = "speculative_ngram_max_bfs_breadth"
_DRAFT = "speculative_draft_attention_backend"
_CACHES = ("enable_hierarchical_cache", "enable_lmcache")


@rule("SPL328")
def native_fp4_cache(plan: Plan) -> Iterator[Verdict]:
    """Report an NVFP4 KV cache in trtllm_mha's layout with features that do not support it."""
    if plan.user_value(_DTYPE) != "nvfp4" or generation(plan) != _BLACKWELL:
        return
    if _BACKEND not in {plan.user_value(phase) or plan.user_value(BOTH) for phase in PHASES}:
        return
    algorithm = str(plan.user_value(_ALGORITHM)).upper()
    if algorithm in _NATIVE_FP4_CACHE_REFUSED:
        yield _verdict_of_native_fp4_cache(
            f"does not work with {algorithm}", (_ALGORITHM,), "use EAGLE/NEXTN or NGRAM"
        )
    if algorithm == "NGRAM" and plan.value(_BREADTH) != 1:
        message = "NGRAM speculative decoding requires --speculative-ngram-max-bfs-breadth=1"
        yield _verdict_of_native_fp4_cache(
            f"needs {_BREADTH} 1 with NGRAM", (_BREADTH, _ALGORITHM), message
        )
    draft = plan.user_value(_DRAFT)
    if draft not in (None, _BACKEND) and algorithm not in ("NONE", "NGRAM"):
        message = "speculative decoding requires --speculative-draft-attention-backend=trtllm_mha"
        yield _verdict_of_native_fp4_cache(
            f"does not work with the draft's backend {draft}", (_DRAFT,), message
        )
    if plan.value("disaggregation_mode") != "null":
        message = "trtllm_mha does not yet support PD disaggregation"
        yield _verdict_of_native_fp4_cache(
            "does not work with disaggregation", ("disaggregation_mode",), message
        )
    for name in _CACHES:
        if plan.value(name):
            message = "trtllm_mha does not yet support hierarchical KV cache or LMCache"
            yield _verdict_of_native_fp4_cache(f"does not work with {name}", (name,), message)


def _verdict_of_native_fp4_cache(what: str, at: tuple[str, ...], engine_message: str) -> Verdict:
    return Verdict(
        f"a KV cache of type nvfp4 in the layout of trtllm_mha {what}",
        at=(*at, _DTYPE),
        why=f"the engine refuses: SM100 native NVFP4: {engine_message}",
        fix=Fix("use fp8_e4m3 for the KV cache", set={_DTYPE: "fp8_e4m3"}),
    )
