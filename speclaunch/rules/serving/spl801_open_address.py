"""The server listens on every address and asks for no key."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.plan.request import Origin
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_OPEN = ("0.0.0.0", "::")  # noqa: S104


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for an open address that the user gave."""
    if plan.given("host") not in _OPEN or plan.is_given("api_key"):
        return
    if plan.request.origin is Origin.SLIME:  # its engines are reached by its own router
        return
    if _has_a_network(plan):
        return
    yield Verdict(
        f"the server listens on {plan.given('host')} and requires no api_key",
        at=("host",),
        why=(
            "anyone who reaches the machine can use every endpoint, including those that change "
            "weights"
        ),
        fix=Fix("keep it inside a closed network, listen on one address, or set an api_key"),
    )


def _has_a_network(plan: Plan) -> bool:
    """Whether it is in a container with a network of its own, where it must listen on every
    address: of a pod Services and policies say who reaches it, of Compose the published ports."""
    around = plan.request.surroundings
    if around is None:
        return False
    from speclaunch.rules.deployments.common import (  # noqa: PLC0415  manifests
        KUBERNETES,
        in_compose,
        is_on,
    )

    if is_on(around.pod.host_network):
        return False
    if in_compose(plan):
        return not around.pod.published
    return around.group.platform in KUBERNETES


RULE = rule("SPL801", "open-address", Severity.INFO, check)
