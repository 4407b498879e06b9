"""mem_fraction_static is no fraction."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_NAME = "mem_fraction_static"
_PERCENT = 100
_LEAST_PERCENT = 2
"""Nobody leaves the engine less: 1.5 is another slip."""


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for a value outside of (0, 1)."""
    value = plan.given(_NAME)
    if value is None or 0 < float(value) < 1:
        return
    number = float(value)
    percent = number / _PERCENT
    slip = _LEAST_PERCENT <= number < _PERCENT
    yield Verdict(
        f"mem_fraction_static is {number:g}; it is a share of the GPU's memory, between 0 and 1",
        at=(_NAME,),
        why="no memory is left for the KV cache"
        if number <= 0
        else "the engine takes all of the memory or more, and the first allocation beyond it fails",
        fix=Fix(f"set it to {percent:g} if {number:g} % is meant", set={_NAME: percent})
        if slip
        else Fix("leave it out: the engine chooses one", set={_NAME: None}),
        severity=Severity.WARNING if number == 1 else None,
    )


RULE = rule("SPL710", "memory-fraction", Severity.ERROR, check, also={Severity.WARNING: "for 1"})
