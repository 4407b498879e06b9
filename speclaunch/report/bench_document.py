"""A comparison as the document that everything else is made of: text, Markdown, page, JSON."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from speclaunch.bench.certificate import Cell, Certificate
from speclaunch.bench.measurement import Request, Round
from speclaunch.bench.schema import CertificateDocument, SideRecord
from speclaunch.record import record
from speclaunch.redaction import masked
from speclaunch.report.bench import document

QUANTILES = (0.0, *(number / 20 for number in range(1, 20)), 0.99, 1.0)
"""Shares of the requests at which a certificate tells times: enough to draw a distribution."""


@record
class Circumstances:
    """What a certificate says beside its numbers."""

    sides: tuple[SideRecord, ...] = ()
    measured: str | None = None
    hardware: str | None = None


def certificate_document(
    found: Certificate, rounds: Sequence[Round], about: Circumstances
) -> CertificateDocument:
    """The whole certificate. What an engine said is shown without its secrets."""
    plain = document(found)
    for cell, said in zip(found.cells, plain["cells"], strict=True):
        said["candidate"] |= _measured(cell, found.candidate, rounds)
        said["baseline"] |= _measured(cell, found.baseline, rounds)
    for one in plain["objections"]:
        one["message"] = masked(one["message"])
    return CertificateDocument.model_validate(
        {
            **plain,
            "measured": about.measured,
            "hardware": about.hardware,
            "sides": about.sides,
            "quantiles": QUANTILES,
        }
    )


def _measured(cell: Cell, side: str, rounds: Sequence[Round]) -> dict[str, Any]:
    own = [one for one in rounds if one.side == side and one.at == cell.at]
    own = sorted(own, key=lambda one: one.number)[: cell.throughput.pairs]
    requests = [one for each in own for one in each.requests]
    return {
        "rounds": [one.throughput for one in own],
        "quantiles": {
            "latency": quantiles([one.latency for one in requests]),
            "time_to_first_token": quantiles([one.first_token for one in requests]),
            "time_per_output_token": quantiles(_per_token(requests)),
        },
    }


def _per_token(requests: Sequence[Request]) -> list[float]:
    return [one.per_token for one in requests if one.per_token is not None]


def quantiles(values: Sequence[float]) -> list[float]:
    """The values at the shares of `QUANTILES`, between neighbours in proportion (as numpy does);
    empty where there are none."""
    ordered = sorted(values)
    if not ordered:
        return []
    found = []
    for share in QUANTILES:
        at = share * (len(ordered) - 1)
        low = min(int(at), len(ordered) - 1)
        high = min(low + 1, len(ordered) - 1)
        found.append(ordered[low] + (ordered[high] - ordered[low]) * (at - low))
    return list(accumulate(found, max))  # rounding must not turn them round
