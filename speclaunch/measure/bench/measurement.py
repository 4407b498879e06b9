"""What was measured: one request, one round of one side, all rounds of a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

from msgspec import Struct

from speclaunch.core import size, sizes


class MeasuredRequest(Struct, frozen=True):
    """One request of the generator. Times are in seconds.

    `tokens` is what the engine says that it generated, None where it said nothing; `prompt` and
    `cached` are tokens of the prompt: all, and those from the radix cache. `positions`:
    how often so many of the proposed drafts were right (index 0: none), one count a verify step.
    """

    ok: bool
    error: str
    latency: float
    first_token: float
    asked: int
    tokens: int | None
    prompt: int
    cached: int
    characters: int
    verify_steps: int
    proposed: int
    positions: tuple[int, ...] = ()
    id: str = ""
    """The engine's own name of the answer; another one each time."""
    engine_latency: float = 0.0
    """Seconds from request to end as the engine measured them itself; 0 where it tells none."""

    @property
    def accept_length(self) -> float | None:
        """Tokens a verify step; None where nothing was verified."""
        return self.tokens / self.verify_steps if self.verify_steps and self.tokens else None

    @property
    def per_token(self) -> float | None:
        """Seconds a token after the first one (TPOT); None for a single token."""
        if self.tokens is None or self.tokens < 2:
            return None
        return (self.latency - self.first_token) / (self.tokens - 1)


class At(Struct, frozen=True):
    """A workload with prompts of one length at one concurrency: what a cell of a certificate is."""

    workload: str
    context: int
    concurrency: int


class Round(Struct, frozen=True):
    """All requests of one workload at one concurrency against one side."""

    side: str
    workload: str
    concurrency: int
    number: int
    """Counts from 0; rounds of both sides with the same number are a pair."""
    seconds: float
    requests: tuple[MeasuredRequest, ...]
    context: int = 0
    """Tokens of each prompt, as was asked for; 0: the prompts are as they are."""

    @property
    def at(self) -> At:
        """What was measured."""
        return At(self.workload, self.context, self.concurrency)

    @property
    def tokens(self) -> int:
        """Tokens that the engine generated."""
        return sum(one.tokens or 0 for one in self.requests)

    @property
    def throughput(self) -> float:
        """Output tokens a second."""
        return self.tokens / self.seconds if self.seconds > 0 else 0.0

    @property
    def latency(self) -> float:
        """The mean end-to-end latency in seconds."""
        return fmean(one.latency for one in self.requests) if self.requests else 0.0


def accepted_by_position(requests: Iterable[MeasuredRequest]) -> tuple[float, ...]:
    """The share of verify steps that accepted at least so many drafts: 1, 2, …"""
    counts: list[int] = []
    for one in requests:
        counts += [0] * (len(one.positions) - len(counts))
        for index, count in enumerate(one.positions):
            counts[index] += count
    total = sum(counts)
    if not total:
        return ()
    return tuple(sum(counts[index:]) / total for index in range(1, len(counts)))


def request_from(said: Mapping[str, Any]) -> MeasuredRequest:
    """A request as the engine's generator reports it (`worker/generate.py`). Counters of the
    server that are no numbers count as absent."""
    meta = said.get("meta") or {}
    return MeasuredRequest(
        ok=bool(said["success"]),
        error=str(said["error"]),
        latency=float(said["latency"]),
        first_token=float(said["ttft"]),
        asked=int(said["asked"] or 0),
        tokens=size(meta.get("completion_tokens"), least=0),
        prompt=size(meta.get("prompt_tokens")) or 0,
        cached=size(meta.get("cached_tokens")) or 0,
        characters=int(said["characters"]),
        verify_steps=size(meta.get("spec_verify_ct")) or 0,
        proposed=size(_first(meta, _PROPOSED)) or 0,
        positions=sizes(_first(meta, _HISTOGRAM)),
        id=str(meta.get("id") or "")[:_LONGEST_ID],
        engine_latency=_seconds(meta.get("e2e_latency")),
    )


def _seconds(said: object) -> float:
    return float(said) if isinstance(said, int | float) and 0 <= said < _MOST_SECONDS else 0.0


_LONGEST_ID = 200
_MOST_SECONDS = 1e9
_PROPOSED = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
_HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")
"""0.5.23 managers/tokenizer_manager.py:3150, 0.5.18 :2777, 0.5.9 :1838; 0.5.3 has neither."""


def _first(meta: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((meta[name] for name in names if meta.get(name)), None)


def rounds_of(rounds: Iterable[Round], side: str, at: At) -> list[Round]:
    """Return the rounds of one side and cell, by number."""
    found = [one for one in rounds if one.side == side and one.at == at]
    return sorted(found, key=lambda one: one.number)


def cells_of(rounds: Iterable[Round]) -> tuple[At, ...]:
    """Return all cells that were measured, in that order."""
    return tuple(dict.fromkeys(one.at for one in rounds))
