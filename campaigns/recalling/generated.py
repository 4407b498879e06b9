"""What the generated rows (SPL017) say alone, and what they add to the rules written by hand."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from packaging.version import Version

from campaigns.recalling.comparing import Line
from speclaunch.checks.rules.messages import rule_of
from speclaunch.engine.plan.refusals import DATA

CODE = "SPL017"
_UNKNOWN = "…"


def counts(lines: Iterable[Line]) -> dict[str, Counter[str]]:
    """By release: lines that a row speaks on (`spoke`), of them refused (`right`) and refused in
    the words of one of the rows (`words`), refused lines (`refused`), and those of them that have
    errors of the rows alone (`alone`)."""
    found: dict[str, Counter[str]] = {}
    for line in lines:
        if line.outcome == "not judged":
            continue
        one = found.setdefault(line.release, Counter())
        refused = line.said["verdict"] != "accepted"
        own = {code for code, _ in line.errors}
        one["refused"] += refused
        one["alone"] += refused and own == {CODE}
        one["spoke"] += bool(line.rows)
        one["right"] += bool(line.rows) and refused
        said = " ".join(str(line.said.get("message", "")).split())
        one["words"] += refused and any(_is(said, row) for row in line.rows)
    return dict(sorted(found.items(), key=lambda item: Version(item[0])))


def constraints() -> dict[str, tuple[int, int]]:
    """By release: the rows that were read, and those that no rule of ours foretells."""
    stored = json.loads(DATA.read_text(encoding="utf-8"))
    nodes, found = stored["nodes"], {}
    for number, version in enumerate(stored["versions"]):
        rows = [row for row in stored["rows"] if any(one == number for one, _ in row[5])]
        added = [row for row in rows if rule_of(_text(nodes, row[1])) is None]
        found[version] = (len(rows), len(added))
    return found


def wrong(lines: Iterable[Line]) -> list[str]:
    """The rows that speak where the engine accepts."""
    return [
        f"- {line.release} on {line.machine}: `{row}`"
        for line in lines
        if line.outcome != "not judged" and line.said["verdict"] == "accepted"
        for row in line.rows
    ]


def section(lines: Sequence[Line]) -> str:
    """Both as a part of the page."""
    held, found = constraints(), counts(lines)
    total: Counter[str] = sum(found.values(), Counter())
    table = [
        "| release | rows | new rows | matched | refused | with that message | only rows |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for release, one in [*found.items(), ("all", total)]:
        near = held.get(release) or held.get(f"{release}.post1")
        rows = [str(number) for number in near] if near and release != "all" else ["", ""]
        cells = [release, *rows, *(str(one[name]) for name in ("spoke", "right", "words"))]
        table.append(f"| {' | '.join(cells)} | {one['alone']} of {one['refused']} |")
    share = f"{total['right'] / total['spoke']:.2%}" if total["spoke"] else "-"
    told = wrong(lines) or ["No row matches a line that the engine accepts."]
    return "\n".join([*table, "", f"Precision of the rows: {share}.", "", *told])


def _text(nodes: Sequence[Sequence[Any]], number: int) -> str:
    node = nodes[number]
    if node[0] == "fmt":
        return "".join(_text(nodes, part) for part in node[1:])
    return str(node[1]) if node[0] == "k" else "0"


def _is(said: str, row: str) -> bool:
    """Whether the engine's message is a row's, which may have parts that nobody knows."""
    first, *rest = (part.strip() for part in row.split(_UNKNOWN))
    if not said.startswith(first):
        return False
    return all(part in said for part in rest)
