"""Draft models."""

import torch
from tiny_parts import (
    CONSTANT,
    HIDDEN,
    INTERMEDIATE,
    SPECIAL,
    VOCABULARY,
    Config,
    Tensors,
    attention,
    common_config,
    embeddings,
    generator,
    norms,
    output_layer,
    rotation,
    successor,
)
from tiny_targets import llama_model


def turning_mlp(prefix: str) -> Tensors:
    """Return an MLP that adds ``(R - 1) x``; with the residual, it turns the hidden state by R."""
    # gate is the same large value for every hidden state (coordinate 0 is constant), so that
    # silu(gate) is a constant too and the MLP is the linear map R - 1
    gate = torch.zeros(INTERMEDIATE, HIDDEN)
    gate[:HIDDEN, 0] = 10.0 / CONSTANT
    up = torch.zeros(INTERMEDIATE, HIDDEN)
    up[:HIDDEN] = (rotation() - torch.eye(HIDDEN)) / 10.0
    down = torch.zeros(HIDDEN, INTERMEDIATE)
    down[:, :HIDDEN] = torch.eye(HIDDEN)
    return {
        prefix + "gate_proj.weight": gate,
        prefix + "up_proj.weight": up,
        prefix + "down_proj.weight": down,
    }


def cycle_draft(error_rate: float) -> tuple[Config, Tensors]:
    """Return a one-layer ``cycle`` with wrong successors for a share of the vocabulary."""
    following = successor()
    ordinary = torch.arange(len(SPECIAL), VOCABULARY)
    shuffled = ordinary[torch.randperm(ordinary.numel(), generator=generator(3))]
    wrong = shuffled[: round(error_rate * ordinary.numel())]
    if wrong.numel() > 1:
        following[wrong] = following[wrong.roll(1)]
    return llama_model(layers=1, added=0.0, following=following)


def llama_eagle3() -> tuple[Config, Tensors]:
    """Return the EAGLE3 draft of ``llama``: mean of three hidden states, R in the MLP, 7/8 of the
    tokens.
    """
    embedding, noise = embeddings(generator(1)), generator(4)
    everything = torch.randperm(VOCABULARY - len(SPECIAL), generator=noise) + len(SPECIAL)
    known = everything[: VOCABULARY * 7 // 8].sort().values
    is_known = torch.zeros(VOCABULARY, dtype=torch.bool)
    is_known[known] = True

    tensors = {
        "fc.weight": torch.eye(HIDDEN).repeat(1, 3) / 3,
        "lm_head.weight": output_layer(embedding, successor())[known],
        "d2t": known - torch.arange(known.numel()),
        "t2d": is_known,
        **turning_mlp("midlayer.mlp."),
        **attention(noise, "midlayer.", 2 * HIDDEN, 0.05),
        **norms("midlayer.", "hidden_norm", "input_layernorm", "post_attention_layernorm"),
        **norms("", "norm"),
    }
    config = common_config("LlamaForCausalLMEagle3", "llama", 1)
    return config | {"draft_vocab_size": known.numel()}, tensors


def llama_eagle() -> tuple[Config, Tensors]:
    """Return the EAGLE-2 draft of ``llama``, which shares the target's embedding and output layer.

    Both halves of ``fc`` yield the embedding of the second-to-last token: the first rotates the
    last token's embedding back by R, the second passes on the target's hidden state. The MLP
    applies R.
    """
    noise, turn = generator(6), rotation()
    tensors = {
        "fc.weight": torch.cat([turn.T / 2, torch.eye(HIDDEN) / 2], dim=1),
        "fc.bias": torch.zeros(HIDDEN),
        **turning_mlp("layers.0.mlp."),
        **attention(noise, "layers.0.", HIDDEN, 0.05),
        **norms("layers.0.", "post_attention_layernorm"),
    }
    return common_config("LlamaForCausalLMEagle", "llama", 1), tensors
