"""What the engine loads of a target's own multi-token-prediction layer."""

from __future__ import annotations

import re
from collections.abc import Callable

from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.reads.safe_json import size
from speclaunch.rules.checkpoints.dimensions import (
    Dimensions,
    attention,
    dimensions,
    flag,
    known,
    mlp,
    norms,
)
from speclaunch.rules.checkpoints.loader import Expected, Loader

_OF_BOTH = ("model.embed_tokens.weight", "lm_head.weight")
"""What target and draft share."""
_COPIES = ("shared_head.head", "embed_tokens", "rotary")
"""Parts of names in the layer that its loader skips."""
_MOST_EXPERTS = 4096
"""None has more; a config that says so is not worked out."""


def glm4_moe(target: Checkpoint, version: str) -> Loader | None:
    """`Glm4MoeForCausalLMNextN`: the layer behind the last one."""
    del version
    sizes = dimensions(target)
    if sizes is None:
        return None
    experts = _experts(target, sizes, correction=True)
    if experts is None:
        return None
    own = attention(
        "", sizes, sizes.hidden, qkv_bias=flag(target.config, "attention_bias"), o_bias=False
    )
    if flag(target.config, "use_qk_norm"):
        own |= norms("self_attn.", sizes.head_dim, "q_norm", "k_norm")
    return _nextn(sizes, own | experts, "Glm4MoeForCausalLMNextN", "glm4_moe.py:1071")


def deepseek(target: Checkpoint, version: str) -> Loader | None:
    """`DeepseekV3ForCausalLMNextN`: the layer behind the last one, with latent attention."""
    del version
    sizes = dimensions(target)
    if sizes is None:
        return None
    correction = target.config.get("topk_method") == "noaux_tc"
    own, experts = _latent(target, sizes), _experts(target, sizes, correction=correction)
    if own is None or experts is None:
        return None
    source = "deepseek_common/deepseek_weight_loader.py:552"
    return _nextn(sizes, own | experts, "DeepseekV3ForCausalLMNextN", source)


def _nextn(sizes: Dimensions, own: dict[str, Expected], name: str, source: str) -> Loader:
    """The layer of DeepSeek's kind: `enorm`, `hnorm`, `eh_proj`, a block, `shared_head.norm`."""
    layer = 0 if sizes.layers == 1 else sizes.layers
    at = f"model.layers.{layer}."
    own |= norms("", sizes.hidden, "input_layernorm", "post_attention_layernorm")
    own |= norms("", sizes.hidden, "enorm", "hnorm", "shared_head.norm")
    own["eh_proj.weight"] = Expected((sizes.hidden, 2 * sizes.hidden))
    expected = {f"{at}{part}": said for part, said in own.items()} | _shared(sizes)

    def place(found: str) -> str | None:
        if found in expected:
            return found
        if not found.startswith(at):
            return None if _of_target(found, sizes.layers) else found
        return None if any(part in found for part in _COPIES) else found

    return Loader(name, f"sglang 0.5.23 models/{source}", expected, place)


def _of_target(name: str, layers: int) -> bool:
    """Whether a tensor is one of the target's: its layers, and what is no layer."""
    layer = re.match(r"model\.layers\.([0-9]{1,6})\.", name)
    return int(layer[1]) < layers if layer else not re.search(r"mtp|nextn|layers?\.", name)


def _shared(sizes: Dimensions) -> dict[str, Expected]:
    """What the draft takes from the target, which loads it in this shape."""
    found = {"model.embed_tokens.weight": Expected((sizes.vocabulary, sizes.hidden), needed=False)}
    if not sizes.tied:
        found["lm_head.weight"] = Expected((sizes.vocabulary, sizes.hidden), needed=False)
    return found


def _experts(
    target: Checkpoint, sizes: Dimensions, *, correction: bool
) -> dict[str, Expected] | None:
    config = target.config
    said = known(
        size(config.get("n_routed_experts"), most=_MOST_EXPERTS),
        size(config.get("moe_intermediate_size")),
    )
    if said is None:
        return None
    count, width = said
    found = {"mlp.gate.weight": Expected((count, sizes.hidden))}
    if correction:
        found["mlp.gate.e_score_correction_bias"] = Expected((count,))
    for expert in range(count):
        found |= mlp(f"mlp.experts.{expert}.", sizes.hidden, width)
    shared = size(config.get("n_shared_experts"))
    if shared:
        found |= mlp("mlp.shared_experts.", sizes.hidden, width * shared)
    return found


def _latent(target: Checkpoint, sizes: Dimensions) -> dict[str, Expected] | None:
    """Multi-head latent attention (models/deepseek_v2.py DeepseekV2AttentionMLA)."""
    config = target.config
    keys = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    said = known(*(size(config.get(key)) for key in keys))
    if said is None:
        return None
    rank, nope, rope, value = said
    queries, hidden = sizes.heads * (nope + rope), sizes.hidden
    at = "self_attn."
    found = {
        f"{at}kv_a_proj_with_mqa.weight": Expected((rank + rope, hidden)),
        f"{at}kv_a_layernorm.weight": Expected((rank,)),
        f"{at}kv_b_proj.weight": Expected((sizes.heads * (nope + value), rank)),
        f"{at}o_proj.weight": Expected((hidden, sizes.heads * value)),
    }
    low = size(config.get("q_lora_rank"))
    if low is None:
        return found | {f"{at}q_proj.weight": Expected((queries, hidden))}
    return found | {
        f"{at}q_a_proj.weight": Expected((low, hidden)),
        f"{at}q_a_layernorm.weight": Expected((low,)),
        f"{at}q_b_proj.weight": Expected((queries, low)),
    }


def mimo(target: Checkpoint, version: str) -> Loader | None:
    """`MiMoMTP`: `model.mtp_layers.0.`, a block of Qwen2 between two norms and a projection."""
    del version
    sizes = dimensions(target)
    if sizes is None:
        return None
    at, hidden = "model.mtp_layers.0.", sizes.hidden
    expected = {
        f"{at}input_proj.weight": Expected((hidden, 2 * hidden)),
        **norms(at, hidden, "token_layernorm", "hidden_layernorm", "final_layernorm"),
        **norms(at, hidden, "input_layernorm", "post_attention_layernorm"),
        **attention(at, sizes, hidden, qkv_bias=True, o_bias=False),
        **mlp(f"{at}mlp.", hidden, sizes.intermediate),
        **_shared(sizes),
    }
    source = "sglang 0.5.23 models/mimo_mtp.py:122"
    return Loader("MiMoMTP", source, expected, _mtp_place("mtp"))


def qwen3_next(target: Checkpoint, version: str) -> Loader | None:
    """`Qwen3NextForCausalLMMTP`: `mtp.`, a layer with gated attention and experts."""
    del version
    sizes = dimensions(target)
    config = target.config
    said = known(
        size(config.get("num_experts"), most=_MOST_EXPERTS),
        size(config.get("moe_intermediate_size")),
    )
    if sizes is None or said is None:
        return None
    count, width = said
    hidden, layer = sizes.hidden, "mtp.layers.0."
    expected = {
        "mtp.fc.weight": Expected((hidden, 2 * hidden)),
        **norms("mtp.", hidden, "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"),
        **norms(layer, hidden, "input_layernorm", "post_attention_layernorm"),
        **attention(layer, sizes, hidden, qkv_bias=False, o_bias=False),
        **norms(f"{layer}self_attn.", sizes.head_dim, "q_norm", "k_norm"),
        f"{layer}mlp.gate.weight": Expected((count, hidden)),
        **_shared(sizes),
    }
    if flag(config, "attn_output_gate", default=True):  # the queries come with a gate each
        rows = 2 * sizes.heads * sizes.head_dim
        expected[f"{layer}self_attn.q_proj.weight"] = Expected((rows, hidden))
    for expert in range(count):
        expected |= mlp(f"{layer}mlp.experts.{expert}.", hidden, width)
    shared = size(config.get("shared_expert_intermediate_size"))
    if shared:
        expected |= mlp(f"{layer}mlp.shared_expert.", hidden, shared)
        expected[f"{layer}mlp.shared_expert_gate.weight"] = Expected((1, hidden))
    return Loader(
        "Qwen3NextForCausalLMMTP",
        "sglang 0.5.23 models/qwen3_next.py:1138",
        expected,
        _mtp_place("mtp"),
        zero_is_one=True,
    )


def _mtp_place(mark: str) -> Callable[[str], str | None]:
    """Only what is called so is the draft's."""

    def place(name: str) -> str | None:
        return name if mark in name or name in _OF_BOTH else None

    return place
