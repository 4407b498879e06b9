"""A table of quantised layers, written short: `model.layers.[0-60].mlp.up_proj` for 61 names.

ModelOpt lists every module of a mixed quantisation by name, up to 22,000 of them in megabytes. A
file of a checkpoint's facts has `quantized_layer_ranges` there, with ranges of numbers in the
names; whoever reads it sees `quantized_layers` as the publisher wrote it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from typing import Any

from speclaunch.patterns import lazy

SHORT = "quantized_layer_ranges"
LONG = "quantized_layers"
_RANGE = lazy(r"\[(\d{1,6})-(\d{1,6})\]")
_MOST_NAMES = 100_000
_DEPTH = 3


def expanded(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with every table of ranges as the table of names that it stands for.

    Raises ValueError where ranges stand for more than 100,000 names, all tables together.
    """
    return _expanded(config, [_MOST_NAMES], _DEPTH)


def _expanded(config: Mapping[str, Any], left: list[int], depth: int) -> dict[str, Any]:
    """`left`: the names that may still be made."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if key == SHORT and isinstance(value, dict):
            found[LONG] = _names(value, left)
        elif isinstance(value, dict) and depth:
            found[key] = _expanded(value, left, depth - 1)
        else:
            found[key] = value
    return found


def _names(ranges: Mapping[str, Any], left: list[int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pattern, value in ranges.items():
        text, *parts = _RANGE.split(pattern)
        numbers = [range(int(low), int(high) + 1) for low, high in _pairs(parts)]
        left[0] -= prod(map(len, numbers))
        if left[0] < 0:
            raise ValueError(f"`{SHORT}` stands for more than {_MOST_NAMES} layers")
        template = text.replace("%", "%%")
        template += "".join("%d" + after.replace("%", "%%") for after in parts[2::3])
        found |= {template % chosen: value for chosen in product(*numbers)}
    return found


def _pairs(parts: list[str]) -> Iterator[tuple[str, str]]:
    return zip(parts[::3], parts[1::3], strict=True)
