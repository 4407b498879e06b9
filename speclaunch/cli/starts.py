"""How often each side of a comparison is started: what bench and tune have in common."""

from __future__ import annotations

from speclaunch.bench.statistics import LEAST_PAIRS
from speclaunch.errors import COMMAND_LINE, InputError, Place, Problem


def default_blocks(starts: int) -> int:
    """Blocks of rounds of each side in a start, where one engine runs at a time: with one start
    A B B A, so that a machine that becomes slower counts for both; else the starts take turns."""
    return 2 if starts == 1 else 1


def require_starts(option: str, starts: int, rounds: int) -> None:
    """Raises InputError for a number of which nothing could be said."""
    place = Place(COMMAND_LINE, text=f"{option} {starts}")
    if 1 < starts < LEAST_PAIRS:
        told = f"{starts} starts say nothing of how much starts differ"
        raise InputError(Problem(told, place, f"use 1, or {LEAST_PAIRS} and more"))
    if starts > rounds:
        told = f"{starts} starts share {rounds} rounds: each needs one"
        raise InputError(Problem(told, place, f"add --rounds {2 * starts}"))
