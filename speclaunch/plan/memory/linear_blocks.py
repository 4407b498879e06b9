"""The matrices of layers with a recurrent state."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.memory.matrices import Matrix, Shard, vector
from speclaunch.plan.memory.model_config import ModelConfig
from speclaunch.plan.plan import UnknownValueError


def linear_attention(config: ModelConfig, name: str) -> Iterator[Matrix]:
    """A gated delta net (Qwen3-Next, Qwen3.5). Raises UnknownValueError for any other."""
    if config.optional("linear_num_value_heads") is None:
        raise UnknownValueError(f"the weights of linear attention in {config.architecture}")
    hidden = config.hidden
    heads, groups = config.count("linear_num_value_heads"), config.count("linear_num_key_heads")
    values, keys = config.count("linear_value_head_dim"), config.count("linear_key_head_dim")
    inner, key_size = heads * values, groups * keys
    kernel = config.count("linear_conv_kernel_dim", default=4)
    rows = 2 * key_size + inner
    yield Matrix(f"{name}.in_proj_qkv", rows, hidden, Shard.ATTENTION)
    yield Matrix(f"{name}.in_proj_z", inner, hidden, Shard.ATTENTION)
    yield Matrix(f"{name}.in_proj_b", 2 * heads, hidden, Shard.ATTENTION, linear=False)
    yield Matrix(f"{name}.conv1d", rows, kernel, Shard.ATTENTION, linear=False)
    yield Matrix(f"{name}.out_proj", hidden, inner, Shard.ATTENTION)
    yield vector(f"{name}.norm", values + 2 * heads)
