"""What people write for an argument: plausible values, the usual ones more often."""

from __future__ import annotations

from random import Random

from speclaunch.engine.releases.argument import Argument, ArgumentKind, Plain

OFTEN: dict[str, dict[str, int]] = {
    "attention_backend": {"fa3": 6, "flashinfer": 6, "triton": 5, "trtllm_mha": 3, "trtllm_mla": 3},
    "kv_cache_dtype": {"fp8_e4m3": 8, "fp8_e5m2": 4, "auto": 2, "bf16": 2},
    "quantization": {"fp8": 8, "modelopt_fp4": 3, "awq": 2, "gptq": 1, "w8a8_fp8": 2},
    "moe_runner_backend": {"triton": 4, "deep_gemm": 4, "flashinfer_trtllm": 4, "cutlass": 1},
    "moe_a2a_backend": {"deepep": 8, "none": 1, "flashinfer": 2},
    "disaggregation_transfer_backend": {"mooncake": 6, "nixl": 6, "fake": 1},
    "dtype": {"bfloat16": 6, "auto": 3, "float16": 2},
    "load_format": {"auto": 3, "dummy": 4, "safetensors": 2},
    "sampling_backend": {"flashinfer": 3, "pytorch": 3},
}
"""How often choices are written, against 1 for each other choice of the release."""

NUMBERS: dict[str, tuple[Plain, ...]] = {
    "page_size": (1, 1, 16, 32, 64, 64, 128, 256),
    "chunked_prefill_size": (-1, 2048, 4096, 8192, 16384, 32768),
    "mem_fraction_static": (0.7, 0.8, 0.85, 0.88, 0.9),
    "max_running_requests": (1, 16, 48, 64, 128, 256, 1024),
    "context_length": (4096, 8192, 16384, 32768, 65536, 131072, 262144),
    "max_total_tokens": (65536, 200000),
    "max_prefill_tokens": (8192, 16384, 32768),
    "schedule_conservativeness": (0.3, 0.5, 1.0),
    "cuda_graph_max_bs": (1, 16, 64, 128, 256),
    "cuda_graph_max_bs_decode": (1, 16, 64, 128, 256),
    "moe_dense_tp_size": (1, 1, 2),
    "max_loras_per_batch": (1, 4, 8),
    "max_lora_rank": (8, 16, 64),
    "hicache_ratio": (1.5, 2, 4),
    "hicache_size": (0, 30, 100),
    "ep_num_redundant_experts": (16, 32),
    "num_continuous_decode_steps": (2, 4),
    "torch_compile_max_bs": (4, 16),
    "stream_interval": (1, 4, 10),
    "random_seed": (1, 42),
    "tokenizer_worker_num": (1, 4),
    "mamba_track_interval": (64, 128, 256),
    "max_mamba_cache_size": (64, 256),
    "swa_full_tokens_ratio": (0.1, 0.5),
    "triton_attention_num_kv_splits": (8, 16),
    "speculative_attention_mode": ("prefill", "decode"),
    "speculative_draft_window_size": (512, 1024),
    "lora_target_modules": ("all", "q_proj", "o_proj"),
    "lora_paths": ("en=adapters/en",),
    "watchdog_timeout": (300, 3600),
    "cpu_offload_gb": (8,),
    "dcp_size": (2, 4, 8),
    "attn_cp_size": (2, 4, 8),
    "moe_dp_size": (2, 4),
    "dwdp_size": (2,),
    "pp_max_micro_batch_size": (1, 8),
    "pp_async_batch_depth": (0, 2),
}
"""Values of arguments that take a number or a text, as recipes and manifests have them."""

_PLAIN_TYPES = ("int", "float", "human_readable_int")


def words_for(argument: Argument, random: Random) -> list[str] | None:
    """One argument as words; None where nothing plausible is known for it."""
    kind = argument.kind
    if kind in (ArgumentKind.FLAG, ArgumentKind.BOOLEAN, ArgumentKind.FLAG_OFF):
        return [argument.flag]
    if not kind.takes_value:
        return None
    value = _value(argument, random)
    return None if value is None else [argument.flag, str(value)]


def _value(argument: Argument, random: Random) -> Plain:
    if argument.choices:
        often = OFTEN.get(argument.name, {})
        choices = [choice for choice in argument.choices if choice is not None]
        return random.choices(choices, [often.get(str(choice), 1) for choice in choices])[0]
    if argument.name in NUMBERS:
        return random.choice(NUMBERS[argument.name])
    if argument.type not in _PLAIN_TYPES:
        return None
    default = argument.default
    if isinstance(default, int | float) and default:
        return random.choice([default, default, default * 2])
    return random.choice([1, 2, 4]) if argument.type == "int" else None
