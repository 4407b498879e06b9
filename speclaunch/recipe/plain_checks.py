"""Which values of a recipe are plainly right: one check a kind of value.

A check makes the value of a field of what is written, and raises NotPlainError for what the schema
(`schema.py`) has to take, or to refuse.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import MISSING, field, fields
from typing import Any, cast

from speclaunch.errors import InputError
from speclaunch.facts.declared_gpus import AUTO, declare
from speclaunch.patterns import lazy

Check = Callable[[object], Any]
"""From a value as it is written to the value of the field. Raises NotPlainError."""

ENV_NAME = lazy(r"[A-Za-z_][A-Za-z0-9_]*\Z")
"""What a shell takes as the name of a variable."""
_RELEASE = r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*))+(\.post(0|[1-9][0-9]*))?"
PIN = lazy(rf"{_RELEASE}\Z", re.ASCII)
"""Exactly one version."""
_CLAUSES = lazy(rf"(>=|<=|<|>|!=){_RELEASE}(,(>=|<=|<|>|!=){_RELEASE})*\Z", re.ASCII)
"""What else is a specifier is for packaging to say."""
_LARGEST = 1e15
_ROLE_NAME = lazy(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?\Z")
"""What every platform takes as a part of a name (RFC 1035), and leaves room for more."""
_IMAGE = lazy(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*\Z", re.ASCII)
MOST_REPLICAS = 1000
MOST_ROLES = 64
ROUTES = ("image", "wheel", "mounted")
"""How speclaunch gets to where the engine runs: it is in the image, is installed from a wheel
before the start, or lies in a mounted directory."""


EMPTY_DIR = "emptyDir"
"""`deploy.models`: the disk of each pod's node; every new pod downloads the checkpoint again."""
_LABEL = lazy(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
_RESOURCE = lazy(r"[a-z0-9.-]{1,253}/[A-Za-z0-9._-]{1,63}(:[1-9][0-9]{0,2})?\Z", re.ASCII)
_STORE = lazy(r"(/|pvc:[a-z0-9])[A-Za-z0-9._/@+-]*\Z", re.ASCII)


def is_label(name: str) -> bool:
    """Whether a namespace may be called so (RFC 1123)."""
    return _LABEL.match(name) is not None


def is_resource(name: str) -> bool:
    """True if a text names a resource of a device plugin: `rdma/ib`, `rdma/ib:8` for 8 of them."""
    return _RESOURCE.match(name) is not None


def is_store(text: str) -> bool:
    """Whether a text names a place of files: a directory of each host, or `pvc:NAME`, a volume
    claim of Kubernetes."""
    return len(text) <= 500 and _STORE.match(text) is not None and "/../" not in f"{text}/"


def is_model_store(text: str) -> bool:
    """True if a text names a place for checkpoints: one of `is_store`, or `emptyDir`."""
    return text == EMPTY_DIR or is_store(text)


def is_role_name(name: str) -> bool:
    """Whether a role may be called so: a lower-case label, and not the router's own name."""
    return _ROLE_NAME.match(name) is not None and name != "router"


def is_image(text: str) -> bool:
    """Whether a text can be the name of a container image: `lmsysorg/sglang:v0.5.23`."""
    return len(text) <= 500 and _IMAGE.match(text) is not None


class NotPlainError(Exception):
    """A value that the schema has to take, or to refuse."""


def checked(check: Check, default: Any = MISSING) -> Any:
    """A field of a section whose value goes through a check."""
    return field(default=default, metadata={"check": check})


def whole(default: int, low: int, high: int | None = None) -> Any:
    """A field that is a whole number between two bounds."""

    def check(value: object) -> int:
        if type(value) is not int or value < low or (high is not None and value > high):
            raise NotPlainError
        return value

    return checked(check, default)


def number(
    default: float, *, above: float | None = None, low: float = 0.0, below: float = math.inf
) -> Any:
    """A field that is a number within bounds."""

    def check(value: object) -> float:
        if type(value) not in (int, float) or abs(cast("float", value)) > _LARGEST:
            raise NotPlainError
        number = float(cast("float", value))
        if not (number > above if above is not None else number >= low) or not number < below:
            raise NotPlainError
        return number

    return checked(check, default)


def check_flag(value: object) -> bool:
    """true or false."""
    if type(value) is not bool:
        raise NotPlainError
    return value


def check_text(value: object) -> str:
    """A text."""
    if type(value) is not str:
        raise NotPlainError
    return value


def check_name_text(value: object) -> str:
    """A text that is not empty."""
    if not (text := check_text(value)):
        raise NotPlainError
    return text


def check_text_or_none(value: object) -> str | None:
    """A text, or null."""
    return None if value is None else check_text(value)


def check_version(value: object) -> str | None:
    """A version (`0.5.23`) or a plain specifier (`>=0.5.11`), or null."""
    text = check_text_or_none(value)
    if text is not None and not PIN.match(text) and not _CLAUSES.match(text):
        raise NotPlainError
    return text


def check_hardware_name(value: object) -> str:
    """`auto`, `cpu`, or GPUs by name and number."""
    text = check_text(value)
    if text != AUTO:
        try:
            declare(text)
        except InputError:
            raise NotPlainError from None
    return text


def one_of(*options: str) -> Check:
    """A check for one of some words."""

    def check(value: object) -> str:
        if type(value) is not str or value not in options:
            raise NotPlainError
        return value

    return check


def one_of_or_none(*options: str) -> Check:
    """A check for one of some words, or null."""
    check = one_of(*options)
    return lambda value: None if value is None else check(value)


def check_image(value: object) -> str | None:
    """The name of a container image, or null."""
    text = check_text_or_none(value)
    if text is not None and not is_image(text):
        raise NotPlainError
    return text


def check_label(value: object) -> str | None:
    """The name of a namespace, or null."""
    text = check_text_or_none(value)
    if text is not None and not is_label(text):
        raise NotPlainError
    return text


def check_resource(value: object) -> str | None:
    """The name of a resource, or null."""
    text = check_text_or_none(value)
    if text is not None and not is_resource(text):
        raise NotPlainError
    return text


def check_store(value: object) -> str | None:
    """A directory, a volume claim, or null."""
    text = check_text_or_none(value)
    if text is not None and not is_store(text):
        raise NotPlainError
    return text


def check_model_store(value: object) -> str | None:
    """A directory, a volume claim, `emptyDir`, or null."""
    text = check_text_or_none(value)
    if text is not None and not is_model_store(text):
        raise NotPlainError
    return text


def check_mapping(value: object) -> dict[str, Any]:
    """A mapping whose keys are texts."""
    if type(value) is not dict or not all(type(key) is str for key in value):
        raise NotPlainError
    return value


def check_arguments(value: object) -> dict[str, Any]:
    """Arguments, as copies."""
    found: dict[str, Any] = {}
    for name, one in check_mapping(value).items():
        if type(one) is list:
            found[name] = list(one)
        elif type(one) is dict:
            found[name] = dict(check_mapping(one))
        elif type(one) in (str, int, float, bool, type(None)):
            found[name] = one
        else:
            raise NotPlainError
    return found


def check_arguments_or_none(value: object) -> dict[str, Any] | None:
    """Arguments, as copies, or null."""
    return None if value is None else check_arguments(value)


def check_variables(value: object) -> dict[str, str | None]:
    """Environment variables: text each, or null."""
    found: dict[str, str | None] = {}
    for name, one in check_mapping(value).items():
        text = str(one) if type(one) in (bool, int, float) else check_text_or_none(one)
        if not ENV_NAME.match(name) or (text is not None and "\0" in text):
            raise NotPlainError
        found[name] = text
    return found


def check_sizes(value: object) -> dict[str, int]:
    """A whole number of 1 or more by name."""
    found = check_mapping(value)
    if not all(type(one) is int and one >= 1 for one in found.values()):
        raise NotPlainError
    return dict(found)


def check_overlay(value: object) -> dict[str, Any] | None:
    """A section of a role: what it says is judged where it is laid over the shared one."""
    return None if value is None else dict(check_mapping(value))


def section(cls: type) -> Any:
    """A field that is a section of its own, which has a default for all that is in it."""
    return field(
        default_factory=cls, metadata={"check": lambda value: made_of(cls, value), "section": cls}
    )


def optional_section(cls: type) -> Any:
    """A section that may be missing, or null."""
    return field(
        default=None,
        metadata={"check": lambda v: None if v is None else made_of(cls, v), "section": cls},
    )


def sections_by_name(cls: type, name: Any) -> Any:
    """Sections of the same kind, each under a name; null is one that says nothing."""

    def check(value: object) -> dict[str, Any]:
        given = check_mapping(value)
        if len(given) > MOST_ROLES or not all(name(key) for key in given):
            raise NotPlainError
        return {key: cls() if one is None else made_of(cls, one) for key, one in given.items()}

    return field(default_factory=dict, metadata={"check": check, "each": cls})


def made_of(cls: Any, value: object) -> Any:
    """An instance of a section with the values that are given."""
    given = check_mapping(value)
    known = {one.name: one for one in fields(cls)}
    if given.keys() - known.keys():
        raise NotPlainError
    missing = [one for one in known.values() if one.default is one.default_factory is MISSING]
    if any(one.name not in given for one in missing):
        raise NotPlainError
    return cls(**{name: known[name].metadata["check"](one) for name, one in given.items()})
