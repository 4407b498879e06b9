"""Estimated sizes of CUDA graphs and activations, and memory in use before weights load.

The engine measures free memory itself ("Load weight begin. avail mem=…", sglang 0.5.23
distributed/bootstrap.py:207, 0.4.6 model_runner.py:474) after CUDA and NCCL are set up. For graphs
and activations, it has conservative rules of thumb (`topics/gpu.py`). The lower bounds are based
on tensor sizes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from speclaunch.engine.facts.facts import UNKNOWN_HARDWARE, Checkpoint
from speclaunch.engine.facts.hardware import Gpu, Hardware, Vendor
from speclaunch.engine.plan.budget import MemorySize
from speclaunch.engine.plan.memory.layers import draft_of
from speclaunch.engine.plan.placement import local_gpus
from speclaunch.engine.plan.plan import Plan, UnknownValueError
from speclaunch.engine.plan.resolution.graphs import captured_sizes
from speclaunch.engine.plan.topics import gpu as graphs_topic
from speclaunch.engine.plan.topics import gpu as memory
from speclaunch.engine.plan.topics import parallel
from speclaunch.engine.plan.topics.algorithms import BLOCK_FAMILY, EAGLE_FAMILY
from speclaunch.engine.plan.topics.parallel import attention_ranks

MIB = 1 << 20
GIB = 1 << 30


class SizeEstimate(Struct, frozen=True):
    """An estimated size, with its lower bound `least`.

    A deployment is reported to fail only if it fails with all estimates at their lower bounds.
    """

    size: MemorySize
    least: int

    @classmethod
    def exactly(cls, size: MemorySize) -> SizeEstimate:
        return cls(size, size.bytes)


NOTHING = SizeEstimate.exactly(MemorySize(0, "none"))


def in_gib(number: float) -> str:
    """Return a size as `12.3 GiB` or `0.45 GiB`, with the precision of the engine's log (which
    labels it GB)."""
    gib = number / GIB
    return f"{gib:.2f} GiB" if abs(gib) < 10 else f"{gib:.1f} GiB"


_CONTEXT = 1126 * MIB
"""Memory of the driver, a CUDA context and the libraries' handles. Public logs of 0.5.3 to 0.5.12:
1.07 GiB on a 3090, 1.18 on a 48 GB card, 1.10 on an H200. Measured with 0.5.17 and PyTorch 2.11:
1.15 GiB on an H100, 1.27 on an H200."""
_LARGE = 60 * 1024
"""Minimum memory in MiB of GPUs assumed to have NVLink, for which NCCL allocates buffers."""
_LINKED_PAIR = 1464 * MIB
_LINKED_DOUBLING = 290 * MIB
"""Bytes that NCCL and custom all-reduce use for each doubling of the ranks beyond two. Their total
on an H200 is 1.43 GiB with two ranks and 2.0 GiB with eight ("Init torch distributed ends. mem
usage=…" in public logs)."""
_UNLINKED = 150 * MIB
_PROCESSES = 1150 * MIB
"""Memory of a CPU engine's three processes before weights are loaded (0.5.23, measured)."""


class Device(Struct, frozen=True):
    """The device of a group of ranks: its memory, and its use before weights are loaded."""

    ranks: tuple[int, ...]
    memory_bytes: int
    others: MemorySize
    runtime: SizeEstimate

    @property
    def free(self) -> int:
        """Free bytes before weights are loaded, as estimated."""
        return self.memory_bytes - self.others.bytes - self.runtime.size.bytes

    @property
    def most_free(self) -> int:
        """Free bytes before weights are loaded, if the runtime's use is at its minimum."""
        return self.memory_bytes - self.others.bytes - self.runtime.least


def number(plan: Plan, name: str, default: int = 1) -> int:
    """Return an integer argument, or `default` if it is None. Raises UnknownValueError."""
    value = plan.value(name)
    return default if value is None else int(value)


def devices(plan: Plan) -> tuple[Device, ...]:
    """Return the devices of this machine's ranks, one for each group of identical GPUs. Raises
    UnknownValueError."""
    hardware = plan.facts.hardware
    if hardware is None:
        raise UnknownValueError(UNKNOWN_HARDWARE)
    if plan.device.startswith("cpu"):
        return (_host(plan, hardware),)
    if hardware.vendor is Vendor.CPU:
        raise UnknownValueError("GPU memory is unknown: no GPU was found")
    shard = number(plan, "tp_size") * number(plan, "pp_size")
    runtime = _runtime(hardware, shard)
    if not hardware.gpus:
        if hardware.memory_mib is None:
            raise UnknownValueError("the memory of the GPU is unknown")
        others = MemorySize(0, "assumed to be none: the hardware is declared, not probed")
        replicas = parallel.replicas(plan)
        ranks = range(max(1, shard * replicas // max(1, number(plan, "nnodes"))))
        return (Device(tuple(ranks), hardware.memory_mib * MIB, others, runtime),)
    groups: dict[tuple[int, int, str], list[int]] = {}
    for rank, index in enumerate(local_gpus(plan)):
        gpu = hardware.gpus[index % len(hardware.gpus)]
        others = _others(gpu)
        groups.setdefault((gpu.memory_bytes, others.bytes, others.why), []).append(rank)
    return tuple(
        Device(tuple(found), memory, MemorySize(taken, why), runtime)
        for (memory, taken, why), found in groups.items()
    )


def _others(gpu: Gpu) -> MemorySize:
    """Return the memory of other processes, in bytes.

    On an idle GPU, the driver counts part of its memory as used. The runtime estimate already
    includes that part.
    """
    named = [process for process in gpu.processes if process.memory_bytes]
    if named:
        text = ", ".join(
            f"{process.name} ({process.pid}) {in_gib(process.memory_bytes or 0)}"
            for process in named
        )
        return MemorySize(sum(process.memory_bytes or 0 for process in named), text)
    used = gpu.memory_bytes - (gpu.free_bytes if gpu.free_bytes is not None else gpu.memory_bytes)
    if used < 1024 * MIB:
        return MemorySize(0, "none")
    return MemorySize(used, f"{in_gib(used)} of GPU {gpu.index} are in use")


def _runtime(hardware: Hardware, shard: int) -> SizeEstimate:
    taken, why = _CONTEXT, f"about {in_gib(_CONTEXT)} for the CUDA context and libraries"
    least = _CONTEXT * 9 // 10
    if shard > 1:
        linked = (hardware.memory_mib or 0) >= _LARGE
        between = _UNLINKED
        if linked:
            between = _LINKED_PAIR + int(_LINKED_DOUBLING * (math.log2(shard) - 1))
        taken += between
        least += between * 3 // 4
        why += f", {in_gib(between)} for NCCL between {shard} ranks"
    return SizeEstimate(MemorySize(taken, why, exact=False), least)


def _host(plan: Plan, hardware: Hardware) -> Device:
    """Return a CPU rank's device: the host's available memory, divided among its NUMA nodes.

    Each node serves one rank (`get_available_gpu_memory`, sglang 0.5.23 utils/common.py:490).
    """
    if not hardware.gpus:
        raise UnknownValueError("the memory of the host is unknown")
    node = min(hardware.gpus, key=lambda gpu: gpu.free_bytes or gpu.memory_bytes)
    free = node.memory_bytes if node.free_bytes is None else node.free_bytes
    ranks = tuple(range(number(plan, "tp_size")))
    taken = node.memory_bytes - free
    why = f"about {in_gib(_PROCESSES)} for the engine's processes"
    runtime = SizeEstimate(MemorySize(_PROCESSES, why, exact=False), _PROCESSES // 2)
    return Device(
        ranks, node.memory_bytes, MemorySize(taken, f"{in_gib(taken)} are in use"), runtime
    )


_TOKEN_BYTES = int(memory.TOKEN * MIB)
_CONSTANT = memory.OWN * MIB
_WORKSPACE = 256 * MIB
"""Minimum bytes of activations: one attention backend's workspace (flashinfer's is 384 MiB, fa3's
is smaller)."""
_FEWEST_TOKENS = memory.FEWEST_TOKENS
_DECODE = memory.DECODE_GRAPH * MIB
_PREFILL = memory.PREFILL_GRAPH * MIB
_PREFILL_LATENT = memory.PREFILL_GRAPHS_LATENT * MIB
_EAGER, _HELD_LEAST, _HELD = 1.2, 1.4, 2.0
"""Activations of a batch, and memory of breakable prefill graphs (minimum and likely), as multiples
of one layer's activations. Measured: 1.4 for the batch and 1.5 to 2.1 for the graphs, with Llama,
Qwen3 and MiMo (0.5.17 on H100 and H200)."""
_LOWEST = 2
"""Divisor that turns the engine's rule of thumb for decode graphs into their minimum size."""


def has_graphs(plan: Plan) -> bool:
    """True if decode graphs are captured. Raises UnknownValueError."""
    return graphs_topic.decode_is_captured(plan)


def graphs(plan: Plan, *, draft: bool = False) -> SizeEstimate:
    """Return the size of the target's or the draft's CUDA graphs. Raises UnknownValueError."""
    if not has_graphs(plan):
        return NOTHING
    sizes = captured_sizes(plan)
    most = max(sizes, default=0)
    size = most * _DECODE
    why = f"2 MiB for each of {most} requests in the largest graph"
    if draft:
        return _estimate(size, f"{why} of the draft")
    ranks = attention_ranks(plan)
    if ranks > 1:
        size += most * ranks * memory.DECODE_GRAPH_RANK * MIB
        why += f", 3 MiB more for each of {ranks} attention ranks"
    prefill, text = (0, "") if prefill_graphs(plan).least else _prefill_rule(plan)
    return _estimate(size + prefill, why + text)


def prefill_graphs(plan: Plan, *, draft: bool = False) -> SizeEstimate:
    """Return the size of the target's or the draft's breakable prefill graphs. Raises
    UnknownValueError.

    Zero if none is captured or the size was not measured. For the draft, see
    `force_for_draft_worker` (0.5.14 to 0.5.23 speculative/eagle_worker_v2.py). MTP drafts are not
    counted, because they often lack the layers that are captured.
    """
    owner = plan.facts.target
    if plan.value(graphs_topic.PREFILL_BACKEND) != "breakable" or has_latent_cache(owner):
        return NOTHING
    if draft:
        found = draft_of(plan) if plan.algorithm in EAGLE_FAMILY else None
        owner = None if found is None or found.is_mtp else found.checkpoint
    tokens = max(_prefill_sizes(plan), default=0)
    layer = 0 if owner is None else tokens * _layer(plan, owner)
    if owner is None or not layer:
        return NOTHING
    states = 0 if draft else tokens * _states_for_draft(plan)
    whose = " of the draft" if draft else ""
    why = f"twice one layer's activations for {tokens:,} tokens, in prefill graphs{whose}"
    size = MemorySize(int(_HELD * layer) + 2 * states, why, exact=False)
    return SizeEstimate(size, int(_HELD_LEAST * layer) + states)


def _states_for_draft(plan: Plan) -> int:
    """Return the bytes of hidden states per token that an EAGLE-3 or block draft reads; 0 if none.

    Counts three layers unless the draft's config lists others (`get_eagle3_aux_hidden_states` of
    srt/models).
    """
    target, draft = plan.facts.target, plan.facts.draft
    if target is None or draft is None or plan.algorithm not in ("EAGLE3", *BLOCK_FAMILY):
        return 0
    return 2 * (target.hidden_size or 0) * (len(draft.aux_hidden_layers) or 3)


def has_latent_cache(checkpoint: Checkpoint | None) -> bool:
    """True if attention is latent (MLA); False for an unknown checkpoint."""
    return checkpoint is not None and checkpoint.kv_lora_rank is not None


def _prefill_sizes(plan: Plan) -> list[int]:
    on = graphs_topic.prefill_is_captured(plan)
    return list(plan.value("cuda_graph_bs_prefill") or ()) if on else []


def _prefill_rule(plan: Plan) -> tuple[int, str]:
    sizes = _prefill_sizes(plan)
    if not sizes:
        return 0, ""
    if has_latent_cache(plan.facts.target):
        return _PREFILL_LATENT, f", {in_gib(_PREFILL_LATENT)} for prefill graphs"
    return len(sizes) * _PREFILL, f", 8 MiB for each of {len(sizes)} prefill graphs"


def _estimate(size: int, why: str) -> SizeEstimate:
    return SizeEstimate(MemorySize(size, why, exact=False), size // _LOWEST)


def activations(plan: Plan) -> SizeEstimate:
    """Return the activation memory of the largest batch. Raises UnknownValueError.

    If prefill graphs have a measured size, the engine's reserve for them is included.
    """
    tokens = _tokens(plan)
    size = _CONSTANT + max(tokens, _FEWEST_TOKENS) * _TOKEN_BYTES
    why = f"1.5 MiB for each of {max(tokens, _FEWEST_TOKENS):,} prefill tokens, plus 0.5 GiB"
    if has_graphs(plan) and prefill_graphs(plan).least:
        more, text = _prefill_rule(plan)
        size, why = size + more, why + text
    workspace = 0 if plan.device.startswith("cpu") else _WORKSPACE
    least = workspace + eager_prefill(plan) + _verification(plan)
    return SizeEstimate(MemorySize(size, why, exact=False), min(least, size))


def eager_prefill(plan: Plan) -> int:
    """Return the minimum activation bytes that move into a prefill graph once it is captured.
    Raises UnknownValueError."""
    target = plan.facts.target
    each = 0 if target is None else int(_EAGER * _layer(plan, target)) + _states_for_draft(plan)
    return _tokens(plan) * each


def _tokens(plan: Plan) -> int:
    """Return the largest batch's token count; 0 if unknown, so other memory uses remain known."""
    try:
        return _batch(plan)
    except UnknownValueError:
        return 0


def _batch(plan: Plan) -> int:
    if plan.value("disaggregation_mode") == "decode":
        drafts = number(plan, "speculative_num_draft_tokens") if plan.algorithm else 1
        return number(plan, "max_running_requests") * drafts
    chunk = number(plan, "chunked_prefill_size", -1)
    return chunk if chunk > 0 else number(plan, "max_prefill_tokens", 16384)


def _layer(plan: Plan, checkpoint: Checkpoint) -> int:
    """Return the activation bytes of one token in one layer, at 2 bytes per value; 0 if unknown.

    Counts hidden states (in, out, residual, attention) and the feed-forward part (gate, up, their
    product).
    """
    if checkpoint.hidden_size is None:
        return 0
    shard = max(1, number(plan, "tp_size") // attention_ranks(plan))
    return 2 * (4 * checkpoint.hidden_size + 3 * _width(checkpoint) // shard)


def _width(checkpoint: Checkpoint) -> int:
    """Return the feed-forward width that one token uses; 0 if unknown."""
    config: Mapping[str, Any] = checkpoint.config
    if checkpoint.is_moe:
        width, experts = config.get("moe_intermediate_size"), config.get("num_experts_per_tok")
        if isinstance(width, int) and isinstance(experts, int):
            return width * experts
    width = config.get("intermediate_size")
    return width if isinstance(width, int) else 0


def _verification(plan: Plan) -> int:
    """Return the bytes of the logits for all requests' draft tokens, 4 bytes per logit."""
    target = plan.facts.target
    if plan.algorithm is None or target is None or target.vocab_size is None:
        return 0
    try:
        running = number(plan, "max_running_requests", 0)
        return running * number(plan, "speculative_num_draft_tokens", 0) * target.vocab_size * 4
    except UnknownValueError:
        return 0
