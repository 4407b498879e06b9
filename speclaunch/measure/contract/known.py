"""Explanations of a difference: statements in the engine's source, and advisories."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks import Advisory, RequestField, all_advisories
from speclaunch.engine import Plan, UnknownValueError, within
from speclaunch.measure.contract.greedy_fields import PENALTIES

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


_RELAXED = Statement(
    tuple(PENALTIES),
    _EAGLE,
    ">=0.5.11",
    "This is a relaxed version of penalties for speculative decoding.",
    "SGLang 0.5.23 srt/speculative/eagle_utils.py:563",
)
STATEMENTS = (
    _RELAXED,
    replace(_RELAXED, algorithms=("NGRAM",), versions=">=0.5.14"),
    Statement(
        _SAMPLED,
        (*_EAGLE, "NGRAM"),
        ">=0.5.21",
        "On a CPU, verification commits argmax instead of taking the sampling path.",
        "SGLang 0.5.23 srt/speculative/eagle_utils.py:493",
        cpu=True,
    ),
)
"""Statements found in the source of every release in their range."""


def statement(field: str, release: str, algorithm: str, device: str | None) -> str | None:
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


def known_bugs(concern: RequestField, plan: Plan) -> tuple[str, ...]:
    """Return the IDs of advisories about a request field that may affect a deployment."""
    return tuple(
        advisory.id
        for advisory in all_advisories()
        if concern in advisory.requests and _may_apply(advisory, plan)
    )


def _may_apply(advisory: Advisory, plan: Plan) -> bool:
    try:
        return advisory.applies(plan)
    except UnknownValueError:
        return True
