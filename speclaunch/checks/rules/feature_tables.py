"""Tables of features that exclude or require each other, and of the values they accept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from speclaunch.checks.rules.interface import Fix, Verdict
from speclaunch.checks.rules.values import attention_backends
from speclaunch.engine import (
    BACKENDS,
    DRAFT,
    RENAMED_IN,
    Plan,
    UnknownValueError,
    architectures,
    parallel,
    serves_adapters,
)

# The engine's checks of single arguments and of pairs, as tables. Each row is one refusal of the
# engine: the names, the versions that refuse, and the engine's message.


class Number(Struct, frozen=True):
    """A number that the engine refuses below `least`, or if `allowed` returns False."""

    name: str
    least: int | None
    engine_message: str
    versions: str = ""
    on: Callable[[Plan], bool] = lambda _: True
    """True if the engine checks the number. Raises UnknownValueError."""
    requirement: str = ""
    """Requirement that `allowed` checks, for messages; if empty, they state `least`."""
    allowed: Callable[[Any], bool] | None = None

    def allows(self, value: Any) -> bool:
        return bool(value >= self.least) if self.allowed is None else self.allowed(value)


class FeaturePair(Struct, frozen=True):
    """Two arguments that exclude each other: the argument to remove, then the other."""

    name: str
    other: str
    engine_message: str
    versions: str = ""


class Needed(Struct, frozen=True):
    """An argument that the engine refuses unless `present` returns True for the plan."""

    name: str
    needs: str
    engine_message: str
    present: Callable[[Plan], bool]
    versions: str = ""
    value: Any = None
    """The value that the row applies to; None for any value."""


def is_on(plan: Plan, name: str) -> bool:
    """True if the effective value enables the argument."""
    return plan.value(name) not in (None, False, "", "none", "null")


NUMBERS = (
    # no rank is started, and the engine reads the answer of the first rank (seen on the CPU engine
    # 0.5.23)
    Number("tp_size", 1, "IndexError: list index out of range"),
    # 0.5.23 entrypoints/engine.py:2064 `nnodes // parallel.pp_size`
    Number("pp_size", 1, "ZeroDivisionError: integer division or modulo by zero"),
    Number("base_gpu_id", 0, "base_gpu_id must be non-negative"),
    Number("gpu_id_step", 1, "gpu_id_step must be positive"),
    Number("max_loras_per_batch", 1, "max_loras_per_batch must be positive", ">=0.5.1"),
    Number("tokenizer_worker_num", 1, "Tokenizer worker num must >= 1"),
    Number("detokenizer_worker_num", 1, "Detokenizer worker num must >= 1"),
    Number(
        "pp_max_micro_batch_size",
        1,
        "pp_max_micro_batch_size must be a positive integer or None (for auto-compute).",
        ">=0.5.11",
    ),
    Number(
        "schedule_conservativeness", 0, "schedule_conservativeness must be non-negative", ">=0.5.5"
    ),
    Number(
        "swa_full_tokens_ratio",
        None,
        "--swa-full-tokens-ratio should be in range (0, 1.0].",
        ">=0.5.7",
        requirement="above 0 and at most 1",
        allowed=lambda value: bool(0 < value <= 1),
    ),
    Number("swa_prefix_tails", 0, "--swa-prefix-tails should be a non-negative integer."),
    Number("dcp_size", 1, "Decode context parallel size must be >= 1"),
    Number("attn_dp_size", 1, "--attn-dp-size must be positive"),
    Number(
        "lora_drain_wait_threshold",
        0,
        "--lora-drain-wait-threshold must be non-negative.",
        on=serves_adapters,  # 0.5.12 server_args.py:7545, 0.5.23 arg_groups/lora_hook.py:176
    ),
    Number("prefill_decode_interval", 0, "--prefill-decode-interval must be non-negative."),
    Number(
        "prefill_decode_interval_min_bs",
        0,
        "--prefill-decode-interval-min-bs must be non-negative.",
    ),
    Number("mm_processor_worker_num", 0, "Multimodal processor worker num must >= 0"),
    Number("mm_io_worker_num", 0, "Multimodal I/O worker num must >= 0"),
    Number("sampling_mask_max_tokens", 1, "--sampling-mask-max-tokens must be positive"),
    Number(
        "mamba_max_states_per_path",
        None,
        "--mamba-max-states-per-path must be -1 (unlimited) or a positive integer",
        requirement="-1 or at least 1",
        allowed=lambda value: bool(value == -1 or value > 0),
    ),
)
PAIRS = (
    FeaturePair(
        "disable_radix_cache",
        "enable_hierarchical_cache",
        "The arguments enable-hierarchical-cache and disable-radix-cache are mutually exclusive",
        ">=0.5.1",
    ),
    FeaturePair(
        "enable_dynamic_batch_tokenizer",
        "enable_tokenizer_batch_encode",
        "Cannot enable both --enable-tokenizer-batch-encode and --enable-dynamic-batch-tokenizer.",
        ">=0.5.3",
    ),
    FeaturePair(
        "enable_lmcache",
        "enable_hierarchical_cache",
        "--enable-lmcache and --enable-hierarchical-cache are mutually exclusive",
        ">=0.5.21",
    ),
    FeaturePair(
        "disable_radix_cache",
        "enable_lmcache",
        "--enable-lmcache requires radix cache to be enabled",
        ">=0.5.21",
    ),
    FeaturePair(
        "enable_mixed_chunk",
        "enable_hisparse",
        "--enable-hisparse does not support --enable-mixed-chunk yet.",
        ">=0.5.22",
    ),
    FeaturePair(
        "language_only",
        "encoder_only",
        "Cannot set --encoder-only and --language-only together",
        ">=0.5.7",
    ),
    FeaturePair(
        "disaggregation_mode",
        "encoder_only",
        "Cannot set --encoder-only and --disaggregation-mode prefill/decode together",
        ">=0.5.7",
    ),
    FeaturePair(
        "enable_response_store",
        "disaggregation_mode",
        "--enable-response-store is not supported with --disaggregation-mode=prefill or decode",
        ">=0.5.20",
    ),
)


def _spreads_experts(plan: Plan) -> bool:
    """True if experts are spread over ranks.

    Up to 0.5.0rc2, one rank with an all-to-all backend also counts.
    """
    early = plan.in_versions("<0.5.1")
    return parallel.expert_ranks(plan) > 1 or (early and is_on(plan, "moe_a2a_backend"))


def _decodes(plan: Plan) -> bool:
    return bool(plan.value("disaggregation_mode") == "decode")


_OLDER_CP = ("enable_prefill_context_parallel", "enable_dsa_prefill_context_parallel")
"""Switches whose strategy comes from a separate argument with a default (0.5.18
server_args.py:6477)."""
NEEDS = (
    Needed(
        "disaggregation_decode_enable_offload_kvcache",
        "disaggregation_mode decode",
        "The argument disaggregation-decode-enable-offload-kvcache is only supported for decode "
        "side.",
        _decodes,
        ">=0.5.3",
    ),
    Needed(
        "disaggregation_decode_enable_offload_kvcache",
        "hicache_storage_backend",
        "The argument disaggregation-decode-enable-offload-kvcache is only supported when "
        "hicache-storage-backend is provided.",
        lambda plan: is_on(plan, "hicache_storage_backend") or not _decodes(plan),
        ">=0.5.10",
    ),
    # a decode server's radix cache is off before this check (0.5.23 arg_groups/pipeline.py:147 and
    # :334, 0.5.9 server_args.py:773 and :785, 0.5.1.post3 server_args.py:701 and :724)
    Needed(
        "enable_hierarchical_cache",
        "a radix cache, which a decode server has only with "
        "disaggregation_decode_enable_radix_cache (0.5.11 and later)",
        "The arguments enable-hierarchical-cache and disable-radix-cache are mutually exclusive",
        lambda plan: not _decodes(plan) or is_on(plan, "disaggregation_decode_enable_radix_cache"),
        ">=0.5.1",
    ),
    Needed(
        "disaggregation_decode_retraction_backup",
        "disaggregation_mode decode",
        "--disaggregation-decode-retraction-backup=host_pool is only supported on a PD decode "
        "server.",
        _decodes,
        value="host_pool",
    ),
    Needed(
        "export_metrics_to_file",
        "export_metrics_to_file_dir",
        "--export-metrics-to-file-dir is required when --export-metrics-to-file is enabled",
        lambda plan: plan.value("export_metrics_to_file_dir") is not None,
        ">=0.5.5",
    ),
    Needed(
        "retraction_policy",
        "enable_priority_scheduling",
        "--retraction-policy priority requires --enable-priority-scheduling",
        lambda plan: is_on(plan, "enable_priority_scheduling"),
        value="priority",
    ),
    Needed(
        "ssl_keyfile",
        "ssl_certfile",
        "--ssl-keyfile requires --ssl-certfile to be specified as well.",
        lambda plan: is_on(plan, "ssl_certfile"),
    ),
    Needed(
        "ssl_certfile",
        "ssl_keyfile",
        "--ssl-certfile requires --ssl-keyfile to be specified as well.",
        lambda plan: is_on(plan, "ssl_keyfile"),
    ),
    Needed(
        "enable_prefix_mm_cache",
        "encoder_only",
        "--enable-prefix-mm-cache requires --encoder-only to be enabled",
        lambda plan: is_on(plan, "encoder_only"),
        ">=0.5.7",
    ),
    Needed(
        "enable_prefill_cp",
        "cp_strategy",
        "--cp-strategy must be set when --enable-prefill-cp is enabled.",
        lambda plan: any(is_on(plan, name) for name in ("cp_strategy", *_OLDER_CP)),
        ">=0.5.14",
    ),
    Needed(
        "enable_watermark",
        "device cuda",
        "--enable-watermark requires --device cuda",
        lambda plan: plan.device == "cuda",
    ),
    Needed(
        "watermark_config",
        "enable_watermark",
        "--watermark-config requires --enable-watermark",
        lambda plan: is_on(plan, "enable_watermark"),
    ),
    # 0.4.9.post5 server_args.py:475, 0.4.10 :469
    Needed(
        "enable_eplb",
        "enable_ep_moe or enable_deepep_moe",
        "an assertion without a message: enable_ep_moe or enable_deepep_moe",
        lambda plan: is_on(plan, "enable_ep_moe") or is_on(plan, "enable_deepep_moe"),
        ">=0.4.9.post5,<0.4.10.post2",
    ),
    # 0.4.10.post2 server_args.py:509 `ep_size > 1 or moe_a2a_backend is not None`, 0.5.1 :587
    Needed(
        "enable_eplb",
        "ep_size above 1",
        "an assertion without a message: ep_size > 1",
        _spreads_experts,
        ">=0.4.10.post2",
    ),
    Needed(
        "enable_two_batch_overlap",
        "moe_a2a_backend",
        "When enabling two batch overlap, moe_a2a_backend cannot be 'none'.",
        lambda plan: is_on(plan, "moe_a2a_backend"),
        ">=0.5.7,<0.5.15",
    ),
    Needed(
        "enable_two_batch_overlap",
        "moe_a2a_backend, or DP attention",
        "When enabling two batch overlap without an EP a2a backend, attention DP is required",
        lambda plan: is_on(plan, "moe_a2a_backend") or parallel.is_on(plan),
        ">=0.5.15",
    ),
    Needed(
        # 0.5.12 server_args.py:1068, 0.5.23 arg_groups/serving_hook.py:85
        "enable_ssl_refresh",
        "ssl_certfile and ssl_keyfile",
        "--enable-ssl-refresh requires --ssl-certfile and --ssl-keyfile to be specified.",
        lambda plan: is_on(plan, "ssl_certfile") and is_on(plan, "ssl_keyfile"),
    ),
    Needed(
        # 0.5.8 server_args.py:4903, gone after 0.5.10
        "multi_item_scoring_delimiter",
        "disable_radix_cache",
        "Multi-item scoring requires radix cache to be disabled.",
        lambda plan: is_on(plan, "disable_radix_cache"),
    ),
    Needed(
        # 0.5.23 arg_groups/kv_cache_hook.py:784
        "enable_page_major_kv_layout",
        "enable_unified_memory",
        "--enable-page-major-kv-layout without --enable-unified-memory is temporarily unsupported",
        lambda plan: is_on(plan, "enable_unified_memory"),
        ">=0.5.19",
    ),
    Needed(
        # 0.5.18 arg_groups/overrides.py:2436, 0.5.23 :1430
        "enable_tp_lm_head_all_to_all",
        "DP attention",
        "--enable-tp-lm-head-all-to-all requires attention DP (--attn-dp-size).",
        parallel.is_on,
    ),
    *(
        Needed(
            # 0.5.23 arg_groups/lora_hook.py:202
            "moe_runner_backend",
            "enable_lora or lora_paths",
            f"--moe-runner-backend {runner} requires --enable-lora (or --lora-paths)",
            serves_adapters,
            value=runner,
        )
        for runner in ("lora_cutedsl", "lora_triton", "lora_marlin")
    ),
    Needed(
        # 0.5.21 arg_groups/validation_hook.py:393
        "sampling_backend",
        "device xpu",
        "--sampling-backend intel_xpu requires --device xpu",
        lambda plan: plan.device == "xpu",
        value="intel_xpu",
    ),
    Needed(
        # 0.5.12.post1 server_args.py:7394, 0.5.23 arg_groups/validation_hook.py:353
        "enable_quant_communications",
        "device npu",
        "Communications quantization is only supported for NPU device",
        lambda plan: plan.device == "npu",
    ),
    Needed(
        # 0.5.12.post1 configs/model_config.py:1110, 0.5.23 :1993
        "quantize_and_serve",
        "a checkpoint exported by ModelOpt",
        "quantize_and_serve functionality is currently disabled due to compatibility issues.",
        lambda _: False,
    ),
    Needed(
        # 0.5.23 arg_groups/hicache_hook.py:43
        "enable_linker_mla_dedup",
        "enable_unified_cache_external_linker with the backend mooncake",
        "--enable-linker-mla-dedup requires the Mooncake linker.",
        lambda plan: (
            is_on(plan, "enable_unified_cache_external_linker")
            and plan.value("unified_cache_external_linker_backend") == "mooncake"
        ),
    ),
    Needed(
        # 0.5.23 arg_groups/kv_cache_hook.py:387
        "radix_eviction_policy",
        "radix_eviction_policy_config with a threshold",
        "--radix-eviction-policy tlru needs 'threshold' greater than 'next_prompt_estimate' in "
        "--radix-eviction-policy-config",
        lambda plan: is_on(plan, "radix_eviction_policy_config"),
        value="tlru",
    ),
)


# Attention backends that SGLang audited for speculation in the unified memory pool. They pass on
# the pool's virtual page numbers when a draft is verified; the engine refuses all others. Sources:
# SGLang 0.5.18 server_args.py:8326 (to 0.5.21 arg_groups/kv_cache_hook.py: 555), 0.5.22
# arg_groups/kv_cache_hook.py:478 to 646, 0.5.23 :479 to 652.
POOL = "enable_unified_memory"
_EAGLE = ("EAGLE", "EAGLE3")


def unaudited(plan: Plan) -> Iterator[Verdict]:
    """Yield a verdict for each model whose backend lacks support for the unified memory pool.

    Only algorithms that support the pool are checked. Raises UnknownValueError.
    """
    if not plan.value(POOL):
        return
    allowed = _of_target(plan)
    if allowed is None:
        return
    used = dict.fromkeys(str(name) for name in attention_backends(plan))
    if used.keys() - allowed:
        yield _refused(plan, "the target", used, allowed, BACKENDS)
    if plan.algorithm in _EAGLE:
        own = plan.value(DRAFT)
        drafts = dict.fromkeys([str(own)]) if own else used
        if drafts.keys() - _heads(plan):
            yield _refused(plan, "the draft", drafts, _heads(plan), (DRAFT, *BACKENDS))


def _of_target(plan: Plan) -> frozenset[str] | None:
    """Return the backends that the pool allows for the target; None if the engine allows any.

    Raises UnknownValueError.
    """
    algorithm = plan.algorithm
    if plan.in_versions("<0.5.22"):
        return _LATENT_FIRST  # DSPARK: the pool supports no other algorithm
    if algorithm in _EAGLE:
        return _latent(plan) if _is_latent(plan) else _heads(plan)
    if algorithm not in ("DSPARK", "DFLASH"):
        return None
    found = _heads(plan) if algorithm == "DFLASH" else _latent(plan)
    if algorithm == "DSPARK" and plan.in_versions(">=0.5.23"):
        found |= {"fa4"}
    return found - {"flashinfer"} if int(plan.value("dcp_size") or 1) > 1 else found


_LATENT_FIRST = frozenset({"triton", "trtllm_mla", "cutedsl_mla", "tokenspeed_mla"})
"""Backends that the unified memory pool allows for DSPARK in 0.5.18 to 0.5.21."""


def _latent(plan: Plan) -> frozenset[str]:
    """Return the engine's `_SPEC_VERIFY_AUDITED_BACKENDS`, without names that it replaces."""
    found = _LATENT_FIRST | {"flashmla", "flashinfer", "fa3"}
    return found - {"tokenspeed_mla"} if plan.in_versions(RENAMED_IN) else found


def _heads(plan: Plan) -> frozenset[str]:
    """Return the engine's `TRANSLATED_MHA_RAILS` (0.5.22) or `_SPEC_MHA_AUDITED_BACKENDS`."""
    found = frozenset({"triton", "flashinfer", "fa3"})
    return found | {"trtllm_mha"} if plan.in_versions(">=0.5.23") else found


def _is_latent(plan: Plan) -> bool:
    target = plan.facts.target
    found = None if target is None else architectures(plan.request.version).uses_mla(target)
    if found is None:
        raise UnknownValueError("the architecture of the target is unknown")
    return found


def _refused(
    plan: Plan, whose: str, used: dict[str, None], allowed: frozenset[str], at: tuple[str, ...]
) -> Verdict:
    what = DRAFT if at[0] == DRAFT else "attention_backend"
    changes: dict[str, object] = {what: "triton"}
    if what != DRAFT:
        changes |= dict.fromkeys(BACKENDS[1:])
    return Verdict(
        f"the unified memory pool does not support {plan.algorithm} on {', '.join(used)}: "
        f"{whose} needs one of {', '.join(sorted(allowed))}",
        at=(*at, POOL),
        why=f"the engine refuses: --enable-unified-memory + {plan.algorithm} requires {whose} on "
        f"the spec-verify-audited attention backends {sorted(allowed)}",
        fix=Fix(f"set {what} to triton", set=changes),
    )
