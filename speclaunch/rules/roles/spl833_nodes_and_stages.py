"""Hosts and pipeline stages that do not divide each other."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.roles import NODES
from speclaunch.rules.values import number


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where a host would have a part of a stage and a part of another."""
    nodes, stages = number(plan, NODES), number(plan, "pp_size")
    if not nodes or not stages or max(nodes, stages) % min(nodes, stages) == 0:
        return
    yield Verdict(
        f"{nodes} hosts and {stages} pipeline stages: neither divides the other",
        at=(NODES, "pp_size"),
        why="the engine gives each host whole stages, or each stage whole hosts, by division "
        "without a rest: some ranks are never started, and the others wait for them",
        fix=Fix("choose nnodes and pp_size so that one divides the other"),
    )


RULE = rule("SPL833", "nodes-and-stages", Severity.ERROR, check)
