"""Bytes of the recurrent state that one request has in Mamba and linear attention layers.

`mamba2_cache_params` of each config in srt/configs, and `Mamba2StateShape`, `KimiLinearStateShape`
in srt/configs/mamba_utils.py (0.5.3 to 0.5.23).
"""

from __future__ import annotations

from dataclasses import dataclass

from speclaunch.plan.memory.model_config import ELEMENT_BYTES, ModelConfig
from speclaunch.plan.plan import Plan, UnknownValueError


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a layer keeps, before it is divided among ranks."""

    inner: int
    """Channels that are convolved besides those of the groups."""
    groups: int
    heads: int
    head_dim: int
    state: int
    kernel: int


def state_bytes(plan: Plan, config: ModelConfig, ranks: int, layers: int) -> int:
    """Of one request, in `layers` layers of one of `ranks` attention ranks.

    Raises UnknownValueError for a model whose state is not known, or one that cannot be divided.
    """
    if not layers:
        return 0
    short, long = _convolution_bytes(plan), _state_bytes(plan, config)
    if config.architecture.startswith("Lfm2"):
        kernel = config.count("conv_L_cache")
        channels = config.count("conv_dim", "hidden_size")
        return (kernel - 1) * _divided(channels, ranks) * short * layers
    kimi = config.part("linear_attn_config")
    if kimi is not None:
        heads, dim = kimi.count("num_heads"), kimi.count("head_dim")
        kernel = kimi.count("short_conv_kernel_size", default=4)
        channels = 3 * _divided(heads * dim, ranks)
        state = _divided(heads, ranks) * dim * dim
        return (channels * (kernel - 1) * short + state * long) * layers
    shape = _shape(config)
    groups = shape.groups
    if groups % ranks:
        groups += ranks - groups  # each rank has the group that its heads need
    channels = _divided(shape.inner + 2 * groups * shape.state, ranks)
    state = _divided(shape.heads, ranks) * shape.head_dim * shape.state
    return (channels * (shape.kernel - 1) * short + state * long) * layers


def _shape(config: ModelConfig) -> _Shape:
    name = config.architecture
    if config.optional("linear_num_value_heads") is not None:  # Qwen3-Next, Qwen3.5
        heads, dim = config.count("linear_num_value_heads"), config.count("linear_value_head_dim")
        return _Shape(
            heads * dim,
            config.count("linear_num_key_heads"),
            heads,
            dim,
            config.count("linear_key_head_dim"),
            config.count("linear_conv_kernel_dim", default=4),
        )
    if name.startswith("NemotronH"):
        heads, dim = config.count("mamba_num_heads"), config.count("mamba_head_dim")
        return _Shape(
            heads * dim,
            config.count("n_groups"),
            heads,
            dim,
            config.count("ssm_state_size"),
            config.count("conv_kernel", default=4),
        )
    if name.startswith(("FalconH1", "GraniteMoeHybrid")):
        inner = config.optional("mamba_d_ssm") or (
            config.count("mamba_expand", default=2) * config.hidden
        )
        heads = config.count("mamba_n_heads")
        automatic = config.text("mamba_d_head") is not None  # "auto"
        each = None if automatic else config.optional("mamba_d_head")
        return _Shape(
            inner,
            config.count("mamba_n_groups", default=1),
            heads,
            inner // heads if each is None else each,
            config.count("mamba_d_state"),
            config.count("mamba_d_conv", default=4),
        )
    raise UnknownValueError(f"the recurrent state of {name or config.name} is not known")


def _divided(number: int, ranks: int) -> int:
    if number % ranks:
        raise UnknownValueError(f"the recurrent state cannot be divided among {ranks} ranks")
    return number // ranks


def _convolution_bytes(plan: Plan) -> int:
    return ELEMENT_BYTES.get(plan.env("SGLANG_MAMBA_CONV_DTYPE") or "", 2)


def _state_bytes(plan: Plan, config: ModelConfig) -> int:
    """`mamba2_state_dtype`: the argument (it sets the variable, up to 0.5.8 always), the variable,
    the config, float32."""
    said = (
        plan.value("mamba_ssm_dtype")
        or plan.env("SGLANG_MAMBA_SSM_DTYPE")
        or (config.text("mamba_ssm_dtype") if plan.in_versions(">=0.5.9") else None)
    )
    return ELEMENT_BYTES.get(str(said), 4)
