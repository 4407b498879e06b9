"""Rules about attention backends and KV cache dtypes by model, GPU and phase."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from speclaunch.checks.rules.attention import backends_of_draft, is_mla
from speclaunch.checks.rules.interface import Fix, Verdict, rule
from speclaunch.checks.rules.values import (
    attention_backend,
    attention_backends,
    generation,
    runs_on,
    runs_on_cpu,
)
from speclaunch.engine import (
    BACKENDS,
    BEFORE_RENAMED,
    BOTH,
    DECODE,
    DRAFT,
    EAGLE_HANDLER,
    PHASES,
    Checkpoint,
    Plan,
    UnknownValueError,
    architecture_of,
    architectures,
    draft_checkpoint,
    has_architecture,
    target_of,
)

_MLA_BACKEND_LATENT = ("trtllm_mla", "tokenspeed_mla", "cutedsl_mla")
_MIXED = ("trtllm_mha", "hpc_ops")


@rule("SPL315")
def mla_backend(plan: Plan) -> Iterator[Verdict]:
    """Report a latent-attention backend for a model without latent attention, or vice versa."""
    for backend in _different(tuple(plan.user_value(name) for name in BACKENDS)):
        if _unfit(backend, plan.facts.target):
            fix = Fix("let the engine choose the backend")
            yield _verdict_of_mla_backend(backend, "target", fix)
    if plan.algorithm not in EAGLE_HANDLER:
        return
    draft = draft_checkpoint(plan)
    if draft is plan.facts.target:
        return
    for backend in _different(backends_of_draft(plan)):
        if _unfit(backend, draft):
            fix = Fix(f"set {DRAFT} to flashinfer", set={DRAFT: "flashinfer"}, safe=True)
            if not plan.has_argument(DRAFT):  # same either way: only the remedy differs
                fix = Fix("use another backend for target and draft, or SGLang 0.5.7 or later")
            yield _verdict_of_mla_backend(backend, "draft", fix)


def _different(backends: tuple[str | None, ...]) -> tuple[str, ...]:
    found = {name for name in backends if name in _MLA_BACKEND_LATENT or name in _MIXED}
    return tuple(sorted(name for name in found if name is not None))


def _unfit(backend: str, checkpoint: Checkpoint | None) -> bool:
    return is_mla(checkpoint) is (backend in _MIXED)


def _verdict_of_mla_backend(backend: str, role: str, fix: Fix) -> Verdict:
    latent = backend in _MLA_BACKEND_LATENT
    kind, models = ("without", "MLA") if latent else ("with", "non-MLA")
    return Verdict(
        f"{backend} does not support a {role} {kind} multi-head latent attention",
        at=(DRAFT, *BACKENDS),
        why=f"the engine stops: ValueError: {backend} backend can only be used with {models} "
        "models.",
        fix=fix,
    )


_ARGUMENTS = (*PHASES, BOTH)


class _Backend(Struct, frozen=True):
    """A backend, the GPU generations it runs on, and the arguments that the engine checks."""

    name: str
    versions: str
    generations: tuple[int, ...]
    engine_message: str
    phases: tuple[int, ...] = ()
    """Phases that the engine checks: 0 prefill, 1 decode. If empty, it checks `names`."""
    names: tuple[str, ...] = _ARGUMENTS
    """Arguments that the engine checks separately. Ignored if `phases` is set."""


_BOTH = (BOTH,)
_DECODES = (BOTH, DECODE)
_MLA = "TRTLLM MLA backend is only supported on Blackwell GPUs"
_MHA = "TRTLLM MHA backend is only supported on Blackwell GPUs (SM100)."
_PREFILL = "TRTLLM MHA backend for prefill is only supported on Blackwell GPUs (SM100)."
_ALL = "TRTLLM MHA backend for prefill requires Hopper (SM90), Blackwell (SM100), or SM120 GPUs."
_DECODE = "TRTLLM MHA backend for decode is only supported on Hopper (SM90), Blackwell (SM100) "
_FA3 = "FlashAttention v3 Backend requires SM>=80 and SM<=90."
_AMPERE = 8
"""GPU generation SM8x. Of the `_BACKENDS`, it runs only fa3, and fa3 only without MLA."""
_CUTE = "CuteDSL MLA backend is only supported on Blackwell GPUs (SM100)."
_BACKENDS = (
    _Backend("trtllm_mla", ">=0.4.10,<0.5.1", (10,), _MLA, names=_BOTH),
    _Backend("trtllm_mla", ">=0.5.1,<0.5.4.post2", (10,), _MLA, names=_DECODES),
    _Backend("trtllm_mla", ">=0.5.4.post2,<0.5.9", (10, 12), _MLA, names=_DECODES),
    _Backend("trtllm_mla", ">=0.5.9", (10, 11, 12), _MLA, names=_DECODES),
    _Backend("trtllm_mha", ">=0.5.1,<0.5.10", (10,), _MHA),
    _Backend("trtllm_mha", ">=0.5.10,<0.5.19", (10,), _PREFILL, (0,)),
    _Backend("trtllm_mha", ">=0.5.19", (9, 10, 12), _ALL, (0,)),
    _Backend("trtllm_mha", ">=0.5.10", (9, 10, 12), _DECODE + "and (SM120) GPUs.", (1,)),
    _Backend(
        "tokenspeed_mla",
        f">=0.5.12,{BEFORE_RENAMED}",
        (10, 11, 12),
        "tokenspeed_mla backend is only supported on Blackwell GPUs (SM100/SM12x).",
        names=_DECODES,
    ),
    _Backend("cutedsl_mla", ">=0.5.13", (10,), _CUTE),
    _Backend("fa3", ">=0.4.6.post2", (8, 9), _FA3, (0, 1)),
)


@rule("SPL319")
def backend_hardware(plan: Plan) -> Iterator[Verdict]:
    """Report an attention backend that does not run on the GPU."""
    explicit = {
        name: _effective(plan, name) for name in _ARGUMENTS if plan.user_value(name) is not None
    }
    seen: set[str] = set()
    for row in _BACKENDS:
        if row.name in seen or not plan.in_versions(row.versions):
            continue
        at = _where(explicit, row)
        if at is None or _runs(plan, row):
            continue
        seen.add(row.name)
        yield Verdict(
            f"{row.name} does not run on {_hardware(plan)} in SGLang {plan.request.version}",
            at=(at,),
            why=f"the engine stops: {row.engine_message}",
            fix=Fix("let the engine choose the backend", set=dict.fromkeys(_ARGUMENTS)),
        )


def _effective(plan: Plan, name: str) -> str | None:
    """Return an argument's effective backend, or the user's if unknown; None if unset."""
    try:
        return attention_backend(plan, name)
    except UnknownValueError:  # a backend that the engine chooses always runs
        return str(plan.user_value(name))


def _where(backends: Mapping[str, str | None], row: _Backend) -> str | None:
    """Return the argument with which the user selects `row`'s backend; None if there is none."""
    for phase in row.phases:
        name = _ARGUMENTS[phase] if backends.get(_ARGUMENTS[phase]) else "attention_backend"
        if backends.get(name) == row.name:
            return name
    names = () if row.phases else row.names
    return next((name for name in names if backends.get(name) == row.name), None)


def _runs(plan: Plan, row: _Backend) -> bool:
    found = generation(plan)
    if found not in row.generations:
        return False
    return found != _AMPERE or not is_mla(plan.facts.target)


def _hardware(plan: Plan) -> str:
    hardware = plan.facts.hardware
    if hardware is None or hardware.capability is None:  # same either way: only the wording differs
        return "this hardware"
    return f"{hardware.name} (SM{hardware.capability})"


@rule("SPL320")
def backend_phase(plan: Plan) -> Iterator[Verdict]:
    """Report a backend for a phase that it does not support."""
    if plan.in_versions(">=0.5.4,<0.5.8"):
        for name in ("attention_backend", "decode_attention_backend"):
            if plan.user_value(name) == "fa4":
                yield Verdict(
                    f"fa4 supports only prefill in SGLang {plan.request.version}: {name} cannot "
                    "be fa4",
                    at=(name,),
                    why="the engine refuses: FA4 backend is only supported for prefill. Please "
                    "use `--prefill-attention-backend fa4` instead.",
                    fix=Fix(
                        "set prefill_attention_backend to fa4",
                        set={name: None, "prefill_attention_backend": "fa4"},
                    ),
                )
    if plan.user_value("prefill_attention_backend") == "cutedsl_mla":
        yield Verdict(
            "cutedsl_mla supports only decode: prefill_attention_backend cannot be cutedsl_mla",
            at=("prefill_attention_backend",),
            why="the engine stops: AssertionError: CuteDSL MLA only supports decoding for now",
            fix=Fix(
                "set decode_attention_backend to cutedsl_mla",
                set={"prefill_attention_backend": None, "decode_attention_backend": "cutedsl_mla"},
            ),
        )


_GPT_OSS = (
    ("0.5.1", ("triton", "trtllm_mha", "fa3")),
    ("0.5.3", ("fa4",)),
    ("0.5.8", ("ascend",)),
    ("0.5.10", ("aiter",)),
    ("0.5.11", ("intel_xpu",)),
    ("0.5.13", ("intel_amx",)),
)
_LLAMA4 = (
    ("0", ("fa3",)),
    ("0.5.1", ("aiter",)),
    ("0.5.2", ("triton",)),
    ("0.5.4", ("trtllm_mha",)),
    ("0.5.5", ("intel_xpu",)),
    ("0.5.10", ("ascend",)),
)
_GEMMA4 = (
    ("0.5.13", ("triton", "trtllm_mha", "intel_xpu")),
    ("0.5.14", ("ascend",)),
    ("0.5.18", ("intel_amx",)),
    ("0.5.20", ("aiter",)),
    ("0.5.22", ("fa4",)),
)
_EXAONE = (("0.5.9", ("fa3", "triton", "trtllm_mha")),)
"""First release and backends for EXAONE with sliding-window layers (`sliding_window_pattern`)."""
_MODEL_BACKEND_TARGETS = {
    "Exaone4ForCausalLM": _EXAONE,
    "ExaoneMoEForCausalLM": _EXAONE,
    "GptOssForCausalLM": _GPT_OSS,
    "Llama4ForConditionalGeneration": _LLAMA4,
    "Llama4ForCausalLM": _LLAMA4,
    "Gemma4ForCausalLM": _GEMMA4,
    "Gemma4ForConditionalGeneration": _GEMMA4,
    "Gemma4UnifiedForConditionalGeneration": _GEMMA4,
}


@rule("SPL323")
def model_backend(plan: Plan) -> Iterator[Verdict]:
    """Report a backend that the target's model class does not run on."""
    target = plan.facts.target
    if target is None or target.architecture not in _MODEL_BACKEND_TARGETS:
        return
    rows = _MODEL_BACKEND_TARGETS[target.architecture]
    known = [name for since, names in rows if plan.in_versions(f">={since}") for name in names]
    used: tuple[str | None, ...]
    if rows is _EXAONE and target.raw.get("sliding_window_pattern") is None:
        return
    if rows is _GPT_OSS and plan.in_versions(">=0.5.3"):
        used = attention_backends(plan)
    elif plan.in_versions(">=0.5.3") and runs_on_cpu(plan):
        return
    elif rows is _GEMMA4:
        used = attention_backends(plan)
    elif (rows is _LLAMA4 and plan.in_versions("<0.5.6")) or (
        rows is _EXAONE and plan.in_versions("<0.5.15")
    ):
        used = (plan.user_value("attention_backend"),)
    else:
        used = (attention_backend(plan),)
    for backend in dict.fromkeys(used):
        if known and backend not in known:
            problem = f"does not run on {backend}" if backend else "needs an attention_backend"
            yield Verdict(
                f"{target.architecture} {problem} in SGLang {plan.request.version}",
                at=BACKENDS,
                why=f"the engine accepts only {' or '.join(known)} for this model",
                fix=Fix(
                    f"use {known[0]}",
                    set={
                        "attention_backend": known[0],
                        "prefill_attention_backend": None,
                        "decode_attention_backend": None,
                    },
                ),
            )


_HYBRID_GDN_BACKEND_EARLY = ("Qwen3NextForCausalLM",)
_HYBRID_GDN_BACKEND_TARGETS = (
    *_HYBRID_GDN_BACKEND_EARLY,
    "Qwen3_5ForConditionalGeneration",
    "Qwen3_5MoeForConditionalGeneration",
)
"""Hybrid targets to check from 0.5.9 on. Rarer targets (JetNemotron, Intern-S2) are omitted."""
_ALLOWED = (
    (">=0.5.21", (10, 11), ("triton", "trtllm_mha", "fa4", "flashinfer")),
    (">=0.5.16", (10, 11), ("triton", "trtllm_mha", "fa4")),
    (">=0.5.16", (12,), ("triton", "trtllm_mha", "flashinfer")),
    (">=0.5.10", (10, 11, 12), ("triton", "trtllm_mha", "fa4", "flashinfer")),
    (">=0.5.9", (11,), ("triton", "trtllm_mha")),
    (">=0.5.5", (10, 12), ("triton", "trtllm_mha")),
    (">=0.5.4", (12,), ("triton",)),
    (">=0.5.3", (10,), ("triton",)),
)
"""Versions, GPU generations and allowed backends; the first matching row applies."""
_ONE_FIELD = "<0.5.16"
"""Releases that check only `attention_backend`, even if each phase has its own."""
_BOTH_OR_ONE = "<0.5.18"
"""Releases that check the backend of each phase if both are set, else `attention_backend`."""


@rule("SPL324")
def hybrid_gdn_backend(plan: Plan) -> Iterator[Verdict]:
    """Report an unsupported backend for a hybrid model with gated delta networks on Blackwell."""
    targets = (
        _HYBRID_GDN_BACKEND_EARLY if plan.in_versions("<0.5.9") else _HYBRID_GDN_BACKEND_TARGETS
    )
    if not has_architecture(plan, targets):
        return
    gpu = generation(plan)
    rows = (row for row in _ALLOWED if gpu in row[1] and plan.in_versions(row[0]))
    allowed = next((backends for _, _, backends in rows), None)
    if allowed is None:
        return
    for backend in dict.fromkeys(_looked_at(plan)):
        if backend in (*allowed, "fa3"):  # fa3 is refused earlier for any model: SPL319
            continue
        name = plan.facts.target.architecture if plan.facts.target is not None else "the target"
        yield Verdict(
            f"{name} does not run on {backend} on Blackwell GPUs in SGLang {plan.version}",
            at=BACKENDS,
            why=f"the engine stops during startup: only {', '.join(allowed)} are supported on "
            "Blackwell GPUs for hybrid GDN models",
            fix=Fix("use triton", set={"attention_backend": "triton", **dict.fromkeys(PHASES)}),
        )


def _looked_at(plan: Plan) -> tuple[str | None, ...]:
    if plan.in_versions(_ONE_FIELD):
        return (attention_backend(plan),)
    if plan.in_versions(_BOTH_OR_ONE) and not all(
        attention_backend(plan, phase) for phase in PHASES
    ):
        return (attention_backend(plan, BOTH),)
    return attention_backends(plan)


_FIRST = (
    "{} does not support triton attention backend, as the first layer might not be an attention "
    "layer"
)
_REFUSED_BACKEND_REFUSED = (
    ("NemotronHForCausalLM", ">=0.5.7,<0.5.19", "triton", _FIRST),
    ("NemotronHPuzzleForCausalLM", ">=0.5.13,<0.5.19", "triton", _FIRST),
    ("Lfm2ForCausalLM", ">=0.5.9", "triton", _FIRST),
    ("Lfm2MoeForCausalLM", ">=0.5.17", "triton", _FIRST),
    (
        "Olmo2ForCausalLM",
        ">=0.5.4",
        "flashinfer",
        "FlashInfer backend can significantly degrade the performance of Olmo3 models.",
    ),
)
"""Architecture, versions, backend, and the engine's message."""


@rule("SPL325")
def refused_backend(plan: Plan) -> Iterator[Verdict]:
    """Report an attention backend that the target's model class refuses."""
    requested = plan.user_value(BOTH)
    target = plan.facts.target
    for architecture, versions, backend, message in _REFUSED_BACKEND_REFUSED:
        if target is None or requested != backend or architecture_of(plan) != architecture:
            continue
        if plan.in_versions(versions):
            yield Verdict(
                f"{architecture} does not run on {backend} in SGLang {plan.version}",
                at=(BOTH,),
                why=f"the engine refuses: {message.format(architecture)}",
                fix=Fix("let the engine choose the backend", set={BOTH: None}),
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
        if _is_used_for_cache(plan, backend):
            yield Verdict(
                f"{backend} supports kv_cache_dtype {' or '.join(types)}, not {dtype}",
                at=("kv_cache_dtype", "decode_attention_backend", "attention_backend"),
                why="the engine refuses the type for this backend",
                fix=Fix("set kv_cache_dtype to fp8_e4m3", set={"kv_cache_dtype": "fp8_e4m3"}),
            )


def _is_used_for_cache(plan: Plan, backend: str) -> bool:
    """True if the backend decodes, or is set for both phases. Only trtllm_mla can be a default."""
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
(mem_cache/kv_cache_dtype.py:57), and by the parser from 0.5.21 on."""


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
                fix=Fix("let the engine choose the type", set={_DTYPE: None}),
            )


_SPARSE_KV_DTYPE_TYPES = ("auto", "bf16", "bfloat16", "fp8_e4m3")
_FAMILY = (
    "DeepseekV3ForCausalLM",
    "DeepseekV32ForCausalLM",
    "MistralLarge3ForCausalLM",
    "GlmMoeDsaForCausalLM",
    "LongcatFlashForCausalLM",
)
"""Architectures with sparse attention whose KV cache dtype all releases check."""


@rule("SPL326")
def sparse_kv_dtype(plan: Plan) -> Iterator[Verdict]:
    """Report a KV cache dtype that DeepSeek's sparse attention cannot read."""
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
        fix=Fix("set kv_cache_dtype to fp8_e4m3", set={_DTYPE: "fp8_e4m3"}),
    )


_FP4_KV_BACKEND_TYPES = ("nvfp4", "fp4_mx_block16")
_OLD_TYPE = "fp4_e2m1"
"""Former name of a KV cache dtype; 0.5.16 and later refuse it."""
_PLAIN: tuple[str, ...] = ("triton", "torch_native", "flex_attention", "trtllm_mha")
_FP4_KV_BACKEND_LATENT: tuple[str, ...] = ("flashinfer", "trtllm_mla", "cutlass_mla")
_FP4_KV_BACKEND_EARLY = "flashmla"
"""Backend that reads an FP4 cache with latent attention before 0.5.16, if it runs both phases.
`_FP4_KV_BACKEND_LATENT` lists the other such backends (0.5.20 and later reject cutlass_mla), and
`_PLAIN` those for models without latent attention. After a prefill on fa4, trtllm_mha cannot decode
(0.5.23 arg_groups/kv_cache_hook.py:275, 0.5.7 server_args.py:1733)."""


@rule("SPL327")
def fp4_kv_backend(plan: Plan) -> Iterator[Verdict]:
    """Report an FP4 KV cache on an attention backend that cannot read it."""
    requested = plan.user_value("kv_cache_dtype")
    if requested not in _FP4_KV_BACKEND_TYPES and not (
        requested == _OLD_TYPE and plan.in_versions(">=0.5.7,<0.5.16")
    ):
        return
    if generation(plan) is None:  # refused with any backend: SPL321
        return
    prefill, decode = attention_backends(plan)
    latent = is_mla(plan.facts.target)
    if prefill == "fa4":
        name, backend = "decode_attention_backend", decode
        known = _FP4_KV_BACKEND_LATENT if latent else _PLAIN[:-1]
    elif prefill == decode:
        name, backend = "attention_backend", attention_backend(plan)
        known = _FP4_KV_BACKEND_LATENT if latent else _PLAIN
        if latent and plan.in_versions("<0.5.16"):
            known = (*known, _FP4_KV_BACKEND_EARLY)
    else:
        return
    if backend not in known:
        yield Verdict(
            f"{backend} does not support a KV cache of type {requested}",
            at=("kv_cache_dtype", *BACKENDS),
            why=f"the engine refuses: KV4 expects {name} to be one of {', '.join(known)}",
            fix=Fix(f"use {known[0]}", set={name: known[0]}),
        )


_BACKEND = "trtllm_mha"
_BLACKWELL = 10
_ALG = "speculative_algorithm"
_NATIVE_FP4_CACHE_REFUSED = ("DFLASH", "DSPARK", "STANDALONE", "FROZEN_KV_MTP")
_BREADTH = "speculative_ngram_max_bfs_breadth"
_CACHES = ("enable_hierarchical_cache", "enable_lmcache")


@rule("SPL328")
def native_fp4_cache(plan: Plan) -> Iterator[Verdict]:
    """Report an NVFP4 KV cache in trtllm_mha's layout with features that do not support it."""
    if plan.user_value(_DTYPE) != "nvfp4" or generation(plan) != _BLACKWELL:
        return
    if _BACKEND not in {plan.user_value(phase) or plan.user_value(BOTH) for phase in PHASES}:
        return
    algorithm = str(plan.user_value(_ALG)).upper()
    if algorithm in _NATIVE_FP4_CACHE_REFUSED:
        yield _verdict_of_native_fp4_cache(
            f"does not work with {algorithm}", (_ALG,), "use EAGLE/NEXTN or NGRAM"
        )
    if algorithm == "NGRAM" and plan.value(_BREADTH) != 1:
        message = "NGRAM speculative decoding requires --speculative-ngram-max-bfs-breadth=1"
        yield _verdict_of_native_fp4_cache(
            f"needs {_BREADTH} 1 with NGRAM",
            (_BREADTH, _ALG),
            message,
            Fix(f"set {_BREADTH} to 1", set={_BREADTH: 1}),
        )
    draft = plan.user_value(DRAFT)
    if draft not in (None, _BACKEND) and algorithm not in ("NONE", "NGRAM"):
        message = "speculative decoding requires --speculative-draft-attention-backend=trtllm_mha"
        yield _verdict_of_native_fp4_cache(
            f"does not work with the draft's backend {draft}",
            (DRAFT,),
            message,
            Fix(f"set {DRAFT} to {_BACKEND}", set={DRAFT: _BACKEND}),
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


_OTHER_TYPE = Fix("use fp8_e4m3 for the KV cache", set={_DTYPE: "fp8_e4m3"})


def _verdict_of_native_fp4_cache(
    what: str, at: tuple[str, ...], engine_message: str, fix: Fix = _OTHER_TYPE
) -> Verdict:
    return Verdict(
        f"the native NVFP4 KV cache of trtllm_mha {what}",
        at=(*at, _DTYPE),
        why=f"the engine refuses: SM100 native NVFP4: {engine_message}",
        fix=fix,
    )
