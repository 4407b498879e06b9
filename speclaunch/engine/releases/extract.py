"""Reads the arguments and variables of one SGLang release from its source.

:func:`extract` reads an installed package directory or a wheel as text.  SGLang is never imported,
so any release can be read on any machine::

    release = extract(Path("sglang-0.5.23-….whl"))
    release.version                              # "0.5.23"
    release.arguments["--speculative-num-steps"].default

The result includes the source line and help text of every argument. The shipped catalogue
(:mod:`speclaunch.engine.releases.catalogue`) omits both.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from speclaunch.engine.releases.argument import (
    Argument,
    ArgumentKind,
    EngineVariable,
    encode_argument,
    encode_variable,
)
from speclaunch.engine.releases.extraction.declared import ArgumentReader, Declared
from speclaunch.engine.releases.extraction.names import SUPPRESS, EnumMember, OpaqueValue
from speclaunch.engine.releases.extraction.source import ExtractError, PackageSource
from speclaunch.engine.releases.extraction.usage import DeclaredVariable, Usage, scan
from speclaunch.engine.releases.timeline import Record

__all__ = ["Declared", "DeclaredVariable", "ExtractError", "Release", "extract"]


class Release(Struct, frozen=True):
    """One release: its arguments by primary flag, its variables by name, and how its code uses
    them.

    ``read`` holds the argument destinations and variable names that server code reads;
    ``speculative`` the variables that control speculation.
    """

    version: str
    arguments: Mapping[str, Declared]
    variables: Mapping[str, DeclaredVariable]
    read: frozenset[str]
    speculative: frozenset[str]


def extract(path: Path, *, usage: bool = True, version: str | None = None) -> Release:
    """Return the release in ``path`` (a ``sglang`` directory, its parent, or a wheel).

    ``usage=False`` skips the search for code that reads each name, which is most of the work: every
    argument then counts as read and there are no variables. ``version`` is used if the package does
    not state its version. Raises :class:`ExtractError` if a file can't be parsed or no arguments
    are found.
    """
    with PackageSource(path) as source:
        reader = ArgumentReader(source)
        arguments = {made.flag: made for made in reader.read()}
        names = {made.dest for made in arguments.values()}
        found = scan(reader, names) if usage else Usage(read=set(names))
        return Release(
            version=source.version(version),
            arguments=MappingProxyType(arguments),
            variables=MappingProxyType(dict(sorted(found.variables.items()))),
            read=frozenset(found.read),
            speculative=frozenset(found.speculative),
        )


def catalogue_records(release: Release) -> tuple[dict[str, Record], dict[str, Record]]:
    """Return the records of a release: arguments by primary flag and variables by name."""
    arguments = {
        flag: encode_argument(argument_of(declared, read=declared.dest in release.read))
        for flag, declared in sorted(release.arguments.items())
    }
    variables = {
        name: encode_variable(
            EngineVariable(
                name,
                declared.type,
                _plain(declared.default),
                declared.dynamic,
                name in release.read,
                name in release.speculative,
                declared.deprecated,
                declared.replacement,
            )
        )
        for name, declared in sorted(release.variables.items())
    }
    return arguments, variables


_IMPLIED = (ArgumentKind.FLAG, ArgumentKind.FLAG_OFF, ArgumentKind.BOOLEAN)


def argument_of(declared: Declared, *, read: bool = True) -> Argument:
    """Return the argument that a declaration defines."""
    kind = kind_of(declared)
    default = None if declared.default == SUPPRESS else _plain(declared.default)
    return Argument(
        flag=declared.flag,
        dest=declared.dest,
        kind=kind,
        type=declared.type,
        default=default,
        choices=None
        if declared.choices is None
        else tuple(_plain(choice) for choice in declared.choices),
        nargs=None if declared.nargs == 0 else declared.nargs,
        const=None if kind in _IMPLIED else _plain(declared.const),
        aliases=declared.aliases,
        deprecated=declared.deprecated,
        replacement=declared.replacement,
        required=declared.required,
        read=read,
    )


def kind_of(declared: Declared) -> ArgumentKind:  # noqa: PLR0911
    """Return the command-line form of a declared argument."""
    if declared.refused:
        return ArgumentKind.REFUSED
    if declared.action == "BooleanOptionalAction":
        return ArgumentKind.BOOLEAN
    if declared.nargs == 0:
        if not declared.stores:
            return ArgumentKind.IGNORED
        if declared.const is True:
            return ArgumentKind.FLAG
        return ArgumentKind.FLAG_OFF if declared.const is False else ArgumentKind.CONSTANT
    if declared.nargs == "?":
        return ArgumentKind.OPTIONAL_VALUE
    several = declared.nargs is not None or declared.action in ("append", "extend")
    return ArgumentKind.LIST if several else ArgumentKind.VALUE


def _plain(value: Any) -> Any:
    """Return a value in its JSON form; None if it can't be determined statically."""
    if isinstance(value, OpaqueValue):
        return None
    if isinstance(value, EnumMember):
        return _plain(value.value)
    if isinstance(value, tuple | list | set | frozenset):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | int | float | dict) else str(value)
