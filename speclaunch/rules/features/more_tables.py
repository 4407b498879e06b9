"""More rows for the rules about single arguments and pairs: the newest and the rarest ones."""

from __future__ import annotations

from typing import Any

from speclaunch.plan.plan import Plan
from speclaunch.plan.topics import lora, parallel
from speclaunch.rules.features.tables import Needed, Number, is_on

_LORA_RUNNERS = ("lora_cutedsl", "lora_triton", "lora_marlin")


def _is_unlimited_or_positive(value: Any) -> bool:
    return bool(value == -1 or value > 0)


MORE_NUMBERS = (
    Number(
        "mamba_max_states_per_path",
        "-1 or at least 1",
        "--mamba-max-states-per-path must be -1 (unlimited) or a positive integer",
        _is_unlimited_or_positive,
    ),
)


def _never(_: Plan) -> bool:
    return False


MORE_NEEDS = (
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
            lora.is_on,
            value=runner,
        )
        for runner in _LORA_RUNNERS
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
        "a checkpoint that ModelOpt exported before",
        "quantize_and_serve functionality is currently disabled due to compatibility issues.",
        _never,
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
