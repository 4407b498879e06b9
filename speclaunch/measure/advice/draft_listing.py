"""`speclaunch drafts`: the speculation methods for a target, with releases, memory and sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks import Lookup, Severity, check_rules
from speclaunch.core import InputError, Problem
from speclaunch.engine import (
    UNKNOWN_HARDWARE,
    Checkpoint,
    Fit,
    Hardware,
    MemoryUse,
    held_versions,
    near_names,
    targets_of,
    tightest,
)
from speclaunch.measure.advice.placing import (
    USUAL,
    Demand,
    NoPlace,
    PlacedArguments,
    SettledArguments,
    place,
    place_on,
    request_of,
    rules_of_the_way,
    settle,
    warnings_of_the_way,
)
from speclaunch.measure.advice.ways import SpeculationMethod, Way, too_early, ways_for

Span = tuple[str, str]
"""First and last release of a consecutive range."""


class WayMemory(Struct, frozen=True):
    """Memory cost of a speculation method on one GPU. Fields are None if a fact is missing; `note`
    names it.
    """

    ranks: int
    fits: bool | None = None
    verdict: Fit = Fit.UNKNOWN
    """Memory verdict of the best settings, at the same context and requests for all methods."""
    draft_weights: int | None = None
    """Bytes of the draft's weights per rank; 0: no draft."""
    draft_kv: int | None = None
    """Bytes of the draft's KV cache per token and rank."""
    tokens: int | None = None
    """Token capacity of the target's KV cache at the best fraction."""
    fraction: float | None = None
    """Best `mem_fraction_static`; None if nothing fits."""
    note: str = ""


class ListedWay(Struct, frozen=True):
    """A speculation method with its releases, warnings and memory cost."""

    way: Way
    spans: tuple[Span, ...] = ()
    """Requested releases that accept it according to our rules."""
    refused: str = ""
    """Reason why the newest release rejects it; empty if it does not."""
    skipped: tuple[str, ...] = ()
    """Codes of rules that lacked facts."""
    doubts: tuple[str, ...] = ()
    """Warnings for the newest release that accepts it."""
    changes: tuple[str, ...] = ()
    """Further settings (`name=value`) for the newest release that accepts it."""
    memory: WayMemory | None = None
    """Memory cost; None without hardware, or if no release accepts it."""

    @property
    def newest(self) -> str | None:
        """Newest release that accepts it."""
        return self.spans[-1][1] if self.spans else None


class DraftListing(Struct, frozen=True):
    """All speculation methods for a target."""

    target: Checkpoint
    versions: tuple[str, ...]
    """Requested releases, ascending."""
    ways: tuple[ListedWay, ...]
    hardware: Hardware | None = None


def find_target(name: str, lookup: Lookup) -> Checkpoint:
    """Return the facts of a target. Raises InputError with similar names."""
    request = request_of({"model_path": name}, {}, held_versions()[-1])
    facts = lookup.facts(request)
    made_for = targets_of(name)
    # a small complete model that drafts under STANDALONE is also a target
    if facts.target is not None and (
        not made_for or _is_complete(facts.target.field_or_none("architectures"), facts.target)
    ):
        return facts.target
    if made_for:
        target = made_for[0]
        raise InputError(Problem(f"{name} is a draft of {target}", help=f"name {target}"))
    unknown = facts.why_unknown(name)
    near = near_names(name)
    helps = [f"did you mean {' or '.join(near)}?"] if near else []
    if unknown is not None and unknown.help and not near:
        helps.append(unknown.help)
    why = "" if unknown is None else f": {unknown.why}"
    raise InputError(
        Problem(f"unknown checkpoint {name[:200]}{why}", help="; ".join(helps) or None)
    )


def _is_complete(architectures: tuple[str, ...], target: Checkpoint) -> bool:
    """True if the checkpoint is a complete model. A draft head has few layers."""
    layers = target.field_or_none("num_hidden_layers") or 0
    return layers > _MOST_OF_A_DRAFT and bool(architectures)


_MOST_OF_A_DRAFT = 8
"""Layers of the deepest published drafts (DFLASH); no complete model has so few."""


def listing(target: Checkpoint, lookup: Lookup, versions: Sequence[str] = ()) -> DraftListing:
    """Return a target's speculation methods. `versions`: releases to check; default: all known."""
    selected = tuple(versions) or held_versions()
    listed = [_listed_way(way, target, selected, lookup) for way in ways_for(target)]
    if lookup.hardware is not None:
        listed = list(_with_memory(listed, target, lookup))
    return DraftListing(target, selected, tuple(listed), lookup.hardware)


def _listed_way(way: Way, target: Checkpoint, versions: Sequence[str], lookup: Lookup) -> ListedWay:
    if way.unusable is not None:
        return ListedWay(way, refused=way.unusable)
    taken: list[str] = []
    newest: SettledArguments | None = None
    refused = ""
    for version in reversed(versions):
        early = too_early(way, version)
        if early is not None:
            refused = refused or early
            break
        settled = settled_way(way, target.name, version, lookup)
        if settled.accepted:
            taken.append(version)
            newest = newest or settled
        elif version == versions[-1]:
            refused = settled.reason
    if newest is None:
        return ListedWay(way, refused=refused)
    before = way.arguments
    changes = [f"{n}={v}" for n, v in newest.arguments.items() if n != "model_path"]
    changes = [
        change for change in changes if change not in {f"{n}={v}" for n, v in before.items()}
    ]
    changes += [f"{n}={v}" for n, v in newest.env.items()]
    return ListedWay(
        way,
        spans_of(taken, versions),
        "" if taken[0] == versions[-1] else refused,
        # without hardware, machine-dependent rules say nothing about the way
        tuple(rule.code for rule in newest.skipped if rule.reason != UNKNOWN_HARDWARE),
        tuple(_doubts(way, newest)),
        tuple(changes),
    )


def _doubts(way: Way, settled: SettledArguments) -> Iterator[str]:
    """Yield the warnings of all rules, including those that never reject."""
    if way.mode is not None:
        yield f"trained for {way.mode} mode; other modes accept fewer draft tokens"
    further = check_rules(settled.plan, warnings_of_the_way()).findings
    for finding in (*settled.findings, *further):
        if finding.severity is Severity.WARNING:
            yield f"{finding.code}: {finding.message}"


def settled_way(way: Way, target: str, version: str, lookup: Lookup) -> SettledArguments:
    """Return a method's arguments for one release after applying machine-independent rules."""
    arguments = {"model_path": target, **way.arguments}
    found = settle(arguments, version, lookup, rules_of_the_way())
    if way.method is SpeculationMethod.NGRAM and not found.accepted:  # as a chain: see placing.py
        chain = {**arguments, "speculative_ngram_max_bfs_breadth": 1}
        again = settle(chain, version, lookup, rules_of_the_way())
        return again if again.accepted else found
    return found


def spans_of(taken: Sequence[str], versions: Sequence[str]) -> tuple[Span, ...]:
    """Return the runs of consecutive `versions` (ascending) that are in `taken`."""
    found: list[Span] = []
    before: str | None = None
    for version in versions:
        if version in taken:
            found = [*found[:-1], (found[-1][0], version)] if before else [*found, (version,) * 2]
        before = version if version in taken else None
    return tuple(found)


def _with_memory(
    listed: Sequence[ListedWay], target: Checkpoint, lookup: Lookup
) -> list[ListedWay]:
    """Return the methods with memory costs at the GPUs and load of the least demanding method."""
    for demand in (USUAL, replace(USUAL, fewer_requests=True)):
        found: list[ListedWay] = []
        ranks: int | None = None
        for way in reversed(listed):  # the least demanding first
            if way.newest is None:
                found.append(way)
                continue
            arguments = {"model_path": target.name, **way.way.arguments}
            placed = _on(arguments, ranks, way.newest, lookup, demand)
            ranks = placed.ranks if isinstance(placed, PlacedArguments) else ranks
            if isinstance(placed, NoPlace) and placed.memory:
                best_case = replace(demand, fit=Fit.TIGHT)
                tight = _on(arguments, ranks, way.newest, lookup, best_case)
                placed = tight if isinstance(tight, PlacedArguments) else placed
            found.append(_costs(way, placed, ranks))
        if ranks is not None:
            break
    return found[::-1]


def _on(
    arguments: Mapping[str, Any], ranks: int | None, version: str, lookup: Lookup, demand: Demand
) -> PlacedArguments | NoPlace:
    """Return the placement on `ranks` GPUs; None: as many as needed."""
    if ranks is None:
        return place(arguments, version, lookup, demand=demand)
    return place_on(arguments, ranks, version, lookup, demand)


def _costs(way: ListedWay, placed: PlacedArguments | NoPlace, ranks: int | None) -> ListedWay:
    budget = placed.budget
    rank = tightest(budget) if budget is not None else None
    draft = None
    if rank is not None:
        sizes = {s.use: s.size.bytes for s in rank.shares}
        draft = sizes.get(
            MemoryUse.DRAFT_WEIGHTS, 0 if way.way.method is SpeculationMethod.NGRAM else None
        )
    kv = budget.draft_kv if budget is not None else None
    verdict = Fit.UNKNOWN if budget is None else budget.fit
    if isinstance(placed, NoPlace) and placed.memory:
        verdict = Fit.FAILS
    memory = WayMemory(
        ranks or 0,
        None
        if verdict is Fit.UNKNOWN and not isinstance(placed, PlacedArguments) and placed.unknown
        else verdict is Fit.FITS,
        verdict,
        draft,
        0 if way.way.method is SpeculationMethod.NGRAM else None if kv is None else kv.bytes,
        budget.tokens if budget is not None else None,
        placed.budget.mem_fraction_static if isinstance(placed, PlacedArguments) else None,
        _longest(placed) if isinstance(placed, PlacedArguments) else placed.why,
    )
    return replace(way, memory=memory)


def _longest(placed: PlacedArguments) -> str:
    """Return a note if the longest served request is shorter than the context, else empty."""
    context = placed.budget.context_length
    if not placed.lost_context or placed.longest is None or context is None:
        return ""
    return f"limits requests to {placed.longest:,} of {context:,} tokens"
