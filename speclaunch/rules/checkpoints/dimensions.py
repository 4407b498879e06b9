"""The sizes of a model that the shapes of its tensors follow from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.reads.safe_json import size
from speclaunch.record import record
from speclaunch.rules.checkpoints.loader import Expected


@record
class Dimensions:
    """Sizes as the engine's classes read them from the config."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    layers: int
    tied: bool


_HEAD_DIM = {"qwen3": 128}
"""What transformers takes where a config does not say it; hidden_size / heads otherwise."""


def dimensions(checkpoint: Checkpoint) -> Dimensions | None:
    """The sizes of a checkpoint; None where its config lacks one."""
    config = checkpoint.config
    said = known(
        checkpoint.hidden_size,
        checkpoint.num_attention_heads,
        checkpoint.vocab_size,
        size(config.get("num_hidden_layers"), least=0),
        size(config.get("intermediate_size")),
    )
    if said is None:
        return None
    hidden, heads, vocabulary, layers, inner = said
    usual = _HEAD_DIM.get(str(checkpoint.model_type), hidden // heads)
    return Dimensions(
        hidden,
        heads,
        checkpoint.num_key_value_heads or heads,
        checkpoint.head_dim or usual,
        inner,
        vocabulary,
        layers,
        is_tied(checkpoint),
    )


def known(*said: int | None) -> list[int] | None:
    """The numbers, all of them; None where one is not known."""
    found = [one for one in said if one is not None]
    return found if len(found) == len(said) else None


def is_tied(checkpoint: Checkpoint) -> bool:
    """Whether the output layer is the embedding. The classes' own default is not (LlamaConfig)."""
    return checkpoint.config.get("tie_word_embeddings") is True


def flag(config: Mapping[str, Any], key: str, *, default: bool = False) -> bool:
    """A switch of a config."""
    value = config.get(key)
    return value if isinstance(value, bool) else default


def attention(
    at: str, sizes: Dimensions, inputs: int, *, qkv_bias: bool, o_bias: bool
) -> dict[str, Expected]:
    """Grouped-query attention: `at` is the name in front of `self_attn`."""
    rows = {
        "q_proj": sizes.heads * sizes.head_dim,
        "k_proj": sizes.kv_heads * sizes.head_dim,
        "v_proj": sizes.kv_heads * sizes.head_dim,
    }
    own = f"{at}self_attn."
    found = {f"{own}{name}.weight": Expected((count, inputs)) for name, count in rows.items()}
    if qkv_bias:
        found |= {f"{own}{name}.bias": Expected((count,)) for name, count in rows.items()}
    found[f"{own}o_proj.weight"] = Expected((sizes.hidden, sizes.heads * sizes.head_dim))
    if o_bias:
        found[f"{own}o_proj.bias"] = Expected((sizes.hidden,))
    return found


def mlp(at: str, hidden: int, width: int) -> dict[str, Expected]:
    """A gated MLP; `at` is the name in front of its projections."""
    return {
        f"{at}gate_proj.weight": Expected((width, hidden)),
        f"{at}up_proj.weight": Expected((width, hidden)),
        f"{at}down_proj.weight": Expected((hidden, width)),
    }


def norms(at: str, width: int, *names: str) -> dict[str, Expected]:
    """Norms of one width."""
    return {f"{at}{name}.weight": Expected((width,)) for name in names}
