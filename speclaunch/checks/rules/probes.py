"""Rules about a server's probes: budgets, ports and paths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from speclaunch.checks.rules.deployment_values import (
    context_of,
    http_port,
    in_compose,
    in_kubernetes,
    integer,
    is_also_worker,
    is_on,
    is_worker,
    known_ports,
    number,
    path_of,
    place_of_path,
    probe_name,
    probes,
    services_of,
    written,
)
from speclaunch.checks.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.core import Place
from speclaunch.engine import (
    LEAST_SECONDS,
    ExpectedStart,
    Plan,
    Probe,
    ProbeKind,
    exists,
    exists_on_worker,
    expected_start,
    generates,
    needs_key,
    patience,
    waits_for_warmup,
)

_KUBELET = 1
"""Default timeout of a Kubernetes probe in seconds (Kubernetes 1.31, Probe v1 core). Compose's
default of 30 s (Compose specification, healthcheck) is long enough."""
_ENOUGH = 25
_ENDS = {
    ProbeKind.STARTUP: "the container is killed before it has started",
    ProbeKind.READINESS: "the pod never becomes ready",
    ProbeKind.LIVENESS: "the container is killed repeatedly",
    ProbeKind.HEALTHCHECK: "the container remains unhealthy",
}


@rule("SPL850")
def probe_timeout(plan: Plan) -> Iterator[Verdict]:
    """Report a probe that times out before the endpoint can answer."""
    for probe in probes(plan):
        if is_worker(plan) or not generates(plan, path_of(probe)):
            continue
        seconds = number(probe.timeout, None if in_compose(plan) else _KUBELET)
        if seconds is None or seconds > LEAST_SECONDS:
            continue
        named = f"{seconds:g} s" if probe.timeout is not None else f"{seconds:g} s (the default)"
        yield Verdict(
            f"{probe_name(probe)} times out after {named}, but the answer takes longer",
            why=f"the engine waits {LEAST_SECONDS} s before it checks for a token: "
            f"{_ENDS[probe.kind]}",
            fix=Fix(f"set its timeout to more than {_ENOUGH - 5} s, such as {_ENOUGH}"),
            place=probe.place if probe.timeout is None else probe.timeout.place,
            others=written(plan, "port"),
        )


_PERIOD, _FAILURES = 10, 3
"""Default period and failure threshold (Kubernetes 1.31, Probe v1 core)."""


class _Budget(NamedTuple):
    """A probe, the seconds until it kills a failing container, and the places of its settings."""

    seconds: float
    probe: Probe
    others: tuple[Place, ...]


@rule("SPL851")
def startup_budget(plan: Plan) -> Iterator[Verdict]:
    """Report a probe whose time limit ends before the model can be loaded."""
    if not in_kubernetes(plan):
        return
    if (budget := _budget(plan)) is None:
        return
    expected = expected_start(plan)
    if budget.seconds < expected.least:
        yield _verdict_of_startup_budget(plan, budget, expected, Severity.ERROR)
    elif expected.known and budget.seconds < expected.likely:
        yield _verdict_of_startup_budget(plan, budget, expected, Severity.WARNING)


def _budget(plan: Plan) -> _Budget | None:
    """Return the startup probe's budget (without one, the liveness probe's); None if unknown."""
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
            places = tuple(setting.place for setting in settings if setting is not None)
            return _Budget(delay + period * failures, probe, places)
    return None


def _verdict_of_startup_budget(
    plan: Plan, budget: _Budget, expected: ExpectedStart, severity: Severity
) -> Verdict:
    sure = severity is Severity.ERROR
    needed = expected.least if sure else expected.likely
    kind = budget.probe.kind.value
    weights = f"{expected.weights:,.0f} GB of weights" if expected.weights >= 1 else "the weights"
    return Verdict(
        f"the {kind} kills the container after {budget.seconds:g} s, but a start "
        f"{'needs at least' if sure else 'is likely to take'} {needed:,.0f} s",
        why=f"before its first answer the server starts processes, loads {weights}, captures "
        "graphs and generates; the restarted container does all of that again",
        fix=Fix(f"set a startupProbe that allows {2 * expected.likely:,.0f} s in total"),
        place=budget.probe.place,
        others=(*budget.others, *written(plan, "model_path")),
        severity=severity,
    )


@rule("SPL852")
def blind_liveness(plan: Plan) -> Iterator[Verdict]:
    """Report a liveness probe that cannot detect hanging generation."""
    for probe in probes(plan, ProbeKind.LIVENESS):
        path = path_of(probe)
        if is_also_worker(plan) or probe.port is None:  # a command may check anything
            continue
        if generates(plan, path):
            continue
        yield Verdict(
            f"{probe_name(probe) if path else 'the livenessProbe on a TCP port'} succeeds while "
            "the scheduler hangs",
            why="the HTTP process answers it without the scheduler; with a stopped "
            "scheduler, 0.5.23 returned 200 on /v1/models and 503 on /health_generate after "
            "20 s",
            fix=Fix("probe /health_generate with a timeout of 25 s"),
            place=place_of_path(probe),
        )


@rule("SPL853")
def impatient_liveness(plan: Plan) -> Iterator[Verdict]:
    """Report a liveness probe that kills a busy server."""
    for probe in probes(plan, ProbeKind.LIVENESS):
        if is_worker(plan) or not generates(plan, path_of(probe)):
            continue
        period = number(probe.period, _PERIOD)
        failures = number(probe.failure_threshold, _FAILURES)
        timeout = number(probe.timeout)
        if period is None or failures is None or timeout is None or timeout <= LEAST_SECONDS:
            continue  # SPL850 reports that the minimum, the default, always fails
        silence = (failures - 1) * max(period, timeout) + timeout
        if silence >= patience(plan):
            continue
        yield Verdict(
            f"{probe_name(probe)} kills the container after {silence:g} s without a token",
            why=f"the engine waits {patience(plan)} s (SGLANG_HEALTH_CHECK_TIMEOUT) before it "
            "returns 503: a long prefill or compilation can take that long, and the restart "
            "loses all requests",
            fix=Fix(f"set timeoutSeconds to {patience(plan) + 5}, or raise failureThreshold"),
            place=probe.place,
            others=written(plan, "SGLANG_HEALTH_CHECK_TIMEOUT"),
        )


_FIX = Fix("add a readinessProbe on /health_generate with a timeout of 25 s")


@rule("SPL854")
def early_readiness(plan: Plan) -> Iterator[Verdict]:
    """Report a pod that receives requests before the server has warmed up."""
    if not in_kubernetes(plan) or not plan.request.serves_http or is_worker(plan):
        return
    found = list(probes(plan, ProbeKind.READINESS))
    yield from _early(plan)
    if found or any(probes(plan, ProbeKind.STARTUP)):
        return
    if services := services_of(plan):
        yield Verdict(
            f"the Service {services[0].name} sends requests to a pod without a readinessProbe",
            why="such a pod is ready as soon as its container runs; every request fails until "
            "the model is loaded, minutes later",
            fix=_FIX,
            place=context_of(plan).place,
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
            f"{probe_name(probe) if path else 'the readinessProbe on a TCP port'} succeeds before "
            "the warm-up",
            why="the port is open, and such a path returns 200, while /health still returns 503: "
            "the first requests wait for kernel compilation, or fail",
            fix=_FIX,
            place=place_of_path(probe),
        )


@rule("SPL855")
def refused_probe(plan: Plan) -> Iterator[Verdict]:
    """Report a probe of a path that the server answers with an error."""
    for probe in probes(plan):
        if (path := path_of(probe)) is not None:
            yield from _refused(plan, probe, path)


def _refused(plan: Plan, probe: Probe, path: str) -> Iterator[Verdict]:
    if is_also_worker(plan) and not exists_on_worker(plan, path):
        where = "" if is_worker(plan) else " on the hosts after the first"
        yield _verdict_of_refused_probe(
            probe,
            f"{probe_name(probe)} gets 404 from the servers{where}",
            "a rank after the first serves /health, /health_generate, /ping (from 0.5.4) and "
            "/metrics (with enable_metrics)",
            "probe /health",
            written(plan, "node_rank", "nnodes"),
        )
    elif exists(plan, path) is False:
        more = " without enable_metrics" if path == "/metrics" else ""
        yield _verdict_of_refused_probe(
            probe,
            f"{probe_name(probe)} gets 404: SGLang {plan.request.version} does not serve it{more}",
            "the probe fails even if the server is healthy",
            "probe /health_generate",
            (),
        )
    elif needs_key(plan, path) and not probe.headers:
        yield _verdict_of_refused_probe(
            probe,
            f"{probe_name(probe)} gets 401: the server has an api_key",
            "only /health, /health_generate, /metrics and, from 0.5.20 on, /ready work without it",
            "probe /health_generate",
            written(plan, "api_key"),
        )


def _verdict_of_refused_probe(
    probe: Probe, message: str, why: str, fix: str, others: tuple[Place, ...]
) -> Verdict:
    return Verdict(message, why=why, fix=Fix(fix), place=place_of_path(probe), others=others)


_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@rule("SPL856")
def loopback_address(plan: Plan) -> Iterator[Verdict]:
    """Report a server in a container that listens only on its loopback address."""
    if not plan.request.serves_http or plan.value("host") not in _LOOPBACK:
        return
    from_outside = tuple(_visitors(plan))
    if not from_outside:
        return
    subject = "host is" if plan.is_set("host") else "host is not set and defaults to"
    yield Verdict(
        f"the server listens on {plan.value('host')}, which is unreachable from outside its "
        "container",
        at=("host",),
        why=f"{subject} the loopback address; connections from the kubelet, Services and published "
        "ports are refused",
        fix=Fix("set host to 0.0.0.0"),
        others=from_outside,
    )


def _visitors(plan: Plan) -> Iterator[Place]:
    """Yield places that imply clients outside the pod: probes, Services, published ports."""
    pod = context_of(plan).pod
    if in_kubernetes(plan):
        for probe in probes(plan):
            if not probe.command and probe.host is None:
                yield probe.place
        if not is_worker(plan):
            yield from (service.place for service in services_of(plan))
    elif in_compose(plan) and not is_on(pod.host_network):
        yield from (port.place for port in pod.ports)


@rule("SPL857")
def probe_port(plan: Plan) -> Iterator[Verdict]:
    """Report a probe of a port that the server does not listen on."""
    for probe in probes(plan):
        probed = integer(probe.port)
        if probed is None or probe.port is None or probed == http_port(plan):
            continue
        if probed in known_ports(plan):  # a TCP probe may intend it
            continue
        note = "" if plan.is_set("port") else ", the default"
        yield Verdict(
            f"{probe_name(probe)} probes port {probed}, but the server listens on "
            f"{http_port(plan)}{note}",
            why="connection refused: the probe fails even if the server is healthy",
            fix=Fix(f"probe port {http_port(plan)}"),
            place=probe.port.place,
            others=written(plan, "port"),
        )
