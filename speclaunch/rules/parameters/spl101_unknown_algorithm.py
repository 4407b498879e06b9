"""The engine has no speculative algorithm of this name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from speclaunch.engine.forks import MARK
from speclaunch.engine.nearest import nearest
from speclaunch.plan.plan import Plan
from speclaunch.plan.topics.algorithms import algorithm_names
from speclaunch.rules.arguments.refusals import how_to_declare
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

if TYPE_CHECKING:
    from speclaunch.engine.known_forks import KnownFork


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where no built-in algorithm has the name."""
    known = algorithm_names(plan)
    name = plan.algorithm
    if name is None or name in known:
        return
    fork = _fork(name, plan)
    if fork is not None:
        is_here = plan.facts.runtime is not None  # then its version is the one that counts
        yield Verdict(
            f"no release has the speculative algorithm {name}: it is of {fork.name} of SGLang",
            at=("speculative_algorithm",),
            why="SGLang itself refuses it; what the fork does with it is not known here",
            fix=Fix(f"declare the engine, {fork.package}: {how_to_declare(plan)}"),
            severity=None if is_here else Severity.WARNING,
        )
        return
    close = nearest(name, sorted(known), 1)
    plugins = plan.env("SGLANG_PLUGINS")
    yield Verdict(
        f"SGLang {plan.version} has no speculative algorithm {name}"
        + (f", did you mean {close[0]}?" if close else ""),
        at=("speculative_algorithm",),
        why="the engine refuses: Unknown speculative algorithm name: "
        f"{name}. It has {', '.join(sorted(known))}"
        + (f"; the plugins {plugins} may add more" if plugins else ", unless a plugin adds one"),
        fix=Fix(
            f"use {close[0]}" if close else "use one of the known names",
            set={"speculative_algorithm": close[0]} if close else {},
        ),
        severity=Severity.WARNING if plugins else Severity.ERROR,
    )


def _fork(name: str, plan: Plan) -> KnownFork | None:
    if MARK in plan.request.version:
        return None
    from speclaunch.engine.known_forks import (  # noqa: PLC0415  nearly no command needs it
        fork_with_algorithm,
    )

    return fork_with_algorithm(name)


RULE = rule(
    "SPL101",
    "unknown-algorithm",
    Severity.ERROR,
    check,
    versions=">=0.5.12",
    also={
        Severity.WARNING: "where plugins are loaded (`SGLANG_PLUGINS`), and for an algorithm of a "
        "known fork, if no engine is available"
    },
)
