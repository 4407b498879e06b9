"""Which server of a deployment an address means."""

from __future__ import annotations

from collections.abc import Sequence

from speclaunch.plan.plan import Plan
from speclaunch.record import record
from speclaunch.rules.deployments.common import (
    COMPOSE,
    around,
    is_worker,
    matches,
    serves_http,
    whole,
)
from speclaunch.surroundings import Group, Service


@record
class Target:
    """The servers behind the host of an address; `service`: the Service that it names."""

    plans: tuple[Plan, ...]
    service: Service | None = None

    def port_behind(self, port: int) -> int | None:
        """The port of the pods that a port of the address leads to; None where the Service has
        another one by name, or none."""
        if self.service is None or self.service.headless:
            return port
        for outer, inner in self.service.ports:
            if whole(outer) == port:
                return port if inner is None else whole(inner)
        return None

    def leads_on(self, port: int) -> bool:
        """Whether a Service has the port at all."""
        if self.service is None or self.service.headless:
            return True
        return any(whole(outer) in (port, None) for outer, _ in self.service.ports)


def target_of(host: str | None, group: Group, members: Sequence[Plan]) -> Target | None:
    """The servers that a host name means; None where nothing of the deployment has that name."""
    if not host:
        return None
    name = host.partition(".")[0]
    servers = [one for one in members if serves_http(one) and not is_worker(one)]
    for service in group.services:
        if service.name == name:
            found = [one for one in servers if matches(service.selector, around(one).pod.labels)]
            return Target(tuple(found), service) if found else None
    if group.platform == COMPOSE:
        found = [one for one in servers if one.request.name == name]
        return Target(tuple(found)) if found else None
    return None
