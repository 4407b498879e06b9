"""How the models of an architecture are built, where their config does not say it.

Each family from its model in srt/models (0.5.23) and its config class in transformers.
"""

from __future__ import annotations

from enum import Enum, auto

from speclaunch.plan.plan import UnknownValueError
from speclaunch.record import record


class QkNorm(Enum):
    """Norms of queries and keys."""

    NONE = auto()
    HEAD = auto()
    """One of the size of a head."""
    WHOLE = auto()
    """One of the size of all heads together."""


@record
class ModelFamily:
    """Traits of a family of models.

    - `biased`: queries, keys and values have a bias; None: `attention_bias` says it.
    - `biased_output`: the output of attention has one where they have.
    - `norms`: norms of a layer. `tied`: embedding and head are one unless the config says not.
    - `expert_size`: the key of the size of an expert. `router_bias`: a correction of its scores.
    - `gated_output`: queries have a gate beside them. `sinks`: one number a head.
    - `mtp_copies`: published checkpoints repeat embedding and head in their MTP layers.
    """

    biased: bool | None = None
    biased_output: bool = False
    qk_norm: QkNorm = QkNorm.NONE
    qk_norm_key: str | None = None
    norms: int = 2
    tied: bool = False
    expert_size: str = "moe_intermediate_size"
    router_bias: bool = False
    router_offset: bool = False
    expert_bias: bool = False
    shared_gate: bool = False
    gated_output: bool = False
    sinks: bool = False
    mtp_copies: bool = False


_LLAMA = ModelFamily(biased_output=True)
_QWEN2 = ModelFamily(biased=True)
_QWEN3 = ModelFamily(biased_output=True, qk_norm=QkNorm.HEAD)
_DEEPSEEK = ModelFamily(router_bias=True, mtp_copies=True)
_QWEN35 = ModelFamily(qk_norm=QkNorm.HEAD, gated_output=True, shared_gate=True)
_KIMI = ModelFamily(router_bias=True)

FAMILIES: dict[str, ModelFamily] = {
    "LlamaForCausalLM": _LLAMA,
    "MistralForCausalLM": ModelFamily(biased=False),
    "Mistral3ForConditionalGeneration": ModelFamily(biased=False),
    "Phi3ForCausalLM": ModelFamily(biased=False),
    "InternLM3ForCausalLM": _LLAMA,
    "Qwen2ForCausalLM": _QWEN2,
    "Qwen2VLForConditionalGeneration": _QWEN2,
    "Qwen2_5_VLForConditionalGeneration": _QWEN2,
    "Qwen2MoeForCausalLM": ModelFamily(biased=True, shared_gate=True),
    "Qwen3ForCausalLM": _QWEN3,
    "Qwen3VLForConditionalGeneration": _QWEN3,
    "Qwen3MoeForCausalLM": _QWEN3,
    "Qwen3VLMoeForConditionalGeneration": _QWEN3,
    "Qwen3NextForCausalLM": _QWEN35,
    "Qwen3_5ForCausalLM": _QWEN35,
    "Qwen3_5MoeForCausalLM": _QWEN35,
    "Qwen3_5ForConditionalGeneration": _QWEN35,
    "Qwen3_5MoeForConditionalGeneration": _QWEN35,
    "MixtralForCausalLM": ModelFamily(biased=False, expert_size="intermediate_size"),
    "GemmaForCausalLM": ModelFamily(tied=True),
    "Gemma2ForCausalLM": ModelFamily(norms=4, tied=True),
    "Gemma3ForCausalLM": ModelFamily(norms=4, tied=True, qk_norm=QkNorm.HEAD),
    "Gemma3ForConditionalGeneration": ModelFamily(norms=4, tied=True, qk_norm=QkNorm.HEAD),
    "GptOssForCausalLM": ModelFamily(
        biased=True,
        biased_output=True,
        expert_size="intermediate_size",
        router_offset=True,
        expert_bias=True,
        sinks=True,
    ),
    "DeepseekV2ForCausalLM": ModelFamily(),
    "DeepseekV3ForCausalLM": _DEEPSEEK,
    "DeepseekV32ForCausalLM": _DEEPSEEK,
    "GlmMoeDsaForCausalLM": ModelFamily(router_bias=True),
    "Glm4MoeLiteForCausalLM": _DEEPSEEK,
    "KimiK25ForConditionalGeneration": _KIMI,
    "KimiVLForConditionalGeneration": _KIMI,
    "Glm4ForCausalLM": ModelFamily(norms=4),
    "Glm4MoeForCausalLM": ModelFamily(
        qk_norm=QkNorm.HEAD, qk_norm_key="use_qk_norm", router_bias=True, mtp_copies=True
    ),
    "MiMoForCausalLM": ModelFamily(),
    "MiMoV2FlashForCausalLM": ModelFamily(router_bias=True),
    "MiniMaxM2ForCausalLM": ModelFamily(
        biased=False,
        qk_norm=QkNorm.WHOLE,
        qk_norm_key="use_qk_norm",
        expert_size="intermediate_size",
        router_bias=True,
    ),
    "Llama4ForConditionalGeneration": ModelFamily(expert_size="intermediate_size"),
    "Llama4ForCausalLM": ModelFamily(expert_size="intermediate_size"),
    "DFlashDraftModel": _QWEN3,
}


def family_of(architecture: str) -> ModelFamily:
    """The family of an architecture. Raises UnknownValueError."""
    found = FAMILIES.get(architecture)
    if found is None:
        raise UnknownValueError(f"how many weights {architecture or 'the model'} has is not known")
    return found
