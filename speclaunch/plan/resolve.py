"""What each engine version makes of the arguments before it starts: the resolution."""

from __future__ import annotations

from typing import Any

from speclaunch.facts.facts import Facts
from speclaunch.plan.plan import Plan
from speclaunch.plan.request import Request


def resolve(request: Request, facts: Facts) -> Plan:
    """The plan of a request: every value as the engine will have it."""
    resolved: dict[str, Any] = {}
    undecided: dict[str, str] = {}
    asked = request.given.get("speculative_algorithm")
    if asked is not None:
        if asked.known:
            name = str(asked.value).upper()
            resolved["speculative_algorithm"] = "EAGLE" if name == "NEXTN" else name
        else:
            undecided["speculative_algorithm"] = f"{asked.written} is {asked.value}"
    return Plan(request, facts, resolved, undecided)
