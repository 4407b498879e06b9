"""Dataclasses that cost little before they are used.

`@dataclass(frozen=True, slots=True)` writes and compiles six methods of a class when its module is
imported, which takes about a millisecond: of a quick answer the larger part. `@record` leaves that
to the first instance, and has the methods that are the same for all classes only once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, NoReturn, TypeVar, dataclass_transform, overload

T = TypeVar("T")
_FACTORY = object()
"""The default in a signature where a field has a factory."""


@overload
def record(cls: type[T], /) -> type[T]: ...
@overload
def record(*, frozen: bool = ..., slots: bool = ...) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T] | None = None, /, *, frozen: bool = True, slots: bool = True) -> Any:
    """A dataclass, frozen and with slots: `fields`, `replace`, `==`, `hash`, `repr` as there.

    Fields with `kw_only` or `init=False` are not taken: use `dataclass` for them.
    """
    if cls is None:
        return lambda later: _made(later, frozen, slots)
    return _made(cls, frozen, slots)


def _made(cls: type[T], frozen: bool, slots: bool) -> type[T]:
    own = cls.__dict__
    made: Any = dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
    made.__init__ = _first_init(made, frozen)
    if frozen:
        made.__setattr__, made.__delattr__ = _refuse_set, _refuse_delete
        if slots:
            made.__getstate__, made.__setstate__ = _state, _set_state
    if "__repr__" not in own:
        made.__repr__ = _repr
    if "__eq__" not in own:
        made.__eq__ = _equal
    if own.get("__hash__") is None:
        made.__hash__ = _hash if frozen else None
    result: type[T] = made
    return result


def _first_init(cls: type, frozen: bool) -> Callable[..., None]:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        init = _init(cls, frozen)
        cls.__init__ = init  # type: ignore[misc]
        init(self, *args, **kwargs)

    return __init__


def _init(cls: Any, frozen: bool) -> Callable[..., None]:
    """The method that sets the fields of a class."""
    known: dict[str, Any] = {"_FACTORY": _FACTORY, "_set": object.__setattr__}
    parameters, lines = ["self"], []
    for one in fields(cls):
        name = one.name
        value = name
        if one.default is not MISSING:
            known[f"_default_{name}"] = one.default
            parameters.append(f"{name}=_default_{name}")
        elif one.default_factory is not MISSING:
            known[f"_factory_{name}"] = one.default_factory
            parameters.append(f"{name}=_FACTORY")
            value = f"_factory_{name}() if {name} is _FACTORY else {name}"
        else:
            parameters.append(name)
        lines.append(f" _set(self, {name!r}, {value})" if frozen else f" self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    text = f"def __init__({', '.join(parameters)}):\n" + ("\n".join(lines) or " pass")
    exec(text, known)  # noqa: S102  names of fields, which are identifiers
    made: Callable[..., None] = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _compared(cls: Any) -> Callable[[Any], Any]:
    """The values of an instance that are compared."""
    found: Callable[[Any], Any] | None = cls.__dict__.get("_record_compared")
    if found is None:
        names = [one.name for one in fields(cls) if one.compare]
        found = staticmethod(attrgetter(*names) if names else lambda _: ())
        cls._record_compared = found
    return found


def _equal(self: Any, other: object) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    compared = _compared(self.__class__)
    return compared(self) == compared(other)


def _hash(self: Any) -> int:
    return hash(_compared(self.__class__)(self))


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _refuse_set(self: object, name: str, value: object) -> NoReturn:  # noqa: ARG001
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(self: object, name: str) -> NoReturn:  # noqa: ARG001
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    one: Field[Any]
    for one, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)
