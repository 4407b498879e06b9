"""How a platform asks a server whether it lives: the times of its probes, from the plan.

Startup and readiness ask for a generated token. Liveness asks for the same and has slack: the
engine answers as soon as its scheduler shows any sign of progress, also where all slots are taken
(0.5.23 entrypoints/http_server.py:723-800), so that only a server that generates nothing for longer
than its own watchdog waits is restarted.
"""

from __future__ import annotations

from speclaunch.deploy.interface import Role
from speclaunch.plan.topics.health import PATIENCE, USUAL_PATIENCE
from speclaunch.record import record

PATH = "/health_generate"
"""It generates in every release; `/health` does from 0.5.1 on alone."""

_ANSWERS = 5
"""Seconds more than that, so that it is the engine that says no."""
_STARTUP_PERIOD = 10
_READINESS_PERIOD = 10
_READINESS_FAILURES = 3
_LIVENESS_PERIOD = 30
_WATCHDOG = 300
"""Seconds: `watchdog_timeout` of the engine by default. It ends a scheduler whose forward pass
hangs, and says where; liveness is for what it does not see."""
UNKNOWN_START = 3600
"""Seconds for a start of which nothing is known: `launch.ready_timeout_seconds` by default."""


@record
class ProbeTimes:
    """Times of one probe, in seconds."""

    period: int
    timeout: int
    failures: int

    @property
    def slack(self) -> int:
        """How long it fails in a row until something is done."""
        return self.period * self.failures


@record
class Probes:
    """The probes of a server."""

    startup: ProbeTimes
    readiness: ProbeTimes
    liveness: ProbeTimes


def probes_of(role: Role) -> Probes:
    """The probes of a role's servers."""
    text = role.env.get(PATIENCE) or ""
    patience = int(text) if text.isdecimal() else USUAL_PATIENCE
    timeout = patience + _ANSWERS
    period = max(_LIVENESS_PERIOD, timeout + _ANSWERS)
    said = role.spelling.value("watchdog_timeout") or ""
    watchdog = round(float(said)) if said.replace(".", "", 1).isdecimal() else _WATCHDOG
    return Probes(
        startup=ProbeTimes(_STARTUP_PERIOD, timeout, -(-start_seconds(role) // _STARTUP_PERIOD)),
        readiness=ProbeTimes(_READINESS_PERIOD, timeout, _READINESS_FAILURES),
        liveness=ProbeTimes(period, timeout, watchdog // period + 1),
    )


def start_seconds(role: Role) -> int:
    """How long it may take until a server serves."""
    return (role.needs.start_seconds or UNKNOWN_START) * role.starts


def start_comment(role: Role) -> str:
    """Where the budget of a start comes from."""
    seconds = f"{start_seconds(role)} s"
    if role.starts > 1:
        seconds += f" for the {role.starts} starts of a recovery"
    if role.needs.start_seconds is None:
        return f"{seconds}: {role.needs.unknown or 'the size of the weights is not known'}"
    return f"{seconds} at the slowest: {role.needs.start_why}"
