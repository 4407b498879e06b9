"""The attention heads cannot be divided among the ranks."""

from __future__ import annotations

from speclaunch.rules.interface import Severity, rule
from speclaunch.rules.placement.common import divides

RULE = rule(
    "SPL507",
    "undivided-heads",
    Severity.ERROR,
    divides(
        "undivided_heads",
        at=("tp_size",),
        instead="change tp_size, or the ranks of DP attention, so that their quotient divides the "
        "heads",
    ),
)
