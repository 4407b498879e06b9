"""What the operators of the engine's conditions do: a closed set, each as Python does it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any


def _in(item: Any, held: Any) -> bool:
    return bool(item in held)


def _same(one: Any, other: Any) -> bool:
    """`is`, which is asked of None and of truth values."""
    return one is other


OPERATIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "==": operator.eq,
        "!=": operator.ne,
        "<": operator.lt,
        "<=": operator.le,
        ">": operator.gt,
        ">=": operator.ge,
        "in": _in,
        "meets": lambda one, other: any(item in other for item in one),
        "is": _same,
        "+": operator.add,
        "-": operator.sub,
        "*": operator.mul,
        "//": operator.floordiv,
        "/": operator.truediv,
        "%": operator.mod,
        "[]": operator.getitem,
        "min": min,
        "max": max,
    }
)
"""Operators of two values."""

TEXTS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "neg": operator.neg,
        "none": lambda value: value is None,
        "len": len,
        "int": int,
        "float": float,
        "str": str,
        "bool": bool,
        "abs": abs,
        "lower": str.lower,
        "upper": str.upper,
        "strip": str.strip,
        "startswith": lambda text, start: text.startswith(_tuple(start)),
        "endswith": lambda text, end: text.endswith(_tuple(end)),
        "split": lambda text, *how: text.split(*how),
        "partition": lambda text, mark: list(text.partition(mark)),
        "replace": lambda text, old, new: text.replace(old, new),
        "get": lambda held, *how: held.get(*how),
        "isdict": lambda value: isinstance(value, dict),
        "isstr": lambda value: isinstance(value, str),
        "isint": lambda value: isinstance(value, int),
        "isbool": lambda value: isinstance(value, bool),
        "islist": lambda value: isinstance(value, list | tuple),
        "set": lambda value: list(dict.fromkeys(value)),
    }
)
"""Functions and methods of one value, or of a text and its end."""


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
