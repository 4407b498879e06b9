"""Contents of a report that compares plans, computed once."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from speclaunch.checks import Finding
from speclaunch.engine import BudgetNumber, PlanDifference, compare_budgets, compare_rows, is_idle
from speclaunch.measure.advice.planned_deployment import PlannedDeployment


class PlanComparison(Struct, frozen=True):
    """Changes from one plan to another."""

    before: PlannedDeployment
    after: PlannedDeployment
    arguments: tuple[PlanDifference, ...]
    budget: tuple[BudgetNumber, ...]
    lost: tuple[Finding, ...]
    gained: tuple[Finding, ...]
    command: tuple[str, ...]
    """Lines of the command that differ, prefixed with `- ` or `+ `."""

    @property
    def telling(self) -> tuple[PlanDifference, ...]:
        """Arguments with a meaningful difference: a different value of an enabled feature."""
        return tuple(
            difference
            for difference in self.arguments
            if difference.value_differs and not self._is_negligible(difference)
        )

    @property
    def renamed(self) -> tuple[PlanDifference, ...]:
        """Arguments with the same value under a different name."""
        return tuple(difference for difference in self.arguments if not difference.value_differs)

    @property
    def idle(self) -> tuple[PlanDifference, ...]:
        """Arguments left at defaults whose difference has no effect."""
        return tuple(
            difference
            for difference in self.arguments
            if difference.value_differs and self._is_negligible(difference)
        )

    def _is_negligible(self, difference: PlanDifference) -> bool:
        if any(row is not None and row.is_set for row in (difference.before, difference.after)):
            return False
        if is_idle(self.before.plan, difference.name) and is_idle(self.after.plan, difference.name):
            return True
        values = [row.effective for row in (difference.before, difference.after) if row is not None]
        # `none` means that the engine decides; before, it decided on off
        return difference.is_default and len(values) == 2 and None in values and not any(values)

    @property
    def title(self) -> str:
        """Both sides in one line: `R: SGLang 0.5.12 → 0.5.23`."""
        before, after = self.before, self.after
        if before.label == after.label:
            return f"{before.label}: SGLang {before.version} \N{RIGHTWARDS ARROW} {after.version}"
        if before.version == after.version:
            return f"{before.label} \N{RIGHTWARDS ARROW} {after.label} on SGLang {before.version}"
        return f"{head(before)} \N{RIGHTWARDS ARROW} {head(after)}"

    @property
    def names(self) -> tuple[str, str]:
        """Column names of the two plans: version, recipe, or `before` and `after`."""
        before, after = self.before, self.after
        if before.version != after.version:
            return before.version, after.version
        return (before.label, after.label) if before.label != after.label else ("before", "after")

    @property
    def same(self) -> bool:
        """True if there is no difference."""
        budget = any(number.differs for number in self.budget)
        return not (self.arguments or self.lost or self.gained or self.command or budget)


_RENAMED = "SPL005"


def compared(before: PlannedDeployment, after: PlannedDeployment) -> PlanComparison:
    """Return the comparison of two plans."""
    # A name that changes with the version is reported with the arguments.
    versions = before.version != after.version
    findings = [
        [finding for finding in planned.findings if not (versions and finding.code == _RENAMED)]
        for planned in (before, after)
    ]
    old = {_key(finding, before): finding for finding in findings[0]}
    new = {_key(finding, after): finding for finding in findings[1]}
    return PlanComparison(
        before,
        after,
        compare_rows(before.rows, after.rows),
        compare_budgets(before.budget, after.budget),
        tuple(finding for key, finding in old.items() if key not in new),
        tuple(finding for key, finding in new.items() if key not in old),
        tuple(_changed_lines(before.command.lines, after.command.lines)),
    )


def compared_in_turn(plans: Sequence[PlannedDeployment]) -> tuple[PlanComparison, ...]:
    """Return a comparison of each plan with the next."""
    return tuple(compared(before, after) for before, after in pairwise(plans))


def head(planned: PlannedDeployment) -> str:
    """Return a short name of a plan."""
    return f"{planned.label} on SGLang {planned.version}"


def _key(finding: Finding, planned: PlannedDeployment) -> tuple[str, str, str]:
    """Return a finding's key, independent of version and place."""
    message = finding.message.replace(planned.version, "")
    return finding.code, finding.severity.value, message


def _changed_lines(before: Sequence[str], after: Sequence[str]) -> list[str]:
    lines = difflib.unified_diff(before, after, n=0, lineterm="")
    changed = [line for line in lines if not line.startswith(("--- ", "+++ ", "@@"))]
    return [f"{line[0]} {line[1:]}" for line in changed]
