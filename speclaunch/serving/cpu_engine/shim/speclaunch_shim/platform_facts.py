# ruff: noqa: PLC0415 (nothing heavy is imported before sglang is)
"""Preserve ``intel_amx``, the only CPU attention backend that can verify a draft.

Without the fact ``has_amx``, ``_attention_backend_platform_fallbacks`` in
``srt/arg_groups/overrides.py`` resolves to ``torch_native``, which has no TARGET_VERIFY mode. The
two kernels of ``intel_amx`` are in the stand-in ``sgl_kernel``. Layers don't read this fact: they
call ``cpu_has_amx_support()``, which remains false, and use their plain torch path. Up to 0.5.18
``overrides.py`` calls that function too, so it is replaced in that module only.
"""

import sys

OVERRIDES = "sglang.srt.arg_groups.overrides"


def install() -> None:
    """Set ``has_amx`` for the entire process, if this SGLang can override it."""
    from sglang.srt import runtime_context

    if hasattr(runtime_context, "override_platform"):
        runtime_context.override_platform(has_amx=True).install()


def patch_overrides() -> None:
    """Make ``cpu_has_amx_support`` return True in the module ``OVERRIDES`` of 0.5.18 and older."""
    module = sys.modules[OVERRIDES]
    if hasattr(module, "cpu_has_amx_support"):
        module.cpu_has_amx_support = lambda: True
