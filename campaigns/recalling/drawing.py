"""Draws command lines of a server, as people write them.

Names and choices are those of the release, from speclaunch's catalogue. A command line is a model,
its parallelism, and a few topics, each with its usual companions: who writes `--dp-size` often
writes `--enable-dp-attention`. One in four has one or two arguments of any kind, for what nobody
thought of. The same seed draws the same command line for a release and a directory of models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from msgspec import Struct

from campaigns.recalling.values import words_for
from speclaunch.engine.facts.known_models import drafts_for
from speclaunch.engine.releases.argument import Argument, ArgumentKind, Plain
from speclaunch.engine.releases.catalogue import Catalogue

TOPICS: dict[str, tuple[float, tuple[tuple[str, float], ...]]] = {
    "attention": (
        0.3,
        (
            ("attention_backend", 0.85),
            ("prefill_attention_backend", 0.12),
            ("decode_attention_backend", 0.15),
            ("mm_attention_backend", 0.05),
            ("sampling_backend", 0.05),
        ),
    ),
    "kv": (
        0.3,
        (
            ("kv_cache_dtype", 0.6),
            ("page_size", 0.5),
            ("disable_radix_cache", 0.12),
            ("radix_eviction_policy", 0.05),
        ),
    ),
    "quantization": (0.15, (("quantization", 0.9), ("dtype", 0.15))),
    "memory": (
        0.5,
        (
            ("mem_fraction_static", 0.5),
            ("chunked_prefill_size", 0.35),
            ("max_running_requests", 0.35),
            ("context_length", 0.25),
            ("max_prefill_tokens", 0.05),
            ("max_total_tokens", 0.04),
            ("cpu_offload_gb", 0.03),
            ("swa_full_tokens_ratio", 0.03),
        ),
    ),
    "graphs": (
        0.2,
        (
            ("cuda_graph_max_bs", 0.4),
            ("cuda_graph_max_bs_decode", 0.4),
            ("disable_cuda_graph", 0.25),
            ("enable_torch_compile", 0.2),
            ("disable_piecewise_cuda_graph", 0.08),
            ("cuda_graph_backend_prefill", 0.08),
            ("cuda_graph_backend_decode", 0.05),
        ),
    ),
    "lora": (
        0.06,
        (
            ("enable_lora", 0.6),
            ("lora_paths", 0.55),
            ("max_loras_per_batch", 0.3),
            ("max_lora_rank", 0.4),
            ("lora_target_modules", 0.35),
            ("lora_backend", 0.35),
            ("enable_lora_overlap_loading", 0.2),
            ("max_loaded_loras", 0.15),
        ),
    ),
    "disaggregation": (
        0.08,
        (
            ("disaggregation_mode", 1.0),
            ("disaggregation_transfer_backend", 0.6),
            ("disaggregation_decode_enable_radix_cache", 0.1),
            ("disaggregation_decode_enable_offload_kvcache", 0.1),
            ("num_reserved_decode_tokens", 0.1),
            ("disaggregation_decode_tp", 0.05),
            ("disaggregation_prefill_pp", 0.05),
            ("enable_pd_role_switch", 0.03),
        ),
    ),
    "hicache": (
        0.06,
        (
            ("enable_hierarchical_cache", 0.95),
            ("hicache_ratio", 0.4),
            ("hicache_size", 0.3),
            ("hicache_io_backend", 0.4),
            ("hicache_mem_layout", 0.4),
            ("hicache_write_policy", 0.3),
            ("hicache_storage_backend", 0.3),
        ),
    ),
    "schedule": (
        0.2,
        (
            ("schedule_policy", 0.3),
            ("disable_overlap_schedule", 0.25),
            ("enable_mixed_chunk", 0.25),
            ("schedule_conservativeness", 0.2),
            ("enable_priority_scheduling", 0.1),
            ("enable_two_batch_overlap", 0.1),
            ("enable_single_batch_overlap", 0.08),
            ("num_continuous_decode_steps", 0.1),
            ("stream_interval", 0.1),
        ),
    ),
    "deterministic": (
        0.04,
        (("enable_deterministic_inference", 1.0), ("rl_on_policy_target", 0.1)),
    ),
    "serving": (
        0.25,
        (
            ("reasoning_parser", 0.4),
            ("tool_call_parser", 0.4),
            ("trust_remote_code", 0.3),
            ("enable_metrics", 0.2),
            ("load_format", 0.1),
            ("grammar_backend", 0.1),
            ("tokenizer_worker_num", 0.05),
            ("skip_tokenizer_init", 0.05),
            ("is_embedding", 0.03),
        ),
    ),
}
"""How often a topic is written of, and how often each of its arguments then."""

MOE = (
    ("moe_runner_backend", 0.3),
    ("moe_a2a_backend", 0.25),
    ("deepep_mode", 0.12),
    ("enable_eplb", 0.08),
    ("moe_dense_tp_size", 0.1),
    ("ep_num_redundant_experts", 0.06),
    ("disable_shared_experts_fusion", 0.05),
)
MAMBA = (
    ("mamba_radix_cache_strategy", 0.25),
    ("mamba_scheduler_strategy", 0.25),
    ("mamba_ssm_dtype", 0.2),
    ("mamba_track_interval", 0.08),
    ("max_mamba_cache_size", 0.08),
    ("mamba_backend", 0.08),
    ("linear_attn_backend", 0.12),
)
SPARSE = (
    ("dsa_prefill_backend", 0.12),
    ("dsa_decode_backend", 0.12),
    ("nsa_prefill_backend", 0.12),
    ("nsa_decode_backend", 0.12),
)
SPECULATIVE = (
    ("speculative_draft_attention_backend", 0.1),
    ("speculative_attention_mode", 0.08),
    ("speculative_draft_model_quantization", 0.06),
    ("speculative_moe_runner_backend", 0.05),
    ("speculative_token_map", 0.02),
    ("speculative_draft_window_size", 0.03),
    ("speculative_adaptive", 0.03),
    ("speculative_use_rejection_sampling", 0.03),
    ("enable_multi_layer_eagle", 0.06),
    ("speculative_draft_kv_cache_dtype", 0.03),
)
SHAPES = ((3, 1, 4), (3, 1, 4), (5, 4, 8), (1, 1, 2), (3, 4, 16), (5, 8, 64), (2, 1, 3), (7, 1, 8))
ALGORITHMS = {"EAGLE3": 8, "EAGLE": 8, "NEXTN": 5, "NGRAM": 4, "STANDALONE": 2, "DFLASH": 2}
SPECULATING = 0.33
ANYTHING = 0.25
"""How often one or two arguments of any kind are added."""

_OWN_WAY = ("host", "port", "model_path", "tp_size", "dp_size", "ep_size", "pp_size", "device")
_MAMBA_SIGNS = ("mamba_d_conv", "linear_num_key_heads", "mamba_num_heads", "conv_L_cache")
_NOT_PLAUSIBLE = ("help", "config", "nnodes", "node_rank", "dist_init_addr", "api_key")


class Models(Struct, frozen=True):
    """Models that can be drawn, and the `config.json` of each."""

    targets: tuple[str, ...]
    drafts: tuple[str, ...]
    configs: Mapping[str, Mapping[str, Any]]


class _Drawing:
    """One command line while it is drawn."""

    def __init__(self, catalogue: Catalogue, random: Random) -> None:
        self.catalogue, self.random = catalogue, random
        self.words: list[str] = []
        self.given: set[str] = set()

    def add(self, name: str, value: Plain = None) -> None:
        """An argument, if the release has it and it does not stand there yet."""
        argument = self.catalogue.by_name(name)
        if argument is None or argument.dest in self.given:
            return
        words = [argument.flag, str(value)] if value is not None else self._drawn(argument)
        if words is not None:
            self.given.add(argument.dest)
            self.words += words

    def _drawn(self, argument: Argument) -> list[str] | None:
        return words_for(argument, self.random)

    def some(self, table: Sequence[tuple[str, float]]) -> None:
        """Each of a table's arguments as often as it says."""
        for name, share in table:
            if self.chance(share):
                self.add(name)

    def chance(self, share: float) -> bool:
        """Whether it is drawn, of `share` of all."""
        return self.random.random() < share


def draw(seed: str, catalogue: Catalogue, models: Models) -> list[str]:
    """The words after `python -m sglang.launch_server` of one seed."""
    drawing = _Drawing(catalogue, Random(seed))  # noqa: S311
    target = drawing.random.choice(models.targets)
    config = models.configs[target]
    drawing.add("model_path", target)
    _parallelism(drawing, config)
    if drawing.chance(SPECULATING):
        _speculation(drawing, target, models)
    for share, table in TOPICS.values():
        if drawing.chance(share):
            drawing.some(table)
    if _is_moe(config) and drawing.chance(0.6):
        drawing.some(MOE)
    if any(_has(config, sign) for sign in _MAMBA_SIGNS) and drawing.chance(0.5):
        drawing.some(MAMBA)
    if _has(config, "index_topk") and drawing.chance(0.5):
        drawing.some(SPARSE)
    if drawing.chance(ANYTHING):
        for name in drawing.random.sample(_anything(catalogue), drawing.random.choice((1, 1, 2))):
            drawing.add(name)
    return drawing.words


def _anything(catalogue: Catalogue) -> list[str]:
    """Arguments of all kinds, but for addresses, secrets and what topics draw in their own way."""
    return sorted(
        argument.name
        for argument in catalogue.arguments.values()
        if argument.kind not in (ArgumentKind.REFUSED, ArgumentKind.HELP, ArgumentKind.IGNORED)
        and argument.name not in (*_OWN_WAY, *_NOT_PLAUSIBLE)
        and not argument.name.startswith(("ssl_", "remote_instance", "elastic_ep", "decoupled"))
    )


def _parallelism(drawing: _Drawing, config: Mapping[str, Any]) -> None:
    random = drawing.random
    tp = random.choice((1, 1, 2, 4, 4, 8, 8, 8, 16))
    if tp > 1:
        drawing.add("tp_size", tp)
    if tp == 16:
        drawing.add("nnodes", 2)
        drawing.add("node_rank", random.choice((0, 1)))
        drawing.add("dist_init_addr", "10.0.0.1:5000")
    if drawing.chance(0.15):
        drawing.add("dp_size", random.choice((2, 4, 8, tp)))
        if drawing.chance(0.65):
            drawing.add("enable_dp_attention")
            drawing.some((("enable_dp_lm_head", 0.3), ("load_balance_method", 0.1)))
    if drawing.chance(0.3 if _is_moe(config) else 0.02):
        drawing.add("ep_size", random.choice((tp, tp, 2, 4, 8)))
    if drawing.chance(0.05):
        drawing.add("pp_size", random.choice((2, 2, 4)))
    drawing.some((("attn_cp_size", 0.02), ("dcp_size", 0.02), ("moe_dp_size", 0.01)))
    drawing.some((("enable_prefill_cp", 0.01), ("enable_nsa_prefill_context_parallel", 0.01)))


def _speculation(drawing: _Drawing, target: str, models: Models) -> None:
    random, catalogue = drawing.random, drawing.catalogue
    argument = catalogue.by_name("speculative_algorithm")
    known = (argument.choices if argument else None) or tuple(ALGORITHMS)
    drafts = [pair for pair in drafts_for(target) if pair.draft in models.configs]
    own = [pair for pair in drafts if pair.algorithm in known]
    pair = random.choice(own) if own and drawing.chance(0.7) else None
    names = [name for name in ALGORITHMS if name in known]
    weights = [ALGORITHMS[name] for name in names]
    algorithm = pair.algorithm if pair else random.choices(names, weights)[0]
    drawing.add("speculative_algorithm", algorithm)
    if pair is not None:
        drawing.add("speculative_draft_model_path", pair.draft)
    elif algorithm in ("EAGLE3", "STANDALONE", "DFLASH") and drawing.chance(0.8):
        others = models.drafts or models.targets
        drawing.add("speculative_draft_model_path", random.choice(others))
    if algorithm == "NGRAM":
        drawing.some((("speculative_num_draft_tokens", 0.4), ("speculative_ngram_match_type", 0.1)))
    elif algorithm not in ("DFLASH", "DSPARK", "UNO") and drawing.chance(0.75):
        steps, topk, tokens = random.choice(SHAPES)
        drawing.add("speculative_num_steps", steps)
        drawing.add("speculative_eagle_topk", topk)
        drawing.add("speculative_num_draft_tokens", tokens)
    drawing.some(SPECULATIVE)
    if drawing.chance(0.02) and catalogue.by_name("enable_linear_replayssm_spec"):
        drawing.add("enable_linear_replayssm_spec")


def _has(config: Mapping[str, Any], key: str) -> bool:
    text = config.get("text_config")
    return key in config or (isinstance(text, Mapping) and key in text)


def _is_moe(config: Mapping[str, Any]) -> bool:
    signs = ("num_experts", "n_routed_experts", "num_local_experts", "moe_intermediate_size")
    return any(_has(config, sign) for sign in signs)
