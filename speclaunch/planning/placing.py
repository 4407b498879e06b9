"""How many GPUs a way to speculate takes, with settings that fit into their memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from speclaunch.errors import SpeclaunchError
from speclaunch.facts.hardware import Hardware, Vendor
from speclaunch.plan.budget import Budget, Fit
from speclaunch.plan.fit import suggest
from speclaunch.plan.fit.alternatives import needs
from speclaunch.plan.fit.predict import tightest
from speclaunch.plan.memory.budget import budget
from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.plan.resolve import resolve
from speclaunch.planning.settling import Settled, request_of, settle
from speclaunch.record import record
from speclaunch.rules.examine import Lookup

TP = "tp_size"
_BREADTH = "speculative_ngram_max_bfs_breadth"
_USUAL = (1, 2, 4, 8)
"""What people serve on where only the kind of GPU was said."""
_GIB = 1 << 30
_LEAST_TOKENS = 8192
"""A KV cache of fewer tokens serves a few short prompts at a time: no more than a trial."""


@record
class Placed:
    """Arguments for so many GPUs, their memory, and why each was changed."""

    settled: Settled
    ranks: int
    budget: Budget
    why: Mapping[str, str] = field(default_factory=dict)

    @property
    def arguments(self) -> Mapping[str, Any]:
        """All server arguments, `tp_size` included where it is more than one."""
        found = dict(self.settled.arguments)
        if self.ranks == 1:
            found.pop(TP, None)
        return found

    @property
    def holds_a_request(self) -> bool:
        """Whether one request of the whole context has room."""
        return bool(self.budget.requests_at_context)

    @property
    def is_of_use(self) -> bool:
        """Whether the KV cache is more than a few short prompts."""
        return self.holds_a_request or (self.budget.tokens or 0) >= _LEAST_TOKENS


@record
class NoPlace:
    """Why a way has no place on the hardware. `memory`: because of memory, and not of a rule;
    `unknown`: because a fact is missing."""

    why: str
    memory: bool = False
    unknown: bool = False
    least_bytes: int | None = None
    """Bytes that all GPUs together would need at least, where it is known."""
    settled: Settled | None = None
    budget: Budget | None = None


def place(
    arguments: Mapping[str, Any], version: str, lookup: Lookup, *, unknown: bool = False
) -> Placed | NoPlace:
    """The fewest GPUs on which the rules are content, the memory fits, and a request of the whole
    context has room; else the most that fit. The lookup names the hardware.

    `unknown`: where the budget cannot tell, take the fewest GPUs of which the files of the weights
    fill a part only; all of them, where not even their size is known.
    """
    hardware = lookup.hardware
    if hardware is None:
        return NoPlace("no hardware was named", unknown=True)
    kept: Placed | None = None
    refused: NoPlace | None = None
    for ranks in sizes(hardware):
        found = place_on(arguments, ranks, version, lookup)
        if isinstance(found, NoPlace):
            # what the memory lacks says more than that the next number does not divide
            refused = found if refused is None or found.memory or not refused.memory else refused
            if found.unknown and not unknown:
                return kept or found
            if found.unknown and (guessed := _guessed(found, ranks, hardware)) is not None:
                return kept or guessed
            continue
        if found.holds_a_request:
            return found
        kept = found if kept is None or _more(found, kept) else kept
    return kept or refused or NoPlace("no number of GPUs divides it")


def _guessed(found: NoPlace, ranks: int, hardware: Hardware) -> Placed | None:
    """A place for which only the size of the weights speaks; None where it speaks against it."""
    settled, budget = found.settled, found.budget
    if settled is None or budget is None or not settled.clean:
        return None
    facts = settled.plan.facts
    models = [one for one in (facts.target, facts.draft) if one is not None]
    weights = [one.told("weight_bytes") for one in models]
    memory = (hardware.memory_mib or 0) << 20
    if None in weights:
        fits = ranks == sizes(hardware)[-1]
    else:
        fits = sum(weights) <= _MOST_WEIGHTS * memory * ranks
    return Placed(settled, ranks, budget, dict(settled.applied)) if fits else None


def sizes(hardware: Hardware) -> tuple[int, ...]:
    """The numbers of GPUs to try, the fewest first."""
    if hardware.vendor is Vendor.CPU:
        return (1,)
    count = hardware.known_count
    if count is None or hardware.is_of_all_machines:
        return _USUAL
    doubled = [1 << power for power in range(7) if 1 << power <= count]
    return tuple(dict.fromkeys((*doubled, count)))


def _more(one: Placed, other: Placed) -> bool:
    return (one.budget.tokens or 0) > (other.budget.tokens or 0)


def place_on(
    arguments: Mapping[str, Any], ranks: int, version: str, lookup: Lookup
) -> Placed | NoPlace:
    """The same on a given number of GPUs."""
    settled = settle({**arguments, TP: ranks}, version, lookup)
    if not settled.clean and arguments.get("speculative_algorithm") == "NGRAM":
        # as a chain: for targets whose attention takes no tree
        chain = settle({**arguments, TP: ranks, _BREADTH: 1}, version, lookup)
        settled = chain if chain.clean else settled
    memory = {one.code for one in settled.findings} <= {_DOES_NOT_FIT}
    if settled.unknown_class is not None or (settled.findings and not memory):
        return NoPlace(settled.reason, settled=settled)
    try:
        found = budget(settled.plan)
    except (SpeclaunchError, UnknownValueError) as error:
        return NoPlace(str(error), unknown=True, settled=settled)
    if found.fit is Fit.UNKNOWN:
        why = f"the memory is not known: {found.why}"
        return NoPlace(why, unknown=True, settled=settled, budget=found)
    placed: Placed | None = None
    if found.fit is Fit.FITS:
        placed = Placed(settled, ranks, found, dict(settled.applied))
    elif not found.impossible:
        placed = _fitted(settled, ranks, lookup)
    if placed is not None and placed.is_of_use:
        return placed
    said = found.why if placed is None else f"the KV cache holds {placed.budget.tokens:,} tokens"
    least = _least(found, ranks)
    return NoPlace(said, memory=True, least_bytes=least, settled=settled, budget=found)


_MOST_WEIGHTS = 0.8
"""Of the memory: the rest is for the KV cache, graphs and activations."""
_DOES_NOT_FIT = "SPL711"


def _fitted(settled: Settled, ranks: int, lookup: Lookup) -> Placed | None:
    """The settings that fit with the least loss, where the rules are content with them."""

    def plan_with(changes: Mapping[str, Any]) -> Plan:
        asked = {**settled.arguments, **changes}
        known = {name: value for name, value in asked.items() if value is not None}
        request = request_of(known, settled.env, settled.version)
        return resolve(request, lookup.facts(request))

    try:
        found = suggest(plan_with)
    except (SpeclaunchError, UnknownValueError, ValueError):
        return None
    if found.fit is not Fit.FITS or found.after is None:
        return None
    asked = {**settled.arguments, **found.arguments}
    again = settle(asked, settled.version, lookup, env=settled.env)
    after = budget(again.plan)
    if not again.clean or after.fit is not Fit.FITS:
        return None
    why = {change.name: f"to fit: {change.why}" for change in found.changes}
    return Placed(again, ranks, after, {**settled.applied, **why, **again.applied})


def _least(found: Budget, ranks: int) -> int | None:
    """What everything but the KV cache takes on all GPUs together."""
    rank = tightest(found)
    if rank is not None:
        return needs(rank) * ranks
    return None


def in_gib(size: int) -> str:
    """Bytes as people read them."""
    return f"{size / _GIB:.1f} GiB" if size >= _GIB / 10 else f"{size / (1 << 20):.0f} MiB"
