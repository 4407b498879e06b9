"""More ranks than the machine has GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.placement import beyond_the_gpus, visible_gpus
from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import number

_AT = ("tp_size", "pp_size", "dp_size", "base_gpu_id")
_FEW = 8
"""GPUs of the machines that multi-node deployments are usually made of."""


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where a rank has no GPU."""
    why = beyond_the_gpus(plan)
    if why is None:
        return
    yield Verdict(
        why,
        at=_AT,
        why="the engine places each rank on its own GPU; a rank without one stops: CUDA error: "
        "invalid device ordinal",
        fix=_fix(plan),
    )


def _fix(plan: Plan) -> Fix:
    hardware = plan.facts.hardware
    there = hardware.count if hardware is not None else 1
    plain = all(number(plan, name) == 1 for name in ("pp_size", "nnodes", "gpu_id_step"))
    whole = plain and not number(plan, "base_gpu_id") and plan.derived.replicas == 1
    if not whole or not _all_visible(plan, there):
        return Fix("lower the parallel sizes to the GPUs of the machine, or use more GPUs")
    fitting = 1 << (there.bit_length() - 1)
    nodes = -(-(number(plan, "tp_size") or 1) // there)
    more = f", or serve on {nodes} machines (nnodes)" if there >= _FEW else ""
    return Fix(f"set tp_size to {fitting}{more}", set={"tp_size": fitting})


def _all_visible(plan: Plan, there: int) -> bool:
    """Whether no GPU is hidden: else the list of the visible ones is the other thing to change."""
    if plan.env("CUDA_VISIBLE_DEVICES") is None:
        return True
    try:
        return visible_gpus(plan) == there
    except UnknownValueError:
        return False


RULE = rule("SPL506", "ranks-beyond-gpus", Severity.ERROR, check)
