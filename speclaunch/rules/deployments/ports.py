"""The ports that one engine listens on, beside that of its HTTP server."""

from __future__ import annotations

from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.rules.deployments.common import value_or

_NAMED = ("grpc_port", "nccl_port")
_OF_PREFILL = "disaggregation_bootstrap_port"


def known_ports(plan: Plan) -> set[int]:
    """Those that are known; of `dist_init_addr` that of rank 0."""
    names = [*_NAMED]
    if value_or(plan, "disaggregation_mode", "prefill") == "prefill":
        names.append(_OF_PREFILL)
    found = {value for name in names if isinstance(value := value_or(plan, name), int)}
    try:
        address = str(plan.given("dist_init_addr")).rpartition(":")[2]
    except UnknownValueError:
        return found
    return found | ({int(address)} if address.isdecimal() else set())
