"""When an engine that had served is started again, and when not any more."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from speclaunch.record import record

if TYPE_CHECKING:
    from speclaunch.recipe.schema import Recovery, Restart


@record
class Again:
    """Start it again after so many seconds."""

    seconds: float


@record
class GiveUp:
    """Do not start it again, and why."""

    why: str


def restarts(settings: Restart, recovery: Recovery) -> bool:
    """Whether an engine that ended while it served is started again at all."""
    if settings.policy == "auto":
        return recovery.policy != "off"
    return settings.policy == "on-failure"


@record(frozen=False)
class RestartPolicy:
    """Back-off with a cap, and a limit within a window of time.

    `ended(now)` takes the seconds of a clock that never jumps (`time.monotonic`).
    """

    settings: Restart
    enabled: bool = True
    _endings: list[float] = field(default_factory=list)

    def ended(self, now: float) -> Again | GiveUp:
        """The engine has ended after it had served: what now?"""
        if not self.enabled:
            return GiveUp("it is not started again (launch.restart.policy)")
        window, limit = self.settings.window_seconds, self.settings.limit
        self._endings = [one for one in self._endings if now - one <= window] + [now]
        count = len(self._endings)
        if count > limit:
            return GiveUp(
                f"it has ended {count} times within {window:g} s; it is not started again"
                f" (launch.restart.limit is {limit})"
            )
        doubled = self.settings.first_delay_seconds * 2 ** min(count - 1, 32)
        return Again(min(doubled, self.settings.longest_delay_seconds))
