"""Values of a Helm chart, and the marks of its templates that they determine.

`{{ .Values.server.port | quote }}` is the value that a chart has without `-f` and `--set`. Helm
reads numbers as floats, so it renders those from 1,000,000 on as 1e+06: they are unknown here.
Source: helm 3 `pkg/engine`, and https://helm.sh/docs/chart_template_guide/.
"""

from __future__ import annotations

import json
from math import isfinite
from pathlib import Path
from typing import Any

from speclaunch.core import lazy
from speclaunch.deployments.sources.effective_words import read_below
from speclaunch.deployments.sources.source_text import chart_of
from speclaunch.deployments.sources.yaml_files import plain_data

_VALUE = r"\$?(?:\w+)?\.Values(?P<path>(?:\.[A-Za-z_]\w*)+)"
_LITERAL = r"\"[^\"\\]*\"|-?\d+(?:\.\d+)?|true|false"
_REFERENCE = lazy(
    rf"\{{\{{-?\s*(?:default\s+(?P<before>{_LITERAL})\s+)?\(?{_VALUE}\)?"
    rf"(?:\s*\|\s*default\s+(?P<after>{_LITERAL}|\$?[\w.]+))?"
    r"(?P<pipes>(?:\s*\|\s*(?:quote|squote|int|int64|toString|trim))*)\s*-?\}\}"
)
_TEST = lazy(
    rf"\{{\{{-?\s*(?:else\s+)?if\s+(?:(?P<how>not|eq|ne)\s+)?{_VALUE}"
    rf"(?:\s+(?P<other>{_LITERAL}))?\s*-?\}}\}}"
)
_LIST = lazy(rf"\{{\{{-?\s*toYaml\s+{_VALUE}(?:\s*\|\s*n?indent\s+\d+)?\s*-?\}}\}}")
_WORD = lazy(r"[\w./:@%+=,-]+")
"""Pattern of a value that a shell and YAML read as one token."""
_MOST = 1_000_000


class ChartValues:
    """Values of one chart."""

    def __init__(self, data: dict[str, Any]) -> None:
        self._data = data

    def rendered(self, mark: str) -> str | None:
        """Return the text that a mark renders; None if unknown, empty or more than one token."""
        found = _REFERENCE.fullmatch(mark)
        if found is None:
            return None
        value = self._at(found["path"])
        default = found["before"] or found["after"]
        if not value and default is not None:
            value = _literal(default)
        if "int" in found["pipes"] and type(value) is not int:
            return None
        text = _text(value)
        return text if text is not None and _WORD.fullmatch(text) else None

    def listed(self, mark: str) -> list[str] | None:
        """Return the items of a list that a mark renders; None for other marks and values."""
        found = _LIST.fullmatch(mark)
        items = self._at(found["path"]) if found is not None else None
        texts = [_text(item) for item in items] if isinstance(items, list) else [None]
        known = [text for text in texts if text is not None]
        return known if len(known) == len(texts) else None

    def decided(self, mark: str) -> bool | None:
        """Return the result of an `if` or `else if`; None if unknown."""
        found = _TEST.fullmatch(mark)
        if found is None or (found["other"] is None) is (found["how"] in ("eq", "ne")):
            return None
        value = self._at(found["path"])
        if found["other"] is not None:
            return (value == _literal(found["other"])) is (found["how"] == "eq")
        return bool(value) is (found["how"] is None)

    def _at(self, path: str) -> Any:
        value: Any = self._data
        for name in path.split(".")[1:]:
            value = value.get(name) if isinstance(value, dict) else None
        return value


def chart_values(path: Path) -> ChartValues | None:
    """Return the values of the chart to which a template belongs; None if there are none."""
    chart = chart_of(path)
    if chart is None:
        return None
    text = read_below("values.yaml", [chart]).text
    data = plain_data(text) if text is not None else None
    return ChartValues(data) if isinstance(data, dict) else None


def _text(value: Any) -> str | None:
    """Return a text, number or truth value as Helm renders it; None for others."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float) and isfinite(value):
        shown = int(value) if value == int(value) else value
        return str(shown) if abs(value) < _MOST else None
    return value if isinstance(value, str) else None


def _literal(text: str) -> Any:
    """Return the value of a literal; None for a reference."""
    try:
        return json.loads(text)
    except ValueError:
        return None
