"""The difference of two plans: another engine version, or another recipe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from speclaunch.plan.budget import Budget, MemoryUse
from speclaunch.plan.effective_arguments import (
    ArgumentOutcome,
    Concern,
    EffectiveArgument,
    effective_arguments,
)
from speclaunch.plan.plan import Plan
from speclaunch.record import record


@record
class PlanDifference:
    """One argument that is not the same. None: that version does not have it."""

    name: str
    concern: Concern
    before: EffectiveArgument | None
    after: EffectiveArgument | None

    @property
    def value_differs(self) -> bool:
        """Whether the engine runs with another value (or knows it now, or no more)."""
        return _state(self.before) != _state(self.after)

    @property
    def is_default(self) -> bool:
        """Whether nobody touched it on either side, and it does not matter to speculation."""
        rows = [row for row in (self.before, self.after) if row is not None]
        return not any(row.notable for row in rows)

    @property
    def spelling_differs(self) -> bool:
        """Whether it is written in another way."""
        if self.before is None or self.after is None:
            return False
        return self.before.spelling != self.after.spelling


@record
class BudgetNumber:
    """One number of two budgets, side by side; None where it is not known (or not there)."""

    name: str
    unit: str
    """`tokens`, `requests`, `fraction`, `bytes`, or empty for a word."""
    before: int | float | str | None
    after: int | float | str | None

    @property
    def differs(self) -> bool:
        """Whether the two are not the same."""
        return self.before != self.after

    @property
    def is_known(self) -> bool:
        """Whether either of the two is known."""
        return self.before is not None or self.after is not None


def compare(before: Plan, after: Plan) -> tuple[PlanDifference, ...]:
    """The arguments whose effective value or (where they are given) spelling differs.

    An argument that only one of the versions has counts only where it does something there.
    """
    return compare_rows(effective_arguments(before), effective_arguments(after))


def compare_rows(
    before: Iterable[EffectiveArgument], after: Iterable[EffectiveArgument]
) -> tuple[PlanDifference, ...]:
    """The same, of rows that are there already; in the order of `after`."""
    old = {row.name: row for row in before}
    new = {row.name: row for row in after}
    gone = [row for row in old.values() if row.name not in new]
    order = {concern: rank for rank, concern in enumerate(Concern)}
    pairs = [PlanDifference(row.name, row.concern, old.get(row.name), row) for row in new.values()]
    pairs += [PlanDifference(row.name, row.concern, row, None) for row in gone]
    return tuple(sorted(filter(_counts, pairs), key=lambda pair: order[pair.concern]))


def _counts(pair: PlanDifference) -> bool:
    alone = pair.before if pair.after is None else pair.after if pair.before is None else None
    if alone is not None:
        return alone.outcome is not ArgumentOutcome.DEFAULT
    given = any(row is not None and row.is_given for row in (pair.before, pair.after))
    return pair.value_differs or (pair.spelling_differs and given)


def _state(row: EffectiveArgument | None) -> tuple[object, ...]:
    if row is None:
        return ("absent",)
    if row.outcome is ArgumentOutcome.UNKNOWN:
        return ("unknown",)
    value = row.effective
    return ("known", list(value) if isinstance(value, list | tuple) else value)


def compare_budgets(before: Budget, after: Budget) -> tuple[BudgetNumber, ...]:
    """The numbers of two budgets: whether they fit, what is left, and where the memory goes.

    Bytes are those of the first ranks, which have the embedding, and are the first to fill up.
    """
    return tuple(_numbers(before, after))


def _numbers(before: Budget, after: Budget) -> Iterator[BudgetNumber]:
    yield BudgetNumber("fit", "", before.fit.value, after.fit.value)
    yield BudgetNumber("tokens in the KV cache", "tokens", before.tokens, after.tokens)
    running = before.running_requests, after.running_requests
    yield BudgetNumber("running requests", "requests", *running)
    whole = before.requests_at_context, after.requests_at_context
    yield BudgetNumber("requests of the full context", "requests", *whole)
    context = before.context_length, after.context_length
    yield BudgetNumber("context length", "tokens", *context)
    fraction = before.mem_fraction_static, after.mem_fraction_static
    yield BudgetNumber("mem_fraction_static", "fraction", *fraction)
    for end, word in enumerate(("lowest", "highest")):
        ends = (
            None if one.working_fractions is None else one.working_fractions[end]
            for one in (before, after)
        )
        yield BudgetNumber(f"{word} fraction that works", "fraction", *ends)
    old, new = _shares(before), _shares(after)
    for use in MemoryUse:
        if use in old or use in new:
            before_bytes = old.get(use, 0) if old else None
            yield BudgetNumber(use.value, "bytes", before_bytes, new.get(use, 0) if new else None)


def _shares(budget: Budget) -> dict[MemoryUse, int]:
    if not budget.ranks:
        return {}
    return {share.use: share.size.bytes for share in budget.ranks[0].shares}
