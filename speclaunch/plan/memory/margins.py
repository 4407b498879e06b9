"""Which `mem_fraction_static` is certain to work, which is likely to, and where it ends.

Graphs and activations are estimates: by the engine's own rules of thumb, which mean to be on the
safe side. So there is no one largest fraction that works, but three.
"""

from __future__ import annotations

from speclaunch.plan.budget import MemoryUse
from speclaunch.plan.memory.phases import (
    FractionOutcome,
    Terms,
    likely_range,
    start,
    working_range,
)
from speclaunch.plan.memory.terms import Gathered, gather
from speclaunch.plan.plan import Plan
from speclaunch.record import record

SAFE = 1.25
"""Of what the engine puts aside for graphs and activations: so much is left free to be certain."""


@record
class Choice:
    """One `mem_fraction_static` and what it gives, of one data-parallel replica."""

    fraction: float
    tokens: int
    """Tokens of KV cache."""
    running_requests: int
    requests_at_context: int | None
    """Requests of the whole context that have room at the same time."""
    spare_bytes: int
    """What is left on a GPU where every estimate turns out at its least: the margin."""


@record
class Margins:
    """The largest fractions at which the deployment serves. None: there is no such fraction.

    - `certain`: what the engine puts aside by its rules of thumb is there, and more (`SAFE`).
    - `likely`: what is expected of it is there (`EXPECTED`).
    - `edge`: only the least that it can be; above it, it fails.
    """

    least: float
    """The smallest fraction that leaves a KV cache at all."""
    certain: Choice | None
    likely: Choice | None
    edge: Choice

    @property
    def best(self) -> Choice:
        """The one to take: the likely one, else the edge."""
        return self.likely or self.edge

    @property
    def said(self) -> str:
        """The one to take, and the others, in a few words."""
        sure = "is likely to work" if self.likely is not None else "is at the edge"
        certain = "none" if self.certain is None else f"{self.certain.fraction:.3f}"
        return (
            f"{self.best.fraction:.3f} {sure}, with {self.best.tokens:,} KV tokens (certain: "
            f"{certain}, the edge: {self.edge.fraction:.3f})"
        )


def margins(plan: Plan) -> Margins | None:
    """The margins of a plan, whatever fraction it has; None where a fact is missing, or there is no
    fraction that works."""
    found = gather(plan)
    terms = found.terms
    if terms is None or len(found.unknown) > (found.fraction is None):
        return None
    edge = working_range(lambda fraction: start(plan, terms, fraction).turn)
    if edge is None:
        return None

    def choice(at: tuple[float, float] | None) -> Choice | None:
        return None if at is None else _choice(plan, terms, found, min(at[1], edge[1]))

    last = choice(edge)
    return (
        None
        if last is None
        else Margins(
            edge[0],
            choice(likely_range(plan, terms, SAFE)),
            choice(likely_range(plan, terms)),
            last,
        )
    )


def _choice(plan: Plan, terms: Terms, found: Gathered, fraction: float) -> Choice | None:
    outcome: FractionOutcome = start(plan, terms, fraction)
    pool = outcome.likely.pool
    if pool is None:
        return None
    context = found.context
    whole = None if not context else min(pool.tokens // context, pool.running)
    spare = max(0, outcome.best.free) if MemoryUse.ACTIVATIONS in outcome.best.taken else 0
    return Choice(fraction, pool.tokens, pool.running, whole, spare)
