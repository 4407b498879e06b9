"""The attention backend of a DFLASH draft: one that the draft worker has (0.5.15 and later)."""

from __future__ import annotations

from speclaunch.plan.plan import UnknownValueError
from speclaunch.plan.resolution.working import UNKNOWN_DRAFT, Working

NAME = "speculative_draft_attention_backend"
_ABLE = ("flashinfer", "fa3", "fa4", "triton", "ascend")


def resolve_draft_attention(working: Working) -> None:
    """`_resolve_dflash_draft_attention_backend`: as given, else the target's of prefill."""
    with working.deciding(NAME):
        if not working.since("0.5.15") or working.algorithm != "DFLASH":
            return
        asked = working.given(NAME)
        backend = asked or working.backend("prefill_attention_backend")
        backend = backend or working.backend("attention_backend")
        found = _supported(working, backend)
        if asked is not None and found != asked:
            working.change(
                "SPL919",
                NAME,
                found,
                f"the DFLASH draft worker does not take {asked}",
                "sglang 0.5.23 arg_groups/speculative_hook.py:933, 0.5.15 :270",
            )
        else:
            why = f"as the target's prefill ({backend})"
            if backend is None:
                why = "the target's own backend is not one of the draft worker's"
            elif found != backend:
                why = f"the DFLASH draft worker does not take {backend}, the target's of prefill"
            working.set(
                NAME,
                found,
                "as it was given" if asked is not None else why,
                "sglang 0.5.23 arg_groups/speculative_hook.py:986, 0.5.15 :270",
            )


def _supported(working: Working, backend: str | None) -> str:
    fallback = "triton" if working.is_hip else "flashinfer"
    if backend is None:
        return fallback
    if backend == "trtllm_mha":
        if working.since("0.5.17") and _is_windowed_or_causal(working):
            return backend
        blackwell = working.since("0.5.23") and working.capability // 10 == 10
        return "fa4" if blackwell else fallback
    able = (*_ABLE, "intel_xpu") if working.since("0.5.20") else _ABLE
    return backend if backend in able else fallback


def _is_windowed_or_causal(working: Working) -> bool:
    """Whether all layers have a window, or the draft says that it is causal."""
    draft = working.plan.facts.draft
    if draft is None:
        raise UnknownValueError(UNKNOWN_DRAFT)
    config = draft.config
    if config.get("is_causal") is True:
        return True
    layers = config.get("layer_types") or ()
    count = config.get("num_hidden_layers")
    return bool(layers) and len(layers) == count and set(layers) == {"sliding_attention"}
