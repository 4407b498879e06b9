"""Backends and pages that the engine chooses by the architecture of the target."""

from __future__ import annotations

from collections.abc import Callable

from speclaunch.plan.plan import UnknownValueError
from speclaunch.plan.resolution.models import is_sparse, of_config
from speclaunch.plan.resolution.pages import force_page
from speclaunch.plan.resolution.working import Working

BOTH = "attention_backend"
PREFILL = "prefill_attention_backend"
DECODE = "decode_attention_backend"


def by_model(working: Working) -> None:
    """What the engine's model-specific adjustments choose (0.5.1 and later).

    On a CPU the backend is chosen before them; they set the pages alone.

    Raises UnknownValueError for models whose rules are not modelled here, where they may apply.
    """
    if not working.since("0.5.1"):
        return
    known = working.architectures.attention_overrides
    if not (working.may_be(known) or _sparse_is_possible(working)):
        return
    if working.device not in ("cuda", "cpu"):
        return
    architecture = working.architecture
    if architecture not in known and not architecture.startswith(("Llama4", "Deepseek")):
        return
    for names, choose in _CHOICES:
        if architecture.startswith(names):
            choose(working)
            return
    if not_set(working):
        raise UnknownValueError(f"how the engine chooses a backend for {architecture}")


def not_set(working: Working) -> bool:
    """Whether none of the three backends is chosen (`is_attention_backend_not_set`)."""
    if working.device == "cpu":
        return False
    return all(working.value(name) is None for name in (BOTH, PREFILL, DECODE))


def _sparse_is_possible(working: Working) -> bool:
    return working.may_be(working.architectures.sparse_attention)


def _major(working: Working) -> int:
    """The first part of the compute capability: 9 Hopper, 10 and 12 Blackwell; 0 otherwise."""
    return working.capability // 10


def _deepseek(working: Working) -> None:
    """DeepSeek V3 and its relatives: sparse attention, or trtllm_mla on Blackwell."""
    if not working.since("0.5.3"):
        return
    if is_sparse(working):
        _sparse(working)
        return
    known = working.architecture in working.architectures.attention_overrides
    if known and _major(working) == 10 and not_set(working):
        working.set(BOTH, "trtllm_mla")


def _sparse(working: Working) -> None:
    """DeepSeek V3.2: its own backend and pages of 64; 0.5.3 to 0.5.5 also force DP attention."""
    if not_set(working):
        working.set(BOTH, "dsa" if working.since("0.5.13") else "nsa")
    if not working.since("0.5.6"):
        _all_ranks(working)
    if working.is_hip:
        if working.since("0.5.12"):
            raise UnknownValueError("whether aiter shuffles the pages is not known")
        force_page(working, 1 if working.since("0.5.8") else 64, "sparse attention")
        return
    groups = 1
    if working.since("0.5.22"):
        groups = int(of_config(working, "index_kpool") or 1)
    force_page(working, 64 * groups, "DeepSeek's sparse attention")


def _all_ranks(working: Working) -> None:
    source = "sglang 0.5.3 server_args.py:950"
    why = "DeepSeek's sparse attention runs with DP attention over all ranks"
    ranks = working.number("tp_size", 1)
    for name, value in (("enable_dp_attention", True), ("dp_size", ranks)):
        if working.value(name) != value:
            working.change("SPL910", name, value, why, source)


def _gpt_oss(working: Working) -> None:
    free = not_set(working) if working.since("0.5.3") else working.value(BOTH) is None
    if not free:
        return
    if working.is_hip:
        working.set(BOTH, "aiter" if working.since("0.5.10") else "triton")
        return
    working.set(BOTH, {10: "trtllm_mha", 9: "fa3"}.get(_major(working), "triton"))


def _llama4(working: Working) -> None:
    if not working.since("0.5.6") or working.device == "cpu" or working.value(BOTH) is not None:
        return
    if working.is_hip:
        working.set(BOTH, "aiter")
        return
    working.set(BOTH, {10: "trtllm_mha", 9: "fa3"}.get(_major(working), "triton"))


def _olmo2(working: Working) -> None:
    if working.value(BOTH) is not None or working.device == "cpu":
        return
    major = _major(working)
    fallback = "fa3" if major >= 8 else "triton"
    working.set(BOTH, "trtllm_mha" if major == 10 else fallback)


def _exaone(working: Working) -> None:
    if of_config(working, "sliding_window_pattern") is not None:
        _olmo2(working)


def _gemma4(working: Working) -> None:
    if working.device == "cpu":
        return
    if working.value(BOTH) is not None or (not working.since("0.5.13") and not not_set(working)):
        return
    blackwell = working.since("0.5.13") and _major(working) == 10
    if blackwell and working.since("0.5.13") and not working.since("0.5.14"):
        raise UnknownValueError("whether the experts are quantised by modelopt is not known")
    working.set(BOTH, "trtllm_mha" if blackwell else "triton")


def _step3(working: Working) -> None:
    if not not_set(working):
        return
    major = _major(working)
    if major in (10, 11, 12):
        working.set(BOTH, "fa4")
    elif major == 9:
        working.set(BOTH, "fa3")


def _deepseek_v4(working: Working) -> None:
    if working.value(BOTH) != "dsv4" and working.is_given(BOTH):
        why = "DeepSeek V4 has a backend of its own"
        source = (
            "sglang 0.5.23 arg_groups/model_overrides/deepseek_v4.py:21, "
            "0.5.12 arg_groups/deepseek_v4_hook.py:15"
        )
        working.change("SPL919", BOTH, "dsv4", why, source)
    else:
        working.set(BOTH, "dsv4")
    force_page(working, 256, "DeepSeek V4")


def _nemotron_h(working: Working) -> None:
    """Attention between Mamba layers: no triton before 0.5.19."""
    major = _major(working)
    if not working.since("0.5.19"):
        if major == 10 and working.value(BOTH) is None:
            working.set(BOTH, "flashinfer")
        return
    if major not in (10, 11, 12) or not not_set(working):
        return
    if working.given("speculative_algorithm") is None:
        if major == 10:
            working.set(BOTH, "trtllm_mha")
        return
    if major == 10 and working.given("speculative_eagle_topk") in (None, 1):
        working.set(BOTH, "trtllm_mha")
        if working.given("page_size") is None:
            working.set("page_size", 64)
    else:
        working.set(BOTH, "triton")


def _mimo_v2(working: Working) -> None:
    if _major(working) == 10 and not_set(working):
        working.set(BOTH, "fa4")


def _iquest(working: Working) -> None:
    if not_set(working):
        working.set(BOTH, "fa3")
    elif working.value(BOTH) is None:
        for name in (PREFILL, DECODE):
            if working.value(name) is None:
                working.set(name, "fa3")


def _blackwell(backend: str) -> Callable[[Working], None]:
    """Models with a choice for Blackwell alone."""

    def choose(working: Working) -> None:
        if working.value(BOTH) is None and _major(working) == 10:
            working.set(BOTH, backend)

    return choose


def _granite(working: Working) -> None:
    layers = working.target.config.get("layer_types") or ()
    if "mamba" in layers:
        _blackwell("flashinfer" if working.since("0.5.13") else "triton")(working)


def _qwen_hybrid(working: Working) -> None:
    """Qwen3-Next and Qwen3.5: triton on Blackwell, or trtllm_mha where its pages can be had."""
    if working.value(BOTH) is not None or _major(working) != 10:
        return
    if not working.since("0.5.10"):
        working.set(BOTH, "triton")
        return
    if _trtllm_has_its_pages(working):
        working.set(BOTH, "trtllm_mha")
        if working.since("0.5.14"):
            force_page(working, 64, "trtllm_mha")
    else:
        working.set(BOTH, "triton")
        if working.since("0.5.14"):
            force_page(working, 1, "the cache of linear attention")


def _trtllm_has_its_pages(working: Working) -> bool:
    """Whether trtllm_mha would be the default, and nothing needs pages of 1."""
    topk = working.given("speculative_eagle_topk")
    algorithm = working.given("speculative_algorithm")
    page = working.given("page_size")
    if topk is not None and not (topk == 1 and page in (None, 1)):
        return False
    dflash = working.since("0.5.23") and str(algorithm).upper() == "DFLASH"
    if algorithm is not None and topk is None and not dflash:
        return False
    if working.value("disable_radix_cache") or algorithm is not None:
        return True
    return _extra_buffer(working)


def _extra_buffer(working: Working) -> bool:
    """Whether states of linear attention have a buffer beside the cache."""
    strategy = working.value("mamba_radix_cache_strategy")  # `auto` is not decided yet
    return bool(strategy in ("extra_buffer", "extra_buffer_lazy"))


def _nothing(_: Working) -> None:
    """The engine has a rule that does not touch the backend, or only that of other platforms."""


_CHOICES: tuple[tuple[str | tuple[str, ...], Callable[[Working], None]], ...] = (
    ("DeepseekV4", _deepseek_v4),
    (("Deepseek", "KimiK25", "MistralLarge3", "Pixtral", "GlmMoeDsa", "Glm5Next"), _deepseek),
    (("HYV4", "LongcatFlash", "Dots3Note"), _deepseek),
    ("GptOss", _gpt_oss),
    ("Llama4", _llama4),
    ("Olmo2", _olmo2),
    ("Exaone", _exaone),
    ("Gemma4", _gemma4),
    ("Step3p", _step3),
    ("NemotronH", _nemotron_h),
    ("MiMoV2", _mimo_v2),
    ("IQuestQ1", _iquest),
    (("FalconH1", "JetNemotron", "JetVLM"), _blackwell("triton")),
    ("MiniCPMV4_", _blackwell("triton")),
    ("Lfm2", _blackwell("flashinfer")),
    ("GraniteMoeHybrid", _granite),
    (("Qwen3Next", "Qwen3_5", "InternS2"), _qwen_hybrid),
    (("Qwen3MoeForCausalLM", "Qwen3VL"), _nothing),
)
