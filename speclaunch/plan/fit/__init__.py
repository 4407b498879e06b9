"""The settings that fit, with the least loss."""

from __future__ import annotations

from speclaunch.plan.fit.alternatives import Alternative
from speclaunch.plan.fit.suggestion import Suggested, Suggestion, suggest

__all__ = ["Alternative", "Suggested", "Suggestion", "suggest"]
