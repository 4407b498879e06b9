"""Probes or a router give up before the model can be loaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from speclaunch.errors import Place
from speclaunch.plan.plan import Plan
from speclaunch.plan.start_time import ExpectedStart, expected_start
from speclaunch.rules.deployments.common import in_kubernetes, number, probes, written
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.surroundings import Probe, ProbeKind

_PERIOD, _FAILURES = 10, 3
"""Where they are not written (Kubernetes 1.31, Probe v1 core)."""


class _Budget(NamedTuple):
    """Seconds until a container is killed, and which probe does it."""

    seconds: float
    probe: Probe
    others: tuple[Place, ...]


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for the probe that kills the container while it loads."""
    if not in_kubernetes(plan):
        return
    budget = _budget(plan)
    if budget is None:
        return
    expected = expected_start(plan)
    if budget.seconds < expected.least:
        yield _verdict(plan, budget, expected, Severity.ERROR)
    elif expected.known and budget.seconds < expected.likely:
        yield _verdict(plan, budget, expected, Severity.WARNING)


def _budget(plan: Plan) -> _Budget | None:
    """That of the startup probe; of the liveness probe where there is none."""
    for kind in (ProbeKind.STARTUP, ProbeKind.LIVENESS):
        for probe in probes(plan, kind):
            if probe.port is None:
                return None  # a command may succeed while the model loads
            delay = number(probe.initial_delay, 0)
            period = number(probe.period, _PERIOD)
            failures = number(probe.failure_threshold, _FAILURES)
            if delay is None or period is None or failures is None:
                return None
            settings = (probe.initial_delay, probe.period, probe.failure_threshold)
            places = tuple(one.place for one in settings if one is not None)
            return _Budget(delay + period * failures, probe, places)
    return None


def _verdict(plan: Plan, budget: _Budget, expected: ExpectedStart, severity: Severity) -> Verdict:
    sure = severity is Severity.ERROR
    needed = expected.least if sure else expected.likely
    kind = budget.probe.kind.value
    weights = f"{expected.weights:,.0f} GB of weights" if expected.weights >= 1 else "the weights"
    return Verdict(
        f"the {kind} kills the container after {budget.seconds:g} s and a start "
        f"{'needs at least' if sure else 'is likely to take'} {needed:,.0f} s",
        why=f"processes, {weights}, graphs and a generation come before the first answer; the "
        f"container is restarted, and loads from the beginning",
        fix=Fix(f"give it a startupProbe of {2 * expected.likely:,.0f} s in all"),
        place=budget.probe.place,
        others=(*budget.others, *written(plan, "model_path")),
        severity=severity,
    )


RULE = rule(
    "SPL851",
    "startup-budget",
    Severity.WARNING,
    check,
    also={Severity.ERROR: "where no disk is fast enough"},
)
