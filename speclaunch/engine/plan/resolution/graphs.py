"""Resolves the decode batch sizes and prefill token counts that get a CUDA graph.

Prefill graphs use memory, and many features switch them off. Their sizes are resolved even then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from speclaunch.engine.plan.plan import ChangeKind, Plan, UnknownValueError
from speclaunch.engine.plan.resolution.models import (
    is_deepseek_v4,
    is_multimodal,
    is_nemotron_h,
    is_sparse,
    uses_kda,
)
from speclaunch.engine.plan.resolution.working import Working, counted
from speclaunch.engine.plan.topics import parallel
from speclaunch.engine.plan.topics import target as lora
from speclaunch.engine.plan.topics.gpu import (
    BACKENDS_BY_PHASE,
    CHUNK,
    EAGER,
    MOST,
    PIECEWISE,
    PREFILL_BY_DEFAULT,
    SIZES,
    span,
)
from speclaunch.engine.plan.topics.gpu import PREFILL_BACKEND as BACKEND
from speclaunch.engine.plan.topics.parallel import attention_ranks


def resolve_sizes(working: Working) -> None:
    """Set the decode graph sizes and their maximum. Call it after the default maximum is set."""
    with working.deciding(SIZES, MOST):
        if working.in_versions("<0.5.3"):
            source = (
                "sglang 0.5.2 model_executor/cuda_graph_runner.py:165, "
                "0.4.6 model_executor/cuda_graph_runner.py:127"
            )
            found = _by_the_runner(working)
            working.set(SIZES, found, _describe_sizes(found, "the runner's own list"), source)
            return
        explicit = working.user_value(SIZES)
        on_cpu = working.in_versions(">=0.5.10") and working.device == "cpu"
        if on_cpu:
            _for_a_cpu(working)
        elif explicit is not None:
            source = "sglang 0.5.23 arg_groups/memory_hook.py:207, 0.5.3 server_args.py:712"
            working.set(MOST, max(explicit), "the largest size in the configured list", source)
        else:
            found = _listed(working, working.number(MOST))
            source = (
                "sglang 0.5.23 arg_groups/cuda_graph_hook.py:500, 0.5.10 server_args.py:1344, "
                "0.5.3 server_args.py:767"
            )
            how = "the list without speculation"
            if working.user_value("speculative_algorithm") is not None:
                how = "the list for speculation, finer for small batches"
            if working.value("disable_cuda_graph_padding"):
                how = "every size, as padding is off"
            working.set(SIZES, found, _describe_sizes(found, how), source)


def _describe_sizes(sizes: list[int], how: str) -> str:
    return f"{counted(len(sizes), 'size')} up to {max(sizes)}: {how}" if sizes else f"none: {how}"


def _listed(working: Working, most: int) -> list[int]:
    """Return `_generate_decode_cuda_graph_batch_sizes` up to size `most` (0.5.3 and later).

    With speculation, small sizes are closer together, which reduces padding.
    """
    if working.value("disable_cuda_graph_padding"):
        sizes = span(1, most)
    elif working.user_value("speculative_algorithm") is None:
        sizes = [1, 2, 4, 8, 12, *span(16, 256, 8), *span(272, 511, 16), *span(512, most, 32)]
    else:
        middle = span(40, 64 if working.in_versions(">=0.5.4.post2") else 60, 4)
        sizes = [*span(1, 8), *span(10, 32, 2), *middle, *span(72, 256, 8)]
        sizes += span(272, most, 16)
    sizes = [size for size in sizes if size <= most]
    if working.in_versions(">=0.5.10") and most not in sizes:
        sizes.append(most)
    return sizes


def _for_a_cpu(working: Working) -> None:
    """Limit the sizes of compiled CPU graphs to `torch_compile_max_bs` (0.5.10 and later)."""
    explicit = working.user_value(SIZES)
    if explicit is not None:
        most = max(explicit)
    else:
        most = int(working.value("torch_compile_max_bs") or working.number(MOST))
        if working.value("disable_cuda_graph_padding"):
            sizes = span(1, most)
        else:
            sizes = [*span(1, 16), *span(18, 30, 2), *span(32, 80, 4), *span(84, most, 8), most]
        found = sorted({size for size in sizes if size <= most})
        source = "sglang 0.5.23 arg_groups/cuda_graph_hook.py:535, 0.5.10 server_args.py:1377"
        working.set(SIZES, found, _describe_sizes(found, "the list for CPUs"), source)
    why = "torch_compile_max_bs limits compiled CPU graphs"
    source = "sglang 0.5.23 arg_groups/memory_hook.py:219, 0.5.10 server_args.py:1240"
    for name in ("torch_compile_max_bs", MOST):
        working.set(name, most, why, source)


def _by_the_runner(working: Working) -> list[int]:
    """Return the model runner's sizes (up to 0.5.2, cuda_graph_runner.py:
    get_batch_sizes_to_capture)."""
    explicit, most = working.user_value(SIZES), working.value(MOST)
    sizes: list[int] = list(explicit) if explicit is not None else _runner_default(working)
    if most:
        sizes = [size for size in sizes if size <= most]
        if sizes and max(sizes) < most:
            sizes.extend(span(max(sizes), most, 16))
    return sorted(set(sizes))


def _runner_default(working: Working) -> list[int]:
    old = working.in_versions("<0.4.7")
    if working.algorithm is not None:
        end = span(40, 160, 16) if old else [*span(40, 63, 8), *span(80, 160, 16)]
        sizes = [*span(1, 8), *span(10, 32, 2), *end]
    elif working.value("disable_cuda_graph_padding"):
        sizes = [*span(1, 32), *span(40 if old else 48, 160, 16)]
    else:
        sizes = [1, 2, 4, 8, *span(16, 160, 8)]
    memory = working.gpu_memory
    if memory is not None and memory > (96 if old else 90) * 1024:
        sizes += span(160, 256, 8)
    if memory is not None and not old and memory > 160 * 1000:
        sizes += span(256, 512, 16)
    return sizes


def captured_sizes(plan: Plan) -> tuple[int, ...]:
    """Return the captured decode batch sizes. Raises UnknownValueError.

    Omits sizes above a rank's share of `max_running_requests`, and sizes that violate `_alignment`
    (0.5.23 model_executor/runner/base_cuda_graph_runner.py:65).
    """
    working = Working.of(plan)
    sizes = list(plan.value(SIZES) or ())
    running = plan.value("max_running_requests")
    if not sizes or running is None:
        return tuple(sizes)
    ranks = attention_ranks(working)
    most = max(1, int(running) // ranks)
    base, width = _alignment(working, ranks)
    if working.in_versions(">=0.5.10"):
        most = -(-most // base) * base
    if max(sizes) > most:
        sizes.append(most)
        if working.in_versions("<0.4.7"):
            sizes.append(most - 1)
    captured = {size for size in sizes if 0 < size <= most and size * width % base == 0}
    return tuple(sorted(captured))


def _alignment(working: Working, ranks: int) -> tuple[int, int]:
    """Return the number that must divide a batch's tokens, and the tokens per request."""
    if working.in_versions("<0.4.10"):
        return 1, 1
    base, width = 1, 1
    if working.in_versions(">=0.5.8"):
        width = working.number("speculative_num_draft_tokens", 1)
    if working.value("enable_two_batch_overlap"):
        base, width = 2, 1
    context = working.number("attn_cp_size", 1)
    if ranks > 1:  # attention ranks gather their batches
        base *= max(1, working.number("tp_size", 1) // ranks // context)
    if working.in_versions(">=0.5.9") and base % context != 0:
        base *= context
    return base, max(1, width)


_VALIDATED_A2A = ("none", "deepep", "megamoe", "flashinfer")


def resolve_prefill_graphs(working: Working) -> None:
    """Resolve `disable_piecewise_cuda_graph` up to 0.5.13, and `cuda_graph_backend_prefill` in
    later releases."""
    if working.in_versions(BACKENDS_BY_PHASE):
        with working.deciding(BACKEND):
            backend, why = _prefill_backend(working)
            source = "sglang 0.5.23 arg_groups/cuda_graph_hook.py:32, 0.5.14 server_args.py:2920"
            working.set(BACKEND, backend, why, source)
    elif working.in_versions(PREFILL_BY_DEFAULT):
        with working.deciding(PIECEWISE):
            _piecewise(working)


def _piecewise(working: Working) -> None:
    """Switch piecewise prefill graphs off if a feature excludes them
    (`_handle_piecewise_cuda_graph`, 0.5.10 to 0.5.13)."""
    if working.value("enforce_piecewise_cuda_graph"):
        why = "enforce_piecewise_cuda_graph requires the graphs"
        working.set(PIECEWISE, False, why, "sglang 0.5.10 server_args.py:1081")
        return
    if working.value(PIECEWISE):
        return
    if working.in_versions("<0.5.11") and working.user_value("speculative_algorithm") is not None:
        working.change(
            ChangeKind.PREFILL_GRAPHS_OFF,
            PIECEWISE,
            True,
            "0.5.10 has no piecewise prefill graphs with speculation",
            "sglang 0.5.10 server_args.py:1089",
            logged=False,
        )
        return
    found = _first_refusal(_refuses_piecewise(working))
    if found is not None:
        why = f"no piecewise prefill graphs: {found}"
        working.set(PIECEWISE, True, why, "sglang 0.5.10 server_args.py:1078")


_Refusals = Iterator[tuple[bool, str]]
"""A pair for each feature that excludes prefill graphs: True if it is active, and its name."""


def _first_refusal(refusals: _Refusals) -> str | None:
    return next((what for refused, what in refusals if refused), None)


def _refuses_piecewise(working: Working) -> _Refusals:
    """Yield features that exclude compiled prefill graphs, cheap checks first."""
    value = working.value
    feature = "DP attention" if working.in_versions(parallel.OWN_ARGUMENT) else parallel.SWITCH
    yield parallel.is_on(working), feature
    yield bool(value("enable_torch_compile")), "enable_torch_compile"
    yield working.number("pp_size", 1) > 1, "pipeline stages"
    yield value("moe_a2a_backend") not in (None, "none"), "moe_a2a_backend"
    yield lora.serves_adapters(working), "adapters (LoRA)"
    yield (value("load_format") == "gguf" or value("quantization") == "gguf"), "gguf"
    yield value("dllm_algorithm") is not None, "dllm_algorithm"
    yield (
        (float(value("cpu_offload_gb") or 0) > 0 or bool(value("enable_hierarchical_cache"))),
        "offloading to the host",
    )
    yield bool(value("enable_deterministic_inference")), "enable_deterministic_inference"
    yield value("disaggregation_mode") != "null", "disaggregation"
    yield bool(value("enable_symm_mem")), "enable_symm_mem"
    yield (
        (bool(value("enable_eplb")) or value("expert_distribution_recorder_mode") is not None),
        "expert distribution recording",
    )
    yield working.number("attn_cp_size", 1) > 1, "context parallelism"
    yield bool(value("debug_cuda_graph")), "debug_cuda_graph"
    yield bool(value("enable_dsa_prefill_context_parallel")), "context parallelism"
    yield (working.in_versions(">=0.5.16") and working.number("dcp_size", 1) > 1), "dcp_size"
    yield not working.is_cuda, "no NVIDIA GPU"
    yield working.architecture in working.architectures.no_piecewise, working.architecture
    yield (working.in_versions("<0.5.13") and is_sparse(working)), "sparse attention"
    allowed = working.architecture in working.architectures.multimodal_piecewise
    yield (is_multimodal(working) and not allowed), "a multimodal target"


def _prefill_backend(working: Working) -> tuple[str, str]:
    """Return the prefill graph backend and the reason, as `_parse_cuda_graph_config` and later
    steps set it (0.5.14 and later)."""
    explicit = user_backend(working)
    if explicit is not None:
        return explicit, "set by the user"
    backend = "breakable" if working.in_versions(">=0.5.15") else "tc_piecewise"
    why = "the default of this version"
    if backend == "breakable" and not working.is_cuda:
        backend = "disabled" if working.in_versions(">=0.5.22") else "tc_piecewise"
        why = "no NVIDIA GPU"
    if backend == "breakable":
        if working.in_versions(">=0.5.19") and working.number("pp_size", 1) > 1:
            return "disabled", "pipeline stages run without prefill graphs"
        if _uses_compiled_graphs(working):
            backend, why = (
                "tc_piecewise",
                f"{working.architecture} is validated only with this backend",
            )
    found = None
    if backend == "tc_piecewise":
        found = _first_refusal(_refuses_piecewise(working))
    elif backend == "breakable":
        found = _first_refusal(_refuses_breakable(working))
    if working.in_versions(">=0.5.16") and working.value("disaggregation_mode") == "decode":
        found = "the decode server of a disaggregated pair"
    return (backend, why) if found is None else ("disabled", f"no prefill graphs: {found}")


def user_backend(working: Working) -> str | None:
    """Return the prefill graph backend set by the user, else Inkling's default, else None."""
    config = working.user_value("cuda_graph_config")
    if isinstance(config, str):
        raise UnknownValueError("cuda_graph_config could not be parsed")
    phase = config.get("prefill") if isinstance(config, Mapping) else None
    if isinstance(phase, Mapping) and "backend" in phase:
        return str(phase["backend"])
    backend: Any = working.user_value(BACKEND)
    if backend is not None:
        return str(backend)
    if working.value("disable_cuda_graph") or working.value("disable_prefill_cuda_graph"):
        return "disabled"
    target = working.plan.facts.target
    inkling = target is not None and "Inkling" in (target.architecture or "")
    return "full" if inkling and working.in_versions(">=0.5.16") else None


def _uses_compiled_graphs(working: Working) -> bool:
    """True for models whose prefill the engine validated only with compiled graphs (0.5.16 to
    0.5.21)."""
    if working.in_versions("<0.5.16") or working.in_versions(">=0.5.22"):
        return False
    known = working.architectures
    architecture = working.architecture
    if architecture not in known.multimodal_piecewise or not is_multimodal(working):
        return False
    if working.in_versions(">=0.5.18"):
        if architecture in known.multimodal_breakable:
            return False
        prefill = working.user_value("prefill_attention_backend") or working.user_value(
            "attention_backend"
        )
        return bool(prefill != "trtllm_mla")
    return True


def _refuses_breakable(working: Working) -> _Refusals:
    """Yield features that exclude breakable graphs (`_disable_breakable_cudagraph_if_incompatible`,
    0.5.15 and later)."""
    moe = working.value("moe_a2a_backend") or "none"
    if working.in_versions(">=0.5.16"):
        yield working.number("dcp_size", 1) > 1, "dcp_size"
    if working.in_versions(">=0.5.17"):
        yield bool(working.value("enable_two_batch_overlap")), "enable_two_batch_overlap"
        yield moe not in _VALIDATED_A2A, f"moe_a2a_backend {moe}"
    else:
        yield (
            lora.serves_adapters(working),
            "adapters (LoRA)",
        )
        yield moe != "none", f"moe_a2a_backend {moe}"
        yield parallel.is_on(working), parallel.SWITCH
    if working.number("attn_cp_size", 1) > 1:
        if working.in_versions(">=0.5.17") and working.value("enable_prefill_cp"):
            raise UnknownValueError("prefill graphs with context parallelism are not modeled")
        yield True, "context parallelism"
    mla = working.architectures.uses_mla(working.target)
    if working.in_versions("<0.5.17"):
        yield bool(mla), "latent attention (MLA)"
    elif working.in_versions("<0.5.18"):
        yield (bool(mla) and not is_sparse(working)), "latent attention (MLA)"
        yield is_nemotron_h(working), "Nemotron-H"
    if working.in_versions(">=0.5.20"):
        kda = uses_kda(working)
        exempt = "Glm5NextForConditionalGeneration" in working.target.architectures
        yield (kda and not (working.in_versions(">=0.5.22") and exempt)), "Kimi's linear attention"
    yield is_deepseek_v4(working), "DeepSeek V4"
    allowed = working.in_versions(">=0.5.16")
    allowed = allowed and working.architecture in working.architectures.multimodal_breakable
    yield (is_multimodal(working) and not allowed), "a multimodal target"


PREFILL_SIZES = "cuda_graph_bs_prefill"
PREFILL_MOST = "cuda_graph_max_bs_prefill"
_NOT_CLAMPED = "<0.5.16"
_PREFILL_SOURCE = (
    "sglang 0.5.23 arg_groups/cuda_graph_hook.py:480, 0.5.10 server_args.py:1397, "
    "0.5.3 server_args.py:797"
)


def resolve_prefill_sizes(working: Working) -> None:
    """Set the list of prefill graph sizes and its maximum (0.5.3 and later)."""
    if working.in_versions("<0.5.3"):
        return
    with working.deciding(PREFILL_SIZES, PREFILL_MOST):
        most = _prefill_most(working)
        if working.user_value(PREFILL_SIZES) is None:
            _set_prefill_sizes(working, _prefill_sizes(working, most))


def settle_prefill_graphs(working: Working) -> None:
    """Adjust prefill graphs to the resolved attention backends and chunks.

    DeepSeek V3 with trtllm_mla runs without prefill graphs (0.5.15 and later). If DP attention
    divides the chunk, no graph has more tokens than the divided chunk (0.5.16 and later).
    """
    with working.deciding(BACKEND):
        backend = (
            working.backend("attention_backend") if working.in_versions(BACKENDS_BY_PHASE) else None
        )
        if backend in EAGER and working.value(BACKEND) != "disabled":
            source = "sglang 0.5.23 arg_groups/attention_hook.py:124, 0.5.14 server_args.py:4494"
            working.set(BACKEND, "disabled", f"{backend} runs without CUDA graphs", source)
        if working.in_versions(">=0.5.15") and _falls_back(working):
            why = "trtllm_mla in a prefill graph falls back to a slower kernel for DeepSeek V3"
            source = "sglang 0.5.23 arg_groups/cuda_graph_hook.py:279, 0.5.18 server_args.py:4732"
            working.set(BACKEND, "disabled", why, source)
    with working.deciding(PREFILL_SIZES, PREFILL_MOST):
        if working.in_versions(_NOT_CLAMPED) or attention_ranks(working) == 1:
            return
        chunk = working.number(CHUNK)
        if working.value(BACKEND) == "disabled" or working.user_value(PREFILL_MOST) is not None:
            return
        if int(working.value(PREFILL_MOST)) > chunk:
            why = f"at most a rank's prefill chunk, {chunk}"
            source = "sglang 0.5.23 arg_groups/parallel_hook.py:338, 0.5.18 server_args.py:6692"
            working.set(PREFILL_MOST, chunk, why, source)
            if working.user_value(PREFILL_SIZES) is None:
                _set_prefill_sizes(working, _prefill_spans(working, chunk))


def _falls_back(working: Working) -> bool:
    names = ("DeepseekV3ForCausalLM",)
    if user_backend(working) is not None or not working.may_be(names):
        return False
    if working.value(BACKEND) == "disabled" or working.architecture not in names:
        return False
    prefill = working.backend("prefill_attention_backend")
    return (prefill or working.backend("attention_backend")) == "trtllm_mla"


def _set_prefill_sizes(working: Working, sizes: list[int]) -> None:
    end = f" up to {sizes[-1]} tokens, in growing steps" if sizes else ""
    working.set(PREFILL_SIZES, sizes, counted(len(sizes), "size") + end, _PREFILL_SOURCE)


def _prefill_sizes(working: Working, most: int) -> list[int]:
    """Return the sizes of `generate_prefill_cuda_graph_batch_sizes`. DeepEP rounds them up to
    multiples of 8 (0.5.17 and later)."""
    aligned = _aligned(working)
    if aligned:
        most = int(working.user_value(PREFILL_MOST) or 2048)  # not chosen yet
    sizes = _prefill_spans(working, most)
    return sorted({-(-size // 8) * 8 for size in sizes}) if aligned else sizes


def _aligned(working: Working) -> bool:
    """True if DeepEP requires prefill graph sizes that are multiples of 8."""
    deepep = working.in_versions(">=0.5.17") and working.value("moe_a2a_backend") == "deepep"
    return deepep and working.value(BACKEND) == "breakable"


def _prefill_spans(working: Working, most: int) -> list[int]:
    spans = [(4, 32, 4), (48, 256, 16), (288, 512, 32)]
    if working.in_versions(">=0.5.8"):
        first = 576 if working.in_versions(">=0.5.9") else 640
        spans += [(first, 1024, 64), (1280, 4096, 256), (4608, most, 512)]
    else:
        spans += [(640, 4096, 128), (4352, most, 256)]
    sizes = [size for low, high, step in spans for size in span(low, high, step)]
    return [size for size in sizes if size <= most]


def _prefill_most(working: Working) -> int:
    """Set and return the maximum number of tokens in a prefill graph."""
    most = working.user_value(PREFILL_MOST)
    why = "set by the user"
    if most is None:
        most, why = _default_most(working)
    context = working.user_value("context_length")
    capped = working.in_versions(">=0.5.13") and working.in_versions("<0.5.17")
    if capped and context is not None and int(context) < int(most):
        most, why = int(context), f"at most context_length, {context}"
    source = "sglang 0.5.23 arg_groups/memory_hook.py:233, 0.5.10 server_args.py:1254"
    working.set(PREFILL_MOST, int(most), why, source)
    return int(most)


def _default_most(working: Working) -> tuple[int, str]:
    if _aligned(working):
        return 2048, "2048 tokens with DeepEP"
    if working.in_versions("<0.5.7"):
        most = int(working.plan.default(PREFILL_MOST))
        return most, f"{most}: the default of this version's parser"
    most = working.number(CHUNK)
    why = f"the size of a prefill chunk, {most}"
    if working.in_versions(">=0.5.8") and working.architectures.uses_mla(working.target):
        most = min(8192, most) if working.in_versions(">=0.5.19") else 2048
        why = f"{most} tokens for latent attention (MLA)"
    pipeline = working.in_versions(">=0.5.19") and working.number("pp_size", 1) > 1
    pipeline = pipeline and working.user_value(PREFILL_SIZES) is None and most > 8192
    if pipeline and working.value(BACKEND) == "breakable":
        most, why = 8192, "8192 tokens for pipeline stages"
    total = working.user_value("max_total_tokens")
    if working.in_versions(">=0.5.10") and total is not None and int(total) < most:
        most, why = int(total), f"at most max_total_tokens, {total}"
    old_llama = "llama-2" in str(working.user_value("model_path")).lower()
    if working.in_versions(">=0.5.10") and old_llama and most > 4096:
        most, why = 4096, "4096 tokens for Llama 2"
    return most, why
