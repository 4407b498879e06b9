"""Distribution of a deployment across ranks, and the GPU of each rank on a machine."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from speclaunch.engine.plan.plan import Plan, UnknownValueError
from speclaunch.engine.plan.request import RequestOrigin
from speclaunch.engine.plan.topics import parallel
from speclaunch.engine.plan.topics.parallel import attention_ranks


class Ranks(Struct, frozen=True):
    """The number of parts into which the KV cache and each kind of weight are divided."""

    tensor: int = 1
    """Number of parts of MLPs and experts, one per tensor-parallel rank."""
    attention: int = 1
    """Number of parts of the attention heads and the KV cache: the number of ranks that share a
    batch."""
    stages: int = 1
    """Number of pipeline stages."""
    experts: int = 1
    """Number of rank groups that hold different experts."""
    dense: int = 1
    """Number of parts of dense layers' MLPs (`moe_dense_tp_size`)."""
    head: int = 1
    """Number of parts of the output layer."""
    embedding: int = 1
    shared_expert: int = 1
    redundant_experts: int = 0
    """Number of additional expert copies, which balance the load."""

    def stage_layers(self, layers: int, partition: str | None = None) -> tuple[range, ...]:
        """Return the layer indices of each pipeline stage, as `get_pp_indices` does (0.5.23
        distributed/utils.py:110). Raises UnknownValueError.

        If layers do not divide evenly, each of the last stages gets one more.
        """
        if partition is not None and self.stages > 1:
            return _partitioned(layers, self.stages, partition)
        base, more = divmod(layers, self.stages)
        found, start = [], 0
        for stage in range(self.stages):
            end = start + base + (stage >= self.stages - more)
            found.append(range(start, end))
            start = end
        return tuple(found)


def ranks_of(plan: Plan) -> Ranks:
    """Return the `Ranks` that a plan's target and draft share. Raises UnknownValueError."""
    tensor = parallel.count(plan, "tp_size")
    if parallel.count(plan, "dcp_size") > 1:
        raise UnknownValueError("sizes with decode context parallelism are not modeled")
    spread_over = attention_ranks(plan)
    attention = max(1, tensor // spread_over // parallel.count(plan, "attn_cp_size"))
    dense = plan.value("moe_dense_tp_size")
    spread = spread_over > 1
    backend = str(plan.value("moe_a2a_backend") or "none")
    dp_head = bool(plan.value("enable_dp_lm_head")) and spread
    embedding = tensor
    if spread:  # divided among attention ranks, and up to 0.5.7 not at all
        embedding = 1 if plan.in_versions("<0.5.8") else attention
    return Ranks(
        tensor=tensor,
        attention=attention,
        stages=parallel.count(plan, "pp_size"),
        experts=min(parallel.expert_ranks(plan), tensor),
        dense=tensor if dense is None else max(1, int(dense)),
        head=attention if dp_head else tensor,
        embedding=embedding,
        shared_expert=1 if backend != "none" or plan.value("enable_deepep_moe") else tensor,
        redundant_experts=parallel.count(plan, "ep_num_redundant_experts", 0, least=0),
    )


def _partitioned(layers: int, stages: int, partition: str) -> tuple[range, ...]:
    """Return each stage's layer indices from `partition` (`SGLANG_PP_LAYER_PARTITION`)."""
    try:
        counts = [int(count) for count in partition.split(",")]
    except ValueError:
        counts = []
    if len(counts) != stages or sum(counts) != layers or min(counts) < 0:
        raise UnknownValueError(
            f"SGLANG_PP_LAYER_PARTITION {partition} does not fit {layers} layers"
        )
    found, start = [], 0
    for count in counts:
        found.append(range(start, start + count))
        start += count
    return tuple(found)


_MOST_LOCAL_RANKS = 1 << 12


def local_gpus(plan: Plan) -> tuple[int, ...]:
    """Return the GPU index of each rank on one machine, replica by replica. Raises
    UnknownValueError.

    Each stage begins `tp_size` GPUs after the previous one, regardless of `gpu_id_step`, except in
    the first release with `pp_size`. See `_launch_subprocesses` (0.4.6 entrypoints/engine.py:585),
    `_launch_scheduler_processes` (0.5.23 :935) and `launch_dp_schedulers`
    (managers/data_parallel_controller.py, 0.4.6 :133, 0.5.23 :445).
    """
    if plan.request.origin is RequestOrigin.SLIME:
        raise UnknownValueError("slime places the ranks of its engines itself")
    if plan.value("use_ray"):
        raise UnknownValueError("Ray places the ranks")
    if plan.value("ep_join_mode") is not None:
        raise UnknownValueError("ranks that join later choose their own GPUs")
    tp, pp = _number(plan, "tp_size"), _number(plan, "pp_size")
    nodes, replicas = _number(plan, "nnodes"), parallel.replicas(plan)
    base, step = _number(plan, "base_gpu_id", 0), _number(plan, "gpu_id_step")
    stages = max(pp // nodes, 1)
    tensor = max(tp // max(nodes // pp, 1), 1)
    if stages * tensor * replicas > _MOST_LOCAL_RANKS:
        number = stages * tensor * replicas
        raise UnknownValueError(
            f"{number} ranks exceed the limit of {_MOST_LOCAL_RANKS} per machine"
        )
    return tuple(
        base + replica * tp * pp * step + stage * tensor + rank * step
        for replica in range(replicas)
        for stage in range(stages)
        for rank in range(tensor)
    )


def gpus_needed(plan: Plan) -> int:
    """Return the number of GPUs that each machine needs: the highest GPU index plus one.

    Raises UnknownValueError.
    """
    return max(local_gpus(plan)) + 1


def beyond_the_gpus(plan: Plan) -> str | None:
    """Return why there are too few GPUs; None if there are enough, or if either count is unknown.

    Only checks machines whose GPU count is explicit (`h200:8`) or was probed.
    """
    return next(_beyond(plan), None)


def _beyond(plan: Plan) -> Iterator[str]:
    hardware = plan.facts.hardware
    there = hardware.known_count if hardware is not None else None
    if hardware is None or there is None:
        return
    try:
        if plan.device != "cuda":
            return
        needed = gpus_needed(plan)
        machines = _number(plan, "nnodes") if hardware.is_of_all_machines else 1
        visible = visible_gpus(plan)
    except UnknownValueError:
        return
    if visible is not None and visible < there and needed > visible:
        yield f"{_terms(plan)} needs {needed} GPUs, but CUDA_VISIBLE_DEVICES leaves {visible}"
    elif hardware.is_of_all_machines and needed * machines > there:
        needed *= machines
        yield f"{_terms(plan)} needs {needed} GPUs, but there are only {there} ({hardware.name})"
    elif needed > there:
        have = "has 1" if there == 1 else f"has {there}"
        yield f"{_terms(plan)} needs {needed} GPUs on one machine, but {hardware.name} {have}"


def visible_gpus(plan: Plan) -> int | None:
    """Return the number of GPUs in the deployment's `CUDA_VISIBLE_DEVICES`.

    None if it is unset, not a plain list, or already reflected in probed hardware. Raises
    UnknownValueError.
    """
    hardware = plan.facts.hardware
    devices = plan.env("CUDA_VISIBLE_DEVICES")
    if devices is None or hardware is None or hardware.gpus:
        return None
    named = [part.strip() for part in devices.split(",")]
    if not all(part.isdecimal() or part.startswith("GPU-") for part in named):
        return None  # slices, an end mark (-1), or an unsupported form
    return len(named)


def _terms(plan: Plan) -> str:
    terms = [f"tp_size={_number(plan, 'tp_size')}"]
    for name, usual in (("pp_size", 1), ("nnodes", 1), ("base_gpu_id", 0), ("gpu_id_step", 1)):
        value = _number(plan, name, usual)
        if value != usual:
            terms.append(f"{name}={value}")
    replicas = parallel.replicas(plan)
    if replicas > 1:
        terms.insert(1, f"dp_size={replicas}")
    return " with ".join(terms[:1] + ([" and ".join(terms[1:])] if terms[1:] else []))


def _number(plan: Plan, name: str, default: int = 1) -> int:
    value = plan.value(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < min(default, 1):
        raise UnknownValueError(f"`{name}` is {value}, not a valid number")
    return value


_OTHER_ATTENTION = (
    "dcp_size",
    "enable_dsa_prefill_context_parallel",
    "enable_prefill_context_parallel",
    "enable_prefill_cp",
)
"""Arguments that divide attention in ways that are not modeled."""


def gpu_ranks(plan: Plan) -> Ranks:
    """Return the ranks of a plan on GPUs; `Ranks()` for other devices. Raises UnknownValueError.

    A CPU engine pads dimensions that its ranks cannot divide
    (`adjust_config_with_unaligned_cpu_tp`, 0.5.23 configs/update_config.py:226).
    """
    chosen = plan.user_value("device")
    hardware = plan.facts.hardware
    device = chosen if chosen is not None else hardware.device if hardware is not None else "cuda"
    if str(device).partition(":")[0] != "cuda":
        return Ranks()
    for name in _OTHER_ATTENTION:
        if plan.value(name) not in (None, False, 1):
            raise UnknownValueError(f"the division of attention by `{name}` is not modeled")
    return ranks_of(plan)
