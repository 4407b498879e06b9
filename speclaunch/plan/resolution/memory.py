"""Sizes that follow from the memory of a GPU: chunks of prefill, graphs, the static fraction.

It all runs before the speculative handler in every version: the 48 running requests of
speculation do not count here.
"""

from __future__ import annotations

from collections.abc import Mapping

from speclaunch.plan.plan import UnknownValueError
from speclaunch.plan.resolution.graphs import MOST, resolve_sizes
from speclaunch.plan.resolution.models import is_multimodal
from speclaunch.plan.resolution.parallel import attention_ranks
from speclaunch.plan.resolution.prefill_graphs import BACKEND, PIECEWISE, resolve_prefill_graphs
from speclaunch.plan.resolution.working import Working

CHUNK = "chunked_prefill_size"
FRACTION = "mem_fraction_static"
_GIB = 1024


def resolve_memory(working: Working) -> None:
    """Chunk, graph sizes, graphs of prefill, fraction: each builds on the one before."""
    with working.deciding(CHUNK):
        if working.given(CHUNK) is None:
            working.set(CHUNK, _chunk(working))
    with working.deciding(MOST):
        if working.given(MOST) is None:
            working.set(MOST, _largest_graph(working))
    resolve_sizes(working)
    resolve_prefill_graphs(working)
    with working.deciding(FRACTION):
        if working.given(FRACTION) is None:
            working.set(FRACTION, _fraction(working))


def _chunk(working: Working) -> int:
    """`chunked_prefill_size` by the memory of a GPU, in MiB."""
    memory = working.gpu_memory
    if not working.since("0.4.7"):
        if memory is not None and memory < 25_000:
            return 2048
        return 8192 if working.value("disaggregation_mode") == "null" else 16384
    if memory is None:
        return 4096
    steps = [(20, 2048), (35, 4096 if working.since("0.5.20") else 2048), (160, 8192)]
    if working.since("0.5.3"):
        steps.insert(2, (60, 4096))
    return next((size for below, size in steps if memory < below * _GIB), 16384)


def _largest_graph(working: Working) -> int | None:
    """The default of the largest batch with a graph; None: the runner's own list has it."""
    memory = working.gpu_memory
    small = working.number("tp_size", 1) < 4
    if not working.since("0.5.3"):
        limit = 35 * _GIB if working.since("0.4.7") else 25_000
        if memory is None or memory >= limit:
            return None
        return 8 if small else 80
    most = _by_memory(working, memory, small)
    running = working.given("max_running_requests")
    if working.since("0.5.22") and running is not None:
        most = min(most, int(running))
    return most


def _by_memory(working: Working, memory: int | None, small: bool) -> int:
    if memory is None:
        return 160
    middle = (24, 80) if working.since("0.5.4") else (16, 80)
    if working.since("0.5.20"):
        middle = (48, 160)
    steps = ((20, (8, 8)), (35, middle), (60, (32, 160)), (160, (256, 512)))
    few, many = next((sizes for below, sizes in steps if memory < below * _GIB), (512, 512))
    return few if small else many


def _fraction(working: Working) -> float:
    """What is left when the engine has put something aside."""
    memory = working.gpu_memory
    if not working.since("0.4.7"):
        return _fixed_fraction(working, memory)
    if not working.since("0.5.3"):
        reserved = _reserved_by_class(working, memory or 0)
    else:
        reserved = _reserved(working, memory)
    if memory is None:
        fraction = 0.95 if working.since("0.5.20") else 0.88
    else:
        fraction = round((memory - reserved) / memory, 3)
    if _has_a_vision_encoder(working):
        fraction *= _vision_factor(working)
    return fraction


def _fixed_fraction(working: Working, memory: int | None) -> float:
    """0.4.6: by the ranks alone (server_args.py:247)."""
    ranks = working.number("tp_size", 1) * working.number("pp_size", 1)
    fraction = 0.88
    if memory is not None and memory <= 81920:
        steps = ((16, 0.79), (8, 0.81), (4, 0.85), (2, 0.87))
        fraction = next((value for least, value in steps if ranks >= least), 0.88)
    if memory is not None and memory > 96 * _GIB:
        more = fraction + 48 * _GIB * (1 - fraction) / memory
        fraction = min(more, (memory - _GIB * 18) / memory)
    return fraction


def _reserved_by_class(working: Working, memory: int) -> float:
    """0.4.7 to 0.5.2: by the class of the GPU (0.4.10 server_args.py:327)."""
    ranks = working.number("tp_size", 1) * working.number("pp_size", 1)
    if memory < 35 * _GIB:
        reserved = (2.8 + ranks / 10) * _GIB
    elif memory < 90 * _GIB:
        reserved = (9.5 + ranks / 2) * _GIB
    elif memory < 160 * _GIB:
        reserved = (12 + ranks / 2) * _GIB
    else:
        reserved = 32 * _GIB
    algorithm = working.given("speculative_algorithm")
    if algorithm is not None:
        reserved += (6 if algorithm == "STANDALONE" and working.since("0.5.2") else 2) * _GIB
    if working.value("enable_dp_attention"):
        reserved += 4 * _GIB
    return reserved


def _reserved(working: Working, memory: int | None) -> float:
    """0.5.3 and later: activations, graphs and ranks add up."""
    if working.since("0.5.16") and working.plan.env_flag("SGLANG_ENABLE_POST_CAPTURE_KV_SIZING"):
        raise UnknownValueError("the fraction is chosen after the graphs are captured")
    reserved = 512 + _activation_tokens(working) * 1.5
    reserved += working.number("tp_size", 1) * working.number("pp_size", 1) / 8 * _GIB
    reserved += _graph_reserve(working)
    if memory is not None and memory > 60 * _GIB:
        reserved = max(reserved, 10 * _GIB)
    if not working.since("0.5.14"):
        reserved += _speculative_reserve(working)
    if working.since("0.5.15") and _decodes_in_graphs(working):
        reserved += 2 * _GIB if working.value("moe_a2a_backend") == "deepep" else 0
    return reserved


def _activation_tokens(working: Working) -> int:
    if working.since("0.5.15") and working.value("disaggregation_mode") == "decode":
        running = working.given("max_running_requests") or working.number(MOST) or 1
        tokens = working.given("speculative_num_draft_tokens") or 1
        return max(int(running) * int(tokens), 2048)
    chunk = working.number(CHUNK)
    return max(chunk if chunk > 0 else working.number("max_prefill_tokens"), 2048)


def _decodes_in_graphs(working: Working) -> bool:
    """Whether decode has graphs that count (0.5.15 and later)."""
    if working.value("disaggregation_mode") == "prefill":
        return False
    config = working.given("cuda_graph_config")
    if isinstance(config, str):
        raise UnknownValueError("cuda_graph_config is not read")
    phase = config.get("decode") if isinstance(config, Mapping) else None
    if isinstance(phase, Mapping) and "backend" in phase:
        return bool(phase["backend"] != "disabled")
    chosen = working.given("cuda_graph_backend_decode")
    if chosen is not None:
        return bool(chosen != "disabled")
    off = working.value("disable_cuda_graph") or working.value("disable_decode_cuda_graph")
    return not off


def _graph_reserve(working: Working) -> float:
    most = working.number(MOST)
    reserved = 0.0
    counts = not working.since("0.5.15") or _decodes_in_graphs(working)
    if counts:
        reserved += most * 2
    ranks = _memory_ranks(working)
    prefill_only = working.since("0.5.15") and working.value("disaggregation_mode") == "prefill"
    if ranks and not prefill_only:
        reserved += most * ranks * (3 + (1.5 if most > 300 else 0))
    return reserved + _prefill_reserve(working)


def _memory_ranks(working: Working) -> int:
    """DP ranks as the memory step sees them; 0 without DP attention.

    Before 0.5.22 it sees `enable_dp_attention` before that is reset for a single rank.
    """
    if working.since("0.5.22"):
        ranks = attention_ranks(working)
        return ranks if ranks > 1 else 0
    return working.number("dp_size", 1) if working.value("enable_dp_attention") else 0


def _prefill_reserve(working: Working) -> float:
    """What graphs of prefill take; their list has a graph for every so many tokens."""
    if working.since("0.5.14"):
        backend = working.value(BACKEND)
        decode_only = working.since("0.5.15") and working.value("disaggregation_mode") == "decode"
        if backend == "disabled" or decode_only:
            return 0.0
        deepep = working.since("0.5.17") and working.value("moe_a2a_backend") == "deepep"
        extra = _GIB if backend == "breakable" and deepep else 0
        return _prefill_graphs_mb(working) + extra
    if working.since("0.5.10"):
        return 0.0 if working.value(PIECEWISE) else _prefill_graphs_mb(working)
    if not working.value("enable_piecewise_cuda_graph"):
        return 0.0
    if working.since("0.5.8"):
        return len(_prefill_sizes(working)) * 8.0
    return 0.0  # 0.5.5 to 0.5.7 add it after the floor: see _speculative_reserve


def _prefill_graphs_mb(working: Working) -> float:
    if working.architectures.uses_mla(working.target):
        return 1.5 * _GIB
    return len(_prefill_sizes(working)) * 8.0


def _prefill_sizes(working: Working) -> list[int]:
    """`_generate_prefill_cuda_graph_batch_sizes` (0.5.9 and later)."""
    name = "cuda_graph_bs_prefill"
    given = working.given(name)
    if given is not None:
        return list(given)
    most = _prefill_most(working)
    first = 640 if not working.since("0.5.9") else 576
    aligned = working.since("0.5.17") and working.value("moe_a2a_backend") == "deepep"
    aligned = aligned and working.value(BACKEND) == "breakable"
    if aligned:
        most = int(working.given("cuda_graph_max_bs_prefill") or 2048)  # it is not chosen yet
    spans = ((4, 32, 4), (48, 256, 16), (288, 512, 32), (first, 1024, 64), (1280, 4096, 256))
    sizes = [size for low, high, step in spans for size in range(low, high + 1, step)]
    sizes += range(4608, most + 1, 512)
    sizes = [size for size in sizes if size <= most]
    if aligned:
        sizes = sorted({-(-size // 8) * 8 for size in sizes})
    working.set(name, sizes)
    return sizes


def _prefill_most(working: Working) -> int:
    """The most tokens of a graph of prefill."""
    name = "cuda_graph_max_bs_prefill"
    most = working.given(name)
    if most is None:
        most = working.number(CHUNK)
        if working.architectures.uses_mla(working.target):
            most = min(8192, most) if working.since("0.5.19") else 2048
        total = working.given("max_total_tokens")
        if working.since("0.5.10") and total is not None:
            most = min(most, int(total))
        if working.since("0.5.10") and "llama-2" in str(working.given("model_path")).lower():
            most = min(most, 4096)
    context = working.given("context_length")
    if working.since("0.5.13") and not working.since("0.5.17") and context is not None:
        most = min(int(most), int(context))
    working.set(name, int(most))
    return int(most)


def _speculative_reserve(working: Working) -> float:
    """Put aside for the draft, up to 0.5.13, above the floor."""
    reserved = 0.0
    old_piecewise = working.since("0.5.5") and not working.since("0.5.8")
    if old_piecewise and working.value("enable_piecewise_cuda_graph"):
        tokens = working.value("cuda_graph_max_bs_prefill") or working.number(CHUNK)
        reserved += int(tokens) // (8 if working.since("0.5.7") else 4)
    algorithm = working.given("speculative_algorithm")
    if algorithm == "STANDALONE":
        return reserved + 6 * _GIB
    if algorithm is not None and algorithm != "NGRAM":
        return reserved + (4 if working.since("0.5.10") else 2) * _GIB
    return reserved


def _has_a_vision_encoder(working: Working) -> bool:
    """Whether the engine puts something aside for images."""
    if not working.since("0.4.10"):
        return False
    if working.since("0.5.9") and working.value("language_only"):
        return False
    if working.since("0.5.18") and working.value("language_model_only"):
        return False
    if working.since("0.5.17") and working.value("disaggregation_mode") == "decode":
        return False
    return is_multimodal(working)


def _vision_factor(working: Working) -> float:
    """`adjust_mem_fraction_for_vlm`: by the size of the encoder against ViT-L/14."""
    vision = working.target.config.get("vision_config")
    if not isinstance(vision, Mapping):
        if working.target.config:
            return 1.0
        raise UnknownValueError("the vision encoder of the target is not known")
    layers = int(vision.get("num_hidden_layers", 24))
    hidden = int(vision.get("hidden_size", 1024))
    complexity = layers * hidden**2 / (24 * 1024**2)
    return float(0.95 * max(0.8, min(1.05, 1.0 - 0.1 * (complexity - 1.0))))


def resolve_long_contexts(working: Working) -> None:
    """aiter needs working memory for long contexts: it takes its share of the fraction.

    0.5.4 server_args.py:1262, given fractions included; earlier releases do it in the runner.
    """
    with working.deciding(FRACTION):
        if not working.since("0.4.10"):
            return
        if not working.is_given("attention_backend") and not working.is_hip:
            return  # only AMD's GPUs have it for a default
        if working.backend("attention_backend") != "aiter":
            return
        context = working.given("context_length") or working.target.context_length
        if context is None:
            raise UnknownValueError("the context length of the target is not known")
        honoured = working.plan.env_flag("SGLANG_AITER_HONOR_EXPLICIT_MEM_FRACTION")
        if int(context) <= 8192 or (honoured and working.is_given(FRACTION)):
            return
        fraction = float(working.value(FRACTION)) * 0.85
        if not working.is_given(FRACTION):
            working.set(FRACTION, fraction)
            return
        why = "aiter takes 15 % of it for contexts above 8192 tokens"
        source = "sglang 0.5.23 arg_groups/attention_hook.py:251, 0.5.4 server_args.py:1262"
        working.change("SPL921", FRACTION, fraction, why, source, said=False)
