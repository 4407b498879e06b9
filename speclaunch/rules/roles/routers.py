"""What a router in front of servers was told, in the words that several routers share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from speclaunch.errors import Place
from speclaunch.plan.plan import Plan
from speclaunch.record import record
from speclaunch.rules.roles.sides import DECODE, PREFILL, groups
from speclaunch.surroundings import Router, Service, Surroundings

_SWITCH = "pd-disaggregation"
_BALANCER = "mini_lb"
"""SGLang's own test router, which knows prefill and decode alone."""
_ROUTERS = ("sglang_router", "sglang-router", "smg", "amg", "sgl-model-gateway")
_OTHERS = "dynamo"
"""Its frontend finds out by itself what its servers are."""


@record
class Routed:
    """A router and the servers of its deployment."""

    router: Router
    plans: tuple[Plan, ...]
    services: tuple[Service, ...]
    """What stands between them."""


def routed(plans: Sequence[Plan]) -> Iterator[Routed]:
    """Each router whose options are known, with the servers of its deployment."""
    for plans_of_group in groups(plans):
        group = next(around.group for around in map(_around, plans_of_group) if around is not None)
        for router in group.routers:
            if _OTHERS not in router.program.lower():
                yield Routed(router, tuple(plans_of_group), group.services)


def has_router(plan: Plan) -> bool:
    """Whether a server stands behind a router that its file tells of."""
    around = _around(plan)
    return around is not None and bool(around.group.routers)


def _around(plan: Plan) -> Surroundings | None:
    return plan.request.surroundings


def is_disaggregated(router: Router) -> bool | None:
    """Whether a router was told of prefill and decode; None where nobody said so: who renders a
    recipe tells its router."""
    said = router.options.get(_SWITCH)
    if said is not None and said.known:
        return str(said.value).lower() != "false"
    if said is not None:
        return None
    if _BALANCER in router.program:
        return True
    if any(one.role in (PREFILL, DECODE) for one in router.upstreams):
        return not _drops_its_lists(router)
    return False if router.upstreams else None


def _drops_its_lists(router: Router) -> bool:
    """Whether it is the router that passes its prefill and decode lists on only with the switch
    (sglang_router 0.3.2 router.py:222); that of a recipe is given it when it is rendered."""
    written = any(one.host is not None for one in router.upstreams)
    return written and router.program.startswith(_ROUTERS)


def place_of_switch(router: Router) -> Place:
    """Where a router was told of disaggregation, or where it stands."""
    said = router.options.get(_SWITCH)
    return router.place if said is None else said.place
