"""A record is a frozen dataclass with slots, in everything that code does with one."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from typing import Any

import pytest

from speclaunch.core.records import record


@record
class Point:
    """A point."""

    x: int
    y: int = 2
    tags: list[str] = field(default_factory=list)
    note: Any = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Twin:
    """The same by the standard library."""

    x: int
    y: int = 2
    tags: list[str] = field(default_factory=list)
    note: Any = field(default=None, repr=False, compare=False)


@record
class Deeper(Point):
    """One that inherits."""

    z: int = 0

    def __post_init__(self) -> None:
        if self.z < 0:
            raise ValueError("below")

    @property
    def total(self) -> int:
        return self.x + self.y + self.z


@record
class Frozen:
    """One that can be a key."""

    a: int = 1
    b: str = ""


@record
class Nothing:
    """One without a field."""


def test_it_is_a_dataclass() -> None:
    assert is_dataclass(Point)
    assert [one.name for one in fields(Point)] == ["x", "y", "tags", "note"]
    assert asdict(Point(1)) == asdict(Twin(1))  # type: ignore[call-overload]
    assert repr(Point(1, tags=["a"])) == repr(Twin(1, tags=["a"])).replace("Twin", "Point")
    assert replace(Point(1, 5), y=7) == Point(1, 7)
    assert not hasattr(Point(1), "__dict__")


def test_each_has_its_own_default() -> None:
    first, second = Point(1), Point(1)
    first.tags.append("a")
    assert second.tags == []


def test_equal_and_hashed_by_what_is_compared() -> None:
    assert Point(1, note="a") == Point(1, note="b")
    assert Point(1) != Point(2)
    assert Point(1) != Twin(1)
    assert Point(1) != Deeper(1)
    assert len({Frozen(), Frozen(1, ""), Frozen(2)}) == 2
    assert Nothing() == Nothing()
    with pytest.raises(TypeError):
        hash(Point(1))  # a list in it


@pytest.mark.parametrize("given", [{}, {"x": 1, "z": 1}, {"x": 1, "y": 2, "tags": [], "w": 0}])
def test_wrong_arguments_are_refused_as_by_any_function(given: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        Point(**given)
    with pytest.raises(TypeError):
        Point(**given)  # also once the class has made its method


def test_it_is_frozen() -> None:
    point = Deeper(1, z=3)
    assert point.total == 6
    for change in (lambda: setattr(point, "x", 2), lambda: delattr(point, "x")):
        with pytest.raises(FrozenInstanceError):
            change()
    with pytest.raises(ValueError, match="below"):
        Deeper(1, z=-1)


def test_copies() -> None:
    point = Deeper(1, tags=["a"], z=2)
    assert copy.copy(point) == copy.deepcopy(point) == pickle.loads(pickle.dumps(point)) == point
    assert copy.deepcopy(point).tags is not point.tags


def test_it_is_matched_by_position() -> None:
    match Frozen(3, "b"):
        case Frozen(a, b):
            assert (a, b) == (3, "b")


@record(frozen=False)
class Open:
    """One that changes."""

    a: int
    b: list[int] = field(default_factory=list)


@record(slots=False)
class Cached:
    """One that keeps what it worked out."""

    a: int

    @cached_property
    def double(self) -> int:
        return self.a * 2


def test_one_that_changes() -> None:
    one = Open(1)
    one.a = 2
    one.b.append(3)
    assert one == Open(2, [3])
    assert copy.deepcopy(one) == one
    assert not hasattr(one, "__dict__")
    with pytest.raises(TypeError):
        hash(one)


def test_one_that_keeps_what_it_worked_out() -> None:
    one = Cached(2)
    assert one.double == 4
    assert "double" in one.__dict__
    assert hash(one) == hash(Cached(2))
    assert pickle.loads(pickle.dumps(one)) == one
    with pytest.raises(FrozenInstanceError):
        one.a = 3  # type: ignore[misc]
