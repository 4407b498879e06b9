"""The ranks that a model is divided among on GPUs."""

from __future__ import annotations

from speclaunch.plan.memory.ranks import Ranks, ranks_of
from speclaunch.plan.plan import Plan, UnknownValueError

_OTHER_ATTENTION = (
    "dcp_size",
    "enable_dsa_prefill_context_parallel",
    "enable_prefill_context_parallel",
    "enable_prefill_cp",
)
"""Arguments that share attention out in ways that are not worked out here."""


def gpu_ranks(plan: Plan) -> Ranks:
    """The ranks of a plan for GPUs; a CPU pads what cannot be divided
    (`adjust_config_with_unaligned_cpu_tp`, 0.5.23 configs/update_config.py:226). Raises
    UnknownValueError."""
    given = plan.given("device")
    hardware = plan.facts.hardware
    device = given if given is not None else hardware.device if hardware is not None else "cuda"
    if str(device).partition(":")[0] != "cuda":
        return Ranks()
    for name in _OTHER_ATTENTION:
        if plan.value(name) not in (None, False, 1):
            raise UnknownValueError(f"how `{name}` divides attention is not modelled")
    return ranks_of(plan)
