"""A probe gives up before the endpoint can answer."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.plan.topics.health import LEAST_SECONDS, generates
from speclaunch.rules.deployments.common import (
    in_compose,
    is_worker,
    number,
    path_of,
    probes,
    said,
    written,
)
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.surroundings import Probe, ProbeKind

_KUBELET = 1
"""Seconds of `timeoutSeconds` where it is not written (Kubernetes 1.31, Probe v1 core). Compose
waits 30 s then (its specification, healthcheck), which is enough."""
_ENOUGH = 25
_ENDS = {
    ProbeKind.STARTUP: "the container is killed before it has started",
    ProbeKind.READINESS: "the pod never gets ready",
    ProbeKind.LIVENESS: "the container is killed again and again",
    ProbeKind.HEALTHCHECK: "the container stays unhealthy",
}


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict a probe."""
    for probe in probes(plan):
        if is_worker(plan) or not generates(plan, path_of(probe)):
            continue
        seconds = _timeout(plan, probe)
        if seconds is None or seconds > LEAST_SECONDS:
            continue
        named = f"{seconds:g} s" if probe.timeout is not None else f"{seconds:g} s, the default,"
        yield Verdict(
            f"{said(probe)} gives up after {named} and the answer takes longer",
            why=f"the engine sleeps {LEAST_SECONDS} s before it looks whether a token came: "
            f"{_ENDS[probe.kind]}",
            fix=Fix(f"set its timeout to more than {_ENOUGH - 5} s: {_ENOUGH}"),
            place=probe.place if probe.timeout is None else probe.timeout.place,
            others=written(plan, "port"),
        )


def _timeout(plan: Plan, probe: Probe) -> float | None:
    return number(probe.timeout, None if in_compose(plan) else _KUBELET)


RULE = rule("SPL850", "probe-timeout", Severity.ERROR, check)
