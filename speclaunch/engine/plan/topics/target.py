"""The target: the architecture that the engine dispatches on, and its data type."""

from __future__ import annotations

from collections.abc import Iterable

from speclaunch.engine.facts.facts import Checkpoint
from speclaunch.engine.plan.settings import Settings, UnknownValueError

UNKNOWN_TARGET = "the target checkpoint is unknown"
_FAMILY = 4
"""Length of the prefix that an architecture's name shares with checkpoint names: MiMo, Step."""


def target_of(settings: Settings) -> Checkpoint:
    """Return the target checkpoint. Raises UnknownValueError."""
    target = settings.facts.target
    if target is None:
        raise UnknownValueError(UNKNOWN_TARGET)
    return target


def architecture_of(settings: Settings) -> str:
    """Return the target architecture that the engine dispatches on. Raises UnknownValueError."""
    found = target_of(settings).architecture
    if found is None:
        raise UnknownValueError("the architecture of the target is unknown")
    if found == "DeepseekV32ForCausalLM" and settings.in_versions("<0.5.12"):
        return "DeepseekV3ForCausalLM"  # 0.5.3 hf_transformers_utils.py:146 loads it as this
    if found == "Olmo3ForCausalLM":
        return "Olmo2ForCausalLM"  # one class for both (0.5.4 and 0.5.23 configs/olmo3.py:59)
    return found


def halved(checkpoint: Checkpoint) -> str:
    """Return the dtype in which `dtype: auto` serves float32 weights: bfloat16 for Gemma, else
    float16.

    Also applies to a config without a dtype (`_get_and_verify_dtype`, 0.5.23
    configs/model_config.py:2284, 0.4.6 :455).
    """
    return "bfloat16" if (checkpoint.model_type or "").startswith("gemma") else "float16"


def may_be(settings: Settings, architectures: Iterable[str]) -> bool:
    """True if the target may have one of these rare architectures.

    If only the name or path of the checkpoint is known, it matches if it contains the family's
    name: `MiMoV2ForCausalLM` may be `XiaomiMiMo/MiMo-V2-Flash`. Otherwise almost every fact would
    be unknown without the config.
    """
    if settings.facts.target is not None:
        return True
    name = str(settings.user_value("model_path") or "").lower()
    return any(architecture[:_FAMILY].lower() in name for architecture in architectures)


def has_architecture(settings: Settings, architectures: Iterable[str]) -> bool:
    """True if the target has one of these rare architectures.

    Raises UnknownValueError if it may have one but its config is unknown.
    """
    rare = tuple(architectures)
    return bool(rare) and may_be(settings, rare) and architecture_of(settings) in rare
