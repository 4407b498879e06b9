"""Which numbers of tokens of prefill get a graph: the list exists whether graphs are on or off."""

from __future__ import annotations

from speclaunch.plan.resolution.prefill_graphs import given_backend
from speclaunch.plan.resolution.working import Working, counted
from speclaunch.plan.topics.graphs import BACKENDS_BY_PHASE, EAGER, span
from speclaunch.plan.topics.graphs import PREFILL_BACKEND as BACKEND
from speclaunch.plan.topics.parallel import attention_ranks

LIST = "cuda_graph_bs_prefill"
MOST = "cuda_graph_max_bs_prefill"
_CHUNK = "chunked_prefill_size"
_NOT_CLAMPED = "<0.5.16"
_SOURCE = (
    "sglang 0.5.23 arg_groups/cuda_graph_hook.py:480, 0.5.10 server_args.py:1397, "
    "0.5.3 server_args.py:797"
)


def resolve_prefill_sizes(working: Working) -> None:
    """The list and its end (0.5.3 and later)."""
    if working.in_versions("<0.5.3"):
        return
    with working.deciding(LIST, MOST):
        most = _most(working)
        if working.given(LIST) is None:
            _list(working, _sizes(working, most))


def settle_prefill_graphs(working: Working) -> None:
    """What is changed once attention backends and chunks are known; the fraction is not.

    DeepSeek V3 with trtllm_mla goes without graphs of prefill (0.5.15 and later). Where DP
    attention has divided the chunk, no graph has more tokens than the rest (0.5.16 and later).
    """
    with working.deciding(BACKEND):
        backend = (
            working.backend("attention_backend") if working.in_versions(BACKENDS_BY_PHASE) else None
        )
        if backend in EAGER and working.value(BACKEND) != "disabled":
            source = "sglang 0.5.23 arg_groups/attention_hook.py:124, 0.5.14 server_args.py:4494"
            working.set(BACKEND, "disabled", f"{backend} runs without CUDA graphs", source)
        if working.in_versions(">=0.5.15") and _falls_back(working):
            why = "trtllm_mla in a graph of prefill falls back to a slower kernel for DeepSeek V3"
            source = "sglang 0.5.23 arg_groups/cuda_graph_hook.py:279, 0.5.18 server_args.py:4732"
            working.set(BACKEND, "disabled", why, source)
    with working.deciding(LIST, MOST):
        if working.in_versions(_NOT_CLAMPED) or attention_ranks(working) == 1:
            return
        chunk = working.number(_CHUNK)
        if working.value(BACKEND) == "disabled" or working.given(MOST) is not None:
            return
        if int(working.value(MOST)) > chunk:
            why = f"at most a rank's chunk of prefill, {chunk}"
            source = "sglang 0.5.23 arg_groups/parallel_hook.py:338, 0.5.18 server_args.py:6692"
            working.set(MOST, chunk, why, source)
            if working.given(LIST) is None:
                _list(working, _spans(working, chunk))


def _falls_back(working: Working) -> bool:
    names = ("DeepseekV3ForCausalLM",)
    if given_backend(working) is not None or not working.may_be(names):
        return False
    if working.value(BACKEND) == "disabled" or working.architecture not in names:
        return False
    prefill = working.backend("prefill_attention_backend")
    return (prefill or working.backend("attention_backend")) == "trtllm_mla"


def _list(working: Working, sizes: list[int]) -> None:
    end = f" up to {sizes[-1]} tokens, coarser as they grow" if sizes else ""
    working.set(LIST, sizes, counted(len(sizes), "size") + end, _SOURCE)


def _sizes(working: Working, most: int) -> list[int]:
    """`generate_prefill_cuda_graph_batch_sizes`, and what DeepEP makes of it from 0.5.17 on."""
    aligned = _aligned(working)
    if aligned:
        most = int(working.given(MOST) or 2048)  # it is not chosen yet
    sizes = _spans(working, most)
    return sorted({-(-size // 8) * 8 for size in sizes}) if aligned else sizes


def _aligned(working: Working) -> bool:
    """Whether DeepEP has all sizes divide by 8, and the list before its end is chosen."""
    deepep = working.in_versions(">=0.5.17") and working.value("moe_a2a_backend") == "deepep"
    return deepep and working.value(BACKEND) == "breakable"


def _spans(working: Working, most: int) -> list[int]:
    """The list up to a number of tokens."""
    spans = [(4, 32, 4), (48, 256, 16), (288, 512, 32)]
    if working.in_versions(">=0.5.8"):
        first = 576 if working.in_versions(">=0.5.9") else 640
        spans += [(first, 1024, 64), (1280, 4096, 256), (4608, most, 512)]
    else:
        spans += [(640, 4096, 128), (4352, most, 256)]
    sizes = [size for low, high, step in spans for size in span(low, high, step)]
    return [size for size in sizes if size <= most]


def _most(working: Working) -> int:
    """The most tokens of a graph of prefill."""
    most = working.given(MOST)
    why = "as it was given"
    if most is None:
        most, why = _default(working)
    context = working.given("context_length")
    capped = working.in_versions(">=0.5.13") and working.in_versions("<0.5.17")
    if capped and context is not None and int(context) < int(most):
        most, why = int(context), f"at most context_length, {context}"
    source = "sglang 0.5.23 arg_groups/memory_hook.py:233, 0.5.10 server_args.py:1254"
    working.set(MOST, int(most), why, source)
    return int(most)


def _default(working: Working) -> tuple[int, str]:
    if _aligned(working):
        return 2048, "2048 tokens with DeepEP"
    if working.in_versions("<0.5.7"):
        most = int(working.plan.default(MOST))
        return most, f"{most}: the default of this version's parser"
    most = working.number(_CHUNK)
    why = f"as many as a chunk of prefill has, {most}"
    if working.in_versions(">=0.5.8") and working.architectures.uses_mla(working.target):
        most = min(8192, most) if working.in_versions(">=0.5.19") else 2048
        why = f"{most} tokens for latent attention (MLA)"
    pipeline = working.in_versions(">=0.5.19") and working.number("pp_size", 1) > 1
    pipeline = pipeline and working.given(LIST) is None and most > 8192
    if pipeline and working.value(BACKEND) == "breakable":
        most, why = 8192, "8192 tokens for the stages of a pipeline"
    total = working.given("max_total_tokens")
    if working.in_versions(">=0.5.10") and total is not None and int(total) < most:
        most, why = int(total), f"at most max_total_tokens, {total}"
    old_llama = "llama-2" in str(working.given("model_path")).lower()
    if working.in_versions(">=0.5.10") and old_llama and most > 4096:
        most, why = 4096, "4096 tokens for Llama 2"
    return most, why
