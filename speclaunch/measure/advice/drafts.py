"""Speculation methods for a target, best supported first, and the listing of `speclaunch drafts`.

`speclaunch init` also chooses from these methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks import Lookup, Severity, check_rules
from speclaunch.core import InputError
from speclaunch.deployments import group_option
from speclaunch.engine import (
    ASSISTANTS_SINCE,
    DRAFT_PATH,
    FIRST_WITH,
    STEPS,
    TOKENS,
    TOPK,
    UNKNOWN_HARDWARE,
    Checkpoint,
    Fit,
    Hardware,
    MemoryUse,
    ModelPair,
    PublishedAcceptance,
    UnknownValueError,
    acceptance_score,
    drafts_for,
    foundation,
    held_versions,
    near_names,
    partners_of,
    published_acceptance,
    published_summary,
    start_setting,
    targets_of,
    tightest,
    within,
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


class SpeculationMethod(StrEnum):
    """A kind of speculation. Users see the value."""

    MTP = "MTP"
    EAGLE3 = "EAGLE-3"
    DFLASH = "DFLASH"
    DSPARK = "DSPARK"
    EAGLE2 = "EAGLE-2"
    ASSISTANT = "Gemma 4 assistant"
    STANDALONE = "STANDALONE"
    NGRAM = "NGRAM"
    OTHER = "other"
    """Drafts without an SGLang algorithm."""


class Way(Struct, frozen=True):
    """A speculation method for a target."""

    method: SpeculationMethod
    algorithm: str | None
    """Value of `speculative_algorithm`; None if SGLang has none."""
    draft: str | None = None
    """Checkpoint of the draft; None without a separate draft."""
    arguments: Mapping[str, Any] = {}
    """Server arguments except `model_path`, by the newest engine's names."""
    option: str | None = None
    """Option in `conf/speculation/` that provides the arguments; None if there is none."""
    confidence: str = "high"
    """Confidence that the draft fits the target: `high`, `medium` or `low`."""
    sources: tuple[str, ...] = ()
    why: str = ""
    """Evidence that the draft fits the target, as text."""
    unusable: str | None = None
    """Reason why no release accepts the draft as published; None if a release may accept it."""
    since: str = "0"
    """First release with the algorithm or a loader for the published draft; `0` means any."""
    mode: str | None = None
    """Target mode (`non-thinking`) that the draft was trained for; None if not limited to one."""
    rank: int = 0
    """Rank by confidence in the pair; 0 is the best supported."""
    published: tuple[PublishedAcceptance, ...] = ()
    """Published acceptance measurements of this draft, or of the target's MTP layers."""
    score: float | None = None
    """Acceptance length comparable across drafts (`acceptance_score`); None if not published."""
    setting_why: str = ""
    """Evidence for num_steps, eagle_topk and num_draft_tokens; empty for documented values."""

    def published_at(self, arguments: Mapping[str, Any]) -> str:
        """Return the published numbers as one line, preferably at the setting in `arguments`."""
        steps, topk, tokens = (arguments.get(name) for name in _SETTING)
        return published_summary(self.published, (steps, topk, tokens))


_DRAFTED = {
    "EAGLE3": (SpeculationMethod.EAGLE3, "EAGLE3", "eagle3_chain"),
    "DFLASH": (SpeculationMethod.DFLASH, "DFLASH", "dflash"),
    "DSPARK": (SpeculationMethod.DSPARK, "DSPARK", None),
    "EAGLE": (SpeculationMethod.EAGLE2, "EAGLE", "eagle_chain"),
    "NEXTN": (SpeculationMethod.MTP, "EAGLE", "mtp"),
    "STANDALONE": (SpeculationMethod.STANDALONE, "STANDALONE", "standalone_chain"),
    "Gemma 4 assistant": (SpeculationMethod.ASSISTANT, "EAGLE", "eagle_chain"),
}
"""Method, SGLang algorithm and `conf/speculation/` option, by the draft index's algorithm name."""
_CONVERT = ("speculators",)
"""Formats of draft weights that no release loads."""

_SETTING = (STEPS, TOPK, TOKENS)
# Best supported first; the rank of each kind of evidence.
_RANK_OWN_RELEASED, _RANK_HIGH, _RANK_OWN, _RANK_MEDIUM = 0, 10, 20, 30
_RANK_EAGLE2, _RANK_STANDALONE, _RANK_NGRAM, _RANK_LOW, _RANK_NEVER = 40, 50, 70, 80, 90
_AMONG = (
    SpeculationMethod.EAGLE3,
    SpeculationMethod.DFLASH,
    SpeculationMethod.DSPARK,
    SpeculationMethod.ASSISTANT,
)


def ways_for(target: Checkpoint, pairs: Sequence[ModelPair] | None = None) -> tuple[Way, ...]:
    """Return all known speculation methods for a target, best first. Always includes NGRAM.

    Methods with a comparable published acceptance length come first, the longest length first. Then
    come methods with other published numbers, then all others, both by confidence in the pair.
    `pairs`: drafts made for the target; by default those in the index.
    """
    known = drafts_for(target.name) if pairs is None else pairs
    found = [*_own(target), *(_published(pair) for pair in known)]
    named = {way.draft for way in found}
    partners = [name for name in partners_of(target.name) if name not in named]
    found += [_partner(name, place) for place, name in enumerate(partners)]
    found.append(_ngram())
    measured = (_with_evidence(way, target.name) for way in found)
    return tuple(sorted(measured, key=_place))


def _with_evidence(way: Way, target: str) -> Way:
    own = way.method is SpeculationMethod.MTP and way.draft is None
    if way.draft is None and not own:
        return way
    published = published_acceptance(target, way.draft, own=own)
    way = replace(way, published=published, score=acceptance_score(published))
    if way.algorithm != "EAGLE3":  # SpecForge's grid says nothing about other algorithms
        return way
    start = start_setting(published)
    arguments = {**way.arguments, **dict(zip(_SETTING, start.setting, strict=True))}
    return replace(way, arguments=arguments, setting_why=start.why)


def _place(way: Way) -> tuple[bool, float, bool, int]:
    return way.rank >= _RANK_NEVER, -(way.score or 0.0), not way.published, way.rank


def too_early(way: Way, version: str) -> str | None:
    """Return why a release is too old for the method; None if it is not."""
    if way.since == "0" or within(version, f">={way.since}"):
        return None
    return f"{way.algorithm} needs SGLang {way.since} or later"


def _own(target: Checkpoint) -> Iterator[Way]:
    """Yield the method that uses the target's multi-token-prediction layers, if any."""
    try:
        layers, released = target.mtp_layers, target.field_or_none("mtp_weights")
    except UnknownValueError:
        return
    if not layers:
        return
    many = f"{layers} multi-token-prediction layer" + "s" * (layers > 1)
    evidence = {
        True: f"the checkpoint contains the {many} declared in its config",
        False: f"the config declares {many}, but the published weights contain none",
    }.get(released, f"the config declares {many}; unknown if the weights contain any")
    where = str(target.origin) if target.origin is not None else target.name
    yield Way(
        SpeculationMethod.MTP,
        "EAGLE",
        None,
        group_option("speculation", "mtp"),
        "mtp",
        {True: "high", False: "low"}.get(released, "medium"),
        (where,),
        evidence,
        evidence if released is False else None,
        FIRST_WITH["EAGLE"],
        rank={True: _RANK_OWN_RELEASED, False: _RANK_NEVER}.get(released, _RANK_OWN),
    )


def _published(pair: ModelPair) -> Way:
    if pair.algorithm not in _DRAFTED:
        return Way(
            SpeculationMethod.OTHER,
            None,
            pair.draft,
            confidence=pair.confidence or "low",
            sources=pair.sources,
            why=f"{pair.algorithm} draft",
            unusable=f"SGLang has no algorithm {pair.algorithm}",
            rank=_RANK_NEVER,
        )
    method, algorithm, option = _DRAFTED[pair.algorithm]
    arguments = group_option("speculation", option) if option else {}
    form = pair.form or ""
    foreign = any(word in form for word in _CONVERT)
    since = pair.since or FIRST_WITH[algorithm]
    return Way(
        method,
        algorithm,
        pair.draft,
        {"speculative_algorithm": algorithm, **arguments, DRAFT_PATH: pair.draft},
        option,
        pair.confidence or "low",
        pair.sources,
        _foundation(pair),
        f"its weights are in the {form}" if foreign else None,
        ASSISTANTS_SINCE if method is SpeculationMethod.ASSISTANT else since,
        pair.mode,
        _RANK_NEVER if foreign else _rank(pair, method),
    )


def _foundation(pair: ModelPair) -> str:
    mode = f" in {pair.mode} mode" if pair.mode is not None else ""
    if pair.sibling is None:
        return f"published for {pair.target}{mode}"
    return f"published for {pair.sibling}{mode}, another export of the same model as {pair.target}"


def _rank(pair: ModelPair, method: SpeculationMethod) -> int:
    """Return the rank: by confidence, then by whether the config is known, then by method."""
    level = foundation(pair.confidence)
    base = (_RANK_HIGH, _RANK_MEDIUM, _RANK_LOW, _RANK_LOW)[level]
    if method in (SpeculationMethod.EAGLE2, SpeculationMethod.MTP) and base < _RANK_LOW:
        return _RANK_EAGLE2 + 2 * level + (not pair.is_read)
    if method is SpeculationMethod.STANDALONE:
        return _RANK_STANDALONE + level
    place = _AMONG.index(method) if method in _AMONG else len(_AMONG)
    return base + place + 5 * (not pair.is_read)


def _partner(name: str, place: int) -> Way:
    return Way(
        SpeculationMethod.STANDALONE,
        "STANDALONE",
        name,
        {**group_option("speculation", "standalone_chain"), DRAFT_PATH: name},
        "standalone_chain",
        "medium",
        (),
        "a smaller model of the same family with the same vocabulary size",
        None,
        FIRST_WITH["STANDALONE"],
        rank=_RANK_STANDALONE + 5 + place,
    )


def _ngram() -> Way:
    return Way(
        SpeculationMethod.NGRAM,
        "NGRAM",
        None,
        group_option("speculation", "ngram"),
        "ngram",
        "high",
        (),
        "needs no draft; helps when the output repeats the prompt or itself",
        None,
        FIRST_WITH["NGRAM"],
        rank=_RANK_NGRAM,
    )


Span = tuple[str, str]
"""First and last release of a range of consecutive releases."""


class WayMemory(Struct, frozen=True):
    """Memory cost of a speculation method on one GPU.

    Fields are None if a fact is missing. `note` names the fact, or a limit on requests.
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
    """Ranges of requested releases that accept the method according to the rules."""
    refused: str = ""
    """Reason why the newest release rejects the method; empty if it accepts the method."""
    skipped: tuple[str, ...] = ()
    """Codes of rules that lacked facts."""
    doubts: tuple[str, ...] = ()
    """Warnings for the newest release that accepts the method."""
    changes: tuple[str, ...] = ()
    """Further settings (`name=value`) for the newest release that accepts the method."""
    memory: WayMemory | None = None
    """Memory cost; None if no hardware is set or no release accepts the method."""

    @property
    def newest(self) -> str | None:
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
    if facts.target is not None and (not made_for or _is_complete(facts.target)):
        return facts.target
    if made_for:
        target = made_for[0]
        raise InputError(f"{name} is a draft of {target}", help=f"name {target}")
    unknown = facts.why_unknown(name)
    near = near_names(name)
    helps = [f"did you mean {' or '.join(near)}?"] if near else []
    if unknown is not None and unknown.help and not near:
        helps.append(unknown.help)
    why = "" if unknown is None else f": {unknown.why}"
    raise InputError(f"unknown checkpoint {name[:200]}{why}", help="; ".join(helps) or None)


def _is_complete(target: Checkpoint) -> bool:
    """True if the checkpoint is a complete model. A draft head has few layers."""
    layers = target.field_or_none("num_hidden_layers") or 0
    return layers > _MOST_OF_A_DRAFT and bool(target.field_or_none("architectures"))


_MOST_OF_A_DRAFT = 8
"""Layer count of the deepest published drafts (DFLASH); complete models have more."""


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
    before = {f"{n}={v}" for n, v in way.arguments.items()}
    after = [f"{n}={v}" for n, v in newest.arguments.items() if n != "model_path"]
    changes = [change for change in after if change not in before]
    changes += [f"{n}={v}" for n, v in newest.env.items()]
    return ListedWay(
        way,
        spans_of(taken, versions),
        "" if taken[0] == versions[-1] else refused,
        # without hardware, machine-dependent rules have no result for the method
        tuple(rule.code for rule in newest.skipped if rule.reason != UNKNOWN_HARDWARE),
        tuple(_doubts(way, newest)),
        tuple(changes),
    )


def _doubts(way: Way, settled: SettledArguments) -> Iterator[str]:
    if way.mode is not None:
        yield f"trained for {way.mode} mode; other modes accept fewer draft tokens"
    further = check_rules(settled.plan, warnings_of_the_way()).findings
    for finding in (*settled.findings, *further):
        if finding.severity is Severity.WARNING:
            yield f"{finding.code}: {finding.message}"


def settled_way(way: Way, target: str, version: str, lookup: Lookup) -> SettledArguments:
    """Return a method's arguments for one release after the fixes of machine-independent rules."""
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
    """Return the methods with memory costs at the least demanding method's GPU count and load."""
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
    context = placed.budget.context_length
    if not placed.lost_context or placed.longest is None or context is None:
        return ""
    return f"limits requests to {placed.longest:,} of {context:,} tokens"
