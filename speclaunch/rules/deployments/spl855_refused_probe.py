"""A probe asks a path that the server answers with an error."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.errors import Place
from speclaunch.plan.plan import Plan
from speclaunch.plan.topics.health import exists, exists_on_worker, needs_key
from speclaunch.rules.deployments.common import (
    is_also_worker,
    is_worker,
    path_of,
    probes,
    said,
    written,
)
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.surroundings import Probe


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict a probe that can never succeed."""
    for probe in probes(plan):
        path = path_of(probe)
        if path is None:
            continue
        yield from _refused(plan, probe, path)


def _refused(plan: Plan, probe: Probe, path: str) -> Iterator[Verdict]:
    if is_also_worker(plan) and not exists_on_worker(plan, path):
        where = "" if is_worker(plan) else " of the hosts behind the first"
        yield _verdict(
            probe,
            f"{said(probe)} is answered with 404 by the servers{where}",
            "a rank behind the first serves /health, /health_generate and, from 0.5.4 on, /ping",
            "ask /health",
            written(plan, "node_rank", "nnodes"),
        )
    elif exists(plan, path) is False:
        more = " without enable_metrics" if path == "/metrics" else ""
        yield _verdict(
            probe,
            f"{said(probe)} is answered with 404: SGLang {plan.request.version} does not serve "
            f"it{more}",
            "the probe fails however well the server does",
            "ask /health_generate",
            (),
        )
    elif needs_key(plan, path) and not probe.headers:
        yield _verdict(
            probe,
            f"{said(probe)} is answered with 401: the server has an api_key",
            "only /health, /health_generate, /metrics and, from 0.5.20 on, /ready pass without it",
            "ask /health_generate",
            written(plan, "api_key"),
        )


def _verdict(probe: Probe, message: str, why: str, fix: str, others: tuple[Place, ...]) -> Verdict:
    place = probe.place if probe.path is None else probe.path.place
    return Verdict(message, why=why, fix=Fix(fix), place=place, others=others)


RULE = rule("SPL855", "refused-probe", Severity.ERROR, check)
