"""What a name can stand for while the engine's validation is read, and how two states join."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from refusal_reading.store import Store


@dataclass(frozen=True)
class Args:
    """The record of arguments itself: `self`, `server_args`."""


@dataclass(frozen=True)
class View:
    """What resolution has decided, over the record; `snapshot` keeps the time it was taken."""

    snapshot: Any = None


@dataclass(frozen=True)
class Model:
    """The target's ModelConfig."""


@dataclass(frozen=True)
class Config:
    """The target's config.json or its text_config, or that of the draft."""

    text: bool = False
    draft: bool = False


@dataclass(frozen=True)
class Platform:
    """What `get_platform()` returns."""


@dataclass(frozen=True)
class Envs:
    """The engine's own variables."""


@dataclass(frozen=True)
class Variable:
    """One of them."""

    name: str


@dataclass(frozen=True)
class Environ:
    """`os.environ`."""


@dataclass(frozen=True)
class Method:
    """A method of something, not yet called."""

    of: Any
    name: str


@dataclass(frozen=True)
class Member:
    """A member of an enumeration, by a node that has `Class.NAME`, or None."""

    owner: Any
    node: int


@dataclass(frozen=True)
class Overrides:
    """What `collect_model_override_declarations` returned, to be declared."""

    entries: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Items:
    """A list that is being filled: each item with the condition under which it is there."""

    entries: tuple[tuple[int, Any], ...] = ()


@dataclass(frozen=True)
class Mapped:
    """A dict with literal keys; a value can have `missing` in it."""

    entries: tuple[tuple[Any, Any], ...] = ()

    def get(self, key: Any) -> Any:
        return dict(self.entries).get(key)

    def put(self, key: Any, value: Any) -> Mapped:
        return Mapped(tuple((dict(self.entries) | {key: value}).items()))


@dataclass(frozen=True)
class Several:
    """A tuple of values that are not all expressions."""

    entries: tuple[Any, ...] = ()


@dataclass
class State:
    """The fields of the record and the names of a function."""

    fields: dict[str, int] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=dict)

    def copy(self) -> State:
        return State(dict(self.fields), dict(self.names))

    def become(self, other: State) -> None:
        """Take over another state."""
        self.fields.clear()
        self.fields.update(other.fields)
        self.names.clear()
        self.names.update(other.names)


def joined(store: Store, condition: int, one: Any, other: Any) -> Any:
    """A value that is `one` where the condition holds, else `other`."""
    if one is other or (type(one) is type(other) and one == other):
        return one
    if type(one) is type(other) and hasattr(one, "identity") and one.identity == other.identity:
        return one
    if other is None or one is None:  # not bound on one of the ways
        return one if other is None else other
    if isinstance(one, int) and isinstance(other, int):
        return store.make("?", condition, one, other)
    if isinstance(one, Member) or isinstance(other, Member):
        found = one if isinstance(one, Member) else other
        nodes = [x.node if isinstance(x, Member) else x for x in (one, other)]
        if all(isinstance(x, int) for x in nodes):
            return Member(found.owner, store.make("?", condition, *nodes))
    if isinstance(one, Items) and isinstance(other, Items):
        return _items(store, condition, one, other)
    empty = store.missing
    if isinstance(one, Mapped) or isinstance(other, Mapped):
        if not all(isinstance(x, Mapped) or x == empty for x in (one, other)):
            return store.unknown("a value of two kinds")
        first = dict(one.entries) if isinstance(one, Mapped) else {}
        second = dict(other.entries) if isinstance(other, Mapped) else {}
        keys = [*first, *(key for key in second if key not in first)]
        return Mapped(
            tuple(
                (key, _branch(store, condition, first.get(key, empty), second.get(key, empty)))
                for key in keys
            )
        )
    if isinstance(one, Several) or isinstance(other, Several):
        size = len((one if isinstance(one, Several) else other).entries)
        if all(
            x == empty or (isinstance(x, Several) and len(x.entries) == size) for x in (one, other)
        ):
            first_ = one.entries if isinstance(one, Several) else (empty,) * size
            second_ = other.entries if isinstance(other, Several) else (empty,) * size
            pairs = zip(first_, second_, strict=True)
            return Several(tuple(_branch(store, condition, a, b) for a, b in pairs))
    if empty in (one, other):
        return other if one == empty else one
    return store.unknown("a value of two kinds")


def _branch(store: Store, condition: int, one: Any, other: Any) -> Any:
    if isinstance(one, int) and isinstance(other, int):
        return store.make("?", condition, one, other)
    return joined(store, condition, one, other)


def _items(store: Store, condition: int, one: Items, other: Items) -> Items:
    same = 0
    for a, b in zip(one.entries, other.entries, strict=False):
        if a != b:
            break
        same += 1
    negated = store.make("not", condition)
    entries = list(one.entries[:same])
    entries += [(store.conjunction([condition, c]), v) for c, v in one.entries[same:]]
    entries += [(store.conjunction([negated, c]), v) for c, v in other.entries[same:]]
    return Items(tuple(entries))


def join(store: Store, condition: int, one: State, other: State, raw: Any) -> State:
    """The state after two ways, of which the condition chooses; `raw`: a field's first value."""
    fields = dict(one.fields)
    for key in dict.fromkeys([*one.fields, *other.fields]):
        a, b = one.fields.get(key), other.fields.get(key)
        if a == b:
            continue
        default = raw(key[2:]) if key.startswith("F:") else store.missing
        fields[key] = store.make(
            "?", condition, default if a is None else a, default if b is None else b
        )
    names = {
        key: joined(store, condition, one.names.get(key), other.names.get(key))
        for key in dict.fromkeys([*one.names, *other.names])
    }
    return State(fields, names)
