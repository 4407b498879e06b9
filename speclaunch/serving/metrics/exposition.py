"""Parser of the Prometheus text format (0.0.4), for selected metrics and within bounds.

The format: https://prometheus.io/docs/instrumenting/exposition_formats/. Lines of other metrics are
not parsed: a server's histograms are most of its text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from msgspec import Struct

MOST_BYTES = 8 << 20
_MOST_SAMPLES = 10_000
_LABEL = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)', re.ASCII)
_ESCAPED = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n"}
_COMMENT = re.compile(rb"^# (?:TYPE|HELP) \w", re.MULTILINE)


class Sample(Struct, frozen=True):
    """One value of a metric."""

    name: str
    labels: Mapping[str, str]
    value: float


class ExpositionError(Exception):
    """Text that is not in the format; the message is the reason."""


def parse_metrics(content: bytes, names: Iterable[str]) -> list[Sample]:
    """Return the finite samples of the metrics `names`, in order. Raises ExpositionError."""
    found: list[Sample] = []
    for name, labels, text in _pattern(tuple(names)).findall(content):
        if len(found) >= _MOST_SAMPLES:
            raise ExpositionError(f"has more than {_MOST_SAMPLES:,} values")
        try:
            value = float(text)
        except ValueError:
            raise ExpositionError(f"has a value that is not a number: {text[:40]!r}") from None
        if math.isfinite(value):
            sample = Sample(name.decode(), _labels(labels.decode(errors="replace")), value)
            found.append(sample)
    if not found and not _COMMENT.search(content):
        raise ExpositionError("is not in the Prometheus text format")
    return found


@lru_cache(8)
def _pattern(names: tuple[str, ...]) -> re.Pattern[bytes]:
    known = "|".join(re.escape(name) for name in names)
    return re.compile(
        rf"^({known})(?:\{{([^\n]*)\}})?[ \t]+([^\s{{]+)(?:[ \t]+-?\d+)?[ \t]*\r?$".encode(),
        re.MULTILINE,
    )


@lru_cache(1_024)
def _labels(text: str) -> Mapping[str, str]:
    """Return the labels of a sample. Raises ExpositionError."""
    found, position = {}, 0
    while text[position:].strip():
        match = _LABEL.match(text, position)
        if match is None:
            raise ExpositionError(f"has labels that cannot be read: {text[:40]!r}")
        value = match[2]
        if "\\" in value:
            value = _ESCAPED.sub(lambda item: _ESCAPES.get(item[1], item[1]), value)
        found[match[1]] = value
        position = match.end()
    return found
