"""A row of the table: what was measured, beside what, and the goal."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Goal(Enum):
    """How the number of a row is read."""

    RATIO = "ours to the reference, at most"
    FASTER = "the reference to ours, at least"
    SIZE = "MiB, at most"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    group: str
    """What `--only` calls it."""
    work: str
    reference: str
    """What it is compared with; of a size, what it is the size of."""
    ours: float
    """Seconds, or MiB."""
    theirs: float | None
    """Seconds of the reference."""
    kind: Goal = Goal.RATIO
    goal: float | None = None
    """None: shown beside the others, and without a goal."""

    @property
    def number(self) -> float:
        """What is held against the goal."""
        if self.kind is Goal.SIZE or self.theirs is None:
            return self.ours
        return self.ours / self.theirs if self.kind is Goal.RATIO else self.theirs / self.ours

    @property
    def missed(self) -> bool:
        """Whether there is a goal that was not reached."""
        if self.goal is None:
            return False
        return self.number < self.goal if self.kind is Goal.FASTER else self.number > self.goal

    def cells(self) -> tuple[str, str, str, str, str, str]:
        """Work, reference, what ours and theirs took, the number, and the goal."""
        if self.kind is Goal.SIZE:
            goal = "" if self.goal is None else f"at most {self.goal:g} MiB"
            return self.work, self.reference, f"{self.ours:.0f} MiB", "", f"{self.ours:.0f}", goal
        number = f"{self.number:.2f}" if self.number < 10 else f"{self.number:.1f}"
        goal = ""
        if self.kind is Goal.FASTER:
            number = f"{number} times faster"
            goal = "" if self.goal is None else f"at least {self.goal:g}"
        elif self.goal is not None:
            goal = f"at most {self.goal:g}"
        theirs = "" if self.theirs is None else seconds(self.theirs)
        return self.work, self.reference, seconds(self.ours), theirs, number, goal


def seconds(value: float) -> str:
    """As people say it: 84 ms, 3.1 s."""
    if value < 0.001:
        return f"{value * 1e6:.0f} µs"
    if value < 1:
        return f"{value * 1000:.0f} ms" if value >= 0.01 else f"{value * 1000:.2f} ms"
    return f"{value:.1f} s"
