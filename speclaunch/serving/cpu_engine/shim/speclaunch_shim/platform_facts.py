# ruff: noqa: PLC0415 (nothing heavy is imported before sglang is)
"""Preserve ``intel_amx``, the only CPU attention backend that can verify a draft.

Without the fact ``has_amx``, ``_attention_backend_platform_fallbacks`` in
``srt/arg_groups/overrides.py`` resolves to ``torch_native``, which has no TARGET_VERIFY mode. The
two kernels of that backend are in the stand-in ``sgl_kernel``. Layers don't read this fact: they
call ``cpu_has_amx_support()``, which remains false, and use their plain torch path.
"""


def install() -> None:
    """Set the fact for the complete process, with SGLang's own function."""
    from sglang.srt.runtime_context import override_platform

    override_platform(has_amx=True).install()
