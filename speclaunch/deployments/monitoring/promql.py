"""Read the names in a PromQL expression, and compare them with a release's metrics.

This is not a parser; the tests check the grammar of the expressions with `promtool`. It reads every
metric name with its matchers, and every label in `by (…)` and similar clauses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from speclaunch.core import lazy
from speclaunch.engine import Metric

_TOKEN = lazy(r'"(?:[^"\\]|\\.)*"|\d[\w.]*|[A-Za-z_][\w:]*|=~|!~|!=|==|>=|<=|\S')
_NAME = lazy(r"[A-Za-z_][\w:]*\Z")
_LABEL_LISTS = ("by", "without", "on", "ignoring", "group_left", "group_right")
_OPERATORS = ("and", "or", "unless", "bool", "offset")
TARGET_LABELS = frozenset({"job", "instance", "role"})
"""Labels that Prometheus and our scrape settings add to every series."""


def names_in(expression: str) -> tuple[dict[str, frozenset[str]], set[str]]:
    """Return an expression's metrics with their matched labels, and its listed labels."""
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
    return metrics, grouped


def unknown_names(
    expression: str, series: Mapping[str, Metric], recorded: frozenset[str]
) -> Iterator[str]:
    """Yield metrics and labels that the release lacks. `recorded`: recording rule names."""
    metrics, grouped = names_in(expression)
    known = set(TARGET_LABELS)
    for name, labels in metrics.items():
        own: frozenset[str] = frozenset()
        if name in series:
            own = series[name].labels_of(name)
        elif name not in recorded and name != "up":
            yield f"the release has no metric {name}"
            continue
        known |= own
        yield from (f"{name} has no label {label}" for label in labels - own - TARGET_LABELS)
    yield from (f"no metric has the label {label}" for label in grouped - known)
