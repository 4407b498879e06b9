"""LoRA: whether adapters are served."""

from __future__ import annotations

from speclaunch.engine.plan.settings import Settings

SWITCH = "enable_lora"
PATHS = "lora_paths"


def is_on(settings: Settings) -> bool:
    """True if adapters are served. Naming an adapter switches LoRA on (0.5.23
    arg_groups/lora_hook.py:41). Raises UnknownValueError."""
    return bool(settings.value(SWITCH) or settings.value(PATHS))
