"""Whether prefill gets CUDA graphs: it costs memory, and many features switch it off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from speclaunch.plan.plan import UnknownValueError
from speclaunch.plan.resolution.models import (
    is_deepseek_v4,
    is_multimodal,
    is_nemotron_h,
    is_sparse,
    uses_kda,
)
from speclaunch.plan.resolution.parallel import attention_ranks
from speclaunch.plan.resolution.working import Working

PIECEWISE = "disable_piecewise_cuda_graph"
BACKEND = "cuda_graph_backend_prefill"
_VALIDATED_A2A = ("none", "deepep", "megamoe", "flashinfer")


def resolve_prefill_graphs(working: Working) -> None:
    """`disable_piecewise_cuda_graph` up to 0.5.13, `cuda_graph_backend_prefill` afterwards."""
    if working.since("0.5.14"):
        with working.deciding(BACKEND):
            working.set(BACKEND, _backend(working))
    elif working.since("0.5.10"):
        with working.deciding(PIECEWISE):
            _piecewise(working)


def _piecewise(working: Working) -> None:
    """`_handle_piecewise_cuda_graph` (0.5.10 to 0.5.13)."""
    if working.value("enforce_piecewise_cuda_graph"):
        working.set(PIECEWISE, False)
        return
    if working.value(PIECEWISE):
        return
    if not working.since("0.5.11") and working.given("speculative_algorithm") is not None:
        working.change(
            "SPL917",
            PIECEWISE,
            True,
            "0.5.10 has no piecewise graphs of prefill together with speculation",
            "sglang 0.5.10 server_args.py:1089",
            said=False,
        )
        return
    if any(_refuses_piecewise(working)):
        working.set(PIECEWISE, True)


def _refuses_piecewise(working: Working) -> Iterator[bool]:
    """What goes without the compiled graphs, cheap questions first."""
    value = working.value
    if working.since("0.5.22"):
        yield attention_ranks(working) > 1
    else:
        yield bool(value("enable_dp_attention"))  # not reset yet, where there is one rank
    yield bool(value("enable_torch_compile"))
    yield working.number("pp_size", 1) > 1
    yield value("moe_a2a_backend") not in (None, "none")
    yield bool(value("lora_paths")) or bool(value("enable_lora"))
    yield value("load_format") == "gguf" or value("quantization") == "gguf"
    yield value("dllm_algorithm") is not None
    yield float(value("cpu_offload_gb") or 0) > 0 or bool(value("enable_hierarchical_cache"))
    yield bool(value("enable_deterministic_inference"))
    yield value("disaggregation_mode") != "null"
    yield bool(value("enable_symm_mem"))
    yield bool(value("enable_eplb")) or value("expert_distribution_recorder_mode") is not None
    yield working.number("attn_cp_size", 1) > 1
    yield bool(value("debug_cuda_graph"))
    yield bool(value("enable_dsa_prefill_context_parallel"))
    yield working.since("0.5.16") and working.number("dcp_size", 1) > 1
    yield not working.is_cuda
    yield working.architecture in working.architectures.no_piecewise
    yield not working.since("0.5.13") and is_sparse(working)
    allowed = working.architecture in working.architectures.multimodal_piecewise
    yield is_multimodal(working) and not allowed


def _backend(working: Working) -> str:
    """`_parse_cuda_graph_config` and what follows it (0.5.14 and later)."""
    given = _given_backend(working)
    if given is not None:
        return given
    backend = "breakable" if working.since("0.5.15") else "tc_piecewise"
    if backend == "breakable" and not working.is_cuda:
        backend = "disabled" if working.since("0.5.22") else "tc_piecewise"
    if backend == "breakable":
        if working.since("0.5.19") and working.number("pp_size", 1) > 1:
            return "disabled"
        if _compiled_instead(working):
            backend = "tc_piecewise"
    if backend == "tc_piecewise":
        refused = any(_refuses_piecewise(working))
    else:
        refused = backend == "disabled" or any(_refuses_breakable(working))
    if working.since("0.5.16") and working.value("disaggregation_mode") == "decode":
        refused = True
    return "disabled" if refused else backend


def _given_backend(working: Working) -> str | None:
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
    return "full" if inkling and working.since("0.5.16") else None


def _compiled_instead(working: Working) -> bool:
    """Models whose prefill is validated with compiled graphs alone (0.5.16 to 0.5.21)."""
    if not working.since("0.5.16") or working.since("0.5.22"):
        return False
    known = working.architectures
    architecture = working.architecture
    if architecture not in known.multimodal_piecewise or not is_multimodal(working):
        return False
    if working.since("0.5.18"):
        if architecture in known.multimodal_breakable:
            return False
        prefill = working.given("prefill_attention_backend") or working.given("attention_backend")
        return bool(prefill != "trtllm_mla")
    return True


def _refuses_breakable(working: Working) -> Iterator[bool]:
    """`_disable_breakable_cudagraph_if_incompatible` (0.5.15 and later)."""
    moe = working.value("moe_a2a_backend") or "none"
    if working.since("0.5.16"):
        yield working.number("dcp_size", 1) > 1
    if working.since("0.5.17"):
        yield bool(working.value("enable_two_batch_overlap"))
        yield moe not in _VALIDATED_A2A
    else:
        yield bool(working.value("lora_paths")) or bool(working.value("enable_lora"))
        yield moe != "none"
        yield bool(working.value("enable_dp_attention"))
    if working.number("attn_cp_size", 1) > 1:
        if working.since("0.5.17") and working.value("enable_prefill_cp"):
            raise UnknownValueError("graphs of prefill with context parallelism are not modelled")
        yield True
    mla = working.architectures.uses_mla(working.target)
    if not working.since("0.5.17"):
        yield bool(mla)
    elif not working.since("0.5.18"):
        yield bool(mla) and not is_sparse(working)
        yield is_nemotron_h(working)
    if working.since("0.5.20"):
        kda = uses_kda(working)
        exempt = "Glm5NextForConditionalGeneration" in working.target.architectures
        yield kda and not (working.since("0.5.22") and exempt)
    yield is_deepseek_v4(working)
    allowed = working.since("0.5.16")
    allowed = allowed and working.architecture in working.architectures.multimodal_breakable
    yield is_multimodal(working) and not allowed
