"""Building blocks of the tiny models: embeddings, a rotation, random layers, a config."""

import math
from typing import Any

import torch

Tensors = dict[str, torch.Tensor]
Config = dict[str, Any]

VOCABULARY = 512
CYCLE = 8
SPECIAL = ("<s>", "</s>", "<pad>", "<|user|>", "<|assistant|>", "<|system|>", "<|tool|>", "<|end|>")
BOS, EOS, PAD = 0, 1, 2
HIDDEN, INTERMEDIATE, HEADS, KV_HEADS = 64, 128, 4, 2
HEAD_DIM = HIDDEN // HEADS
POSITIONS = 2048
RMS_EPSILON = 1e-5
CONSTANT = 2.0
"""Coordinate 0 of all embeddings, whose norm is ``sqrt(HIDDEN)``."""


def successor() -> torch.Tensor:
    """Return the token that follows each token, ``[VOCABULARY]``: the next token of its cycle.

    A special token is followed by a token of the last cycle, so no cycle contains special tokens.
    """
    token = torch.arange(VOCABULARY)
    following = token // CYCLE * CYCLE + (token + 1) % CYCLE
    following[: len(SPECIAL)] = VOCABULARY - len(SPECIAL) + torch.arange(len(SPECIAL))
    return following


def rotation() -> torch.Tensor:
    """Return R, ``[HIDDEN, HIDDEN]``, of order ``CYCLE``. It does not change coordinate 0.

    It rotates planes of coordinates by 1, 2 or 3 steps of 45 degrees; coordinate 1 is unused.
    """
    turn = torch.eye(HIDDEN)
    for plane in range(1, HIDDEN // 2):
        angle = 2 * math.pi * (1 + plane % 3) / CYCLE
        block = torch.tensor(
            [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
        )
        turn[2 * plane : 2 * plane + 2, 2 * plane : 2 * plane + 2] = block
    return turn


def embeddings(noise: torch.Generator) -> torch.Tensor:
    """Return the embedding of each token, ``[VOCABULARY, HIDDEN]``, with norm ``sqrt(HIDDEN)``."""
    turn, rows = rotation(), []
    for _ in range(VOCABULARY // CYCLE):
        row = torch.randn(HIDDEN, generator=noise)
        row[:2] = 0
        row *= math.sqrt(HIDDEN - CONSTANT**2) / row.norm()
        row[0] = CONSTANT
        for _ in range(CYCLE):
            rows.append(row)
            row = turn @ row
    return torch.stack(rows)


def output_layer(embedding: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    """Return the output layer that maps the embedding of a token to ``following[token]``."""
    head = torch.zeros(VOCABULARY, HIDDEN)
    return head.index_add_(0, following, embedding / embedding.norm(dim=1, keepdim=True))


def generator(seed: int) -> torch.Generator:
    """Return a separate noise source for each component of a model."""
    return torch.Generator().manual_seed(seed)


def random_weight(noise: torch.Generator, rows: int, columns: int, scale: float) -> torch.Tensor:
    """Return a random matrix; at ``scale`` 1 it preserves the norm of vectors."""
    return torch.randn(rows, columns, generator=noise) * (scale / math.sqrt(columns))


def attention(noise: torch.Generator, prefix: str, inputs: int, added: float) -> Tensors:
    """Return random attention weights; ``added`` scales their contribution to the hidden state."""
    name = prefix + "self_attn."
    return {
        name + "q_proj.weight": random_weight(noise, HEADS * HEAD_DIM, inputs, 1),
        name + "k_proj.weight": random_weight(noise, KV_HEADS * HEAD_DIM, inputs, 1),
        name + "v_proj.weight": random_weight(noise, KV_HEADS * HEAD_DIM, inputs, 1),
        name + "o_proj.weight": random_weight(noise, HIDDEN, HEADS * HEAD_DIM, added),
    }


def mlp(noise: torch.Generator, prefix: str, width: int, added: float) -> Tensors:
    """Return random weights of a gated MLP; ``added`` scales its contribution to the state."""
    return {
        prefix + "gate_proj.weight": random_weight(noise, width, HIDDEN, 1),
        prefix + "up_proj.weight": random_weight(noise, width, HIDDEN, 1),
        prefix + "down_proj.weight": random_weight(noise, HIDDEN, width, added),
    }


def norms(prefix: str, *names: str) -> Tensors:
    """Return norm weights of 1."""
    return {f"{prefix}{name}.weight": torch.ones(HIDDEN) for name in names}


def common_config(architecture: str, model_type: str, layers: int) -> Config:
    """Return the fields of ``config.json`` that all tiny models share."""
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "max_position_embeddings": POSITIONS,
        "rms_norm_eps": RMS_EPSILON,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
        "torch_dtype": "float32",
    }
