"""Whether the recipe fits into the memory that is free now."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.doctor.line import Line, State
from speclaunch.doctor.surroundings import Surroundings
from speclaunch.plan.budget import Fit

_STATES = {Fit.FITS: State.OK, Fit.FAILS: State.WARNING, Fit.UNKNOWN: State.UNKNOWN}


def check(found: Surroundings) -> Iterator[Line]:
    """The verdict of the memory budget; SPL711 says more of one that fails."""
    if found.target is None or found.target.budget is None:
        return
    budget = found.target.budget
    if budget.fit is Fit.UNKNOWN:
        what, why = "it cannot be told whether the recipe fits", "; ".join(budget.unknown)
    else:
        said = "fits" if budget.fit is Fit.FITS else "does not fit"
        what, why = f"{found.target.name} {said}: {budget.why}", "; ".join(budget.notes)
    failing = budget.fit is Fit.FAILS
    command = f"speclaunch plan recipe={found.target.called or found.target.name} --fit"
    yield Line(
        "memory-budget",
        State.ERROR if budget.impossible else _STATES[budget.fit],
        what,
        why,
        command if failing else None,
        command=failing,
    )
