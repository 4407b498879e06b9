"""Whether prefill gets CUDA graphs: it costs memory, and many features switch it off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from speclaunch.plan.changes import ChangeKind
from speclaunch.plan.plan import UnknownValueError
from speclaunch.plan.resolution.models import (
    is_deepseek_v4,
    is_multimodal,
    is_nemotron_h,
    is_sparse,
    uses_kda,
)
from speclaunch.plan.resolution.working import Working
from speclaunch.plan.topics import lora, parallel
from speclaunch.plan.topics.graphs import BACKENDS_BY_PHASE, PIECEWISE, PREFILL_BY_DEFAULT
from speclaunch.plan.topics.graphs import PREFILL_BACKEND as BACKEND

_VALIDATED_A2A = ("none", "deepep", "megamoe", "flashinfer")


def resolve_prefill_graphs(working: Working) -> None:
    """`disable_piecewise_cuda_graph` up to 0.5.13, `cuda_graph_backend_prefill` afterwards."""
    if working.in_versions(BACKENDS_BY_PHASE):
        with working.deciding(BACKEND):
            backend, why = _backend(working)
            source = "sglang 0.5.23 arg_groups/cuda_graph_hook.py:32, 0.5.14 server_args.py:2920"
            working.set(BACKEND, backend, why, source)
    elif working.in_versions(PREFILL_BY_DEFAULT):
        with working.deciding(PIECEWISE):
            _piecewise(working)


def _piecewise(working: Working) -> None:
    """`_handle_piecewise_cuda_graph` (0.5.10 to 0.5.13)."""
    if working.value("enforce_piecewise_cuda_graph"):
        why = "enforce_piecewise_cuda_graph asks for the graphs"
        working.set(PIECEWISE, False, why, "sglang 0.5.10 server_args.py:1081")
        return
    if working.value(PIECEWISE):
        return
    if working.in_versions("<0.5.11") and working.given("speculative_algorithm") is not None:
        working.change(
            ChangeKind.PREFILL_GRAPHS_OFF,
            PIECEWISE,
            True,
            "0.5.10 has no piecewise graphs of prefill together with speculation",
            "sglang 0.5.10 server_args.py:1089",
            said=False,
        )
        return
    found = _first(_refuses_piecewise(working))
    if found is not None:
        why = f"{found}: not supported with piecewise prefill graphs"
        working.set(PIECEWISE, True, why, "sglang 0.5.10 server_args.py:1078")


_Refusals = Iterator[tuple[bool, str]]
"""Whether something goes without graphs of prefill, and what it is."""


def _first(refusals: _Refusals) -> str | None:
    """The first thing that does; None: they are on."""
    return next((what for refused, what in refusals if refused), None)


def _refuses_piecewise(working: Working) -> _Refusals:
    """What goes without the compiled graphs, cheap questions first."""
    value = working.value
    said = "DP attention" if working.in_versions(parallel.OWN_ARGUMENT) else parallel.SWITCH
    yield parallel.is_on(working), said
    yield bool(value("enable_torch_compile")), "enable_torch_compile"
    yield working.number("pp_size", 1) > 1, "the stages of a pipeline"
    yield value("moe_a2a_backend") not in (None, "none"), "moe_a2a_backend"
    yield lora.is_on(working), "adapters (LoRA)"
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
        "the recording of experts",
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


def _backend(working: Working) -> tuple[str, str]:
    """`_parse_cuda_graph_config` and what follows it (0.5.14 and later), and why."""
    given = given_backend(working)
    if given is not None:
        return given, "as it was given"
    backend = "breakable" if working.in_versions(">=0.5.15") else "tc_piecewise"
    why = "the default of this version"
    if backend == "breakable" and not working.is_cuda:
        backend = "disabled" if working.in_versions(">=0.5.22") else "tc_piecewise"
        why = "no NVIDIA GPU"
    if backend == "breakable":
        if working.in_versions(">=0.5.19") and working.number("pp_size", 1) > 1:
            return "disabled", "the stages of a pipeline go without graphs of prefill"
        if _compiled_instead(working):
            backend, why = "tc_piecewise", f"{working.architecture} is validated with it alone"
    found = None
    if backend == "tc_piecewise":
        found = _first(_refuses_piecewise(working))
    elif backend == "breakable":
        found = _first(_refuses_breakable(working))
    if working.in_versions(">=0.5.16") and working.value("disaggregation_mode") == "decode":
        found = "the decode server of a disaggregated pair"
    return (backend, why) if found is None else ("disabled", f"{found}: no graphs of prefill")


def given_backend(working: Working) -> str | None:
    """The backend that the user chose, in one of five ways."""
    config = working.given("cuda_graph_config")
    if isinstance(config, str):
        raise UnknownValueError("cuda_graph_config is not read")
    phase = config.get("prefill") if isinstance(config, Mapping) else None
    if isinstance(phase, Mapping) and "backend" in phase:
        return str(phase["backend"])
    given: Any = working.given(BACKEND)
    if given is not None:
        return str(given)
    if working.value("disable_cuda_graph") or working.value("disable_prefill_cuda_graph"):
        return "disabled"
    target = working.plan.facts.target
    inkling = target is not None and "Inkling" in (target.architecture or "")
    return "full" if inkling and working.in_versions(">=0.5.16") else None


def _compiled_instead(working: Working) -> bool:
    """Models whose prefill is validated with compiled graphs alone (0.5.16 to 0.5.21)."""
    if working.in_versions("<0.5.16") or working.in_versions(">=0.5.22"):
        return False
    known = working.architectures
    architecture = working.architecture
    if architecture not in known.multimodal_piecewise or not is_multimodal(working):
        return False
    if working.in_versions(">=0.5.18"):
        if architecture in known.multimodal_breakable:
            return False
        prefill = working.given("prefill_attention_backend") or working.given("attention_backend")
        return bool(prefill != "trtllm_mla")
    return True


def _refuses_breakable(working: Working) -> _Refusals:
    """`_disable_breakable_cudagraph_if_incompatible` (0.5.15 and later)."""
    moe = working.value("moe_a2a_backend") or "none"
    if working.in_versions(">=0.5.16"):
        yield working.number("dcp_size", 1) > 1, "dcp_size"
    if working.in_versions(">=0.5.17"):
        yield bool(working.value("enable_two_batch_overlap")), "enable_two_batch_overlap"
        yield moe not in _VALIDATED_A2A, f"moe_a2a_backend {moe}"
    else:
        yield (
            lora.is_on(working),
            "adapters (LoRA)",
        )
        yield moe != "none", f"moe_a2a_backend {moe}"
        yield parallel.is_on(working), parallel.SWITCH
    if working.number("attn_cp_size", 1) > 1:
        if working.in_versions(">=0.5.17") and working.value("enable_prefill_cp"):
            raise UnknownValueError("graphs of prefill with context parallelism are not modelled")
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
