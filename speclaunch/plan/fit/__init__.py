"""The settings that fit, with the least loss."""

from __future__ import annotations

from speclaunch.plan.fit.best_for_load import Best, RequestLoad, best_for, load_of
from speclaunch.plan.fit.suggestion import Alternative, Suggested, Suggestion, suggest_fit

__all__ = [
    "Alternative",
    "Best",
    "RequestLoad",
    "Suggested",
    "Suggestion",
    "best_for",
    "load_of",
    "suggest_fit",
]
