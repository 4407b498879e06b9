"""Which GPUs of a machine the engine puts its ranks on."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.plan.request import Origin
from speclaunch.plan.topics import parallel

_MOST = 1 << 12
"""No machine has more ranks."""


def local_gpus(plan: Plan) -> tuple[int, ...]:
    """The index of each rank's GPU on one of the machines, replica after replica.

    The same in all releases, up to where `pp_size` begins (`_launch_subprocesses` of 0.4.6
    entrypoints/engine.py:585, `_launch_scheduler_processes` of 0.5.23 entrypoints/engine.py:935;
    replicas: `launch_dp_schedulers`, 0.4.6 managers/data_parallel_controller.py:133, 0.5.23
    managers/data_parallel_controller.py:445). A stage begins `tp_size` further on, whatever
    `gpu_id_step` is. Raises UnknownValueError.
    """
    if plan.request.origin is Origin.SLIME:
        raise UnknownValueError("slime places the ranks of its engines itself")
    if plan.value("use_ray"):
        raise UnknownValueError("Ray places the ranks")
    if plan.value("ep_join_mode") is not None:
        raise UnknownValueError("ranks that join later are placed by themselves")
    tp, pp = _number(plan, "tp_size"), _number(plan, "pp_size")
    nodes, replicas = _number(plan, "nnodes"), parallel.replicas(plan)
    base, step = _number(plan, "base_gpu_id", 0), _number(plan, "gpu_id_step")
    stages = max(pp // nodes, 1)
    tensor = max(tp // max(nodes // pp, 1), 1)
    if stages * tensor * replicas > _MOST:
        raise UnknownValueError(f"{stages * tensor * replicas} ranks are too many for one machine")
    return tuple(
        base + replica * tp * pp * step + stage * tensor + rank * step
        for replica in range(replicas)
        for stage in range(stages)
        for rank in range(tensor)
    )


def gpus_needed(plan: Plan) -> int:
    """GPUs that each machine must have: up to the last one that a rank is put on.

    Raises UnknownValueError.
    """
    return max(local_gpus(plan)) + 1


def beyond_the_gpus(plan: Plan) -> str | None:
    """Why ranks have no GPU, with the numbers; None where they have one, or nobody can tell.

    Only where the number of GPUs was said (`h200:8`) or counted on the machine.
    """
    return next(_beyond(plan), None)


def _beyond(plan: Plan) -> Iterator[str]:
    hardware = plan.facts.hardware
    there = hardware.known_count if hardware is not None else None
    if hardware is None or there is None:
        return
    try:
        if plan.device.partition(":")[0] != "cuda":
            return
        needed = gpus_needed(plan)
        machines = _number(plan, "nnodes") if hardware.is_of_all_machines else 1
        visible = visible_gpus(plan)
    except UnknownValueError:
        return
    if visible is not None and visible < there and needed > visible:
        yield f"{_terms(plan)} needs {needed} GPUs, and CUDA_VISIBLE_DEVICES leaves {visible}"
    elif hardware.is_of_all_machines and needed * machines > there:
        needed *= machines
        yield f"{_terms(plan)} needs {needed} GPUs, and there are {there} {hardware.name}"
    elif needed > there:
        have = "has 1" if there == 1 else f"has {there}"
        yield f"{_terms(plan)} needs {needed} GPUs on one machine, and {hardware.name} {have}"


def visible_gpus(plan: Plan) -> int | None:
    """GPUs that `CUDA_VISIBLE_DEVICES` of the deployment names; None where it says nothing, or
    hardware that was probed has counted it already. Raises UnknownValueError."""
    hardware = plan.facts.hardware
    said = plan.env("CUDA_VISIBLE_DEVICES")
    if said is None or hardware is None or hardware.gpus:
        return None
    named = [part.strip() for part in said.split(",")]
    if not all(part.isdecimal() or part.startswith("GPU-") for part in named):
        return None  # slices, an end mark (-1), or something that this does not read
    return len(named)


def _terms(plan: Plan) -> str:
    """The arguments that decide it, with their values."""
    said = [f"tp_size={_number(plan, 'tp_size')}"]
    for name, usual in (("pp_size", 1), ("nnodes", 1), ("base_gpu_id", 0), ("gpu_id_step", 1)):
        value = _number(plan, name, usual)
        if value != usual:
            said.append(f"{name}={value}")
    replicas = parallel.replicas(plan)
    if replicas > 1:
        said.insert(1, f"dp_size={replicas}")
    return " with ".join(said[:1] + ([" and ".join(said[1:])] if said[1:] else []))


def _number(plan: Plan, name: str, default: int = 1) -> int:
    value = plan.value(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < min(default, 1):
        raise UnknownValueError(f"`{name}` is {value}")
    return value
