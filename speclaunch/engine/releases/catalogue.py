"""All server arguments of all known SGLang releases.

An argument's **name** is its flag in a recipe: no leading dashes, underscores for other dashes
(``--cuda-graph-max-bs`` → ``cuda_graph_max_bs``). The **dest** is where the engine stores the
value; several flags can share a dest. Users write names, so names take precedence.

Loading must be cheap (a few milliseconds, no third-party import), because linting loads every
version that it checks. ``tools/catalogue.py`` generates the data from released wheels. For other
versions, :func:`add_from_package` generates it from an installed engine.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import InputError, Problem, make_private, reads, replace_file, speclaunch_home
from speclaunch.engine.releases import argument as timeline
from speclaunch.engine.releases import forks
from speclaunch.engine.releases.argument import (
    Argument,
    ArgumentKind,
    EngineVariable,
    decode_argument,
    decode_variable,
    is_negation,
    name_of,
)
from speclaunch.engine.releases.nearest import nearest
from speclaunch.engine.releases.versions import (
    ResolvedVersion,
    UnknownVersion,
    ascending,
    is_version,
    resolve,
)

__all__ = [
    "FALSE_TEXTS",
    "TRUE_TEXTS",
    "Ambiguous",
    "Argument",
    "ArgumentKind",
    "Catalogue",
    "EngineVariable",
    "History",
    "ResolvedVersion",
    "UnknownFlag",
    "UnknownVersion",
    "add_fork",
    "add_from_package",
    "held_versions",
    "history",
    "is_released_variable",
    "load",
    "name_of",
    "released_names",
    "resolve_version",
]

#: The files made by ``tools/catalogue.py``.
DATA = Path(__file__).resolve().parent / "data"
_HELP = Argument("--help", "help", ArgumentKind.HELP, type="bool", aliases=("-h",))
TRUE_TEXTS, FALSE_TEXTS = ("true", "1", "yes", "y"), ("false", "0", "no", "n")
"""Strings that the engine reads as true or false in its variables, ignoring case (environ.py
EnvBool)."""


class Ambiguous(Struct, frozen=True):
    """A prefix that several flags share. The engine rejects it with exit code 2."""

    token: str
    candidates: tuple[str, ...]


class UnknownFlag(Struct, frozen=True):
    """A flag that the engine does not have. :meth:`Catalogue.close` finds similar flags."""

    token: str


class History(Struct, frozen=True):
    """The known versions in which a name exists.

    ``spans`` are runs of consecutive versions, each a (first, last) pair. ``current``: True if the
    newest known version has the name.
    """

    name: str
    spans: tuple[tuple[str, str], ...]
    current: bool

    @property
    def first(self) -> str:
        return self.spans[0][0]

    @property
    def last(self) -> str:
        return self.spans[-1][1]

    def __iter__(self) -> Iterator[str]:
        """Allow unpacking: ``first, last = history(name)``."""
        yield from (self.first, self.last)


class Catalogue(Struct, frozen=True, dict=True):
    """The arguments of one release by primary flag, and its environment variables."""

    version: str
    arguments: Mapping[str, Argument]
    _variables_file: Path = DATA / "variables.json"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the version, from which another process loads the catalogue."""
        return load, (self.version,)

    @cached_property
    def variables(self) -> Mapping[str, EngineVariable]:
        records = _records(self._variables_file, "variables", self.version)
        return MappingProxyType(
            {name: decode_variable(name, record) for name, record in records.items()}
        )

    @cached_property
    def _by_flag(self) -> Mapping[str, Argument]:
        """Arguments by option string: primary flags, aliases, ``--no-x`` forms, ``--help``."""
        return {
            flag: argument
            for argument in (*self.arguments.values(), _HELP)
            for flag in argument.flags
        }

    @cached_property
    def _names(self) -> Mapping[str, Argument]:
        """Arguments by name. Primary flags take precedence over aliases, then destinations."""
        found = {argument.name: argument for argument in self.arguments.values()}
        for argument in self.arguments.values():
            for alias in argument.aliases:
                if alias.startswith("--") and not is_negation(argument, alias):
                    found.setdefault(name_of(alias), argument)
        for argument in sorted(self.arguments.values(), key=lambda item: item.deprecated):
            found.setdefault(argument.dest, argument)
        return found

    @cached_property
    def required(self) -> tuple[Argument, ...]:
        return tuple(argument for argument in self.arguments.values() if argument.required)

    @cached_property
    def _near(self) -> dict[tuple[str, int], tuple[str, ...]]:
        """Cache of `close`, by flag and count."""
        return {}

    @cached_property
    def _longer(self) -> dict[str, tuple[str, ...]]:
        """Cache of `full_flag`: the flags that begin with a prefix."""
        return {}

    @property
    def names(self) -> tuple[str, ...]:
        """Names, aliases and destinations of all arguments."""
        return tuple(self._names)

    def by_name(self, name: str) -> Argument | None:
        """Return the argument with this exact name, flag, alias or destination; None if absent.

        ``tp_size``, ``tp-size``, ``--tp-size`` and ``tensor_parallel_size`` are the same argument.
        A shared destination resolves to the argument that is not deprecated.
        """
        return self._names.get(name) or self._names.get(name_of(name))

    def by_flag(self, flag: str) -> Argument | None:
        """Return the argument with this exact option string; None if absent."""
        return self._by_flag.get(flag)

    def resolve_flag(self, token: str) -> Argument | Ambiguous | UnknownFlag:
        """Return the argument that the engine's parser matches to ``--token`` or ``--token=value``.

        As in argparse, an exact match takes precedence over a unique prefix.
        """
        found = self.full_flag(token)
        return self._by_flag[found] if isinstance(found, str) else found

    def full_flag(self, token: str) -> str | Ambiguous | UnknownFlag:
        """Return the full option string (or `--no-x`) that argparse matches to ``token``."""
        if token in self._by_flag:
            return token
        prefix = token.partition("=")[0]
        if prefix in self._by_flag:
            return prefix
        if prefix.startswith("--") and len(prefix) > 2:
            if prefix not in self._longer:
                self._longer[prefix] = tuple(f for f in self._by_flag if f.startswith(prefix))
            found = self._longer[prefix]
            if len(found) == 1:
                return found[0]
            if found:
                return Ambiguous(token, found)
        return UnknownFlag(token)

    def close(self, name: str, count: int = 3) -> tuple[str, ...]:
        """Return up to ``count`` flags that ``name`` may be a typo of, likeliest first."""
        flag = "--" + name_of(name).replace("_", "-")
        if (flag, count) not in self._near:
            self._near[flag, count] = nearest(flag, self._by_flag, count)
        return self._near[flag, count]


def held_versions(directory: Path | None = None) -> tuple[str, ...]:
    """Return all versions that have a catalogue, shipped or in ``directory``, in ascending order.

    ``directory`` contains the user's own catalogues (default: ``catalogue/`` in
    :func:`speclaunch.core.files.speclaunch_home`).
    """
    added = tuple(_added(directory or _default_directory()))
    shipped = _shipped_versions()
    return ascending((*shipped, *added)) if set(added) - set(shipped) else shipped


def resolve_version(text: str, directory: Path | None = None) -> ResolvedVersion:
    """Return the known version to use for ``text`` (``0.5.13``, ``v0.5.20``, ``sglang==0.5.9``).

    ``newest`` is also accepted. An unknown release or candidate resolves to a known version, with a
    note: the version of its line (``0.5.13`` → ``0.5.13.post1``), else the newest earlier version,
    else the oldest. A path (package, checkout, wheel, catalogue) or the name of an added judge (an
    installed validator) resolves to that engine. Raises UnknownVersion.
    """
    if forks.MARK in text and reads.may_read(
        forks.file_of(text, directory or _default_directory())
    ):
        return ResolvedVersion(text, text, exact=True)
    if forks.is_path(text):
        return ResolvedVersion(text, add_fork(Path(text), directory), exact=True)
    held = held_versions(directory)
    if text not in held and (release := forks.of_judge(text)) is not None:
        return replace(resolve_version(release, directory), requested=text)
    return resolve(text, held)


def add_fork(source: Path, directory: Path | None = None, version: str | None = None) -> str:
    """Cache the catalogue of an unreleased engine; return its name for :func:`load`.

    ``version`` is the engine's base release, used if the engine states no version. Raises
    :class:`~speclaunch.core.errors.InputError`.
    """

    def base(public: str) -> tuple[Mapping[str, Argument], Mapping[str, EngineVariable]]:
        held = load(public, directory)
        return held.arguments, held.variables

    return forks.read_fork(source, directory or _default_directory(), base, version)


def load(version: str, directory: Path | None = None) -> Catalogue:
    """Return the cached catalogue of ``version``, resolved by :func:`resolve_version`.

    A catalogue in ``directory`` takes precedence over a shipped one.
    """
    place = directory or _default_directory()
    held = version if version in _shipped_versions() else resolve_version(version, place).held
    own = forks.file_of(held, place) if forks.MARK in held else place / f"{held}.json"
    if not reads.may_read(own):
        return _load(held, None)
    with contextlib.suppress(OSError):
        reads.content(own, own.stat())
    return _load(held, str(own))


def history(name: str) -> History | None:
    """Return the versions with an argument of this name, alias or destination; None if none has it.

    Only shipped versions count. Reads a small index, without loading any catalogue.
    """
    index = _history_index()
    spans = index["names"].get(name_of(name))
    if spans is None:
        return None
    newest = index["versions"][-1]
    full = tuple((span[0], span[-1] if len(span) > 1 else newest) for span in spans)
    return History(name_of(name), full, current=len(spans[-1]) == 1)


@lru_cache(maxsize=1)
def released_names() -> frozenset[str]:
    """Return every name, alias and destination of an argument in any shipped version."""
    return frozenset(_history_index()["names"])


@lru_cache(maxsize=1024)
def is_released_variable(name: str) -> bool:
    """True if any shipped version has an environment variable of this name.

    Searches the text of variables.json (one name per line); parsing it would take 5 ms.
    """
    return f'\n"{name}":'.encode() in _variables_text()


def add_from_package(package: Path, directory: Path | None = None) -> Catalogue:
    """Generate, save and return the catalogue of a wheel or an installed ``sglang`` directory.

    Never imports the package. Writes ``<version>.json`` atomically. Raises
    :class:`~speclaunch.engine.releases.extraction.release.ExtractError`.
    """
    from speclaunch.engine.releases.extraction.release import catalogue_records, extract  # noqa: PLC0415  slow

    release = extract(package)
    place = directory or _default_directory()
    make_private(place)
    arguments, variables = catalogue_records(release)
    text = json.dumps(
        {"version": release.version, "arguments": arguments, "variables": variables},
        ensure_ascii=False,
        indent=1,
    )
    replace_file(place / f"{release.version}.json", text + "\n")
    _load.cache_clear()
    return load(release.version, place)


def _default_directory() -> Path:
    return speclaunch_home() / "catalogue"


def _added(directory: Path) -> Iterator[str]:
    if reads.may_read(directory):
        for file in reads.below(directory, ".json"):
            if file.stem in _shipped_versions() or is_version(file.stem):
                yield file.stem


@lru_cache(maxsize=1)
def _shipped_versions() -> tuple[str, ...]:
    return tuple(json.loads((DATA / "versions.json").read_bytes()))


@lru_cache(maxsize=1)
def _history_index() -> Any:
    return json.loads((DATA / "history.json").read_bytes())


@lru_cache(maxsize=1)
def _variables_text() -> bytes:
    return (DATA / "variables.json").read_bytes()


@lru_cache(maxsize=2)
def _shipped(file: Path) -> Any:
    return json.loads(file.read_bytes())


def _records(file: Path, section: str, version: str) -> Mapping[str, timeline.Record]:
    if file.parent == DATA:
        return timeline.select(_shipped(file), version)
    try:
        found = json.loads(file.read_bytes())[section]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            Problem(f"{file} is not a catalogue: {error}", help="regenerate or delete it")
        ) from error
    return dict(found)


@lru_cache(maxsize=64)
def _load(version: str, own: str | None) -> Catalogue:
    arguments = Path(own) if own else DATA / "arguments.json"
    variables = Path(own) if own else DATA / "variables.json"
    records = _records(arguments, "arguments", version)
    return Catalogue(
        version,
        MappingProxyType({flag: decode_argument(flag, item) for flag, item in records.items()}),
        variables,
    )


def every_name() -> frozenset[str]:
    """Return the names of all available catalogues: shipped releases, added versions and forks."""
    place = _default_directory()
    names = (path.stem for path in forks.file_of("*", place).parent.glob("*.json"))
    return frozenset((*held_versions(place), *names))


def remove_added(version: str) -> bool:
    """Remove an added catalogue, never a shipped one. Return True if it existed."""
    place = _default_directory()
    file = forks.file_of(version, place) if forks.MARK in version else place / f"{version}.json"
    try:
        file.unlink()
    except OSError:
        return False
    return True
