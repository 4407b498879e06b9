"""Acceptance lengths and speed-ups that others published, with sources and conditions.

They are in `models/acceptance.json` (`tools/published_acceptance.py` formats the file). An
acceptance length includes the target's own token of each step, as in SGLang and vLLM: 1.0 means
that no draft token was accepted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from statistics import median
from typing import Any

from msgspec import Struct, ValidationError, convert

from speclaunch.core import UnreadableFileError, models_dir, read_object
from speclaunch.engine.facts.known_models import likely, same_model

ACCEPTANCE_FILE = "acceptance.json"
FORMAT = 1
COMMON_SETTING = (5, 1, 6)
"""num_steps, eagle_topk and num_draft_tokens with the least mean regret in SpecForge's grid.

Over 88 cases (14 drafts, up to 7 benchmarks, five settings), a constant 5/1/6 loses 2.8% of the
best throughput on average. 7/1/8 loses 3.4%, 3/1/4 loses 7.0%, and the trees 5/3/6 and 7/4/8 lose
16.2% and 19.0%.
"""
FAR_BELOW = 0.5
"""Fraction of the lowest published number of accepted draft tokens. A deployment that accepts less
is reported; see `AcceptanceReference.is_far_below`."""

Setting = tuple[int | None, int | None, int | None]
"""num_steps, eagle_topk, num_draft_tokens. None: not stated, or not an argument of the
algorithm."""


class PublishedSource(Struct, frozen=True):
    """A publication with measured numbers."""

    title: str
    url: str
    date: str
    """Date of the publication or of the stored version: `2025-12-23`."""
    place: str | None = None
    """Location of the number in the source: a file or a table. None if not stated."""

    def __str__(self) -> str:
        place = f", {self.place}" if self.place else ""
        return f"{self.title}{place} ({self.date}): {self.url}"


class PublishedAcceptance(Struct, frozen=True):
    """One published measurement: a benchmark at one setting."""

    target: str
    """The measured checkpoint. May be another export of the requested model."""
    draft: str | None
    """The draft. None: the target's own MTP layers."""
    algorithm: str
    """MTP, EAGLE3, EAGLE, DFLASH or DSPARK, as in the index."""
    benchmark: str
    setting: Setting
    source: PublishedSource
    length: float | None = None
    """Mean acceptance length in tokens, including the target's own; None if not published."""
    speedup: float | None = None
    """Output throughput relative to the same engine without speculation; None if not published."""
    engine: str | None = None
    release: str | None = None
    hardware: str | None = None
    temperature: float | None = None
    batch_size: int | None = None
    """Number of concurrent requests; None if not stated."""
    mode: str | None = None
    """The target's mode: `thinking` or `non-thinking`; None if not stated."""
    note: str | None = None

    @property
    def setting_text(self) -> str:
        """The setting as `5/1/6` or, for a block draft, `16 draft tokens`; empty if not stated."""
        steps, topk, tokens = self.setting
        if tokens is None:
            return ""
        return f"{tokens} draft tokens" if steps is None else f"{steps}/{topk or 1}/{tokens}"

    @property
    def conditions(self) -> str:
        """The conditions, such as `mtbench, 5/1/6, temperature 0, batch size 8, SGLang, H200`."""
        engine = " ".join(filter(None, (self.engine, self.release)))
        parts = (
            self.benchmark,
            self.setting_text,
            self.mode or "",
            "" if self.temperature is None else f"temperature {self.temperature:g}",
            "" if self.batch_size is None else f"batch size {self.batch_size}",
            engine,
            self.hardware or "",
            self.note or "",
        )
        return ", ".join(part for part in parts if part)


class AcceptanceReference(Struct, frozen=True):
    """The published acceptance lengths that a deployment is compared with."""

    published: tuple[PublishedAcceptance, ...]
    """Measurements at the setting that is nearest to the deployment's."""
    scale: float
    """Factor that converts accepted draft tokens from the published setting to the deployment's."""

    @property
    def lengths(self) -> tuple[float, ...]:
        """Published lengths, converted to the deployment's setting, in ascending order."""
        found = (p.length for p in self.published if p.length is not None)
        return tuple(sorted(1 + (length - 1) * self.scale for length in found))

    @property
    def lowest(self) -> float:
        return self.lengths[0]

    @property
    def typical(self) -> float:
        return median(self.lengths)

    def is_far_below(self, length: float) -> bool:
        """True if `length` means fewer than half the accepted draft tokens of the lowest benchmark.

        Benchmarks predict other traffic poorly. Of 557 published results, 0.9% are below half of
        the lowest other result for the same draft and setting, and 5.6% are below 70% of it.
        """
        return length - 1 < FAR_BELOW * (self.lowest - 1)


def published_acceptance(
    target: str, draft: str | None = None, *, own: bool = False
) -> tuple[PublishedAcceptance, ...]:
    """Return the published measurements for a target, followed by those for its other exports.

    `draft`: only those of this draft. `own`: only those of the target's own MTP layers.
    """
    found = _of_model(target)
    if draft is not None:
        listed = likely(draft)
        names = {draft} if listed is None else {draft, listed[0]}
        return tuple(p for p in found if p.draft in names)
    return tuple(p for p in found if p.draft is None) if own else found


def acceptance_reference(
    target: str, draft: str | None, setting: Setting
) -> AcceptanceReference | None:
    """Return the published lengths to compare a deployment with; None if none is comparable.

    `setting`: the deployment's num_steps, eagle_topk and num_draft_tokens. Measurements at the same
    setting are preferred. Otherwise those of the nearest chain or block are converted, assuming
    that every draft token is accepted with equal probability. A tree is only compared with an equal
    tree.
    """
    found = published_acceptance(target, draft, own=draft is None)
    usable = [p for p in found if p.length is not None]
    same = [p for p in usable if _shape(p.setting) == _shape(setting)]
    if same:
        return AcceptanceReference(tuple(same), 1.0)
    tokens = setting[2]
    if tokens is None or (setting[1] or 1) > 1:
        return None
    chains = [p for p in usable if p.setting[2] is not None and (p.setting[1] or 1) == 1]
    if not chains:
        return None
    nearest = min({p.setting[2] or 0 for p in chains}, key=lambda n: (abs(n - tokens), n))
    some = tuple(p for p in chains if p.setting[2] == nearest)
    middle = median(p.length or 1.0 for p in some)
    scale = (chain_length(middle, nearest, tokens) - 1) / max(middle - 1, 0.01)
    return AcceptanceReference(some, scale)


def chain_length(length: float, tokens: int, others: int) -> float:
    """Convert an acceptance length from a chain of `tokens` draft tokens to one of `others`.

    Both counts include the target's token. Assumes an equal acceptance probability for every draft
    token.
    """
    low, high = 0.0, 1.0
    for _ in range(40):
        rate = (low + high) / 2
        low, high = (rate, high) if _geometric(rate, tokens) < length else (low, rate)
    return _geometric(low, others)


def _geometric(rate: float, tokens: int) -> float:
    return sum(rate**position for position in range(tokens))


def published_summary(
    published: Sequence[PublishedAcceptance], setting: Setting = (None, None, None)
) -> str:
    """Return the most comparable measurements in one line; empty if there are none.

    Prefers those at `setting`, then those with the most benchmarks from one source and setting,
    then those nearest to 6 draft tokens. Example: `2.0-4.4 tokens a step, 1.37-3.11 times as fast
    on 7 benchmarks at 5/1/6 (SpecForge, …)`.
    """
    groups: dict[tuple[str, str, Setting], list[PublishedAcceptance]] = {}
    for p in published:
        groups.setdefault((p.source.url, p.mode or "", p.setting), []).append(p)
    if not groups:
        return ""
    best = max(
        groups.values(),
        key=lambda some: (
            setting[2] is not None and _shape(some[0].setting) == _shape(setting),
            some[0].length is not None,
            len(some),
            -abs((some[0].setting[2] or 99) - COMMON_SETTING[2]),
        ),
    )
    lengths = [p.length for p in best if p.length is not None]
    speedups = [p.speedup for p in best if p.speedup is not None]
    parts = [f"{_span(lengths, 1)} tokens a step"] if lengths else []
    parts += [f"{_span(speedups, 2)} times as fast"] if speedups else []
    names = {p.benchmark for p in best if p.length is not None or not lengths}
    where = best[0].benchmark if len(names) == 1 else f"{len(names)} benchmarks"
    if where == "not stated":
        where = "an unstated benchmark"
    at = f" at {best[0].setting_text}" if best[0].setting_text else ""
    return f"{', '.join(parts)} on {where}{at} ({best[0].source.title})"


def _span(values: Sequence[float], digits: int) -> str:
    low, high = (f"{value:.{digits}f}" for value in (min(values), max(values)))
    return low if low == high else f"{low}\N{EN DASH}{high}"


class StartSetting(Struct, frozen=True):
    """The chain to start from, and the reason for it."""

    setting: tuple[int, int, int]
    """num_steps, eagle_topk, num_draft_tokens."""
    why: str


def start_setting(published: Iterable[PublishedAcceptance]) -> StartSetting:
    """Return the published chain with the highest mean speed-up; 5/1/6 for fewer than two chains.

    In SpecForge's grid (leave-one-out), the chain that was best for a draft on the other benchmarks
    loses 1.7% of the throughput; the constant 5/1/6 loses 2.8%.
    """
    logs: dict[tuple[int, int, int], list[float]] = {}
    source = ""
    for p in published:
        steps, topk, tokens = p.setting
        if p.speedup is not None and steps and tokens and topk == 1:
            logs.setdefault((steps, 1, tokens), []).append(math.log(p.speedup))
            source = source or p.source.title
    most = max(map(len, logs.values()), default=0)
    means = {at: sum(some) / most for at, some in logs.items() if len(some) == most}
    if len(means) < 2:
        why = (
            f"{'/'.join(map(str, COMMON_SETTING))} has the lowest mean loss in SpecForge's grid of "
            "14 drafts"
        )
        return StartSetting(COMMON_SETTING, why)
    best = max(means, key=means.__getitem__)
    return StartSetting(
        best,
        f"fastest of {len(means)} published chains of this draft: "
        f"{math.exp(means[best]):.2f} times as fast as without ({source})",
    )


def _shape(setting: Setting) -> Setting:
    """Return the values that determine acceptance; for a chain or block, only the token count."""
    steps, topk, tokens = setting
    return (None, None, tokens) if (topk or 1) == 1 else (steps, topk, tokens)


def acceptance_score(published: Iterable[PublishedAcceptance]) -> float | None:
    """Return a draft's acceptance length, comparable across benchmarks.

    None unless a chain or block was measured. Accepted draft tokens are divided by the benchmark's
    factor (fitted by `tools/published_acceptance.py`), because benchmarks differ. For a chain, uses
    the setting nearest to 6 tokens, converted to 6. For a block, uses its best setting.
    """
    nearest: dict[str, tuple[float, float]] = {}
    for p in published:
        steps, topk, tokens = p.setting
        if p.length is None or tokens is None or (topk or 1) > 1:
            continue
        length = p.length if steps is None else chain_length(p.length, tokens, COMMON_SETTING[2])
        accepted = (length - 1) / _table().factors.get(p.benchmark, 1.0)
        closeness = 0 if steps is None else -abs(tokens - COMMON_SETTING[2])
        nearest[p.benchmark] = max(nearest.get(p.benchmark, (-99, 0.0)), (closeness, accepted))
    if not nearest:
        return None
    values = [math.log(max(accepted, 0.01)) for _, accepted in nearest.values()]
    return 1 + math.exp(sum(values) / len(values))


@lru_cache(maxsize=64)
def _of_model(target: str) -> tuple[PublishedAcceptance, ...]:
    measured = _table().measured
    meant = likely(target)
    name = target if meant is None or target in measured else meant[0]
    exports = [other for other in measured if other != name and same_model(name, other)]
    return tuple(p for other in (name, *exports) for p in _of_target(other))


class _Table(Struct, frozen=True):
    format: int = 0
    factors: Mapping[str, float] = {}
    sources: Mapping[str, Mapping[str, Any]] = {}
    measured: Mapping[str, Sequence[Mapping[str, Any]]] = {}


@lru_cache(maxsize=1)
def _table() -> _Table:
    """Return the content of `acceptance.json`; empty in a checkout without the index."""
    try:
        found = convert(read_object(models_dir() / ACCEPTANCE_FILE), _Table)
    except (UnreadableFileError, ValidationError):
        return _Table()
    return found if found.format == FORMAT else _Table()


@lru_cache(maxsize=64)
def _of_target(target: str) -> tuple[PublishedAcceptance, ...]:
    rows = _table().measured.get(target, ())
    return tuple(p for row in rows for p in _measurements(target, row))


def _measurements(target: str, row: Mapping[str, Any]) -> Iterator[PublishedAcceptance]:
    """Yield a table row's measurements, one per benchmark and setting."""
    stated = {**_table().sources[row["source"]], **row, "target": target}
    stated["source"] = convert(stated, PublishedSource)
    lengths, speedups = row.get("length", {}), row.get("speedup", {})
    for benchmark in dict.fromkeys((*lengths, *speedups)):
        for number, setting in enumerate(row.get("settings") or ((None, None, None),)):
            found = {
                "benchmark": benchmark,
                "setting": setting,
                "length": _at(lengths.get(benchmark), number),
                "speedup": _at(speedups.get(benchmark), number),
            }
            yield convert(stated | found, PublishedAcceptance)


def _at(values: Sequence[float] | None, number: int) -> float | None:
    return values[number] if values and number < len(values) else None
