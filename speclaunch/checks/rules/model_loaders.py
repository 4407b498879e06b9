"""Tensors that each model class of the engine loads."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from speclaunch.checks.rules.loading import (
    Dimensions,
    ExpectedTensor,
    Loader,
    attention,
    dimensions,
    flag,
    known,
    mlp,
    norms,
)
from speclaunch.core import mapping, size
from speclaunch.engine import Checkpoint, within

_EAGLE_LOADERS_LAYERS = ">=0.5.12"
"""Releases in which an EAGLE-3 draft may have several layers, and may read any number of hidden
states, each with its own norm (0.5.12 models/llama_eagle3.py). They also accept the first layer's
old name, `midlayer`."""
_MODEL_PREFIX = ">=0.4.9"
"""Releases in which the prefix `model.` of a tensor name is optional, and `fc` has a bias only if
the config declares it (0.4.9 models/llama_eagle3.py)."""
_TARGETS_HEAD = ">=0.5.2"
"""Releases in which a draft without `draft_vocab_size` uses the target's output layer."""
_ONE_NORM = ">=0.5.17"
_LEGACY = {
    "midlayer": "layers.0",
    "aux_norm_low": "fc_norm.0",
    "aux_norm_mid": "fc_norm.1",
    "aux_norm_high": "fc_norm.2",
}
_SKIPPED = ("rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached", "projector")
"""Substrings of tensor names that `load_weights` of models/llama.py and similar classes skips."""


def eagle3(draft: Checkpoint, version: str) -> Loader | None:
    """Return the loader of `LlamaForCausalLMEagle3`; None if the config is incomplete."""
    sizes = dimensions(draft)
    if sizes is None:
        return None
    config, hidden = draft.config, sizes.hidden
    several = within(version, _EAGLE_LOADERS_LAYERS)
    inputs = draft.target_hidden_size or hidden
    states = aux_hidden_states(draft, version)
    layers = sizes.layers if several else 1
    expected = {"fc.weight": ExpectedTensor((hidden, inputs * states)), **norms("", hidden, "norm")}
    if flag(config, "bias") or not within(version, _MODEL_PREFIX):
        expected["fc.bias"] = ExpectedTensor((hidden,), needed=flag(config, "bias"))
    inner = mapping(config.get("eagle_config"))
    if inner.get("norm_before_fc", config.get("norm_before_fc")) and within(version, _ONE_NORM):
        expected |= norms("", inputs * states, "input_norm")
    if several and (config.get("fc_norm") or config.get("use_aux_norm")):
        expected |= norms("fc_norm.", inputs, *map(str, range(states)))
    bias = _llama_bias(draft)
    for layer in range(layers):
        at = f"layers.{layer}."
        width = hidden if layer else 2 * hidden
        # the class creates its own qkv_proj without a bias; o_proj stays Llama's
        expected |= attention(at, sizes, width, qkv_bias=False, o_bias=bias)
        expected |= mlp(f"{at}mlp.", hidden, sizes.intermediate)
        expected |= norms(at, hidden, "hidden_norm", "input_layernorm", "post_attention_layernorm")
    shared = draft.target_hidden_size in (None, hidden)
    embedding = ExpectedTensor((sizes.vocabulary, hidden), needed=not shared, used=not shared)
    expected["embed_tokens.weight"] = embedding
    reduced = draft.draft_vocab_size
    if not sizes.tied:
        rows = reduced or sizes.vocabulary
        from_target = reduced is None and within(version, _TARGETS_HEAD)
        own = not from_target
        expected["lm_head.weight"] = ExpectedTensor((rows, hidden), needed=own, used=own)
    if reduced is not None and reduced != sizes.vocabulary:
        expected["d2t"] = ExpectedTensor((reduced,))
    return Loader(
        "LlamaForCausalLMEagle3",
        "sglang 0.5.23 models/llama_eagle3.py:325",
        expected,
        _eagle3_place(version, tied=sizes.tied),
        layers,
    )


def aux_hidden_states(draft: Checkpoint, version: str) -> int:
    """Return how many of the target's hidden states an EAGLE-3 draft's `fc` reads."""
    if not within(version, _EAGLE_LOADERS_LAYERS):
        return 3
    count = size(draft.config.get("num_aux_hidden_states"))
    listed = mapping(draft.config.get("eagle_config")).get("eagle_aux_hidden_state_layer_ids")
    return count or (len(listed) if isinstance(listed, list) and listed else 3)


def _eagle3_place(version: str, *, tied: bool) -> Callable[[str], str | None]:
    several, optional = within(version, _EAGLE_LOADERS_LAYERS), within(version, _MODEL_PREFIX)

    def place(name: str) -> str | None:
        if "rotary_emb" in name:
            return None
        if "d2t" in name:
            return "d2t"
        if "t2d" in name or (tied and name.endswith("lm_head.weight")):
            return None
        if optional:
            name = name.removeprefix("model.")
        if several:
            for old, new in _LEGACY.items():
                name = name.replace(old, new)
            return name
        if name.startswith("layers."):
            return f"unknown.{name}"
        return name.replace("midlayer.", "layers.0.")

    return place


def eagle(draft: Checkpoint, version: str) -> Loader | None:
    """Return the loader of `LlamaForCausalLMEagle` or `Qwen2ForCausalLMEagle`.

    None if the config is incomplete.
    """
    del version  # the same in all releases
    sizes = dimensions(draft)
    if sizes is None:
        return None
    qwen = draft.architecture == "Qwen2ForCausalLMEagle"
    expected = {
        "fc.weight": ExpectedTensor((sizes.hidden, 2 * sizes.hidden)),
        # a missing bias starts near zero (torch.nn.Linear)
        "fc.bias": ExpectedTensor((sizes.hidden,), needed=False),
        # loaded, then replaced by the target's
        "embed_tokens.weight": ExpectedTensor(
            (sizes.vocabulary, sizes.hidden), needed=False, used=False
        ),
    }
    bias = _llama_bias(draft)
    for layer in range(sizes.layers):
        at = f"layers.{layer}."
        expected |= attention(
            at, sizes, sizes.hidden, qkv_bias=qwen or bias, o_bias=bias and not qwen
        )
        expected |= mlp(f"{at}mlp.", sizes.hidden, sizes.intermediate)
        expected |= norms(at, sizes.hidden, "post_attention_layernorm")
        if layer:
            expected |= norms(at, sizes.hidden, "input_layernorm")

    def place(name: str) -> str | None:
        skipped = "lm_head" in name or any(part in name for part in _SKIPPED)
        return None if skipped or name == "layers.0.input_layernorm.weight" else name

    source = "models/qwen2_eagle.py" if qwen else "models/llama_eagle.py:146"
    name = draft.architecture or "LlamaForCausalLMEagle"
    return Loader(name, f"sglang 0.5.23 {source}", expected, place, sizes.layers)


def complete_model(checkpoint: Checkpoint, version: str) -> Loader | None:
    """Return the loader of a dense Llama, Mistral or Qwen2/3; None if the config is incomplete."""
    del version
    sizes = dimensions(checkpoint)
    if sizes is None:
        return None
    name = checkpoint.architecture or ""
    qwen2, qwen3 = name.startswith("Qwen2"), name.startswith("Qwen3")
    bias = _llama_bias(checkpoint) if not qwen2 else True
    expected = {
        "model.embed_tokens.weight": ExpectedTensor((sizes.vocabulary, sizes.hidden)),
        **norms("model.", sizes.hidden, "norm"),
    }
    if not sizes.tied:
        expected["lm_head.weight"] = ExpectedTensor((sizes.vocabulary, sizes.hidden))
    for layer in range(sizes.layers):
        at = f"model.layers.{layer}."
        expected |= attention(at, sizes, sizes.hidden, qkv_bias=bias, o_bias=bias and not qwen2)
        expected |= mlp(f"{at}mlp.", sizes.hidden, sizes.intermediate)
        expected |= norms(at, sizes.hidden, "input_layernorm", "post_attention_layernorm")
        if qwen3:
            expected |= norms(f"{at}self_attn.", sizes.head_dim, "q_norm", "k_norm")
    source = "qwen3.py" if qwen3 else "qwen2.py" if qwen2 else "llama.py:708"
    place = _full_model_place(sizes, prefix=qwen2 or qwen3)
    return Loader(name, f"sglang 0.5.23 models/{source}", expected, place, sizes.layers)


def _full_model_place(sizes: Dimensions, *, prefix: bool) -> Callable[[str], str | None]:
    def place(name: str) -> str | None:
        if any(part in name for part in _SKIPPED) or (sizes.tied and name == "lm_head.weight"):
            return None
        if prefix and name.startswith(("layers.", "embed_tokens.", "norm.")):
            return f"model.{name}"
        return name

    return place


def _llama_bias(checkpoint: Checkpoint) -> bool:
    """True if attention has biases (models/llama.py LlamaDecoderLayer)."""
    return flag(checkpoint.config, "attention_bias") or flag(checkpoint.config, "bias")


_ALIASES = {
    "encoder.fc.weight": "fc.weight",
    "encoder.output_norm_enc.weight": "hidden_norm.weight",
}
_HEADS = ("prefix_gru.", "embed_proj.", "attention_conv.", "mlp_conv.", "embed_tokens.", "lm_head.")
"""Substrings of the names of tensors that only some DFlash variants (Domino, Nemotron) have. These
tensors are not checked."""


def dflash(draft: Checkpoint, version: str) -> Loader | None:
    """Return the loader of `DFlashDraftModel`; None if the config is incomplete."""
    del version
    sizes = dimensions(draft)
    if sizes is None or not sizes.layers:
        return None
    config, hidden = draft.config, sizes.hidden
    # without a list, one state per layer (build_target_layer_ids of dflash_utils.py)
    states = len(draft.aux_hidden_layers) or sizes.layers
    expected = {
        "fc.weight": ExpectedTensor((hidden, states * hidden)),
        **norms("", hidden, "hidden_norm", "norm"),
    }
    bias = flag(config, "attention_bias")
    for layer in range(sizes.layers):
        at = f"layers.{layer}."
        expected |= attention(at, sizes, hidden, qkv_bias=bias, o_bias=bias)
        expected |= mlp(f"{at}mlp.", hidden, sizes.intermediate)
        expected |= norms(at, hidden, "input_layernorm", "post_attention_layernorm")
        expected |= norms(f"{at}self_attn.", sizes.head_dim, "q_norm", "k_norm")

    def place(name: str) -> str | None:
        name = _ALIASES.get(name, name).removeprefix("model.")
        if "rotary" in name or any(part in name for part in _HEADS):
            return None
        return name

    gemma = flag(config, "use_gemma_norm")
    source = "sglang 0.5.23 models/dflash.py:886"
    return Loader("DFlashDraftModel", source, expected, place, sizes.layers, has_offset_norms=gemma)


def mask_token(draft: Checkpoint) -> int | None:
    """Return the ID of the mask token, a placeholder for tokens to draft; None if it is not set.

    `mask_token_id` in `dflash_config` overrides the top-level key (parse_dflash_draft_config).
    """
    inner = mapping(draft.config.get("dflash_config")).get("mask_token_id")
    return (
        size(inner, least=0)
        if inner is not None
        else size(draft.config.get("mask_token_id"), least=0)
    )


_OF_BOTH = ("model.embed_tokens.weight", "lm_head.weight")
"""Tensors that target and draft share."""
_COPIES = ("shared_head.head", "embed_tokens", "rotary")
"""Substrings of the names of draft-layer tensors that the engine's loader skips."""
_MOST_EXPERTS = 4096
"""Maximum number of experts; a config with more is not evaluated."""


def glm4_moe(target: Checkpoint, version: str) -> Loader | None:
    """Return the loader of `Glm4MoeForCausalLMNextN`; None if the config is incomplete."""
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
    """Return the loader of `DeepseekV3ForCausalLMNextN`; None if the config is incomplete."""
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


def _nextn(sizes: Dimensions, own: dict[str, ExpectedTensor], name: str, source: str) -> Loader:
    """Return the loader of a draft layer in DeepSeek's layout, after the target's last layer.

    It has `enorm`, `hnorm`, `eh_proj`, a block (`own`) and `shared_head.norm`.
    """
    layer = 0 if sizes.layers == 1 else sizes.layers
    at = f"model.layers.{layer}."
    own |= norms("", sizes.hidden, "input_layernorm", "post_attention_layernorm")
    own |= norms("", sizes.hidden, "enorm", "hnorm", "shared_head.norm")
    own["eh_proj.weight"] = ExpectedTensor((sizes.hidden, 2 * sizes.hidden))
    expected = {f"{at}{part}": tensor for part, tensor in own.items()} | _shared(sizes)

    def place(found: str) -> str | None:
        if found in expected:
            return found
        if not found.startswith(at):
            return None if _of_target(found, sizes.layers) else found
        return None if any(part in found for part in _COPIES) else found

    return Loader(name, f"sglang 0.5.23 models/{source}", expected, place)


def _of_target(name: str, layers: int) -> bool:
    """True if `name` is in one of the target's `layers` layers, or in no layer."""
    layer = re.match(r"model\.layers\.([0-9]{1,6})\.", name)
    return int(layer[1]) < layers if layer else not re.search(r"mtp|nextn|layers?\.", name)


def _shared(sizes: Dimensions) -> dict[str, ExpectedTensor]:
    found = {
        "model.embed_tokens.weight": ExpectedTensor((sizes.vocabulary, sizes.hidden), needed=False)
    }
    if not sizes.tied:
        found["lm_head.weight"] = ExpectedTensor((sizes.vocabulary, sizes.hidden), needed=False)
    return found


def _experts(
    target: Checkpoint, sizes: Dimensions, *, correction: bool
) -> dict[str, ExpectedTensor] | None:
    config = target.config
    numbers = known(
        size(config.get("n_routed_experts"), most=_MOST_EXPERTS),
        size(config.get("moe_intermediate_size")),
    )
    if numbers is None:
        return None
    count, width = numbers
    found = {"mlp.gate.weight": ExpectedTensor((count, sizes.hidden))}
    if correction:
        found["mlp.gate.e_score_correction_bias"] = ExpectedTensor((count,))
    for expert in range(count):
        found |= mlp(f"mlp.experts.{expert}.", sizes.hidden, width)
    shared = size(config.get("n_shared_experts"))
    if shared:
        found |= mlp("mlp.shared_experts.", sizes.hidden, width * shared)
    return found


def _latent(target: Checkpoint, sizes: Dimensions) -> dict[str, ExpectedTensor] | None:
    """Return the tensors of latent attention (models/deepseek_v2.py DeepseekV2AttentionMLA)."""
    config = target.config
    keys = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    numbers = known(*(size(config.get(key)) for key in keys))
    if numbers is None:
        return None
    rank, nope, rope, value = numbers
    queries, hidden = sizes.heads * (nope + rope), sizes.hidden
    at = "self_attn."
    found = {
        f"{at}kv_a_proj_with_mqa.weight": ExpectedTensor((rank + rope, hidden)),
        f"{at}kv_a_layernorm.weight": ExpectedTensor((rank,)),
        f"{at}kv_b_proj.weight": ExpectedTensor((sizes.heads * (nope + value), rank)),
        f"{at}o_proj.weight": ExpectedTensor((hidden, sizes.heads * value)),
    }
    low = size(config.get("q_lora_rank"))
    if low is None:
        return found | {f"{at}q_proj.weight": ExpectedTensor((queries, hidden))}
    return found | {
        f"{at}q_a_proj.weight": ExpectedTensor((low, hidden)),
        f"{at}q_a_layernorm.weight": ExpectedTensor((low,)),
        f"{at}q_b_proj.weight": ExpectedTensor((queries, low)),
    }


def mimo(target: Checkpoint, version: str) -> Loader | None:
    """Return the loader of `MiMoMTP` (`model.mtp_layers.0.`); None if the config is incomplete.

    The layer is a Qwen2 block between two norms and a projection.
    """
    del version
    sizes = dimensions(target)
    if sizes is None:
        return None
    at, hidden = "model.mtp_layers.0.", sizes.hidden
    expected = {
        f"{at}input_proj.weight": ExpectedTensor((hidden, 2 * hidden)),
        **norms(at, hidden, "token_layernorm", "hidden_layernorm", "final_layernorm"),
        **norms(at, hidden, "input_layernorm", "post_attention_layernorm"),
        **attention(at, sizes, hidden, qkv_bias=True, o_bias=False),
        **mlp(f"{at}mlp.", hidden, sizes.intermediate),
        **_shared(sizes),
    }
    source = "sglang 0.5.23 models/mimo_mtp.py:122"
    return Loader("MiMoMTP", source, expected, _mtp_place("mtp"))


def qwen3_next(target: Checkpoint, version: str) -> Loader | None:
    """Return the loader of `Qwen3NextForCausalLMMTP` (`mtp.`); None if the config is incomplete."""
    del version
    sizes = dimensions(target)
    config = target.config
    numbers = known(
        size(config.get("num_experts"), most=_MOST_EXPERTS),
        size(config.get("moe_intermediate_size")),
    )
    if sizes is None or numbers is None:
        return None
    count, width = numbers
    hidden, layer = sizes.hidden, "mtp.layers.0."
    expected = {
        "mtp.fc.weight": ExpectedTensor((hidden, 2 * hidden)),
        **norms("mtp.", hidden, "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"),
        **norms(layer, hidden, "input_layernorm", "post_attention_layernorm"),
        **attention(layer, sizes, hidden, qkv_bias=False, o_bias=False),
        **norms(f"{layer}self_attn.", sizes.head_dim, "q_norm", "k_norm"),
        f"{layer}mlp.gate.weight": ExpectedTensor((count, hidden)),
        **_shared(sizes),
    }
    if flag(config, "attn_output_gate", default=True):  # each query has a gate
        rows = 2 * sizes.heads * sizes.head_dim
        expected[f"{layer}self_attn.q_proj.weight"] = ExpectedTensor((rows, hidden))
    for expert in range(count):
        expected |= mlp(f"{layer}mlp.experts.{expert}.", hidden, width)
    shared = size(config.get("shared_expert_intermediate_size"))
    if shared:
        expected |= mlp(f"{layer}mlp.shared_expert.", hidden, shared)
        expected[f"{layer}mlp.shared_expert_gate.weight"] = ExpectedTensor((1, hidden))
    return Loader(
        "Qwen3NextForCausalLMMTP",
        "sglang 0.5.23 models/qwen3_next.py:1138",
        expected,
        _mtp_place("mtp"),
        has_offset_norms=True,
    )


def _mtp_place(mark: str) -> Callable[[str], str | None]:

    def place(name: str) -> str | None:
        return name if mark in name or name in _OF_BOTH else None

    return place


_Find = Callable[[Checkpoint, str], Loader | None]
_DRAFTS: Mapping[str, _Find] = MappingProxyType(
    {
        "LlamaForCausalLMEagle3": eagle3,
        "LlamaForCausalLMEagle": eagle,
        "Qwen2ForCausalLMEagle": eagle,
        "DFlashDraftModel": dflash,
    }
)
_LOADERS_LAYERS: Mapping[str, _Find] = MappingProxyType(
    {
        "Glm4MoeForCausalLM": glm4_moe,
        "Glm4MoeForCausalLMNextN": glm4_moe,
        "DeepseekV3ForCausalLM": deepseek,
        "DeepseekV3ForCausalLMNextN": deepseek,
        "MiMoForCausalLM": mimo,
        "Qwen3NextForCausalLM": qwen3_next,
    }
)
"""Functions that build the loader of a built-in draft layer, by the model's class."""
_FULL_MODELS = frozenset(
    {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}
)


def find_loader(checkpoint: Checkpoint, argument: str, *, drafts: bool) -> _Find | None:
    """Return the function that builds a checkpoint's loader; None if no loader is known.

    `argument` names the checkpoint. `drafts`: find a draft's loader, not a target's.
    """
    name = checkpoint.architecture or ""
    if drafts and name in _LOADERS_LAYERS:
        return _LOADERS_LAYERS[name]
    if argument == "model_path" and drafts:
        return None
    return complete_model if name in _FULL_MODELS else _DRAFTS.get(name)


def drafts_itself(checkpoint: Checkpoint) -> bool:
    """True if a checkpoint's class has a draft layer, and the layer's loader is known."""
    return (checkpoint.architecture or "") in _LOADERS_LAYERS
