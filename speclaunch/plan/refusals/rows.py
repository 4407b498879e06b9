"""The rows of `data/refusals.json`, and those of them that hold for a plan.

The file is JSON with one thing a line, so that a plan parses what it asks and no more: `versions`;
`sizes`, how many nodes and rows there are; `index`, by release and argument the rows for which one
of these arguments must be written (`*`: nobody can say); `nodes`, the expressions (`evaluate.py`);
`rows`, each `[condition, message, exception, file, function, [[version, line], …], names]`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from speclaunch.engine.versions import UnknownVersion, is_of_its_line, resolve
from speclaunch.plan.plan import Plan
from speclaunch.plan.refusals.evaluate import Evaluator
from speclaunch.record import record

DATA = Path(__file__).resolve().parent.parent / "data" / "refusals.json"
_LEAVES: Final = frozenset("kfephauq")
_ANY: Final = "*"


@record
class Refusal:
    """One refusal of the engine that a plan meets."""

    message: str
    """The engine's own words, with the values of this plan; `…` for what is not known."""
    exception: str
    source: str
    """`sglang 0.5.18 server_args.py:1234`."""
    names: tuple[str, ...]
    """The written arguments and variables of the condition, those that decide first."""


class _Lines(Sequence[Any]):
    """A part of the file: a line is parsed when it is first asked for."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._parsed: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, number: Any) -> Any:
        if number not in self._parsed:
            self._parsed[number] = json.loads(self._lines[number].rstrip(","))
        return self._parsed[number]


@record
class _Data:
    """The file, with its lines where they are not parsed yet."""

    places: Mapping[str, int]
    index: Sequence[Mapping[str, Mapping[str, Sequence[int]]]]
    nodes: Sequence[Any]
    rows: Sequence[Any]

    def release(self, version: str) -> str | None:
        """The release whose rows count for a version: itself, or the one of its line."""
        if version in self.places or "+" in version:  # a fork has refusals of its own
            return version if version in self.places else None
        try:
            found = resolve(version, tuple(self.places))
        except UnknownVersion:
            return None
        return found.held if is_of_its_line(found) else None

    def rows_of(self, release: str, written: set[str]) -> list[Any]:
        """The rows of a release that what is written can meet, by file and line."""
        place = self.places[release]
        index = self.index[place][release]
        numbers = {one for name in (_ANY, *written) for one in index.get(name, ())}
        rows = [self.rows[number] for number in numbers]
        return sorted(((*row[:4], dict(row[5])[place]) for row in rows), key=lambda r: r[3:])


@lru_cache(maxsize=1)
def _data() -> _Data:
    lines = DATA.read_text(encoding="utf-8").splitlines()
    head = json.loads("".join(lines[:2]).rstrip(",") + "}")
    versions, (nodes, rows) = head["versions"], head["sizes"]
    first = 3
    second = first + len(versions) + 2
    third = second + nodes + 2
    return _Data(
        {version: place for place, version in enumerate(versions)},
        _Lines(["{" + line.rstrip(",") + "}" for line in lines[first : first + len(versions)]]),
        _Lines(lines[second : second + nodes]),
        _Lines(lines[third : third + rows]),
    )


def refusals(plan: Plan) -> Iterator[Refusal]:
    """What the plan's release refuses about what is written, each refusal once."""
    request = plan.request
    written = {name for name in request.given if name != "model_path"} | set(request.env)
    release = _data().release(request.version) if written else None
    if release is None:
        return
    rows, nodes = _data().rows_of(release, written), _data().nodes
    evaluator = Evaluator(nodes, plan)
    for condition, message, exception, file, line in rows:
        if evaluator.holds(condition):
            yield Refusal(
                " ".join(evaluator.text(message).split()),
                exception,
                f"sglang {release} {file.removeprefix('srt/')}:{line}",
                tuple(name for name in _names(nodes, condition) if name in written),
            )


def _names(nodes: Sequence[Sequence[Any]], condition: int) -> list[str]:
    """The arguments and variables of a condition, the nearest to its top first."""
    found: dict[str, None] = {}
    seen = {condition}
    level = [condition]
    while level:
        below: list[int] = []
        for one in level:
            node = nodes[one]
            if node[0] in ("f", "e"):
                found.setdefault(node[1])
            elif node[0] not in _LEAVES:
                below += [part for part in node[1:] if part not in seen]
                seen.update(node[1:])
        level = below
    return list(found)
