"""Read recipe sections with plain, clearly valid values, without importing pydantic.

`schema.py` declares the keys of a recipe and reports errors in values; importing it costs about 55
ms. `section_table.py` is generated from it: one row per key with the kind of its values, default
and bounds. Values of exactly that kind become the sections below, which have the schema's names and
attributes. For any other value `plain_deployment` returns None, and the schema decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache, cached_property
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, cast

from msgspec import Struct

from speclaunch.core import InputError, conf_dir, lazy
from speclaunch.deployments.recipe.section_table import SECTIONS
from speclaunch.engine import AUTO, Steppable, declare, nearest

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet


ENV_NAME = lazy(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_RELEASE = r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*))+(\.post(0|[1-9][0-9]*))?"
_PIN = lazy(rf"{_RELEASE}\Z", re.ASCII)
_BOUNDS = lazy(rf"(>=|<=|<|>|!=){_RELEASE}(,(>=|<=|<|>|!=){_RELEASE})*\Z", re.ASCII)
_ROLE_NAME = lazy(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?\Z")
"""Pattern of a name that every platform accepts (RFC 1035), with room for suffixes."""
_IMAGE = lazy(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*\Z", re.ASCII)
_LABEL = lazy(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
_RESOURCE = lazy(r"[a-z0-9.-]{1,253}/[A-Za-z0-9._-]{1,63}(:[1-9][0-9]{0,2})?\Z", re.ASCII)
_STORE = lazy(r"(/|pvc:[a-z0-9])[A-Za-z0-9._/@+-]*\Z", re.ASCII)
MOST_REPLICAS = 1000
MOST_ROLES = 64
ROLES = "roles"
EMPTY_DIR = "emptyDir"
"""Value of `deploy.models` for node disks. Every new pod downloads the checkpoint again."""


class RecoveryPolicy(StrEnum):
    """Method of choosing the next settings after a start runs out of memory."""

    OFF = "off"
    """A failed start is reported and not retried."""
    BUDGET = "budget"
    """The memory budget chooses the first settings that are predicted to fit."""
    ORDER = "order"
    """Settings are changed one after the other, in the configured order."""


def is_label(text: str) -> bool:
    """True if `text` is a valid namespace name (RFC 1123)."""
    return _LABEL.match(text) is not None


def is_resource(text: str) -> bool:
    """True if `text` names a device plugin's resource: `rdma/ib`, or `rdma/ib:8` for 8 devices."""
    return _RESOURCE.match(text) is not None


def is_store(text: str) -> bool:
    """True if `text` names a file store: a host directory, or `pvc:NAME` (Kubernetes claim)."""
    return len(text) <= 500 and _STORE.match(text) is not None and "/../" not in f"{text}/"


def is_model_store(text: str) -> bool:
    """True if `text` names a checkpoint store: a file store (`is_store`) or `emptyDir`."""
    return text == EMPTY_DIR or is_store(text)


def is_role_name(text: str) -> bool:
    """True if a role may have this name: a lower-case label other than `router`."""
    return _ROLE_NAME.match(text) is not None and text != "router"


def is_image(text: str) -> bool:
    """True if `text` can be the name of a container image: `lmsysorg/sglang:v0.5.23`."""
    return len(text) <= 500 and _IMAGE.match(text) is not None


def is_plain_version(text: str) -> bool:
    """True if `text` is a release (`0.5.23`) or plain bounds (`>=0.5.11,<0.6`).

    packaging accepts more version formats, which only the schema reads.
    """
    return _PIN.match(text) is not None or _BOUNDS.match(text) is not None


def specifier(text: str) -> SpecifierSet:
    """Parse a version (`0.5.23` means exactly that release) or a specifier (`>=0.5.11`).

    Raises packaging's InvalidSpecifier.
    """
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415  slow to import
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415

    try:
        return SpecifierSet(f"=={Version(text)}", prereleases=True)
    except InvalidVersion:
        return SpecifierSet(text, prereleases=True)


def _joined(texts: Iterable[str]) -> SpecifierSet:
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415  slow to import

    return SpecifierSet(",".join(f"{specifier(text)}" for text in texts), prereleases=True)


class EngineVersions:
    """Versions in the section `engine` of a recipe."""

    if TYPE_CHECKING:
        version: str | None
        requires: str | None

    @property
    def specifier(self) -> SpecifierSet:
        """Versions that can serve the recipe, limited by its pin; empty means any."""
        return _joined([*self.needs, self.pinned] if self.pinned else self.needs)

    @property
    def bounds(self) -> SpecifierSet:
        """Versions that can serve the recipe, ignoring its pin; empty means any."""
        return _joined(self.needs)

    @property
    def needs(self) -> tuple[str, ...]:
        """Version bounds, as stated in the recipe."""
        stated = (None if self.pinned else self.version, self.requires)
        return tuple(version for version in stated if version)

    @property
    def pinned(self) -> str | None:
        """Single version that the recipe names; None if there is none."""
        if not self.version or _BOUNDS.match(self.version):
            return None
        if _PIN.match(self.version):
            return self.version
        clauses = list(specifier(self.version))
        if len(clauses) == 1 and clauses[0].operator == "==":
            version = clauses[0].version
            return None if version.endswith(".*") else version
        return None


def recovery_conflict(
    policy: RecoveryPolicy, order: Sequence[object], low: float, high: float
) -> str | None:
    """Return the error in conflicting settings of `recovery`; None without one.

    `low` and `high` are the floor and the limit of `mem_fraction_static`.
    """
    if policy is not RecoveryPolicy.OFF and not order:
        return "order is empty: name the settings that recovery may change, or set policy: off"
    if low >= high:
        return (
            f"floors.mem_fraction_static ({low}) must be below limits.mem_fraction_static ({high})"
        )
    return None


_LARGEST = 1e15


class _NotPlainError(Exception):
    """Value that only the schema can accept or reject."""


class Key(Struct, frozen=True, dict=True):
    """Key of a section: a row of `SECTIONS`."""

    kind: str
    """Kind of the values: a key of `_KINDS`."""
    written_default: Any
    """Default as written in a recipe: null if the key may be null, `...` if it is required."""
    parameter: Any = None
    """Bounds, options, a name in `_FORMS`, or the name of a section."""

    @property
    def is_required(self) -> bool:
        return self.written_default is ...

    @property
    def section(self) -> str | None:
        """Name of the section below this key; None for a plain value."""
        return self.parameter if self.kind == "section" else None

    @cached_property
    def default(self) -> Any:
        return self.read(self.written_default)

    def read(self, value: object) -> Any:
        """Return `value` converted for this key. Raises _NotPlainError."""
        if value is None and self.written_default is None:
            return None
        return _KINDS[self.kind](value, self.parameter)


class PlainSection:
    """Immutable section with the attributes of its model in `schema.py`."""

    model_fields: ClassVar[Mapping[str, Key]]

    def __init__(self, **values: Any) -> None:
        defaults = {
            # a mapping and the sections that may contain one are not shared
            name: key.read({}) if key.written_default == {} else key.default
            for name, key in self.model_fields.items()
            if name not in values
        }
        self.__dict__.update(defaults, **values)

    def model_copy(self, *, update: Mapping[str, Any]) -> Any:
        return type(self)(**{**self.__dict__, **update})

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"cannot assign to field {name!r}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__[name] for name in self.model_fields))

    def __repr__(self) -> str:
        shown = (f"{name}={self.__dict__[name]!r}" for name in self.model_fields)
        return f"{type(self).__name__}({', '.join(shown)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self).__name__, self.__dict__)


def _unpickled(name: str, values: Mapping[str, Any]) -> PlainSection:
    return plain_class(name)(**values)


@cache
def plain_class(name: str) -> type[PlainSection]:
    """Return the class of a section by the name of its model: `Recovery`."""
    bases = (EngineVersions, PlainSection) if name == "Engine" else (PlainSection,)
    keys = {key: Key(*row) for key, row in SECTIONS[name].items()}
    return type(name, bases, {"model_fields": keys, "__module__": __name__})


def plain_deployment(written: object) -> PlainSection | None:
    """Return the deployment for plain values; None if the schema must check them."""
    try:
        return _section(written, "Deployment")
    except _NotPlainError:
        return None


@cache
def schema_paths() -> frozenset[str]:
    """Return every valid key of a recipe, dotted (`launch.verify.prompt`), including sections."""
    return frozenset(_paths("Deployment", ""))


@cache
def role_paths() -> frozenset[str]:
    """Return every valid key of a role, dotted, relative to the role (`hardware.name`)."""
    own = SECTIONS["RoleSection"].keys()
    return frozenset(path for path in schema_paths() | own if path.partition(".")[0] in own)


def _paths(section: str, prefix: str) -> Iterator[str]:
    for name, key in plain_class(section).model_fields.items():
        yield f"{prefix}{name}"
        if key.section is not None:
            yield from _paths(key.section, f"{prefix}{name}.")


def _section(value: object, name: str) -> PlainSection:
    written = _mapping(value)
    keys = plain_class(name).model_fields
    if written.keys() - keys.keys():
        raise _NotPlainError
    found = plain_class(name)(**{key: keys[key].read(value) for key, value in written.items()})
    if name == "Recovery":
        own: Any = found
        low, high = own.floors.mem_fraction_static, own.limits.mem_fraction_static
        if recovery_conflict(own.policy, own.order, low, high) is not None:
            raise _NotPlainError
    return found


def _named_sections(value: object, name: str) -> dict[str, PlainSection]:
    written = _mapping(value)
    if len(written) > MOST_ROLES or not all(map(is_role_name, written)):
        raise _NotPlainError
    return {
        key: _section({} if section is None else section, name) for key, section in written.items()
    }


def _mapping(value: object, _parameter: object = None) -> dict[str, Any]:
    if type(value) is not dict or not all(type(key) is str for key in value):
        raise _NotPlainError
    return dict(value)


def _flag(value: object, _parameter: object) -> bool:
    if type(value) is not bool:
        raise _NotPlainError
    return value


def _text(value: object, bounds: Mapping[str, int] | None = None) -> str:
    if type(value) is not str or (bounds and len(value) < bounds["min_length"]):
        raise _NotPlainError
    return value


def _integer(value: object, bounds: Mapping[str, float]) -> int:
    if type(value) is not int or not _within(value, **bounds):
        raise _NotPlainError
    return value


def _number(value: object, bounds: Mapping[str, float]) -> float:
    if type(value) not in (int, float) or abs(cast("float", value)) > _LARGEST:
        raise _NotPlainError
    number = float(cast("float", value))
    if not _within(number, **bounds):
        raise _NotPlainError
    return number


def _within(
    number: float, gt: float = -inf, ge: float = -inf, lt: float = inf, le: float = inf
) -> bool:
    return gt < number < lt and ge <= number <= le


def _option(value: object, options: tuple[str, ...]) -> str:
    if type(value) is not str or value not in options:
        raise _NotPlainError
    return value


_FORMS = {
    form.__name__: form
    for form in (is_image, is_label, is_model_store, is_plain_version, is_resource, is_store)
}


def _form(value: object, predicate: str) -> str:
    text = _text(value)
    if not _FORMS[predicate](text):
        raise _NotPlainError
    return text


def _hardware(value: object, _parameter: object) -> str:
    text = _text(value)
    if text != AUTO:
        try:
            declare(text)
        except InputError:
            raise _NotPlainError from None
    return text


def _arguments(value: object, _parameter: object) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, item in _mapping(value).items():
        if type(item) is list:
            found[name] = list(item)
        elif type(item) is dict:
            found[name] = _mapping(item)
        elif type(item) in (str, int, float, bool, type(None)):
            found[name] = item
        else:
            raise _NotPlainError
    return found


def _variables(value: object, _parameter: object) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name, item in _mapping(value).items():
        text = (
            str(item) if type(item) in (bool, int, float) else None if item is None else _text(item)
        )
        if not ENV_NAME.match(name) or (text is not None and "\0" in text):
            raise _NotPlainError
        found[name] = text
    return found


def _lock(value: object, _parameter: object) -> Any:
    from speclaunch.deployments.recipe.lock import lock_of  # noqa: PLC0415  few recipes are locks

    try:
        return lock_of(_mapping(value))
    except ValueError:
        raise _NotPlainError from None


def _sizes(value: object, _parameter: object) -> dict[str, int]:
    return {name: _integer(size, {"ge": 1}) for name, size in _mapping(value).items()}


def _policy(value: object, _parameter: object) -> RecoveryPolicy:
    if value is False:
        return RecoveryPolicy.OFF
    return RecoveryPolicy(_option(value, tuple(RecoveryPolicy)))


def _order(value: object, _parameter: object) -> tuple[Steppable, ...]:
    if type(value) not in (list, tuple):
        raise _NotPlainError
    options = tuple(Steppable)
    found = tuple(Steppable(_option(item, options)) for item in cast("list[object]", value))
    if len(set(found)) != len(found):
        raise _NotPlainError
    return found


_KINDS: Mapping[str, Callable[[object, Any], Any]] = {
    "arguments": _arguments,
    "flag": _flag,
    "form": _form,
    "hardware": _hardware,
    "integer": _integer,
    "lock": _lock,
    "number": _number,
    "option": _option,
    "order": _order,
    "overlay": _mapping,
    "policy": _policy,
    "section": _section,
    "sections": _named_sections,
    "sizes": _sizes,
    "text": _text,
    "variables": _variables,
}
"""Readers by kind of key: each returns the key's value or raises _NotPlainError."""


RECIPE = "recipe"
"""Key of the argument that names a recipe: `recipe=NAME`."""


def meant_as_recipe(words: Iterable[str]) -> str | None:
    """Return `did you mean …?` for a typo of the recipe key: `recipes=NAME`; else None."""

    known = schema_paths() | set(group_names())
    for word in words:
        key, equals, value = word.partition("=")
        if equals and value and key not in known and nearest(key, [RECIPE]):
            return f"did you mean `{RECIPE}={value}`?"
    return None


@cache
def group_names() -> tuple[str, ...]:
    """Return the names of the shipped groups: model, speculation, …"""
    return tuple(sorted(path.name for path in conf_dir().iterdir() if path.is_dir()))


def is_server_argument(name: str) -> bool:
    """True if the newest known engine has a server argument with this name."""
    from speclaunch.engine import held_versions, load  # noqa: PLC0415 - for a mistake

    return load(held_versions()[-1]).by_name(name) is not None
