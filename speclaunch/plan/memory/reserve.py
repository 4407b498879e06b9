"""What graphs and activations take: estimates, by the engine's own rules of thumb
(`topics/memory.py`), which mean to be on the safe side; the least is what the tensors of
one layer need.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.plan.budget import Size
from speclaunch.plan.memory.estimate import MIB, NOTHING, Estimate, in_gib
from speclaunch.plan.memory.free import number
from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.plan.resolution.graphs import captured_sizes
from speclaunch.plan.topics import graphs as graphs_topic
from speclaunch.plan.topics import memory
from speclaunch.plan.topics.parallel import attention_ranks

_TOKEN = int(memory.TOKEN * MIB)
_CONSTANT = memory.OWN * MIB
_WORKSPACE = 256 * MIB
"""The least of it: the workspace of one backend (flashinfer's is 384 MiB, fa3's smaller)."""
_FEWEST_TOKENS = memory.FEWEST_TOKENS
_DECODE = memory.DECODE_GRAPH * MIB
_PREFILL = memory.PREFILL_GRAPH * MIB
_PREFILL_LATENT = memory.PREFILL_GRAPHS_LATENT * MIB
_LOWEST = 2
"""Graphs take at least half of the rule of thumb."""


def has_graphs(plan: Plan) -> bool:
    """Whether decode is captured. Raises UnknownValueError."""
    return graphs_topic.decode_is_captured(plan)


def graphs(plan: Plan, *, draft: bool = False) -> Estimate:
    """CUDA graphs of the target, or of the draft. Raises UnknownValueError."""
    if not has_graphs(plan):
        return NOTHING
    sizes = captured_sizes(plan)
    most = max(sizes, default=0)
    size = most * _DECODE
    why = f"2 MiB for each of {most} requests in the largest graph"
    if draft:
        return _estimate(size, f"{why} of the draft")
    ranks = attention_ranks(plan)
    if ranks > 1:
        size += most * ranks * memory.DECODE_GRAPH_RANK * MIB
        why += f", 3 MiB more for each of {ranks} attention ranks"
    prefill, text = _prefill(plan)
    return _estimate(size + prefill, why + text)


def _prefill(plan: Plan) -> tuple[int, str]:
    on = graphs_topic.prefill_is_captured(plan)
    sizes = list(plan.value("cuda_graph_bs_prefill") or ()) if on else []
    if not sizes:
        return 0, ""
    if plan.facts.target is not None and plan.facts.target.kv_lora_rank is not None:
        return _PREFILL_LATENT, f", {in_gib(_PREFILL_LATENT)} for graphs of prefill"
    return len(sizes) * _PREFILL, f", 8 MiB for each of {len(sizes)} graphs of prefill"


def _estimate(size: int, why: str) -> Estimate:
    return Estimate(Size(size, why, exact=False), size // _LOWEST)


def activations(plan: Plan) -> Estimate:
    """What a batch needs while it runs. Raises UnknownValueError."""
    tokens = _tokens(plan)
    size = _CONSTANT + max(tokens, _FEWEST_TOKENS) * _TOKEN
    why = f"1.5 MiB for each of {max(tokens, _FEWEST_TOKENS):,} tokens of a prefill, and 0.5 GiB"
    workspace = 0 if plan.device.startswith("cpu") else _WORKSPACE
    least = workspace + tokens * _layer(plan) + _verification(plan)
    return Estimate(Size(size, why, exact=False), min(least, size))


def _tokens(plan: Plan) -> int:
    """Tokens of the largest batch. An estimate that is not known counts as small: it leaves the
    rest of the budget to be told."""
    try:
        return _batch(plan)
    except UnknownValueError:
        return 0


def _batch(plan: Plan) -> int:
    if plan.value("disaggregation_mode") == "decode":
        drafts = number(plan, "speculative_num_draft_tokens") if plan.algorithm else 1
        return number(plan, "max_running_requests") * drafts
    chunk = number(plan, "chunked_prefill_size", -1)
    return chunk if chunk > 0 else number(plan, "max_prefill_tokens", 16384)


def _layer(plan: Plan) -> int:
    """Bytes of one token in one layer: hidden states (in, out, residual, attention) and the
    feed-forward part (gate, up, their product), 2 bytes a number. 0 where it cannot be told."""
    target = plan.facts.target
    if target is None or target.hidden_size is None:
        return 0
    shard = max(1, number(plan, "tp_size") // attention_ranks(plan))
    return 2 * (4 * target.hidden_size + 3 * _width(target) // shard)


def _width(target: Checkpoint) -> int:
    """The width of the feed-forward part that a token passes."""
    config: Mapping[str, Any] = target.config
    if target.is_moe:
        width, experts = config.get("moe_intermediate_size"), config.get("num_experts_per_tok")
        if isinstance(width, int) and isinstance(experts, int):
            return width * experts
    width = config.get("intermediate_size")
    return width if isinstance(width, int) else 0


def _verification(plan: Plan) -> int:
    """The logits of the drafts of all requests, 4 bytes each."""
    target = plan.facts.target
    if plan.algorithm is None or target is None or target.vocab_size is None:
        return 0
    try:
        running = number(plan, "max_running_requests", 0)
        return running * number(plan, "speculative_num_draft_tokens", 0) * target.vocab_size * 4
    except UnknownValueError:
        return 0
