"""Resolves the page size, and the attention backends that depend on the target's architecture.

The page size is the user's or the default, unless a backend forces another size.
"""

from __future__ import annotations

from collections.abc import Callable

from speclaunch.engine.plan.plan import ChangeKind, UnknownValueError
from speclaunch.engine.plan.resolution.models import (
    is_sparse,
    nemotron_h_verifies_on_trtllm,
    of_config,
)
from speclaunch.engine.plan.resolution.working import Working
from speclaunch.engine.plan.topics.attention import (
    BACKENDS,
    BOTH,
    BUFFERED,
    DECODE,
    DRAFT,
    PREFILL,
    STRATEGY,
)

PAGE = "page_size"


def force_page(working: Working, size: int, what: str) -> None:
    """Set the page size that `what` needs, overriding the user's value."""
    explicit = working.user_value(PAGE)
    source = (
        "sglang 0.5.23 arg_groups/overrides.py:1143, 0.5.3 server_args.py:985, "
        "0.4.6 server_args.py:296"
    )
    if explicit is None or explicit == size or working.value(PAGE) == size:
        working.set(PAGE, size, f"{what} needs pages of {size}", source)
        return
    working.change(
        ChangeKind.PAGE_SIZE, PAGE, size, f"{what} needs pages of {size}, not {explicit}", source
    )


def resolve_pages(working: Working) -> None:
    """Resolve the page size by backend (`_mla_backend_page_constraints` and similar functions)."""
    with working.deciding(PAGE):
        _by_backend(working)
        if working.value(PAGE) is None:
            size = _default(working)
            why = "the default, because no backend needs larger pages"
            if size != 1:
                why = "the default with aiter's vectorized cache layout"
            source = "sglang 0.5.23 arg_groups/overrides.py:1339, 0.4.6 server_args.py:77"
            working.set(PAGE, size, why, source)


def _by_backend(working: Working) -> None:
    both, decode, prefill = (working.backend(name) for name in BACKENDS)
    if "flashmla" in (both, decode):
        force_page(working, 64, "flashmla")
    if "cutlass_mla" in (both, decode) and working.in_versions("<0.5.20"):
        force_page(working, 128, "cutlass_mla")
    if "trtllm_mla" in (both, decode) and working.in_versions(">=0.4.10"):
        _require_page_size(working, (32, 64), "trtllm_mla")
    if "tokenspeed_mla" in (both, decode):
        _require_page_size(working, (32, 64), "tokenspeed_mla")
    if "cutedsl_mla" in (both, decode, prefill):
        _require_page_size(working, (32, 64), "cutedsl_mla")
    backends = [both, decode, prefill]
    if working.in_versions(">=0.5.17"):
        backends.append(working.value(DRAFT))
    if "trtllm_mha" in backends:
        sizes = (16, 32, 64, 128) if working.in_versions(">=0.5.17") else (16, 32, 64)
        _require_page_size(working, sizes, "trtllm_mha")
    if "hpc_ops" in (both, decode, prefill):
        _require_page_size(working, (64,), "hpc_ops")
    if "fa4" in (both, decode, prefill):
        _fa4(working, both, decode, prefill)


def _require_page_size(working: Working, sizes: tuple[int, ...], backend: str) -> None:
    if working.value(PAGE) not in sizes:
        force_page(working, 64, backend)


def _fa4(working: Working, both: str | None, decode: str | None, prefill: str | None) -> None:
    """Force pages of 128 tokens for fa4 (0.5.4 and later), but not for latent attention (0.5.5 and
    later)."""
    used = (both, decode, prefill) if working.in_versions(">=0.5.15") else (prefill,)
    if "fa4" not in used or working.in_versions("<0.5.4"):
        return
    if working.in_versions(">=0.5.5") and working.architectures.uses_mla(working.target):
        return
    if working.in_versions(">=0.5.10") and working.capability // 10 != 10:
        return
    if working.in_versions(">=0.5.15") and (working.user_value("speculative_eagle_topk") or 0) > 1:
        return
    diffusion = "DiffusionGemmaForBlockDiffusion" in working.target.architectures
    if working.in_versions(">=0.5.22") and diffusion:
        force_page(working, 1, "fa4 for block diffusion")
        return
    force_page(working, 128, "fa4")


def _default(working: Working) -> int:
    layout = "SGLANG_AITER_KV_CACHE_LAYOUT"
    if (
        working.in_versions(">=0.5.13")
        and (working.plan.env(layout) or "").lower() == "vectorized_5d"
    ):
        return 64 if working.is_hip else 1
    return 1


_Choose = Callable[[Working, str], None]
"""A function that sets the backend for a model. Its second argument is the source in the engine."""


def by_model(working: Working) -> None:
    """Apply the engine's model-specific backends and page sizes (0.5.1 and later).

    On a CPU the backend is already chosen, so only the page size is set.

    Raises UnknownValueError for models whose rules are not modeled here.
    """
    if working.in_versions("<0.5.1"):
        return
    known = working.architectures.attention_overrides
    if not (working.may_be(known) or working.may_be(working.architectures.sparse_attention)):
        return
    if working.device not in ("cuda", "cpu"):
        return
    architecture = working.architecture
    if architecture not in known and not architecture.startswith(("Llama4", "Deepseek")):
        return
    for names, choose, source in _CHOICES:
        if architecture.startswith(names):
            choose(working, f"sglang {source}")
            return
    if not_set(working):
        raise UnknownValueError(
            f"the attention backend that SGLang chooses for {architecture} is unknown"
        )


def not_set(working: Working) -> bool:
    """True if none of the three attention backends is set (`is_attention_backend_not_set`)."""
    if working.device == "cpu":
        return False
    return all(working.value(name) is None for name in BACKENDS)


def _major(working: Working) -> int:
    """Return the major compute capability (Hopper: 9, Blackwell: 10 or 12); 0 for other devices."""
    return working.capability // 10


def _take(working: Working, backend: str, source: str) -> None:
    working.set(BOTH, backend, _why(working), source)


def _why(working: Working) -> str:
    on = "AMD GPUs"
    if not working.is_hip:
        on = f"compute capability {working.capability // 10}.{working.capability % 10}"
    return f"the engine's choice for {working.architecture} on {on}"


def _deepseek(working: Working, source: str) -> None:
    if working.in_versions("<0.5.3"):
        return
    if is_sparse(working):
        _sparse(working)
        return
    known = working.architecture in working.architectures.attention_overrides
    if known and _major(working) == 10 and not_set(working):
        _take(working, "trtllm_mla", source)


def _sparse(working: Working) -> None:
    """Set the backend and page size for DeepSeek's sparse attention.

    0.5.3 to 0.5.5 also force DP attention.
    """
    source = "sglang 0.5.23 arg_groups/model_overrides/deepseek_v2.py:103, 0.5.3 server_args.py:946"
    if not_set(working):
        _take(working, "dsa" if working.in_versions(">=0.5.13") else "nsa", source)
    if working.in_versions("<0.5.6"):
        _all_ranks(working)
    if working.is_hip:
        if working.in_versions(">=0.5.12"):
            raise UnknownValueError("aiter's page layout is unknown")
        force_page(working, 1 if working.in_versions(">=0.5.8") else 64, "sparse attention")
        return
    groups = 1
    if working.in_versions(">=0.5.22"):
        groups = int(of_config(working, "index_kpool") or 1)
    force_page(working, 64 * groups, "DeepSeek's sparse attention")


def _all_ranks(working: Working) -> None:
    source = "sglang 0.5.3 server_args.py:950"
    why = "DeepSeek's sparse attention runs with DP attention across all ranks"
    ranks = working.number("tp_size", 1)
    for name, value in (("enable_dp_attention", True), ("dp_size", ranks)):
        if working.value(name) != value:
            working.change(ChangeKind.DP_ATTENTION, name, value, why, source)


def _gpt_oss(working: Working, source: str) -> None:
    free = not_set(working) if working.in_versions(">=0.5.3") else working.value(BOTH) is None
    if not free:
        return
    if working.is_hip:
        _take(working, "aiter" if working.in_versions(">=0.5.10") else "triton", source)
        return
    _take(working, {10: "trtllm_mha", 9: "fa3"}.get(_major(working), "triton"), source)


def _llama4(working: Working, source: str) -> None:
    if working.in_versions("<0.5.6") or working.device == "cpu" or working.value(BOTH) is not None:
        return
    if working.is_hip:
        _take(working, "aiter", source)
        return
    _take(working, {10: "trtllm_mha", 9: "fa3"}.get(_major(working), "triton"), source)


def _olmo2(working: Working, source: str) -> None:
    if working.value(BOTH) is not None or working.device == "cpu":
        return
    major = _major(working)
    fallback = "fa3" if major >= 8 else "triton"
    _take(working, "trtllm_mha" if major == 10 else fallback, source)


def _exaone(working: Working, source: str) -> None:
    if of_config(working, "sliding_window_pattern") is not None:
        _olmo2(working, source)


def _gemma4(working: Working, source: str) -> None:
    if working.device == "cpu":
        return
    if working.value(BOTH) is not None or (working.in_versions("<0.5.13") and not not_set(working)):
        return
    blackwell = working.in_versions(">=0.5.13") and _major(working) == 10
    if blackwell and working.in_versions("<0.5.14"):
        raise UnknownValueError("the quantization of the experts (modelopt or not) is unknown")
    _take(working, "trtllm_mha" if blackwell else "triton", source)


def _step3(working: Working, source: str) -> None:
    if not not_set(working):
        return
    major = _major(working)
    if major in (10, 11, 12):
        _take(working, "fa4", source)
    elif major == 9:
        _take(working, "fa3", source)


def _deepseek_v4(working: Working, source: str) -> None:
    if working.value(BOTH) != "dsv4" and working.is_set(BOTH):
        why = "DeepSeek V4 has its own backend"
        working.change(ChangeKind.ATTENTION_BACKEND, BOTH, "dsv4", why, source)
    else:
        _take(working, "dsv4", source)
    force_page(working, 256, "DeepSeek V4")


def _nemotron_h(working: Working, source: str) -> None:
    major = _major(working)
    if working.in_versions("<0.5.19"):
        if major == 10 and working.value(BOTH) is None:
            _take(working, "flashinfer", source)
        return
    if major not in (10, 11, 12) or not not_set(working):
        return
    if working.user_value("speculative_algorithm") is None:
        if major == 10:
            _take(working, "trtllm_mha", source)
        return
    if nemotron_h_verifies_on_trtllm(working):
        _take(working, "trtllm_mha", source)
        if working.user_value("page_size") is None:
            why = "trtllm_mha uses pages of 64 for this model"
            working.set("page_size", 64, why, source)
    else:
        _take(working, "triton", source)


def _mimo_v2(working: Working, source: str) -> None:
    if _major(working) == 10 and not_set(working):
        _take(working, "fa4", source)


def _iquest(working: Working, source: str) -> None:
    if not_set(working):
        _take(working, "fa3", source)
    elif working.value(BOTH) is None:
        for name in (PREFILL, DECODE):
            if working.value(name) is None:
                working.set(name, "fa3", _why(working), source)


def _blackwell(backend: str) -> _Choose:

    def choose(working: Working, source: str) -> None:
        if working.value(BOTH) is None and _major(working) == 10:
            _take(working, backend, source)

    return choose


def _granite(working: Working, source: str) -> None:
    layers = working.target.config.get("layer_types") or ()
    if "mamba" in layers:
        _blackwell("flashinfer" if working.in_versions(">=0.5.13") else "triton")(working, source)


def _qwen_hybrid(working: Working, source: str) -> None:
    """Set trtllm_mha for Qwen3-Next and Qwen3.5 on Blackwell if its page sizes are allowed, else
    triton."""
    if working.value(BOTH) is not None or _major(working) != 10:
        return
    if working.in_versions("<0.5.10"):
        _take(working, "triton", source)
        return
    if _trtllm_has_its_pages(working):
        _take(working, "trtllm_mha", source)
        if working.in_versions(">=0.5.14"):
            force_page(working, 64, "trtllm_mha")
    else:
        _take(working, "triton", source)
        if working.in_versions(">=0.5.14"):
            force_page(working, 1, "the cache of linear attention")


def _trtllm_has_its_pages(working: Working) -> bool:
    """True if trtllm_mha would be the default and nothing requires a page size of 1."""
    topk = working.user_value("speculative_eagle_topk")
    algorithm = working.user_value("speculative_algorithm")
    page = working.user_value("page_size")
    if topk is not None and not (topk == 1 and page in (None, 1)):
        return False
    if algorithm is not None and topk is None and not drafts_chains(working):
        return False
    if working.value("disable_radix_cache") or algorithm is not None:
        return True
    return bool(working.value(STRATEGY) in BUFFERED)  # `auto` is not resolved yet


def drafts_chains(working: Working) -> bool:
    """True if the algorithm counts as chain drafting even if topk is unset: DFLASH from 0.5.23
    on."""
    algorithm = working.user_value("speculative_algorithm")
    return working.in_versions(">=0.5.23") and str(algorithm).upper() == "DFLASH"


def _nothing(_: Working, __: str) -> None:
    """Do nothing: the engine's rule affects no backend, or only other platforms."""


_OWN = "0.5.23 arg_groups/model_overrides"
_CHOICES: tuple[tuple[str | tuple[str, ...], _Choose, str], ...] = (
    (
        "DeepseekV4",
        _deepseek_v4,
        f"{_OWN}/deepseek_v4.py:21, 0.5.12 arg_groups/deepseek_v4_hook.py:15",
    ),
    (
        ("Deepseek", "KimiK25", "MistralLarge3", "Pixtral", "GlmMoeDsa", "Glm5Next"),
        _deepseek,
        f"{_OWN}/deepseek_v2.py:185, 0.5.3 server_args.py:842",
    ),
    (("HYV4", "LongcatFlash", "Dots3Note"), _deepseek, f"{_OWN}/deepseek_v2.py:185"),
    ("GptOss", _gpt_oss, f"{_OWN}/gpt_oss.py:31, 0.5.3 server_args.py:867"),
    ("Llama4", _llama4, f"{_OWN}/llama4.py:37, 0.5.6 server_args.py:1182"),
    ("Olmo2", _olmo2, f"{_OWN}/olmo2.py:26"),
    ("Exaone", _exaone, f"{_OWN}/exaone.py:25"),
    ("Gemma4", _gemma4, f"{_OWN}/gemma4.py:39"),
    ("Step3p", _step3, "0.5.23 arg_groups/overrides.py:342"),
    ("NemotronH", _nemotron_h, f"{_OWN}/nemotron_h.py:130"),
    ("MiMoV2", _mimo_v2, f"{_OWN}/mimo_v2.py:28"),
    ("IQuestQ1", _iquest, f"{_OWN}/iquest_q1.py:43"),
    (("FalconH1", "JetNemotron", "JetVLM"), _blackwell("triton"), f"{_OWN}/falcon_h1.py:18"),
    ("MiniCPMV4_", _blackwell("triton"), f"{_OWN}/minicpmv.py:17"),
    ("Lfm2", _blackwell("flashinfer"), f"{_OWN}/lfm2.py:16"),
    ("GraniteMoeHybrid", _granite, f"{_OWN}/granitemoehybrid.py:19"),
    (
        ("Qwen3Next", "Qwen3_5", "InternS2"),
        _qwen_hybrid,
        f"{_OWN}/qwen3_5.py:47, 0.5.6 server_args.py:1319",
    ),
    (("Qwen3MoeForCausalLM", "Qwen3VL"), _nothing, ""),
)
