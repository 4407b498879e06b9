"""A liveness probe that cannot notice that generation hangs."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.plan.topics.health import generates
from speclaunch.rules.deployments.common import is_also_worker, path_of, probes, said
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.surroundings import ProbeKind


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict a liveness probe that asks no scheduler."""
    for probe in probes(plan, ProbeKind.LIVENESS):
        path = path_of(probe)
        if is_also_worker(plan) or probe.port is None:  # a command may ask anything
            continue
        if generates(plan, path):
            continue
        yield Verdict(
            f"{said(probe) if path else 'the livenessProbe on a TCP port'} succeeds while the "
            "scheduler hangs",
            why="the HTTP process answers it alone; measured with a stopped scheduler, 0.5.23 says "
            "200 on /v1/models and takes connections, and 503 on /health_generate after 20 s",
            fix=Fix("ask /health_generate with a timeout of 25 s"),
            place=probe.place if probe.path is None else probe.path.place,
        )


RULE = rule("SPL852", "blind-liveness", Severity.WARNING, check)
