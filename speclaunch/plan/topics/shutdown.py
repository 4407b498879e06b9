"""How a server ends after SIGTERM.

It has no limit: every request that runs is finished (`sigterm_watchdog`, 0.4.6
managers/tokenizer_manager.py:1084, 0.5.23 managers/tokenizer_manager.py:3508). Measured on the CPU
engine (0.5.23): 8 requests of 1,000 tokens keep it for 132 s, while /health says 503.
"""

from __future__ import annotations

from speclaunch.plan.settings import Settings

_LOOKS = 5
"""Seconds between two looks whether the signal came."""
_SCHEDULERS = 15
"""Seconds that it gives its schedulers to release what they hold (`_SCHEDULER_EXIT_TIMEOUT_SECS`,
0.5.23 managers/tokenizer_manager.py:456)."""
_WAITS = ">=0.5.20"


def least_seconds(settings: Settings) -> int:
    """Seconds that the end takes without any request, at most."""
    return _LOOKS + (_SCHEDULERS if settings.in_versions(_WAITS) else 0)
