"""What each engine version makes of the arguments before it starts: the resolution."""

from __future__ import annotations

from speclaunch.facts.facts import Facts
from speclaunch.plan.plan import Plan
from speclaunch.plan.request import Request
from speclaunch.plan.resolution.steps import run
from speclaunch.plan.resolution.working import Working


def resolve(request: Request, facts: Facts) -> Plan:
    """The plan of a request: every value as the engine will have it.

    The same request and facts give the same plan. A field whose effective value depends on a fact
    that is missing is undecided; where the engine would refuse, values stay as they are given.
    """
    working = Working(request, facts)
    run(working)
    return working.finished()
