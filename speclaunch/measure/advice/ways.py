"""Speculation methods for a target, best supported first.

`speclaunch drafts` lists them and `speclaunch init` chooses from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.deployments import group_option
from speclaunch.engine import (
    ASSISTANTS_SINCE,
    FIRST_WITH,
    PATH,
    STEPS,
    TOKENS,
    TOPK,
    Checkpoint,
    ModelPair,
    PublishedAcceptance,
    UnknownValueError,
    acceptance_score,
    drafts_for,
    foundation,
    partners_of,
    published_acceptance,
    published_summary,
    start_setting,
    within,
)


class SpeculationMethod(StrEnum):
    """Kinds of speculation; the user sees the values."""

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
    """Checkpoint of the draft; None: no separate draft."""
    arguments: Mapping[str, Any] = {}
    """Server arguments except `model_path`, by the newest engine's names."""
    option: str | None = None
    """Source of the arguments in `conf/speculation/`."""
    confidence: str = "high"
    """Confidence in the pair: high, medium, low."""
    sources: tuple[str, ...] = ()
    why: str = ""
    """Evidence for the pair."""
    unusable: str | None = None
    """Reason why no SGLang release accepts it as published."""
    since: str = "0"
    """First release with the algorithm or a loader for the publisher's draft; `0`: all known."""
    mode: str | None = None
    """The only mode of the target that the draft was trained for: `non-thinking`."""
    rank: int = 0
    """Rank by confidence in the pair; 0 is the best supported."""
    published: tuple[PublishedAcceptance, ...] = ()
    """Published acceptance measurements."""
    score: float | None = None
    """Comparable published acceptance length (`acceptance_score`), if any."""
    setting_why: str = ""
    """Evidence for num_steps, eagle_topk and num_draft_tokens; empty: as documented."""

    def published_at(self, arguments: Mapping[str, Any]) -> str:
        """Return the published numbers as one line, at the draft setting of `arguments` if any."""
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
"""Method, SGLang name and documented parameters, by algorithm of the index."""
_CONVERT = ("speculators",)
"""Weight formats of drafts that no release loads."""

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
    come methods with other published numbers, then the rest, both by confidence in the pair.
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
    """Return the method with the published numbers of its draft or the target's MTP layers."""
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
    """Return a reason if a release is older than the method; otherwise None."""
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
    }.get(released, f"the config declares {many}; unknown if the weights contain them")
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
    """Return the method for a draft published for the target."""
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
        {"speculative_algorithm": algorithm, **arguments, PATH: pair.draft},
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
        {**group_option("speculation", "standalone_chain"), PATH: name},
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
