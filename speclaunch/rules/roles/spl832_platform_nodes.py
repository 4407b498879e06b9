"""The platform gives a server other hosts or GPUs than its arguments ask for."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.errors import Place
from speclaunch.plan.placement import gpus_needed
from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.plan.request import Origin
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.roles import NODES
from speclaunch.rules.values import number
from speclaunch.surroundings import Setting, Surroundings

_GPUS = ("nvidia.com/gpu", "amd.com/gpu")


def check(plan: Plan) -> Iterator[Verdict]:
    """Verdicts on hosts and on GPUs."""
    around = plan.request.surroundings
    if around is None or plan.request.origin is Origin.RECIPE or plan.value("use_ray"):
        return
    yield from _hosts(plan, _amount(around.nodes))
    yield from _gpus(plan, _amount(_given(around)))


def _hosts(plan: Plan, given: tuple[int, Place] | None) -> Iterator[Verdict]:
    nodes = number(plan, NODES) or 1  # same either way: every release has it
    if given is None or nodes == given[0]:
        return
    hosts, place = given
    yield Verdict(
        f"nnodes is {nodes}, and the platform starts {hosts} hosts for the server",
        at=(NODES,),
        why="the engine waits for hosts that are never started"
        if nodes > hosts  # same either way: of equal ones nothing is said
        else "the hosts beyond nnodes have no ranks, and stop",
        fix=Fix(f"set nnodes to {hosts}, or start {nodes} hosts"),
        others=(place,),
    )


def _gpus(plan: Plan, given: tuple[int, Place] | None) -> Iterator[Verdict]:
    if given is None:
        return
    there, place = given
    try:
        needed = gpus_needed(plan)
    except UnknownValueError:
        return
    if needed == there:
        return
    short = needed > there  # same either way: of equal ones nothing is said
    yield Verdict(
        f"the arguments need {needed} GPUs on a host, and the platform gives {there}",
        at=("tp_size", "pp_size", "dp_size", NODES),
        why="a rank without a GPU stops: CUDA error: invalid device ordinal"
        if short
        else f"{there - needed} GPUs of each host stay idle",
        fix=Fix("make the parallel sizes, nnodes and the GPUs of a host agree"),
        severity=None if short else Severity.INFO,
        others=(place,),
    )


def _given(around: Surroundings) -> Setting | None:
    limits = around.pod.limits or around.pod.requests
    named = (limits[name] for name in _GPUS if name in limits)
    return next(named, around.gpus_per_node)


def _amount(setting: Setting | None) -> tuple[int, Place] | None:
    """A number that is known, and where it was written."""
    if setting is None or not str(setting.value).isdecimal():
        return None
    return (int(str(setting.value)), setting.place) if setting.known else None


RULE = rule(
    "SPL832",
    "platform-nodes",
    Severity.ERROR,
    check,
    also={Severity.INFO: "where GPUs stay idle"},
)
