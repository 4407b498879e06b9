"""How the class of a checkpoint loads its tensors, for the classes whose loader was read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.rules.checkpoints.dflash_loader import dflash
from speclaunch.rules.checkpoints.eagle_loaders import eagle, eagle3, whole_model
from speclaunch.rules.checkpoints.loader import Loader
from speclaunch.rules.checkpoints.mtp_loaders import deepseek, glm4_moe, mimo, qwen3_next

_Find = Callable[[Checkpoint, str], Loader | None]
_DRAFTS: Mapping[str, _Find] = MappingProxyType(
    {
        "LlamaForCausalLMEagle3": eagle3,
        "LlamaForCausalLMEagle": eagle,
        "Qwen2ForCausalLMEagle": eagle,
        "DFlashDraftModel": dflash,
    }
)
_LAYERS: Mapping[str, _Find] = MappingProxyType(
    {
        "Glm4MoeForCausalLM": glm4_moe,
        "Glm4MoeForCausalLMNextN": glm4_moe,
        "DeepseekV3ForCausalLM": deepseek,
        "DeepseekV3ForCausalLMNextN": deepseek,
        "MiMoForCausalLM": mimo,
        "Qwen3NextForCausalLM": qwen3_next,
    }
)
"""The classes whose own layer drafts."""
_WHOLE = frozenset(
    {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}
)


def find_loader(checkpoint: Checkpoint, argument: str, *, drafts: bool) -> _Find | None:
    """The loader of what drafts or serves; None where it is not known.

    `argument` names the checkpoint, `drafts` says whether its tensors are the draft's.
    """
    name = checkpoint.architecture or ""
    if drafts and name in _LAYERS:
        return _LAYERS[name]
    if argument == "model_path" and drafts:
        return None
    return whole_model if name in _WHOLE else _DRAFTS.get(name)


def drafts_itself(checkpoint: Checkpoint) -> bool:
    """Whether its class is one whose own layer drafts, and of which it is known what it loads."""
    return (checkpoint.architecture or "") in _LAYERS
