"""Goodput: requests per second that meet latency bounds.

The definition is SGLang's (0.5.23 benchmark/goodput.py `calculate_goodput`) and vLLM's. A request
counts if it succeeded and meets every bound; the TPOT of a single token is 0. Bounds are in
milliseconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from msgspec import Struct

from speclaunch.core import COMMAND_LINE, InputError, Place, Problem
from speclaunch.measure.bench.measurement import MeasuredRequest, Round

METRICS = ("ttft", "tpot", "e2el")
"""Metric names of `sglang.bench_serving --goodput`."""
_ALSO = {"e2e": "e2el"}


class Bound(Struct, frozen=True):
    """Upper bound of one metric for a request, in milliseconds."""

    metric: str
    most: float

    def __str__(self) -> str:
        return f"{self.metric}={self.most:g}"

    def is_met(self, request: MeasuredRequest) -> bool:
        """True if a successful request meets the bound."""
        seconds = {
            "ttft": request.first_token,
            "tpot": request.per_token or 0.0,
            "e2el": request.latency,
        }
        return 1000 * seconds[self.metric] <= self.most


def bounds(text: str) -> tuple[Bound, ...]:
    """Parse bounds such as `ttft=500,tpot=50`. SGLang's `:` and spaces also work.

    Raises InputError.
    """
    found: dict[str, Bound] = {}
    for word in filter(None, re.split(r"[,\s]+", text.strip())):
        name, _, value = word.replace(":", "=", 1).partition("=")
        metric = _ALSO.get(name, name)
        if metric not in METRICS or not _is_bound(value):
            raise _refused(text, f"{word!r} is not a bound")
        if metric in found:
            raise _refused(text, f"{metric} is set twice")
        found[metric] = Bound(metric, float(value))
    if not found:
        raise _refused(text, "no bound")
    return tuple(found.values())


def good(each: Round, within: Sequence[Bound]) -> int:
    """Return the number of requests that meet every bound."""
    return sum(
        request.ok and all(bound.is_met(request) for bound in within) for request in each.requests
    )


def goodput(each: Round, within: Sequence[Bound]) -> float:
    """Return the requests per second that meet every bound."""
    return good(each, within) / each.seconds if each.seconds > 0 else 0.0


def _is_bound(text: str) -> bool:
    try:
        number = float(text)
    except ValueError:
        return False
    return math.isfinite(number) and number > 0


def _refused(text: str, reason: str) -> InputError:
    return InputError(
        Problem(
            f"--goodput: {reason}",
            Place(COMMAND_LINE, text=f"--goodput {text}"),
            "set milliseconds by metric (ttft, tpot, e2el): --goodput ttft=500,tpot=50",
        )
    )
