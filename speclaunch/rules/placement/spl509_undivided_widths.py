"""An MLP or the vocabulary cannot be divided among the ranks."""

from __future__ import annotations

from speclaunch.rules.interface import Severity, rule
from speclaunch.rules.placement.common import divides

RULE = rule(
    "SPL509",
    "undivided-widths",
    Severity.ERROR,
    divides(
        "undivided_widths",
        at=("tp_size",),
        instead="use fewer ranks, or another checkpoint",
    ),
)
