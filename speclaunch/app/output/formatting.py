"""Readable values, sizes and numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from speclaunch.core import COMMAND_LINE, Place, conf_dir, masked, recipes_dir
from speclaunch.engine import ArgumentOutcome, EffectiveArgument

GIB = 1 << 30
MIB = 1 << 20
_KIB = 1 << 10
_RUN = 3
"""Minimum count of equally spaced numbers that form a run."""


def size(count: int) -> str:
    """Return a byte count as text: `79.6 GiB`, `131 MiB`, `128 KiB`."""
    for unit, word in ((GIB, "GiB"), (MIB, "MiB"), (_KIB, "KiB")):
        if abs(count) >= (unit if unit < GIB else unit // 10):
            number = count / unit
            plain = unit < GIB and (abs(number) >= 100 or number == int(number))
            return f"{number:.0f} {word}" if plain else f"{number:.{1 + (abs(number) < 1)}f} {word}"
    return f"{count} bytes"


def percent(part: float) -> str:
    """Return a fraction as text: `12.5 %`."""
    return f"{part * 100:.1f} %"


def number(count: int | float) -> str:
    """Return a number as text: `4,096`; four significant digits for a float."""
    return f"{count:,}" if isinstance(count, int) else f"{count:.4g}"


def value(found: Any) -> str:
    """Return the value of an argument as text: None as `none`, sizes as `1-8, 16`."""
    if found is None or isinstance(found, bool):
        return {None: "none", True: "true", False: "false"}[found]
    if isinstance(found, float):
        return f"{found:.6g}"
    if isinstance(found, list | tuple):
        return _listed(found)
    if isinstance(found, dict):
        return json.dumps(found, ensure_ascii=False, default=str)
    return str(found) or '""'


def _listed(found: Sequence[Any]) -> str:
    if found and all(isinstance(item, int) and not isinstance(item, bool) for item in found):
        return sizes(found)
    return ", ".join(value(item) for item in found) or "(empty)"


def place(found: Place) -> str:
    """Return `file:line`, relative to the working directory or speclaunch's own directories."""
    if found.path == COMMAND_LINE:
        return masked(str(found))
    path = Path(found.path)
    for parent in (Path.cwd(), conf_dir().parent, recipes_dir().parent):
        if path.is_absolute() and path.is_relative_to(parent):
            path = path.relative_to(parent)
    return f"{path}:{found.line}"


def set_value(row: EffectiveArgument) -> str:
    """Return the user's value as text; empty if none is set."""
    if not row.is_set:
        return ""
    if row.user_value is None and row.outcome is ArgumentOutcome.UNKNOWN:
        return "a variable"
    return value(row.user_value)


def effective(row: EffectiveArgument) -> str:
    """Return the effective value as text, or `unknown`."""
    return "unknown" if row.outcome is ArgumentOutcome.UNKNOWN else value(row.effective)


def sizes(numbers: Sequence[int]) -> str:
    """Return numbers as runs of equal spacing: `1-8, 10-32 by 2, 48`."""
    parts: list[str] = []
    start = 0
    while start < len(numbers):
        step = numbers[start + 1] - numbers[start] if start + 1 < len(numbers) else 0
        end = start
        while end + 1 < len(numbers) and numbers[end + 1] - numbers[end] == step:
            end += 1
        if end - start + 1 >= _RUN and step > 0:
            by = f" by {step}" if step > 1 else ""
            parts.append(f"{numbers[start]}-{numbers[end]}{by}")
            start = end + 1
        else:
            parts.append(str(numbers[start]))
            start += 1
    return ", ".join(parts)


def many(count: int, what: str) -> str:
    """Return a count with its noun: `1 request`, `2 requests`."""
    return f"{number(count)} {what}{'' if count == 1 else 's'}"


def ranks(numbers: Sequence[int]) -> str:
    """Return rank numbers as text: `rank 0`, `ranks 0-3`, `ranks 0, 2`."""
    parts = []
    for _, group in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        run = [rank for _, rank in group]
        parts.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(parts)}"
