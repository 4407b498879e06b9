"""How many requests run at a time where nobody says it."""

from __future__ import annotations

from speclaunch.plan.topics.algorithms import EAGLE_FAMILY, SPECULATIVE

RUNNING = "max_running_requests"
LIMITED = SPECULATIVE | EAGLE_FAMILY
"""The algorithms that set a limit where none is given."""
WHEN_SPECULATING = 48
"""That limit (0.5.23 arg_groups/speculative_hook.py:1084, 0.4.6 server_args.py:384)."""
