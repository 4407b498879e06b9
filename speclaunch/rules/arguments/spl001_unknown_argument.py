"""The parser of the version does not know an argument."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from speclaunch.plan.plan import Plan
from speclaunch.rules.arguments.refusals import (
    Refusal,
    fork_of,
    how_to_declare,
    refused,
    verdict,
    written,
)
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

if TYPE_CHECKING:
    from speclaunch.engine.known_forks import KnownFork


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict a word; of a known fork's arguments nobody knows here whether it takes them."""
    for problem in refused(plan, Refusal.UNKNOWN):
        fork = fork_of(problem, plan)
        if fork is None:
            yield verdict(problem, plan)
            continue
        is_here = plan.facts.runtime is not None  # then its version is the one that counts
        yield Verdict(
            f"no release has `{written(problem)}`: it is of {fork.name} of SGLang",
            why="SGLang itself ends with exit code 2; what the fork takes is not known here",
            fix=_fix(fork, plan),
            severity=None if is_here else Severity.WARNING,
            place=problem.place,
        )


def _fix(fork: KnownFork, plan: Plan) -> Fix:
    return Fix(f"declare the engine, {fork.package}: {how_to_declare(plan)}")


RULE = rule(
    "SPL001",
    "unknown-argument",
    Severity.ERROR,
    check,
    also={Severity.WARNING: "for an argument of a known fork, where no engine is available"},
)
