"""Records of many versions in one JSON file, each with its span of versions.

The file is ``{"versions": […], "records": {key: [[first, record], [first, last, record], …]}}``. A
span without ``last`` is open: it extends to the newest version. A new release therefore changes
only the lines of records that it changes. Keys are sorted, one per line: the diff of a regenerated
file shows the changes between two releases.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

#: A record: the state of one key in one version.
Record = dict[str, Any]


def encode(versions: Sequence[str], records: Mapping[str, Mapping[str, Record]]) -> str:
    """Return the text of a file. ``records`` has all of ``versions``, each with its records by
    key."""
    lines = []
    for key in sorted({key for version in versions for key in records[version]}):
        spans = [list(span) for span in _spans(versions, records, key)]
        lines.append(f"{_dump(key)}:{_dump(spans)}")
    body = ",\n".join(lines)
    return f'{{"versions":{_dump(list(versions))},\n"records":{{\n{body}\n}}}}\n'


def _spans(
    versions: Sequence[str], records: Mapping[str, Mapping[str, Record]], key: str
) -> list[tuple[Any, ...]]:
    spans: list[tuple[Any, ...]] = []
    first, current, text = "", None, ""
    previous = ""
    for version in versions:
        record = records[version].get(key)
        written = "" if record is None else _dump(record)
        if written != text:
            if current is not None:
                spans.append((first, previous, current))
            first, current, text = version, record, written
        previous = version
    if current is not None:
        spans.append((first, current))
    return spans


def decode(data: Mapping[str, Any]) -> dict[str, dict[str, Record]]:
    """Return all records of a file, by version, then by key."""
    return {version: select(data, version) for version in data["versions"]}


def select(data: Mapping[str, Any], version: str) -> dict[str, Record]:
    """Return the records of one version."""
    place = {known: index for index, known in enumerate(data["versions"])}
    position = place[version]
    found: dict[str, Record] = {}
    for key, spans in data["records"].items():
        for span in spans:
            if place[span[0]] <= position and (len(span) == 2 or position <= place[span[1]]):
                found[key] = span[-1]
                break
    return found


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
