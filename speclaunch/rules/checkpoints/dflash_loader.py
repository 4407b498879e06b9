"""What a DFLASH draft of the engine loads."""

from __future__ import annotations

from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.reads.safe_json import mapping, size
from speclaunch.rules.checkpoints.dimensions import attention, dimensions, flag, mlp, norms
from speclaunch.rules.checkpoints.loader import Expected, Loader

_ALIASES = {
    "encoder.fc.weight": "fc.weight",
    "encoder.output_norm_enc.weight": "hidden_norm.weight",
}
_HEADS = ("prefix_gru.", "embed_proj.", "attention_conv.", "mlp_conv.", "embed_tokens.", "lm_head.")
"""Parts that only some kinds of it have (Domino, convolutions, Nemotron): nothing is said of
them."""


def dflash(draft: Checkpoint, version: str) -> Loader | None:
    """`DFlashDraftModel`; None where its config lacks a size."""
    del version
    sizes = dimensions(draft)
    if sizes is None or not sizes.layers:
        return None
    config, hidden = draft.config, sizes.hidden
    # without a list, as many as it has layers (build_target_layer_ids of dflash_utils.py)
    states = len(draft.aux_hidden_layers) or sizes.layers
    expected = {
        "fc.weight": Expected((hidden, states * hidden)),
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
    return Loader("DFlashDraftModel", source, expected, place, sizes.layers, zero_is_one=gemma)


def mask_token(draft: Checkpoint) -> int | None:
    """The token whose embedding stands for what is to be drafted; None: the config does not say.

    `mask_token_id` of `dflash_config`, else outside (parse_dflash_draft_config).
    """
    inner = mapping(draft.config.get("dflash_config")).get("mask_token_id")
    return (
        size(inner, least=0)
        if inner is not None
        else size(draft.config.get("mask_token_id"), least=0)
    )
