"""Explanations of a difference: the engine's own statement, and advisories."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from msgspec import Struct

from speclaunch.checks import Advisory, RequestField, all_advisories
from speclaunch.engine import Plan, UnknownValueError, within

_EAGLE = ("EAGLE", "EAGLE3", "STANDALONE", "FROZEN_KV_MTP")
_SAMPLED = ("temperature", "top_p", "top_k", "min_p", "sampling_seed")


class Statement(Struct, frozen=True):
    """A difference that the engine's source states. `cpu`: it holds on CPUs only."""

    fields: tuple[str, ...]
    algorithms: tuple[str, ...]
    versions: str
    text: str
    source: str
    cpu: bool = False

    def __str__(self) -> str:
        return f"{self.text} ({self.source})"


_PENALTIES = ("frequency_penalty", "presence_penalty", "repetition_penalty")
_RELAXED = "This is a relaxed version of penalties for speculative decoding."
STATEMENTS = (
    Statement(
        _PENALTIES, _EAGLE, ">=0.5.11", _RELAXED, "SGLang 0.5.23 srt/speculative/eagle_utils.py:563"
    ),
    Statement(
        _PENALTIES,
        ("NGRAM",),
        ">=0.5.14",
        _RELAXED,
        "SGLang 0.5.23 srt/speculative/eagle_utils.py:563",
    ),
    Statement(
        _SAMPLED,
        (*_EAGLE, "NGRAM"),
        ">=0.5.21",
        "On a CPU, verification commits argmax instead of taking the sampling path.",
        "SGLang 0.5.23 srt/speculative/eagle_utils.py:493",
        cpu=True,
    ),
)
"""Each is in the source of all releases that it names."""


def statement(field: str, release: str, algorithm: str | None, device: str | None) -> str | None:
    """Return the engine's own statement that a field differs; None if there is none."""
    for each in STATEMENTS:
        if (
            field in each.fields
            and algorithm in each.algorithms
            and within(release, each.versions)
            and (device == "cpu" or not each.cpu)
        ):
            return str(each)
    return None


def known_bugs(
    concerns: Collection[RequestField], release: str, algorithm: str | None, plan: Plan | None
) -> tuple[str, ...]:
    """Return the IDs of advisories about request fields that apply.

    Without a plan, those that the release and the algorithm do not exclude.
    """
    return tuple(
        advisory.id
        for advisory in _of_release(release, algorithm)
        if set(advisory.requests) & set(concerns) and _applies(advisory, plan)
    )


def _of_release(release: str, algorithm: str | None) -> Iterator[Advisory]:
    for advisory in all_advisories():
        if within(release, advisory.versions):
            algorithms = _algorithms(advisory)
            if not algorithms or algorithm in algorithms:
                yield advisory


def _algorithms(advisory: Advisory) -> set[str]:
    """Return the algorithms to which an advisory is limited; empty: any."""
    parts = advisory.when.any or (advisory.when,)
    found = [set(advisory.when.algorithm or part.algorithm) for part in parts]
    return set().union(*found) if all(found) else set()


def _applies(advisory: Advisory, plan: Plan | None) -> bool:
    if plan is None:
        return True
    try:
        return advisory.applies(plan)
    except UnknownValueError:
        return True
