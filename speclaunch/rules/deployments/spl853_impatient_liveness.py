"""A liveness probe that kills a server which is only busy."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.plan.topics.health import LEAST_SECONDS, generates, patience
from speclaunch.rules.deployments.common import is_worker, number, path_of, probes, said, written
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.surroundings import ProbeKind

_PERIOD, _FAILURES = 10, 3


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict a liveness probe that waits for less than the engine itself."""
    for probe in probes(plan, ProbeKind.LIVENESS):
        if is_worker(plan) or not generates(plan, path_of(probe)):
            continue
        period = number(probe.period, _PERIOD)
        failures = number(probe.failure_threshold, _FAILURES)
        timeout = number(probe.timeout)
        if period is None or failures is None or timeout is None or timeout <= LEAST_SECONDS:
            continue  # SPL850 says that the least, the default, always fails
        silence = (failures - 1) * max(period, timeout) + timeout
        if silence >= patience(plan):
            continue
        yield Verdict(
            f"{said(probe)} kills the container after {silence:g} s without a token",
            why=f"the engine itself waits {patience(plan)} s (SGLANG_HEALTH_CHECK_TIMEOUT) before "
            "it says 503: a long prefill or a compilation takes as long, and no request survives "
            "the restart",
            fix=Fix(f"set timeoutSeconds to {patience(plan) + 5}, or raise failureThreshold"),
            place=probe.place,
            others=written(plan, "SGLANG_HEALTH_CHECK_TIMEOUT"),
        )


RULE = rule("SPL853", "impatient-liveness", Severity.WARNING, check)
