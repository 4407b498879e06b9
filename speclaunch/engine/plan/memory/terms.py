"""Gathers the memory sizes of a plan, and the reasons why some are unknown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Struct

from speclaunch.engine.plan.budget import MemorySize
from speclaunch.engine.plan.memory import estimates, kv
from speclaunch.engine.plan.memory.estimates import (
    MIB,
    NOTHING,
    Device,
    SizeEstimate,
    devices,
    number,
)
from speclaunch.engine.plan.memory.kv import PoolLayout, state_settings
from speclaunch.engine.plan.memory.phases import Terms
from speclaunch.engine.plan.memory.pool import PoolSettings, draft_headroom, slot_settings
from speclaunch.engine.plan.memory.weights import freed_after_pool, weight_size
from speclaunch.engine.plan.plan import Plan, UnknownValueError
from speclaunch.engine.plan.resolution.graphs import user_backend
from speclaunch.engine.plan.resolution.models import is_multimodal
from speclaunch.engine.plan.resolution.working import Working
from speclaunch.engine.plan.topics.gpu import draft_in_pool

_T = TypeVar("_T")
_WEIGHTS_LEAST = 0.97
"""Lower bound for the size of weights whose exact size is unknown, as a share of the computed
size."""
_NODE = 184
"""Bytes of a node in NGRAM's trie: 176 for the node, 8 for its entry in the list of free nodes
(sglang 0.5.23 kernels/jit/csrc/ngram_corpus/trie.h)."""
_NGRAM_REST = 90 * MIB
"""Bytes that NGRAM's extension uses in addition to the trie. Measured: 70 to 115 MiB."""
_NODES = 10_000_000


class GatheredSizes(Struct):
    """A plan's known memory sizes, and the reasons why others are unknown."""

    device: tuple[Device, ...] | None = None
    target_weights: MemorySize | None = None
    draft_weights: MemorySize | None = None
    target_kv: MemorySize | None = None
    draft_kv: MemorySize | None = None
    context: int | None = None
    fraction: float | None = None
    terms: Terms | None = None
    """The sizes that a memory budget needs; None if any of them is unknown."""
    unknown: list[str] = []

    def collect(self, compute: Callable[[], _T]) -> _T | None:
        """Return the result of `compute`. If a fact is missing, record the reason and return
        None."""
        try:
            return compute()
        except UnknownValueError as error:
            if str(error) not in self.unknown:
                self.unknown.append(str(error))
            return None


def has_draft(plan: Plan) -> bool:
    """True if the plan uses a draft model. Raises UnknownValueError."""
    return plan.algorithm not in (None, "NGRAM")


def context_length(plan: Plan) -> int:
    """Return the context length in tokens, from the user or the checkpoint. Raises
    UnknownValueError."""
    explicit = plan.value("context_length")
    if explicit is not None:
        return int(explicit)
    target = plan.facts.target
    found = None if target is None else target.context_in(plan.request.version)
    if found is None:
        raise UnknownValueError("the context length of the target is unknown")
    return found


def gather(plan: Plan) -> GatheredSizes:
    """Return the known sizes of a plan, and the reasons for unknown sizes."""
    found = GatheredSizes()
    found.device = found.collect(lambda: devices(plan))
    draft = found.collect(lambda: has_draft(plan))
    found.target_weights = found.collect(lambda: weight_size(plan))
    found.target_kv = found.collect(lambda: kv.token_size(plan))
    if draft:
        found.draft_weights = found.collect(lambda: weight_size(plan, draft=True))
        found.draft_kv = found.collect(lambda: kv.token_size(plan, draft=True))
    found.context = found.collect(lambda: context_length(plan))
    found.fraction = found.collect(lambda: _fraction(plan))
    found.collect(lambda: _other_ways(plan))
    cell = found.collect(lambda: kv.pool_cell(plan))
    layout = found.collect(lambda: kv.pool_layout(plan))
    estimated = found.collect(lambda: _estimates(plan, bool(draft)))
    device, weights, context = found.device, found.target_weights, found.context
    if device is None or weights is None or context is None or cell is None:
        return found
    if layout is None or estimated is None or draft is None:
        return found
    if draft and (found.draft_weights is None or found.draft_kv is None):
        return found
    draft_token = found.draft_kv.bytes if found.draft_kv is not None else 0
    settings = found.collect(lambda: _pool_settings(plan, cell, layout, draft_token, context))
    corpus = found.collect(lambda: _corpus(plan))
    reserved = found.collect(lambda: _for_images(plan))
    freed = found.collect(lambda: freed_after_pool(plan))
    if settings is None or corpus is None or reserved is None or freed is None:
        return found
    found.terms = Terms(
        min(device, key=lambda device: device.free),
        weights_least(weights),
        NOTHING if found.draft_weights is None else weights_least(found.draft_weights),
        corpus,
        reserved,
        settings,
        **estimated,
        draft_first=draft_in_pool(plan),
        freed_after_pool=freed,
    )
    return found


def weights_least(size: MemorySize) -> SizeEstimate:
    """Return a weight size as an estimate with a lower bound."""
    return SizeEstimate(size, size.bytes if size.exact else int(size.bytes * _WEIGHTS_LEAST))


def _fraction(plan: Plan) -> float:
    value = plan.value("mem_fraction_static")
    if value is None:
        raise UnknownValueError("mem_fraction_static is unknown")
    return float(value)


def _other_ways(plan: Plan) -> None:
    """Raise UnknownValueError if the engine would divide memory in a way that is not modeled."""
    if plan.in_versions(">=0.5.16") and plan.env_flag("SGLANG_ENABLE_POST_CAPTURE_KV_SIZING"):
        raise UnknownValueError("the pool is sized after the graphs are captured")
    if plan.in_versions("<0.5.7") and plan.env("SGLANG_CI_SMALL_KV_SIZE"):
        raise UnknownValueError("SGLANG_CI_SMALL_KV_SIZE sets the size of the pool")
    for name, why in (
        ("cpu_offload_gb", "some weights are stored in host memory"),
        ("offload_group_size", "some weights are stored in host memory"),
        # layers/moe/kt_ep_wrapper.py, from 0.5.4 on: its GPU method creates only kt_num_gpu_experts
        ("kt_weight_path", "experts are stored in host memory"),
        ("enable_unified_memory", "the pools share one buffer"),
        ("enable_hisparse", "part of the KV cache is stored in host memory"),
        ("enable_lora", "adapter buffers are not modeled"),
        ("lora_paths", "adapter buffers are not modeled"),
    ):
        value = plan.value(name)
        if value and value != -1:
            raise UnknownValueError(f"{why} ({plan.written_name(name)})")


def _estimates(plan: Plan, draft: bool) -> dict[str, Any]:
    captured = estimates.has_graphs(plan)
    return {
        "target_graphs": estimates.graphs(plan),
        "draft_graphs": estimates.graphs(plan, draft=True) if draft else NOTHING,
        "activations": estimates.activations(plan),
        "target_prefill": estimates.prefill_graphs(plan) if captured else NOTHING,
        "draft_prefill": estimates.prefill_graphs(plan, draft=True) if captured else NOTHING,
        "eager_prefill": estimates.eager_prefill(plan),
        # 0.5.16 and 0.5.17 skip prefill graphs if memory is short, unless the user requested them
        "prefill_needs": _PREFILL_NEEDS
        if plan.in_versions(">=0.5.16,<0.5.18") and user_backend(Working.of(plan)) is None
        else 0,
    }


_PREFILL_NEEDS = 4 << 30
"""Free bytes below which the engine skips prefill graphs (0.5.17
model_executor/model_runner_components/cuda_graph_setup.py:56)."""


def _pool_settings(
    plan: Plan, cell: MemorySize, layout: PoolLayout, draft_token: int, context: int
) -> PoolSettings:
    most = plan.value("max_total_tokens")
    by_requests = plan.in_versions(">=0.5.22") and plan.value("disable_radix_cache")
    if by_requests and layout.swa_layers and plan.value("max_running_requests") is not None:
        why = "the window pool without a radix cache is not modeled (0.5.22 and later)"
        raise UnknownValueError(why)
    states = None
    if layout.state_layers:
        states = state_settings(plan, layout.state_request_bytes)
    window = None
    if plan.in_versions(">=0.5.16") and plan.facts.target is not None:
        window = plan.facts.target.sliding_window
    return PoolSettings(
        max(1, cell.bytes),
        layout,
        draft_token,
        max(1, number(plan, "page_size")),
        None if most is None else int(most),
        slot_settings(plan, context),
        states,
        _split(plan),
        draft_headroom(plan),
        window,
    )


def _split(plan: Plan) -> int | None:
    if plan.in_versions("<0.5.7"):
        return 1
    return max(1, number(plan, "page_size")) if plan.in_versions("<0.5.11") else None


def _corpus(plan: Plan) -> SizeEstimate:
    """Return the size of NGRAM's trie on a CPU; 0 otherwise (on GPUs it uses host memory)."""
    if plan.algorithm != "NGRAM" or not plan.device.startswith("cpu"):
        return NOTHING
    nodes = number(plan, "speculative_ngram_capacity", _NODES)
    why = f"{nodes:,} nodes of NGRAM's trie, {_NODE} bytes each"
    least = nodes * _NODE
    return SizeEstimate(MemorySize(least + _NGRAM_REST, why, exact=False), least)


def _for_images(plan: Plan) -> int:
    """Return the bytes reserved for images (0.5.23 kv_cache_configurator.py:202)."""
    if plan.in_versions("<0.5.18") or not is_multimodal(Working.of(plan)):
        return 0
    mib = int(plan.env("SGLANG_VLM_CACHE_SIZE_MB") or 100)
    if plan.value("mm_feature_transport") in ("cuda_ipc", "cuda_vmm"):
        mib += int(plan.env("SGLANG_MM_FEATURE_CACHE_MB") or 1024)
    return mib * MIB
