"""Records as JSON values and back, by the annotations of their fields.

`encode` writes a record as the list of its fields, without the last ones that have their defaults.
`decode` reads that form, and the object by field names in which documents hold a record: unknown
keys are ignored there, a field that may be None may be missing. Anything else is refused, never
misread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache, partial
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

_PLAIN = frozenset({str, int, float, bool, type(None)})
_LARGEST = 1 << 53
"""Integers below it are exact as floats."""


def encode(value: Any) -> Any:
    """Return what `json.dumps` takes for a record, a tuple of records, or a part of one."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is tuple:
        return [encode(one) for one in value]
    if isinstance(value, Enum):
        return value.value
    if not is_dataclass(kind):
        return dict(value) if isinstance(value, Mapping) else value
    values = [getattr(value, name) for name in _names(kind)]
    for default in reversed(_defaults(kind)):
        if values[-1] != default:
            break
        values.pop()
    return [encode(one) for one in values]


def decode(kind: type[T], value: Any) -> T:
    """Return a JSON value as `kind`: a record, or the type of a field. Raises ValueError."""
    hashable: Any = kind
    found: T = _decoder(hashable)(value)
    return found


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind))


@cache
def _defaults(kind: Any) -> list[Any]:
    """Return the defaults of the last fields, as far as they have some."""
    found = []
    for one in fields(kind):
        if one.default is not MISSING:
            found.append(one.default)
        elif one.default_factory is not MISSING:
            found.append(one.default_factory())
    return found


@cache
def _decoder(kind: Any) -> Callable[[Any], Any]:
    origin, parts = get_origin(kind), get_args(kind)
    if origin is not None:
        return _generic_decoder(origin, parts)
    if is_dataclass(kind):
        return _record_decoder(kind)
    if kind is Any:
        return lambda value: value
    return kind if issubclass(kind, Enum) else partial(_exact, kind)


def _generic_decoder(origin: Any, parts: tuple[Any, ...]) -> Callable[[Any], Any]:
    """Return the decoder of `X | None`, `tuple[X, ...]`, `tuple[X, Y]` or `Mapping[str, X]`."""
    some = [_decoder(part) for part in parts if part not in (type(None), ...)]
    if origin in (Union, UnionType):
        (one,) = some
        return lambda value: None if value is None else one(value)
    if origin is Mapping:
        return lambda value: {name: some[1](one) for name, one in _exact(dict, value).items()}
    if parts[1:] == (...,):
        return lambda value: tuple(map(some[0], _exact(list, value)))
    return lambda value: tuple(
        decoder(one) for decoder, one in zip(some, _exact(list, value), strict=True)
    )


def _record_decoder(kind: Any) -> Callable[[Any], Any]:
    hints = get_type_hints(kind)
    decoders = [_decoder(hints[name]) for name in _names(kind)]
    most, least = len(decoders), len(decoders) - len(_defaults(kind))

    def decoded(value: Any) -> Any:
        if isinstance(value, dict):
            named = zip(_names(kind), decoders, strict=True)
            return kind(**{name: decoder(value.get(name)) for name, decoder in named})
        if not least <= len(_exact(list, value)) <= most:
            raise ValueError(f"not a {kind.__name__}")
        return kind(*[decoder(one) for decoder, one in zip(decoders, value, strict=False)])

    return decoded


def _exact(kind: type[T], value: Any) -> T:
    if kind is float and type(value) is int and abs(value) < _LARGEST:
        value = float(value)
    if type(value) is not kind:
        raise ValueError(f"{value!r} is not of the type {kind.__name__}")
    found: T = value
    return found
