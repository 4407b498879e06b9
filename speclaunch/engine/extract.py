"""Everything that one SGLang release says about its command line and its variables.

:func:`extract` reads an installed package directory or a wheel as text.  SGLang is never
imported, so any release can be read on any machine::

    release = extract(Path("sglang-0.5.23-….whl"))
    release.version                              # "0.5.23"
    release.arguments["--speculative-num-steps"].default

What comes back keeps the source line and the help text of every argument; the catalogue that is
shipped (:mod:`speclaunch.engine.catalogue`) leaves both out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from speclaunch.engine.extraction.declared import Declared
from speclaunch.engine.extraction.parser import ArgumentReader
from speclaunch.engine.extraction.source import ExtractError, PackageSource
from speclaunch.engine.extraction.usage import Usage, scan
from speclaunch.engine.extraction.variables import DeclaredVariable
from speclaunch.record import record

__all__ = ["Declared", "DeclaredVariable", "ExtractError", "Release", "extract"]


@record
class Release:
    """One release: its arguments by primary flag, its variables by name, and what is read.

    ``read`` holds the destinations of arguments and the names of variables that some code of the
    server reads; ``speculative`` the variables that steer speculation.
    """

    version: str
    arguments: Mapping[str, Declared]
    variables: Mapping[str, DeclaredVariable]
    read: frozenset[str]
    speculative: frozenset[str]


def extract(path: Path, *, usage: bool = True, version: str | None = None) -> Release:
    """Read the package at ``path`` (a ``sglang`` directory, its parent, or a wheel).

    ``usage=False`` skips the search for readers, which is most of the work: then every argument
    counts as read and there are no variables.  ``version`` is taken where the package does not say
    which one it is.  Raises :class:`ExtractError` when a file can't be
    parsed or no arguments are found.
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
