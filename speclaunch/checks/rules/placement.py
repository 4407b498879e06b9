"""Rules about ranks and GPUs: where the engine places a model, and if its layers can be divided."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from speclaunch.checks.rules.interface import Fix, Verdict, rule
from speclaunch.checks.rules.values import number
from speclaunch.engine import (
    Plan,
    UnknownValueError,
    beyond_the_gpus,
    gpu_ranks,
    replicas,
    visible_gpus,
)

if TYPE_CHECKING:
    from speclaunch.engine import Undivided


def _undivided(
    plan: Plan,
    what: Literal["undivided_heads", "undivided_experts", "undivided_widths"],
    at: tuple[str, ...],
    instead: str,
) -> Iterator[Verdict]:
    """Yield a verdict for each part that cannot be divided.

    `what` is a function of `engine/plan/division.py`; `instead` is the remedy if no smaller
    `tp_size` helps.
    """
    if gpu_ranks(plan).tensor < 2:  # same either way: division.py checks it again
        return
    from speclaunch.engine import division  # noqa: PLC0415  it counts weights

    for undivided in getattr(division, what)(plan):
        yield _verdict(undivided, at, instead)


def _verdict(undivided: Undivided, at: tuple[str, ...], instead: str) -> Verdict:
    plural = (
        "do" if undivided.what.endswith("heads") or undivided.what.endswith("experts") else "does"
    )
    return Verdict(
        f"{undivided.what} of the {undivided.whose} {undivided.model} {plural} not divide evenly "
        f"among {undivided.ranks} {undivided.of}",
        at=at,
        why=f"the engine stops while it builds the model: {undivided.engine}",
        fix=_fix_of_common(undivided, instead),
    )


def _fix_of_common(undivided: Undivided, instead: str) -> Fix:
    if undivided.groups is not None:
        return Fix(f"set ep_size to {undivided.groups}", set={"ep_size": undivided.groups})
    if not undivided.works:
        return Fix(instead)
    return Fix(f"set tp_size to {undivided.works[0]}", set={"tp_size": undivided.works[0]})


_AT = ("tp_size", "pp_size", "dp_size", "base_gpu_id")
_FEW = 8
"""GPUs per machine in typical multi-node deployments."""


@rule("SPL506")
def ranks_beyond_gpus(plan: Plan) -> Iterator[Verdict]:
    """Report more ranks than the machine has GPUs."""
    why = beyond_the_gpus(plan)
    if why is None:
        return
    yield Verdict(
        why,
        at=_AT,
        why="the engine places each rank on its own GPU; a rank without one stops: CUDA error: "
        "invalid device ordinal",
        fix=_fix_of_ranks_beyond_gpus(plan),
    )


def _fix_of_ranks_beyond_gpus(plan: Plan) -> Fix:
    hardware = plan.facts.hardware
    there = hardware.count if hardware is not None else 1
    plain = all(number(plan, name) == 1 for name in ("pp_size", "nnodes", "gpu_id_step"))
    is_simple = plain and not number(plan, "base_gpu_id") and replicas(plan) == 1
    if not is_simple or not _all_visible(plan, there):
        return Fix("reduce the parallel sizes to the machine's GPU count, or use more GPUs")
    fitting = 1 << (there.bit_length() - 1)
    nodes = -(-(number(plan, "tp_size") or 1) // there)
    more = f", or serve on {nodes} machines (nnodes)" if there >= _FEW else ""
    return Fix(f"set tp_size to {fitting}{more}", set={"tp_size": fitting})


def _all_visible(plan: Plan, there: int) -> bool:
    """True if no GPU is hidden; otherwise the user could also change the visible GPUs."""
    if plan.env("CUDA_VISIBLE_DEVICES") is None:
        return True
    try:
        return visible_gpus(plan) == there
    except UnknownValueError:
        return False


@rule("SPL507")
def undivided_heads(plan: Plan) -> Iterator[Verdict]:
    """Report attention heads that the ranks do not divide."""
    return _undivided(
        plan,
        "undivided_heads",
        ("tp_size",),
        "choose tp_size and the DP attention ranks so that their quotient divides the heads",
    )


@rule("SPL508")
def undivided_experts(plan: Plan) -> Iterator[Verdict]:
    """Report experts that the ranks do not divide."""
    return _undivided(
        plan,
        "undivided_experts",
        ("ep_size", "tp_size"),
        "choose an ep_size that divides the experts, so that tp_size / ep_size divides each expert",
    )


@rule("SPL509")
def undivided_widths(plan: Plan) -> Iterator[Verdict]:
    """Report layer widths that the ranks do not divide."""
    return _undivided(
        plan, "undivided_widths", ("tp_size",), "use fewer ranks, or another checkpoint"
    )
