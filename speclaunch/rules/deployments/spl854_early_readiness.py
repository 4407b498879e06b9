"""A pod gets requests before the server has generated anything."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.plan.topics.health import waits_for_warmup
from speclaunch.rules.deployments.common import (
    around,
    in_kubernetes,
    is_also_worker,
    is_worker,
    matches,
    path_of,
    probes,
    said,
    serves_http,
)
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.surroundings import ProbeKind

_FIX = Fix("give it a readinessProbe on /health_generate with a timeout of 25 s")


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for a readiness probe that succeeds too early, or that is missing."""
    if not in_kubernetes(plan) or not serves_http(plan) or is_worker(plan):
        return
    found = list(probes(plan, ProbeKind.READINESS))
    yield from _early(plan)
    if found or any(probes(plan, ProbeKind.STARTUP)):
        return
    services = [
        one for one in around(plan).group.services if matches(one.selector, around(plan).pod.labels)
    ]
    if services:
        yield Verdict(
            f"the Service {services[0].name} sends requests to a pod without a readinessProbe",
            why="a pod without one is ready as soon as its container runs; loading takes minutes, "
            "and every request until then fails",
            fix=_FIX,
            place=around(plan).place,
            others=(services[0].place,),
        )


def _early(plan: Plan) -> Iterator[Verdict]:
    for probe in probes(plan, ProbeKind.READINESS):
        path = path_of(probe)
        if probe.port is None:
            continue
        if is_also_worker(plan) or waits_for_warmup(plan, path):
            continue
        yield Verdict(
            f"{said(probe) if path else 'the readinessProbe on a TCP port'} succeeds before the "
            "warm-up",
            why="the port is open and such a path says 200 while /health still says 503: the first "
            "requests wait for compilation and graphs, or fail with it",
            fix=_FIX,
            place=probe.place if probe.path is None else probe.path.place,
        )


RULE = rule("SPL854", "early-readiness", Severity.WARNING, check)
