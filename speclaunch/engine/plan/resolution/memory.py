"""Resolves sizes that depend on GPU memory: prefill chunks, graphs, and `mem_fraction_static`.

The fraction is the share of memory that remains after the engine's reserve. These steps always run
before the speculative handler, so its default of 48 running requests has no effect here.
"""

from __future__ import annotations

from collections.abc import Mapping

from speclaunch.engine.plan.plan import ChangeKind, UnknownValueError
from speclaunch.engine.plan.resolution.graphs import (
    PREFILL_MOST,
    PREFILL_SIZES,
    resolve_prefill_graphs,
    resolve_prefill_sizes,
    resolve_sizes,
)
from speclaunch.engine.plan.resolution.models import is_multimodal
from speclaunch.engine.plan.resolution.working import Working, counted
from speclaunch.engine.plan.topics import gpu, parallel
from speclaunch.engine.plan.topics.algorithms import RUNNING
from speclaunch.engine.plan.topics.gpu import CHUNK, FRACTION, MOST, SIZES, draft_in_pool
from speclaunch.engine.plan.topics.parallel import attention_ranks
from speclaunch.engine.plan.topics.target import has_architecture

_GIB = 1024
_SOURCE = (
    "sglang 0.5.23 arg_groups/memory_hook.py:289, 0.5.10 server_args.py:1281, "
    "0.5.3 server_args.py:719"
)


class Reserve:
    """The memory that the engine reserves, in MiB, with the purpose of each part."""

    def __init__(self) -> None:
        self.mib = 0.0
        self._parts: list[str] = []

    def add(self, mib: float, what: str) -> None:
        if mib:
            self.mib += mib
            self._parts.append(f"{mib:g} {what}")

    def at_least(self, mib: float, what: str) -> None:
        if self.mib < mib:
            self.mib = mib
            self._parts.append(f"raised to {mib:g} {what}")

    def __str__(self) -> str:
        return ", ".join(self._parts)


def resolve_fraction(working: Working) -> None:
    """Set `mem_fraction_static` if the user did not."""
    with working.deciding(FRACTION):
        if working.user_value(FRACTION) is None:
            _fraction(working)


def _fraction(working: Working) -> None:
    memory = working.gpu_memory
    if working.in_versions("<0.4.7"):
        _by_the_ranks(working, memory)
        return
    source = _SOURCE
    if working.in_versions(">=0.5.3"):
        reserve = _reserve(working, memory)
    else:
        reserve = _reserve_by_class(working, memory or 0)
        source = "sglang 0.4.10 server_args.py:323"
    if memory is None:
        fraction = 0.95 if working.in_versions(">=0.5.20") else 0.88
        why = f"{fraction}: the engine does not know how much memory the device has"
    else:
        fraction = round((memory - reserve.mib) / memory, 3)
        why = f"({memory} - {reserve.mib:g}) / {memory} MiB; reserved: {reserve}"
    if _has_a_vision_encoder(working):
        factor = _vision_factor(working)
        fraction *= factor
        why += f"; times {factor:.3f} for the vision encoder"
    working.set(FRACTION, fraction, why, source)


def _by_the_ranks(working: Working, memory: int | None) -> None:
    """Set the fraction as 0.4.6 does, by rank count and GPU memory (server_args.py:247)."""
    ranks = working.number("tp_size", 1) * working.number("pp_size", 1)
    fraction, why = 0.88, f"0.88 for {counted(ranks, 'rank')}"
    if memory is not None and memory <= 81920:
        steps = ((16, 0.79), (8, 0.81), (4, 0.85), (2, 0.87))
        fraction = next((value for least, value in steps if ranks >= least), 0.88)
        why = f"{fraction} for {counted(ranks, 'rank')}, tp_size times pp_size"
    if memory is not None and memory > 96 * _GIB:
        more = fraction + 48 * _GIB * (1 - fraction) / memory
        fraction = min(more, (memory - _GIB * 18) / memory)
        why = f"above 0.88, because the GPU has {memory} MiB (over 98304); 18 GiB remain free"
    working.set(FRACTION, fraction, why, "sglang 0.4.6 server_args.py:247")


def _reserve_by_class(working: Working, memory: int) -> Reserve:
    """Return the reserve that 0.4.7 to 0.5.2 choose by GPU class (0.4.10 server_args.py:327)."""
    reserve = Reserve()
    ranks = working.number("tp_size", 1) * working.number("pp_size", 1)
    if memory < 35 * _GIB:
        reserve.add(
            (2.8 + ranks / 10) * _GIB, f"for GPUs below 35 GiB and {counted(ranks, 'rank')}"
        )
    elif memory < 90 * _GIB:
        reserve.add((9.5 + ranks / 2) * _GIB, f"for GPUs below 90 GiB and {counted(ranks, 'rank')}")
    elif memory < 160 * _GIB:
        reserve.add((12 + ranks / 2) * _GIB, f"for GPUs below 160 GiB and {counted(ranks, 'rank')}")
    else:
        reserve.add(32 * _GIB, "for GPUs of 160 GiB and more")
    algorithm = working.user_value("speculative_algorithm")
    if algorithm is not None:
        alone = algorithm == "STANDALONE" and working.in_versions(">=0.5.2")
        reserve.add((6 if alone else 2) * _GIB, f"for the draft of {algorithm}")
    if parallel.is_on(working):
        reserve.add(4 * _GIB, "for DP attention")
    return reserve


def _reserve(working: Working, memory: int | None) -> Reserve:
    """Return the reserve of 0.5.3 and later, mainly for activations, graphs and ranks."""
    if working.in_versions(">=0.5.16") and working.plan.env_flag(
        "SGLANG_ENABLE_POST_CAPTURE_KV_SIZING"
    ):
        raise UnknownValueError("the fraction is chosen after the graphs are captured")
    reserve = Reserve()
    reserve.add(gpu.OWN, "as a base")
    tokens = _activation_tokens(working)
    reserve.add(tokens * gpu.TOKEN, f"for activations of {tokens} tokens")
    ranks = working.number("tp_size", 1) * working.number("pp_size", 1)
    reserve.add(ranks / 8 * _GIB, f"for {counted(ranks, 'rank')}")
    _for_graphs(working, reserve)
    if memory is not None and memory > 60 * _GIB:
        reserve.at_least(10 * _GIB, "for GPUs above 60 GiB")
    if not draft_in_pool(working):
        _for_speculation(working, reserve)
    deepep = working.in_versions(">=0.5.15") and working.value("moe_a2a_backend") == "deepep"
    if deepep and _decodes_in_graphs(working):
        reserve.add(2 * _GIB, "for DeepEP buffers")
    return reserve


def _activation_tokens(working: Working) -> int:
    if working.in_versions(">=0.5.15") and working.value("disaggregation_mode") == "decode":
        running = working.user_value("max_running_requests") or working.number(MOST) or 1
        tokens = working.user_value("speculative_num_draft_tokens") or 1
        return max(int(running) * int(tokens), gpu.FEWEST_TOKENS)
    chunk = working.number(CHUNK)
    return max(chunk if chunk > 0 else working.number("max_prefill_tokens"), gpu.FEWEST_TOKENS)


def _decodes_in_graphs(working: Working) -> bool:
    """True if decode uses graphs, which count toward the reserve (0.5.15 and later)."""
    if working.value("disaggregation_mode") == "prefill":
        return False
    config = working.user_value("cuda_graph_config")
    if isinstance(config, str):
        raise UnknownValueError("cuda_graph_config could not be parsed")
    phase = config.get("decode") if isinstance(config, Mapping) else None
    if isinstance(phase, Mapping) and "backend" in phase:
        return bool(phase["backend"] != "disabled")
    chosen = working.user_value("cuda_graph_backend_decode")
    if chosen is not None:
        return bool(chosen != "disabled")
    off = working.value("disable_cuda_graph") or working.value("disable_decode_cuda_graph")
    return not off


def _for_graphs(working: Working, reserve: Reserve) -> None:
    most = working.number(MOST)
    if working.in_versions("<0.5.15") or _decodes_in_graphs(working):
        reserve.add(most * gpu.DECODE_GRAPH, f"for decode graphs up to {most}")
    ranks = attention_ranks(working) if parallel.is_on(working) else 0
    prefill_only = (
        working.in_versions(">=0.5.15") and working.value("disaggregation_mode") == "prefill"
    )
    if ranks and not prefill_only:
        large = most > gpu.LARGE_GRAPH
        each = gpu.DECODE_GRAPH_RANK_LARGE if large else gpu.DECODE_GRAPH_RANK
        reserve.add(most * ranks * each, f"for DP attention across {counted(ranks, 'rank')}")
    _for_prefill_graphs(working, reserve)


def _for_prefill_graphs(working: Working, reserve: Reserve) -> None:
    if not gpu.prefill_is_captured(working):
        return
    if working.in_versions(gpu.BACKENDS_BY_PHASE):
        decode_only = (
            working.in_versions(">=0.5.15") and working.value("disaggregation_mode") == "decode"
        )
        if decode_only:
            return
        _by_the_list(working, reserve)
        deepep = working.in_versions(">=0.5.17") and working.value("moe_a2a_backend") == "deepep"
        if deepep and working.value(gpu.PREFILL_BACKEND) == "breakable":
            reserve.add(_GIB, "for prefill graphs with DeepEP")
    elif working.in_versions(">=0.5.10"):
        _by_the_list(working, reserve)
    elif working.in_versions(">=0.5.8"):
        _by_the_count(working, reserve)
    # 0.5.5 to 0.5.7 add it after the minimum: see _for_speculation


def _by_the_list(working: Working, reserve: Reserve) -> None:
    if working.architectures.uses_mla(working.target):
        reserve.add(gpu.PREFILL_GRAPHS_LATENT, "for prefill graphs with latent attention")
        return
    _by_the_count(working, reserve)


def _by_the_count(working: Working, reserve: Reserve) -> None:
    count = len(working.value(PREFILL_SIZES))
    reserve.add(count * float(gpu.PREFILL_GRAPH), f"for {count} prefill graphs")


def _for_speculation(working: Working, reserve: Reserve) -> None:
    """Add the reserve for the draft (up to 0.5.13) after the minimum is applied."""
    if working.in_versions("<0.5.8") and gpu.prefill_is_captured(working):
        tokens = int(working.value(PREFILL_MOST))
        part = 8 if working.in_versions(">=0.5.7") else 4
        reserve.add(tokens // part, f"for prefill graphs up to {tokens} tokens")
    algorithm = working.user_value("speculative_algorithm")
    if algorithm == "STANDALONE":
        reserve.add(6 * _GIB, "for the draft of STANDALONE")
    elif algorithm is not None and algorithm != "NGRAM":
        reserve.add(
            (4 if working.in_versions(">=0.5.10") else 2) * _GIB, f"for the draft of {algorithm}"
        )


def _has_a_vision_encoder(working: Working) -> bool:
    """True if the engine reserves memory for a vision encoder."""
    if working.in_versions("<0.4.10"):
        return False
    if working.in_versions(">=0.5.9") and working.value("language_only"):
        return False
    if working.in_versions(">=0.5.18") and working.value("language_model_only"):
        return False
    if working.in_versions(">=0.5.17") and working.value("disaggregation_mode") == "decode":
        return False
    return is_multimodal(working)


def _vision_factor(working: Working) -> float:
    """Return the factor of `adjust_mem_fraction_for_vlm`, by the vision encoder's size relative to
    ViT-L/14."""
    vision = working.target.config.get("vision_config")
    if not isinstance(vision, Mapping):
        if working.target.config:
            return 1.0
        raise UnknownValueError("the vision encoder of the target is unknown")
    layers = int(vision.get("num_hidden_layers", 24))
    hidden = int(vision.get("hidden_size", 1024))
    complexity = layers * hidden**2 / (24 * 1024**2)
    return float(0.95 * max(0.8, min(1.05, 1.0 - 0.1 * (complexity - 1.0))))


def resolve_long_contexts(working: Working) -> None:
    """Reduce the fraction for aiter, which needs workspace for long contexts.

    Also reduces the user's fraction (0.5.4 server_args.py:1262; in earlier releases the model
    runner).
    """
    with working.deciding(FRACTION):
        if working.in_versions("<0.4.10"):
            return
        if not working.is_set("attention_backend") and not working.is_hip:
            return  # aiter is a default only on AMD GPUs
        if working.backend("attention_backend") != "aiter":
            return
        context = working.user_value("context_length") or working.target.context_in(
            working.plan.request.version
        )
        if context is None:
            raise UnknownValueError("the context length of the target is unknown")
        honoured = working.plan.env_flag("SGLANG_AITER_HONOR_EXPLICIT_MEM_FRACTION")
        if int(context) <= 8192 or (honoured and working.is_set(FRACTION)):
            return
        before = float(working.value(FRACTION))
        why = f"aiter reserves 15 % of {before:g} for a context of {context} tokens (above 8192)"
        source = "sglang 0.5.23 arg_groups/attention_hook.py:251, 0.5.4 server_args.py:1262"
        if working.is_set(FRACTION):
            working.change(
                ChangeKind.FRACTION_LOWERED, FRACTION, before * 0.85, why, source, logged=False
            )
        else:
            working.set(FRACTION, before * 0.85, why, source)


_QWEN3_VL = ("Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration")


def resolve_memory(working: Working) -> None:
    """Resolve chunk, graph sizes, prefill graphs and fraction. Each depends on the earlier ones."""
    with working.deciding(CHUNK):
        if working.user_value(CHUNK) is None:
            _chunk(working)
    with working.deciding(MOST):
        if working.user_value(MOST) is None:
            _largest_graph(working)
        _up_to_the_requests(working)
    resolve_sizes(working)
    resolve_prefill_graphs(working)
    resolve_prefill_sizes(working)
    resolve_fraction(working)


def _chunk(working: Working) -> None:
    """Set the default of `chunked_prefill_size` by GPU memory."""
    memory = working.gpu_memory
    source = (
        "sglang 0.5.23 arg_groups/memory_hook.py:88, 0.5.3 server_args.py:628, "
        "0.4.10 server_args.py:362"
    )
    if working.in_versions("<0.4.7"):
        source = "sglang 0.4.6 server_args.py:271"
        if memory is not None and memory < 25_000:
            working.set(CHUNK, 2048, f"2048: for GPUs below 25000 MiB (this has {memory})", source)
        elif working.value("disaggregation_mode") == "null":
            working.set(CHUNK, 8192, "8192: for GPUs of 25000 MiB or more", source)
        else:
            working.set(CHUNK, 16384, "16384: for a server of a disaggregated pair", source)
        return
    if memory is None:
        why = "4096: the engine does not know how much memory the device has"
        working.set(CHUNK, 4096, why, source)
        return
    steps = [(20, 2048), (35, 4096 if working.in_versions(">=0.5.20") else 2048), (160, 8192)]
    if working.in_versions(">=0.5.3"):
        steps.insert(2, (60, 4096))
    size, which = _by_class(memory, steps, 16384)
    working.set(CHUNK, size, f"{size} tokens for {which}", source)


def _by_class(memory: int, steps: list[tuple[int, int]], otherwise: int) -> tuple[int, str]:
    """Return the size for `memory` in `steps`, else `otherwise`, and its class: `GPUs of 60 to
    90 GiB (this has 81559 MiB)`."""
    least = 0
    for below, size in steps:
        if memory < below * _GIB:
            class_ = f"GPUs of {least} to {below} GiB" if least else f"GPUs below {below} GiB"
            return size, f"{class_} (this has {memory} MiB)"
        least = below
    return otherwise, f"GPUs of {least} GiB and more (this has {memory} MiB)"


def _largest_graph(working: Working) -> None:
    """Set the default size of the largest decode graph; None if the runner's own list decides
    it."""
    memory = working.gpu_memory
    ranks = working.number("tp_size", 1)
    small = ranks < 4
    which_ranks = f"tp_size {ranks}, below 4" if small else f"tp_size {ranks}, 4 or more"
    if working.in_versions("<0.5.3"):
        limit = 35 * _GIB if working.in_versions(">=0.4.7") else 25_000
        source = "sglang 0.4.10 server_args.py:374, 0.4.6 server_args.py:298"
        if memory is None or memory >= limit:
            why = (
                f"no limit for GPUs of {limit} MiB and more: the runner's own list sets the maximum"
            )
            working.set(MOST, None, why, source)
        else:
            most = 8 if small else 80
            why = f"graphs up to {most} for GPUs below {limit} MiB and {which_ranks}"
            working.set(MOST, most, why, source)
        return
    source = "sglang 0.5.23 arg_groups/memory_hook.py:100, 0.5.3 server_args.py:630"
    if memory is None:
        most, why = 160, "160: the engine does not know how much memory the device has"
    else:
        middle = (24, 80) if working.in_versions(">=0.5.4.post1") else (16, 80)
        if working.in_versions(">=0.5.20"):
            middle = (48, 160)
        sizes = ((20, (8, 8)), (35, middle), (60, (32, 160)), (160, (256, 512)))
        steps = [(below, few if small else many) for below, (few, many) in sizes]
        most, which = _by_class(memory, steps, 512)
        why = f"graphs up to {most} for {which} and {which_ranks}"
    running = working.user_value(RUNNING)
    if working.in_versions(">=0.5.22") and running is not None and int(running) < most:
        most, why = int(running), f"at most max_running_requests, {running}"
        source = "sglang 0.5.23 arg_groups/memory_hook.py:182"
    working.set(MOST, most, why, source)


def _up_to_the_requests(working: Working) -> None:
    """Extend Qwen3-VL's graphs to `max_running_requests` on large Hopper GPUs (0.5.20 and
    later)."""
    running = working.user_value(RUNNING)
    if working.in_versions("<0.5.20") or running is None or int(running) > 512:
        return
    if working.user_value(MOST) is not None or working.user_value(SIZES) is not None:
        return
    if not has_architecture(working, _QWEN3_VL):
        return
    memory = working.gpu_memory
    if memory is None or memory < 60 * _GIB or working.capability // 10 != 9:
        return
    if working.number(MOST) < int(running) and is_multimodal(working):
        why = f"Qwen3-VL on Hopper has graphs for all its {running} requests"
        source = "sglang 0.5.23 arg_groups/model_overrides/qwen3_vl.py:34"
        working.set(MOST, int(running), why, source)
