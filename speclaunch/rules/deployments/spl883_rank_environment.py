"""Ranks of one server have different environments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from speclaunch.plan.plan import Plan
from speclaunch.rules.deployments.common import around, grouped, ranks, text
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.surroundings import Setting

_COMMON = ("NCCL_", "NVSHMEM_", "GLOO_", "SGLANG_", "SGL_", "UCX_", "MC_")
"""How variables begin that all ranks have to agree on."""
_OWN = ("DEBUG", "LOG", "HOST_IP", "RANK", "TRACE", "PROFILE", "DUMP")
"""What in a name says that each rank may have its own."""


def check(_plan: Plan) -> Iterator[Verdict]:
    """Nothing can be said of one rank by itself."""
    return iter(())


def check_across(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """One verdict a part that differs from the first part of its server."""
    for _, members in grouped(plans):
        for leader, *workers in ranks(members):
            for plan in workers:
                yield from _differing(plan, leader)


def _differing(plan: Plan, other: Plan) -> Iterator[tuple[Plan, Verdict]]:
    ours, theirs = _common(plan), _common(other)
    for name in sorted({*ours, *theirs}):
        mine, its = ours.get(name), theirs.get(name)
        if text(mine) == text(its) or not all(one is None or one.known for one in (mine, its)):
            continue
        said = " and ".join(
            f"{around(one).part} has {'none' if value is None else text(value)}"
            for one, value in ((plan, mine), (other, its))
        )
        yield (
            plan,
            Verdict(
                f"ranks of one server differ in {name}: {said}",
                why="collectives and kernels have to be chosen alike on all ranks: they hang, or "
                "fail to connect, where one rank is told otherwise",
                fix=Fix("give all ranks the same variables"),
                place=around(plan).place if mine is None else mine.place,
                others=(around(other).place if its is None else its.place,),
            ),
        )


def _common(plan: Plan) -> dict[str, Setting]:
    return {
        name: value
        for name, value in around(plan).pod.env.items()
        if name.startswith(_COMMON) and not any(word in name for word in _OWN)
    }


RULE = rule(
    "SPL883",
    "rank-environment",
    Severity.WARNING,
    check,
    check_across=check_across,
)
