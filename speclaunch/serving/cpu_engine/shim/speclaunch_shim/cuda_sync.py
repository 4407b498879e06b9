# ruff: noqa: PLC0415 (nothing heavy is imported before sglang is)
"""Make ``torch.cuda.synchronize`` a no-op without a CUDA device.

``set_embed_and_head`` of the models with an MTP layer (``srt/models/glm4_moe.py`` and others) calls
it on every device; torch's CPU build then raises.
"""

from typing import Any


def install() -> None:
    """Replace ``synchronize``, unless the machine has a CUDA device."""
    import torch

    if not torch.cuda.is_available():
        torch.cuda.synchronize = _nothing_to_wait_for


def _nothing_to_wait_for(device: Any = None) -> None:
    """Return at once: without a device there is no work to wait for."""
