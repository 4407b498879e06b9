"""The experts cannot be divided among the ranks."""

from __future__ import annotations

from speclaunch.rules.interface import Severity, rule
from speclaunch.rules.placement.common import divides

RULE = rule(
    "SPL508",
    "undivided-experts",
    Severity.ERROR,
    divides(
        "undivided_experts",
        at=("ep_size", "tp_size"),
        instead="choose an ep_size that divides the experts, so that tp_size over it divides "
        "each of them",
    ),
    says=(
        "For quantized MoE models, please make sure",
        "The output_size of gate's and up's weight = {} is not divisible by",
    ),
)
