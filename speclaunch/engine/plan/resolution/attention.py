"""Resolves the attention backends of target and draft, and the page size that they require."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speclaunch.engine.plan.plan import ChangeKind, UnknownValueError
from speclaunch.engine.plan.resolution.attention_models import (
    PAGE,
    by_model,
    drafts_chains,
    resolve_pages,
)
from speclaunch.engine.plan.resolution.models import (
    NEMOTRON_H,
    nemotron_h_has_defaults,
    nemotron_h_verifies_on_trtllm,
    of_config,
)
from speclaunch.engine.plan.resolution.working import Working
from speclaunch.engine.plan.topics import attention, speculation
from speclaunch.engine.plan.topics.attention import (
    BACKENDS,
    BOTH,
    DECODE,
    DRAFT,
    FA3_GIVES_WAY,
    OWN_CPU_DEFAULTS,
    PREFILL,
    RENAMED,
    RENAMED_EARLY,
    RENAMED_EARLY_IN,
    RENAMED_IN,
)

_DEFAULT_SOURCE = (
    "sglang 0.5.23 arg_groups/model_override_base.py:277, 0.5.10 server_args.py:2217, "
    "0.4.6 model_executor/model_runner.py:336"
)


def resolve_attention(working: Working) -> None:
    """Resolve attention backends by model, then platform, then the page size they imply.

    Up to 0.5.4 the model runner sets the platform's default (`resolve_runner_attention`).
    """
    _renamed(working)
    with working.deciding(BOTH, PREFILL, DECODE, PAGE):
        by_model(working)
    if is_chosen_by_the_runner(working):
        resolve_pages(working)
        return
    if working.in_versions("<0.5.8"):
        _hierarchical_cache(working)
    _choose(working)
    resolve_pages(working)
    if working.in_versions(">=0.5.8"):
        _hierarchical_cache(working)


def is_chosen_by_the_runner(working: Working) -> bool:
    """True if the model runner chooses the backend, after page size and parameters are final.

    See 0.5.4 model_executor/model_runner.py:545. From 0.5.4.post1 on, server_args.py:1057 chooses
    the backend before both.
    """
    return working.in_versions("<0.5.4.post1")


def resolve_runner_attention(working: Working) -> None:
    """Apply the model runner's choice: the platform's default (up to 0.5.4)."""
    _choose(working)
    _hierarchical_cache(working)


def _renamed(working: Working) -> None:
    """Replace deprecated backend names (`_handle_deprecated_args`, 0.5.23)."""
    if not working.in_versions(RENAMED_EARLY_IN):
        return
    names = tuple(RENAMED) if working.in_versions(RENAMED_IN) else RENAMED_EARLY
    for name in (*BACKENDS, DRAFT):
        with working.deciding(name):
            backend = working.value(name)
            found = RENAMED[backend] if backend in names else None
            if found == "cutedsl_mla" and name == PREFILL:
                found = "trtllm_mla"  # cutedsl_mla only decodes
            if found is not None:
                why = f"{working.value(name)} is a deprecated name"
                source = "sglang 0.5.23 arg_groups/serving_hook.py:305"
                working.change(ChangeKind.ATTENTION_BACKEND, name, found, why, source)


def _choose(working: Working) -> None:
    with working.deciding(BOTH):
        _same_for_both(working)
        if working.value(BOTH) is None:
            chosen = _deterministic(working)
            if chosen is not None:
                why = "deterministic inference uses this backend on these GPUs"
                source = "sglang 0.5.23 arg_groups/overrides.py:1116"
                working.set(BOTH, chosen, why, source)
            else:
                working.set(BOTH, _default(working), _why_default(working), _DEFAULT_SOURCE)
        _fp8_e5m2(working)
    with working.deciding(PREFILL):
        decodes = (working.backend(BOTH), working.backend(DECODE))
        if "cutedsl_mla" in decodes and working.value(PREFILL) is None:
            why = "cutedsl_mla only decodes; prefill uses trtllm_mla"
            source = "sglang 0.5.23 arg_groups/overrides.py:1258"
            working.set(PREFILL, "trtllm_mla", why, source)


def _same_for_both(working: Working) -> None:
    prefill = working.value(PREFILL)
    if prefill is None or prefill != working.value(DECODE) or working.in_versions("<0.5.1"):
        return
    if working.value(BOTH) != prefill:
        why = f"{prefill} is set for both phases"
        source = "sglang 0.5.23 arg_groups/overrides.py:1131, 0.5.4 server_args.py:1115"
        working.set(BOTH, prefill, why, source)


def _deterministic(working: Working) -> str | None:
    """Return the backend that `_handle_deterministic_inference` sets before the default is chosen
    (0.5.12 and later); None if it sets none."""
    if working.in_versions("<0.5.12") or not attention.is_deterministic(working):
        return None
    if working.capability // 10 not in (10, 12):
        return "fa3"
    latent = attention.triton_targets(working)
    return "triton" if working.architecture in latent else "flashinfer"


def _why_default(working: Working) -> str:
    if working.device == "cpu":
        return "the default on a CPU"
    kind = (
        "latent attention"
        if working.architectures.uses_mla(working.target)
        else "multi-head attention"
    )
    on = "AMD GPUs"
    if not working.is_hip:
        on = f"compute capability {working.capability // 10}.{working.capability % 10}"
    topk = _topk(working)
    speculates = working.user_value("speculative_algorithm")
    how = "" if speculates is None else f" with {speculates}"
    how += "" if topk is None else f", topk {topk}"
    return f"the default for {kind} on {on}{how}"


def _default(working: Working) -> str:
    """Return the default backend for the platform and attention kind
    (`_get_default_attn_backend`)."""
    if working.device == "cpu":
        if not working.in_versions(OWN_CPU_DEFAULTS):
            return "torch_native"
        raise UnknownValueError("AMX support of the CPU is unknown")
    if working.device != "cuda":
        raise UnknownValueError(f"the defaults of {working.device} are not modeled")
    if working.architecture == "WhisperForConditionalGeneration" and working.in_versions(
        ">=0.5.10"
    ):
        return "flashinfer"
    if working.architectures.uses_mla(working.target):
        return _default_of_latent_attention(working)
    return _default_of_heads(working)


def _default_of_latent_attention(working: Working) -> str:
    if working.is_hip:
        return _latent_on_amd(working)
    major = working.capability // 10
    if major == 9:
        return "fa3"
    if major == 10 and working.in_versions(">=0.4.7"):
        return "flashinfer"
    return "triton"


def _latent_on_amd(working: Working) -> str:
    if working.in_versions("<0.4.10"):
        return "triton"
    if working.in_versions("<0.5.3") and working.algorithm is not None:
        return "triton"
    heads = working.target.num_key_value_heads or working.target.num_attention_heads
    if heads is None:
        raise UnknownValueError("the number of heads of the target is unknown")
    per_rank = max(1, heads // working.number("tp_size", 1))
    return "aiter" if per_rank in (16, 128) else "triton"


def _default_of_heads(working: Working) -> str:
    if working.is_hip:
        return "aiter"
    major = working.capability // 10
    known = (
        working.in_versions(">=0.5.8") or working.architecture in working.architectures.fa3_default
    )
    if major == 9 and known and _chain_or_none(working):
        return "fa3"
    if _trtllm_is_default(working, major):
        return "fa4" if working.in_versions(">=0.5.17") and _asymmetric(working) else "trtllm_mha"
    if working.architecture in working.architectures.attention_sinks:
        return "triton"  # flashinfer does not support sinks
    return "flashinfer"


def _topk(working: Working) -> Any:
    """Return the topk that decides the backend: the resolved topk if the runner decides, else the
    user's."""
    name = "speculative_eagle_topk"
    return working.value(name) if is_chosen_by_the_runner(working) else working.user_value(name)


def _chain_or_none(working: Working) -> bool:
    """True if topk is unset, or if topk and page size are 1 (`is_no_spec_infer_or_topk_one`).

    The page size is the user's or the one that the model forces. If the runner chooses the backend,
    the size is already resolved. Otherwise an unset size counts as 1 (0.5.4.post1 and later,
    utils/common.py:2625).
    """
    topk = _topk(working)
    return topk is None or bool(topk == 1 and working.value(PAGE) in (None, 1))


def _trtllm_is_default(working: Working, major: int) -> bool:
    """True if trtllm_mha is the default: on Blackwell (0.5.6.post1 and later), but not
    for speculation with topk unset (0.5.7 and later)."""
    if working.in_versions("<0.5.6.post1") or not _chain_or_none(working):
        return False
    if working.in_versions("<0.5.7"):
        return major in (10, 12)
    if major != 10:
        return False
    algorithm = working.user_value("speculative_algorithm")
    if algorithm is None or working.user_value("speculative_eagle_topk") is not None:
        return True
    return drafts_chains(working)


def _asymmetric(working: Working) -> bool:
    """True if K and V rows differ in width (`has_asymmetric_kv`)."""
    config = working.target.config
    pairs = (("head_dim", "v_head_dim"), ("swa_head_dim", "swa_v_head_dim"))
    both = [(config.get(key), config.get(value)) for key, value in pairs]
    return any(None not in pair and pair[0] != pair[1] for pair in both)


def _fp8_e5m2(working: Working) -> None:
    if working.value(BOTH) == "fa3" and working.value("kv_cache_dtype") == "fp8_e5m2":
        why = "fa3 does not support an fp8_e5m2 cache"
        source = (
            "sglang 0.5.23 arg_groups/overrides.py:1262, 0.4.6 model_executor/model_runner.py:366"
        )
        if working.is_set(BOTH):
            working.change(ChangeKind.ATTENTION_BACKEND, BOTH, "triton", why, source)
        else:
            working.set(BOTH, "triton", why, source)


def _hierarchical_cache(working: Working) -> None:
    """Replace fa3 for decoding if the incompatible hierarchical cache is enabled (0.5.1 to
    0.5.13)."""
    with working.deciding(DECODE):
        if not working.in_versions(FA3_GIVES_WAY) or working.value(DECODE) is not None:
            return
        offload = working.in_versions(">=0.5.6") and working.value(
            "disaggregation_decode_enable_offload_kvcache"
        )
        if not (working.value("enable_hierarchical_cache") or offload):
            return
        if working.value("hicache_io_backend") != "kernel":
            return
        if working.value("hicache_mem_layout") == "page_first_direct":
            return  # the transfer becomes direct before this check
        if working.in_versions(">=0.5.8") and working.value(BOTH) != "fa3":
            return
        if working.architectures.uses_mla(working.target):
            backend = "flashinfer" if working.capability // 10 == 10 else "triton"
        elif working.architecture in working.architectures.attention_sinks:
            backend = "triton"
        else:
            backend = "flashinfer"
        working.change(
            ChangeKind.ATTENTION_BACKEND,
            DECODE,
            backend,
            "the hierarchical cache with kernel transfer needs a different decode backend",
            "sglang 0.5.10 server_args.py:2929, 0.5.4 server_args.py:1475",
            logged=False,
        )


_MINIMAX_M3 = ("MiniMaxM3SparseForCausalLM", "MiniMaxM3SparseForConditionalGeneration")
_KIMI = ("KimiLinearForCausalLM", "KimiK3ForConditionalGeneration")


def resolve_draft_attention(working: Working) -> None:
    """Set the draft backend that the target's model requires. For DFLASH, replace backends that
    its worker does not support."""
    with working.deciding(DRAFT):
        if working.user_value("speculative_algorithm") is None:
            return
        found = None if working.is_set(DRAFT) else _draft_by_model(working)
        if found is not None:
            backend, source = found
            why = f"the engine's choice for the draft of a {working.architecture}"
            working.set(DRAFT, backend, why, f"sglang {source}")
        _of_dflash(working)


def _draft_by_model(working: Working) -> tuple[str, str] | None:
    """Return the draft backend for the target's model (0.5.17 and later), with its source; None if
    the model has no default."""
    if working.in_versions("<0.5.17") or not working.may_be((*NEMOTRON_H, *_MINIMAX_M3, *_KIMI)):
        return None
    architecture, algorithm = working.architecture, str(working.algorithm)
    if architecture in NEMOTRON_H:
        return _nemotron_h(working, algorithm)
    if algorithm != "DSPARK":
        return None
    if architecture in _KIMI and working.capability // 10 == 10:
        return "trtllm_mha", "0.5.23 arg_groups/kimi_k3_hook.py:50, 0.5.17 :37"
    if architecture in _MINIMAX_M3 and working.in_versions(">=0.5.23") and _is_nvfp4(working):
        return "trtllm_mha", "0.5.23 arg_groups/model_overrides/minimax_m3.py:86"
    return None


def _nemotron_h(working: Working, algorithm: str) -> tuple[str, str] | None:
    """Return Nemotron-H's default draft backend (0.5.19 and later), with its source; None if it has
    none."""
    if not nemotron_h_has_defaults(working):
        return None
    source = "0.5.23 arg_groups/model_overrides/nemotron_h.py:139, 0.5.19 :113"
    if nemotron_h_verifies_on_trtllm(working):
        return ("trtllm_mha", source) if algorithm in ("EAGLE", "DSPARK") else None
    return ("flashinfer", source) if algorithm in ("EAGLE", "DFLASH", "DSPARK") else None


def _is_nvfp4(working: Working) -> bool:
    method = working.user_value("quantization")
    if method is not None:
        return bool(method == "minimax_m3_nvfp4")
    own = of_config(working, "quantization_config")
    return isinstance(own, Mapping) and own.get("quant_method") == "minimax_m3_nvfp4"


def _of_dflash(working: Working) -> None:
    """Set the backend of a DFLASH draft: the user's, else the target's prefill backend.

    Replaces even the user's backend if the draft worker does not support it
    (`_resolve_dflash_draft_attention_backend`, 0.5.15 and later).
    """
    if working.in_versions("<0.5.15") or working.algorithm != "DFLASH":
        return
    if DRAFT in working.resolved and _supported(working, working.value(DRAFT)) == working.value(
        DRAFT
    ):
        return  # the model's choice, which the worker supports
    requested = working.value(DRAFT)
    backend = requested or working.backend(PREFILL)
    backend = backend or working.backend(BOTH)
    found = _supported(working, backend)
    if requested is not None and found != requested:
        working.change(
            ChangeKind.ATTENTION_BACKEND,
            DRAFT,
            found,
            f"the DFLASH draft worker does not support {requested}",
            "sglang 0.5.23 arg_groups/speculative_hook.py:933, 0.5.15 :270",
        )
    else:
        why = f"same as the target's prefill backend ({backend})"
        if backend is None:
            why = "the draft worker does not support the target's backend"
        elif found != backend:
            why = (
                f"the DFLASH draft worker does not support {backend}, the target's prefill backend"
            )
        working.set(
            DRAFT,
            found,
            "set by the user" if requested is not None else why,
            "sglang 0.5.23 arg_groups/speculative_hook.py:986, 0.5.15 :270",
        )


def _supported(working: Working, backend: str | None) -> str:
    fallback = "triton" if working.is_hip else "flashinfer"
    if backend is None:
        return fallback
    if speculation.dflash_drafts_on(working, backend):
        return backend
    if backend == "trtllm_mha" and working.in_versions(">=0.5.23"):
        return "fa4" if working.capability // 10 == 10 else fallback
    return fallback
