"""What the engine asks of single arguments and of pairs of them, as tables of rows.

Each row is one refusal of the engine: the names, the versions that refuse, and its own words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from speclaunch.plan.plan import Plan
from speclaunch.plan.topics import lora, parallel
from speclaunch.record import record


@record
class Number:
    """A number that the engine refuses outside of `allowed`."""

    name: str
    wanted: str
    said: str
    allowed: Callable[[Any], bool]
    versions: str = ""
    on: Callable[[Plan], bool] = lambda _: True
    """Whether the engine looks at it. Raises UnknownValueError."""


@record
class Pair:
    """Two arguments that are not both on: the one to take away, and the other."""

    name: str
    other: str
    said: str
    versions: str = ""


@record
class Needed:
    """An argument that is refused unless `present` holds of the plan."""

    name: str
    needs: str
    said: str
    present: Callable[[Plan], bool]
    versions: str = ""
    value: Any = None
    """The value that the row is about; None: any that is set."""


def is_on(plan: Plan, name: str) -> bool:
    """Whether the effective value switches something on."""
    return plan.value(name) not in (None, False, "", "none", "null")


def is_at_least(lowest: float) -> Callable[[Any], bool]:
    """Whether a number is at least `lowest`."""
    return lambda value: bool(value >= lowest)


def is_fraction(value: Any) -> bool:
    """Whether a number is above 0 and at most 1."""
    return bool(0 < value <= 1)


NUMBERS = (
    # no rank is started, and the first one's answer is looked up (seen on the CPU engine 0.5.23)
    Number("tp_size", "at least 1", "IndexError: list index out of range", is_at_least(1)),
    # 0.5.23 entrypoints/engine.py:2064 `nnodes // parallel.pp_size`
    Number(
        "pp_size",
        "at least 1",
        "ZeroDivisionError: integer division or modulo by zero",
        is_at_least(1),
    ),
    Number("base_gpu_id", "at least 0", "base_gpu_id must be non-negative", is_at_least(0)),
    Number("gpu_id_step", "at least 1", "gpu_id_step must be positive", is_at_least(1)),
    Number(
        "max_loras_per_batch",
        "at least 1",
        "max_loras_per_batch must be positive",
        is_at_least(1),
        ">=0.5.1",
    ),
    Number(
        "tokenizer_worker_num",
        "at least 1",
        "Tokenizer worker num must >= 1",
        is_at_least(1),
    ),
    Number(
        "detokenizer_worker_num",
        "at least 1",
        "Detokenizer worker num must >= 1",
        is_at_least(1),
    ),
    Number(
        "pp_max_micro_batch_size",
        "at least 1",
        "pp_max_micro_batch_size must be a positive integer or None (for auto-compute).",
        is_at_least(1),
        ">=0.5.11",
    ),
    Number(
        "schedule_conservativeness",
        "at least 0",
        "schedule_conservativeness must be non-negative",
        is_at_least(0),
        ">=0.5.5",
    ),
    Number(
        "swa_full_tokens_ratio",
        "above 0 and at most 1",
        "--swa-full-tokens-ratio should be in range (0, 1.0].",
        is_fraction,
        ">=0.5.7",
    ),
    Number(
        "swa_prefix_tails",
        "at least 0",
        "--swa-prefix-tails should be a non-negative integer.",
        is_at_least(0),
    ),
    Number(
        "dcp_size",
        "at least 1",
        "Decode context parallel size must be >= 1",
        is_at_least(1),
    ),
    Number("attn_dp_size", "at least 1", "--attn-dp-size must be positive", is_at_least(1)),
    Number(
        "lora_drain_wait_threshold",
        "at least 0",
        "--lora-drain-wait-threshold must be non-negative.",
        is_at_least(0),
        on=lora.is_on,  # 0.5.12 server_args.py:7545, 0.5.23 arg_groups/lora_hook.py:176
    ),
    Number(
        "prefill_decode_interval",
        "at least 0",
        "--prefill-decode-interval must be non-negative.",
        is_at_least(0),
    ),
    Number(
        "prefill_decode_interval_min_bs",
        "at least 0",
        "--prefill-decode-interval-min-bs must be non-negative.",
        is_at_least(0),
    ),
    Number(
        "mm_processor_worker_num",
        "at least 0",
        "Multimodal processor worker num must >= 0",
        is_at_least(0),
    ),
    Number(
        "mm_io_worker_num",
        "at least 0",
        "Multimodal I/O worker num must >= 0",
        is_at_least(0),
    ),
    Number(
        "sampling_mask_max_tokens",
        "at least 1",
        "--sampling-mask-max-tokens must be positive",
        is_at_least(1),
    ),
)

PAIRS = (
    Pair(
        "disable_radix_cache",
        "enable_hierarchical_cache",
        "The arguments enable-hierarchical-cache and disable-radix-cache are mutually exclusive",
        ">=0.5.1",
    ),
    Pair(
        "enable_dynamic_batch_tokenizer",
        "enable_tokenizer_batch_encode",
        "Cannot enable both --enable-tokenizer-batch-encode and --enable-dynamic-batch-tokenizer.",
        ">=0.5.3",
    ),
    Pair(
        "enable_lmcache",
        "enable_hierarchical_cache",
        "--enable-lmcache and --enable-hierarchical-cache are mutually exclusive",
        ">=0.5.21",
    ),
    Pair(
        "disable_radix_cache",
        "enable_lmcache",
        "--enable-lmcache requires radix cache to be enabled",
        ">=0.5.21",
    ),
    Pair(
        "enable_mixed_chunk",
        "enable_hisparse",
        "--enable-hisparse does not support --enable-mixed-chunk yet.",
        ">=0.5.22",
    ),
    Pair(
        "language_only",
        "encoder_only",
        "Cannot set --encoder-only and --language-only together",
        ">=0.5.7",
    ),
    Pair(
        "disaggregation_mode",
        "encoder_only",
        "Cannot set --encoder-only and --disaggregation-mode prefill/decode together",
        ">=0.5.7",
    ),
    Pair(
        "enable_response_store",
        "disaggregation_mode",
        "--enable-response-store is not supported with --disaggregation-mode=prefill or decode",
        ">=0.5.20",
    ),
)


def _exchanges_experts(plan: Plan) -> bool:
    return is_on(plan, "enable_ep_moe") or is_on(plan, "enable_deepep_moe")


def _spreads_experts(plan: Plan) -> bool:
    """Up to 0.5.0rc2 a backend is enough, also of one rank."""
    early = plan.in_versions("<0.5.1")
    return parallel.expert_ranks(plan) > 1 or (early and is_on(plan, "moe_a2a_backend"))


def _decodes(plan: Plan) -> bool:
    return bool(plan.value("disaggregation_mode") == "decode")


_OLDER_CP = ("enable_prefill_context_parallel", "enable_dsa_prefill_context_parallel")
"""What chooses a strategy by an argument with a default (0.5.18 server_args.py:6477)."""
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
    # a decode server's radix cache is off before that is checked (0.5.23 arg_groups/pipeline.py:147
    # and :334, 0.5.9 server_args.py:773 and :785, 0.5.1.post3 server_args.py:701 and :724)
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
        _exchanges_experts,
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
)
