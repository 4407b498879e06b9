"""Names in a PromQL expression, and their proof against the metrics of a release.

Not a parser: `promtool` checks the grammar of our expressions in the tests. This reads every metric
name with its matchers, and every label in `by (…)` and its like.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from speclaunch.core import lazy
from speclaunch.engine import Metric

_TOKEN = lazy(r'"(?:[^"\\]|\\.)*"|\d[\w.]*|[A-Za-z_][\w:]*|=~|!~|!=|==|>=|<=|\S')
_NAME = lazy(r"[A-Za-z_][\w:]*\Z")
_LABEL_LISTS = ("by", "without", "on", "ignoring", "group_left", "group_right")
_OPERATORS = ("and", "or", "unless", "bool", "offset")
TARGET_LABELS = frozenset({"job", "instance", "role"})
"""Labels that Prometheus and our scrape settings add to every series."""


class QueryNames(Struct, frozen=True):
    """Names in an expression: labels of matchers by metric, and labels of label lists."""

    metrics: Mapping[str, frozenset[str]]
    grouped: frozenset[str]


def names_in(expression: str) -> QueryNames:
    """Return the metrics of an expression with their matched labels, and its listed labels."""
    tokens = _TOKEN.findall(expression)
    metrics: dict[str, frozenset[str]] = {}
    grouped: set[str] = set()
    place = 0
    while place < len(tokens):
        token = tokens[place]
        following = tokens[place + 1] if place + 1 < len(tokens) else ""
        place += 1
        if not _NAME.match(token) or token in _OPERATORS:
            continue
        if token in _LABEL_LISTS:
            end = tokens.index(")", place)
            grouped.update(word for word in tokens[place:end] if _NAME.match(word))
            place = end
        elif following == "{":
            end = tokens.index("}", place)
            labels = frozenset(word for word in tokens[place:end] if _NAME.match(word))
            metrics[token] = metrics.get(token, frozenset()) | labels
            place = end
        elif following != "(" and following not in _LABEL_LISTS:
            metrics.setdefault(token, frozenset())
    return QueryNames(metrics, frozenset(grouped))


def unknown_names(
    expression: str, series: Mapping[str, Metric], recorded: frozenset[str]
) -> Iterator[str]:
    """Yield each metric and label that the release lacks. `recorded`: names of recording rules."""
    names = names_in(expression)
    known = set(TARGET_LABELS)
    for name, labels in names.metrics.items():
        own: frozenset[str] = frozenset()
        if name in series:
            own = series[name].labels_of(name)
        elif name not in recorded and name != "up":
            yield f"the release has no metric {name}"
            continue
        known |= own
        yield from (f"{name} has no label {label}" for label in labels - own - TARGET_LABELS)
    yield from (f"no metric has the label {label}" for label in names.grouped - known)
