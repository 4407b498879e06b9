"""A probe asks a port that the server does not listen on."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.deployments.common import (
    http_port,
    probes,
    said,
    whole,
    written,
)
from speclaunch.rules.deployments.ports import known_ports
from speclaunch.rules.interface import Fix, Severity, Verdict, rule


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict a probe."""
    for probe in probes(plan):
        asked = whole(probe.port)
        if asked is None or probe.port is None or asked == http_port(plan):
            continue
        if asked in known_ports(plan):  # a TCP probe may mean it
            continue
        given = "" if plan.is_given("port") else ", the default"
        yield Verdict(
            f"{said(probe)} asks port {asked} and the server listens on {http_port(plan)}{given}",
            why="connection refused: the probe fails however well the server does",
            fix=Fix(f"ask port {http_port(plan)}"),
            place=probe.port.place,
            others=written(plan, "port"),
        )


RULE = rule("SPL857", "probe-port", Severity.ERROR, check)
