"""Writes a long table of quantised layers short; layer_ranges.py reads it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from speclaunch.facts.layer_ranges import LONG, SHORT, expanded
from speclaunch.patterns import lazy

_NUMBER = lazy(r"(?<=\.)\d+(?=\.|$)")
_BRACE = lazy(r"[{}\[\]]")
_LONG_TABLE = 40
"""A table of fewer names stays as it is."""


def shortened(config: Any) -> Any:
    """The config with its long tables of layers as ranges; a table that would not read as it is
    written stays."""
    if not isinstance(config, dict):
        return config
    found: dict[str, Any] = {}
    for key, value in config.items():
        if key == LONG and isinstance(value, dict) and len(value) > _LONG_TABLE:
            short = _whole(value)
            found[LONG if short is None else SHORT] = value if short is None else short
        else:
            found[key] = shortened(value)
    return found


def _whole(table: Mapping[str, Any]) -> dict[str, Any] | None:
    """The ranges of a table, where they read as the table."""
    if _BRACE.search("".join(table)):
        return None
    found = ranges(table)
    try:
        return found if expanded({SHORT: found}) == {LONG: table} else None
    except ValueError:
        return None


def ranges(table: Mapping[str, Any]) -> dict[str, Any]:
    """Patterns with ranges of numbers that stand for exactly the names of a table."""
    alike: dict[tuple[str, str], list[tuple[int, ...]]] = defaultdict(list)
    for name, value in table.items():
        numbers = tuple(int(number) for number in _NUMBER.findall(name))
        alike[_NUMBER.sub("{}", name), json.dumps(value, sort_keys=True)].append(numbers)
    return {
        template.format(*(_range(part) for part in parts)): json.loads(value)
        for (template, value), every in alike.items()
        for parts in _blocks(every)
    }


def _blocks(numbers: Iterable[tuple[int, ...]]) -> Iterator[tuple[range, ...]]:
    """Products of ranges that together are the tuples: the later numbers of each first one."""
    rest: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    for first, *later in filter(None, numbers):
        rest[first].append(tuple(later))
    if not rest:
        yield ()
        return
    inner = {first: tuple(_blocks(later)) for first, later in rest.items()}
    run: list[int] = []
    for first in sorted(inner):
        if run and (first != run[-1] + 1 or inner[first] != inner[run[-1]]):
            yield from ((range(run[0], run[-1] + 1), *block) for block in inner[run[-1]])
            run = []
        run.append(first)
    yield from ((range(run[0], run[-1] + 1), *block) for block in inner[run[-1]])


def _range(part: range) -> str:
    return str(part[0]) if len(part) == 1 else f"[{part[0]}-{part[-1]}]"
