"""What the EAGLE drafts of the engine load, and whole models of the Llama and Qwen kind."""

from __future__ import annotations

from collections.abc import Callable

from speclaunch.engine.versions import within
from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.reads.safe_json import mapping, size
from speclaunch.rules.checkpoints.dimensions import (
    Dimensions,
    attention,
    dimensions,
    flag,
    mlp,
    norms,
)
from speclaunch.rules.checkpoints.loader import Expected, Loader

_LAYERS = ">=0.5.12"
"""From then on an EAGLE-3 draft may have several layers, and `midlayer` is the old name of the
first; it may read another number of hidden states than 3, each through a norm of its own (0.5.12
models/llama_eagle3.py)."""
_MODEL_PREFIX = ">=0.4.9"
"""From then on `model.` in front of a name is optional, and `fc` has a bias only where the config
says so (0.4.9 models/llama_eagle3.py)."""
_TARGETS_HEAD = ">=0.5.2"
"""From then on a draft without `draft_vocab_size` takes the target's output layer."""
_ONE_NORM = ">=0.5.17"
_LEGACY = {
    "midlayer": "layers.0",
    "aux_norm_low": "fc_norm.0",
    "aux_norm_mid": "fc_norm.1",
    "aux_norm_high": "fc_norm.2",
}
_SKIPPED = ("rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached", "projector")
"""Names with this in them are skipped by `load_weights` of models/llama.py and its like."""


def eagle3(draft: Checkpoint, version: str) -> Loader | None:
    """`LlamaForCausalLMEagle3`; None where its config lacks a size."""
    sizes = dimensions(draft)
    if sizes is None:
        return None
    config, hidden = draft.config, sizes.hidden
    several = within(version, _LAYERS)
    inputs = draft.target_hidden_size or hidden
    states = aux_hidden_states(draft, version)
    layers = sizes.layers if several else 1
    expected = {"fc.weight": Expected((hidden, inputs * states)), **norms("", hidden, "norm")}
    if flag(config, "bias") or not within(version, _MODEL_PREFIX):
        expected["fc.bias"] = Expected((hidden,), needed=flag(config, "bias"))
    inner = mapping(config.get("eagle_config"))
    if inner.get("norm_before_fc", config.get("norm_before_fc")) and within(version, _ONE_NORM):
        expected |= norms("", inputs * states, "input_norm")
    if several and (config.get("fc_norm") or config.get("use_aux_norm")):
        expected |= norms("fc_norm.", inputs, *map(str, range(states)))
    bias = _llama_bias(draft)
    for layer in range(layers):
        at = f"layers.{layer}."
        width = hidden if layer else 2 * hidden
        # the class takes qkv_proj anew, without a bias; o_proj stays Llama's
        expected |= attention(at, sizes, width, qkv_bias=False, o_bias=bias)
        expected |= mlp(f"{at}mlp.", hidden, sizes.intermediate)
        expected |= norms(at, hidden, "hidden_norm", "input_layernorm", "post_attention_layernorm")
    shared = draft.target_hidden_size in (None, hidden)
    embedding = Expected((sizes.vocabulary, hidden), needed=not shared, used=not shared)
    expected["embed_tokens.weight"] = embedding
    reduced = draft.draft_vocab_size
    if not sizes.tied:
        rows = reduced or sizes.vocabulary
        from_target = reduced is None and within(version, _TARGETS_HEAD)
        own = not from_target
        expected["lm_head.weight"] = Expected((rows, hidden), needed=own, used=own)
    if reduced is not None and reduced != sizes.vocabulary:
        expected["d2t"] = Expected((reduced,))
    return Loader(
        "LlamaForCausalLMEagle3",
        "sglang 0.5.23 models/llama_eagle3.py:325",
        expected,
        _eagle3_place(version, tied=sizes.tied),
        layers,
    )


def aux_hidden_states(draft: Checkpoint, version: str) -> int:
    """How many of the target's hidden states `fc` of an EAGLE-3 draft takes."""
    if not within(version, _LAYERS):
        return 3
    said = size(draft.config.get("num_aux_hidden_states"))
    listed = mapping(draft.config.get("eagle_config")).get("eagle_aux_hidden_state_layer_ids")
    return said or (len(listed) if isinstance(listed, list) and listed else 3)


def _eagle3_place(version: str, *, tied: bool) -> Callable[[str], str | None]:
    several, optional = within(version, _LAYERS), within(version, _MODEL_PREFIX)

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
    """`LlamaForCausalLMEagle`, `Qwen2ForCausalLMEagle`; None where its config lacks a size."""
    del version  # the same in all releases
    sizes = dimensions(draft)
    if sizes is None:
        return None
    qwen = draft.architecture == "Qwen2ForCausalLMEagle"
    expected = {
        "fc.weight": Expected((sizes.hidden, 2 * sizes.hidden)),
        # a bias that is missing starts from numbers near zero (torch.nn.Linear)
        "fc.bias": Expected((sizes.hidden,), needed=False),
        # the target's is taken; this one is loaded before
        "embed_tokens.weight": Expected((sizes.vocabulary, sizes.hidden), needed=False, used=False),
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


def whole_model(checkpoint: Checkpoint, version: str) -> Loader | None:
    """A dense `LlamaForCausalLM`, `MistralForCausalLM`, `Qwen2ForCausalLM`, `Qwen3ForCausalLM`."""
    del version
    sizes = dimensions(checkpoint)
    if sizes is None:
        return None
    name = checkpoint.architecture or ""
    qwen2, qwen3 = name.startswith("Qwen2"), name.startswith("Qwen3")
    bias = _llama_bias(checkpoint) if not qwen2 else True
    expected = {
        "model.embed_tokens.weight": Expected((sizes.vocabulary, sizes.hidden)),
        **norms("model.", sizes.hidden, "norm"),
    }
    if not sizes.tied:
        expected["lm_head.weight"] = Expected((sizes.vocabulary, sizes.hidden))
    for layer in range(sizes.layers):
        at = f"model.layers.{layer}."
        expected |= attention(at, sizes, sizes.hidden, qkv_bias=bias, o_bias=bias and not qwen2)
        expected |= mlp(f"{at}mlp.", sizes.hidden, sizes.intermediate)
        expected |= norms(at, sizes.hidden, "input_layernorm", "post_attention_layernorm")
        if qwen3:
            expected |= norms(f"{at}self_attn.", sizes.head_dim, "q_norm", "k_norm")
    source = "qwen3.py" if qwen3 else "qwen2.py" if qwen2 else "llama.py:708"
    place = _whole_place(sizes, prefix=qwen2 or qwen3)
    return Loader(name, f"sglang 0.5.23 models/{source}", expected, place, sizes.layers)


def _whole_place(sizes: Dimensions, *, prefix: bool) -> Callable[[str], str | None]:
    def place(name: str) -> str | None:
        if any(part in name for part in _SKIPPED) or (sizes.tied and name == "lm_head.weight"):
            return None
        if prefix and name.startswith(("layers.", "embed_tokens.", "norm.")):
            return f"model.{name}"
        return name

    return place


def _llama_bias(checkpoint: Checkpoint) -> bool:
    """Whether attention has biases (models/llama.py LlamaDecoderLayer)."""
    return flag(checkpoint.config, "attention_bias") or flag(checkpoint.config, "bias")
