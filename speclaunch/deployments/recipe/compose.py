"""Compose a recipe and overrides into plain values with their places.

Recipes that use only common features are composed here, without Hydra (`quick_compose`).
`hydra_compose.py` composes all others.

The defaults list may name configs (`- base`), group options (`- model: glm46`), `_self_` and
`- override group: option`. A file may have a package (`# @package args`). Overrides may choose a
group option (`speculation=eagle3_chain`). They may also set engine arguments, variables and recipe
keys to a plain number, word or path.

The result equals Hydra's (tests/deployments/recipe/test_quick_compose.py compares both). Quotes,
lists, interpolations, `+key`, `~key`, repeated or unknown keys and all errors are left to Hydra,
which has the grammar and the messages: `quick_compose` returns None.

Source of Hydra's behavior: hydra-core 1.3, hydra/_internal/defaults_list.py (the order, `_self_`,
overrides), hydra/core/default_element.py (packages), hydra/grammar/OverrideLexer.g4 (numbers and
words), hydra/_internal/config_loader_impl.py (`_apply_overrides_to_config`); omegaconf 2.3,
basecontainer.py (`_map_merge`, merging of values).
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from speclaunch.core import COMMAND_LINE, InputError, Place, conf_dir, lazy, reads, recipes_dir
from speclaunch.deployments.recipe.find_recipe import SUFFIX, find_recipe, recipe_dirs
from speclaunch.deployments.recipe.resolve_values import resolve_values
from speclaunch.deployments.recipe.sections import group_names, role_paths, schema_paths
from speclaunch.deployments.recipe.source import (
    Composed,
    Composition,
    KeyPath,
    RecipeProvenance,
    SourceFile,
    copied,
    read_source,
)

_SELF = "_self_"
_NAME = lazy(r"[A-Za-z0-9][\w.-]*\Z", re.ASCII)
_GROUP = lazy(r"[A-Za-z][\w-]*\Z", re.ASCII)
_PACKAGE = lazy(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)*\Z", re.ASCII)
_OVERRIDE = "override "
_MOST_DEEP = 12
_RESERVED = frozenset({"optional", "override", "hydra"})
_KEY = lazy(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*\Z", re.ASCII)
_OPEN = lazy(r"(args|engine\.env|router\.args)\.[^.]+\Z")
"""Pattern of argument, variable and router keys, which are valid even if no file sets them."""
_WHOLE = lazy(r"-?(0|[1-9][0-9]*)\Z", re.ASCII)
_FRACTION = lazy(r"-?[0-9]+\.[0-9]+\Z", re.ASCII)
_WORD = lazy(r"[A-Za-z/][A-Za-z0-9_./-]*\Z", re.ASCII)
_OPTION = lazy(r"[A-Za-z][A-Za-z0-9_-]*\Z", re.ASCII)
_OTHERWISE = frozenset({"null", "true", "false", "nan", "inf"})
"""Lower-case forms of words that Hydra does not read as text."""
_CONSTANTS = {"null": None, "true": True, "false": False}
_LONGEST = 4000
"""Maximum length of a value. Python rejects integers with more than 4300 digits."""


class _NotKnown(Exception):
    """Input that only Hydra can accept or reject."""


def quick_compose(
    path: Path, shown: str, overrides: Sequence[str], config_dirs: Sequence[Path]
) -> Composed | None:
    """Compose the recipe at `path` (links resolved) with `overrides`; None if it needs Hydra.

    Raises InputError for an unreadable file.
    """
    plain = _plain_overrides(overrides)
    if plain is None:
        return None
    search = (path.parent, *recipe_dirs(config_dirs), conf_dir())
    found = _composed(path, shown, tuple(dict.fromkeys(map(_real, search))), dict(plain.choices))
    return None if found is None else _with_overrides(found, plain)


def _composed(
    path: Path, shown: str, directories: tuple[Path, ...], choices: Mapping[str, str]
) -> Composed | None:
    """Return a recipe composed with `choices` of group options; None if it needs Hydra."""
    file = read_source(path, shown)
    try:
        if not file.is_plain:
            raise _NotKnown
        items = tuple(_items(file.values.get("defaults")))
        plain = not choices and path.parent == directories[0] and file.package is None
        if plain and _comes_last(items):
            return _laid_over(_ground(directories, items), file)
        composing = _Composing(directories, path, shown)
        composing.overrides.update(choices)
        parts = composing.expanded(_Node(path.stem), 0)
        composing.require_overrides_used()
        return Composed(_merged(parts), *_provenance(parts))
    except _NotKnown:
        return None


def _real(directory: Path) -> Path:
    """Return the directory with links resolved, cached for directories of this package."""
    ours = (conf_dir(), recipes_dir())
    return _real_of_ours(directory) if directory in ours else reads.resolve(directory)


@cache
def _real_of_ours(directory: Path) -> Path:
    return directory.resolve()


class _Node(Struct, frozen=True):
    """Config in the defaults tree: its name, its group, and its parent's package."""

    name: str
    group: str = ""
    parent: str = ""
    """Package of the config whose defaults list names this config."""
    is_option: bool = False
    """True for a group option: its package is the group, unless its header names a package."""

    @property
    def config_path(self) -> str:
        return f"{self.group}/{self.name}" if self.group else self.name


_Part = tuple[str, SourceFile]
"""Package and file of a config."""


_Item = tuple[str | None, str, bool]
"""Item of a defaults list: group (None for a config), name, and True for an override."""


class _Composing(Struct):
    search: tuple[Path, ...]
    recipe: Path | None = None
    shown: str = ""
    looked_at: dict[str, None] = {}
    """Every searched path, existing or not."""
    overrides: dict[str, str] = {}
    used: set[str] = set()
    groups: set[str] = set()

    def expanded(self, node: _Node, depth: int) -> list[_Part]:
        """Return the configs of a node and of its defaults list, in merge order."""
        if depth > _MOST_DEEP:
            raise _NotKnown
        file = self._file(node.config_path)
        package = _final_package(node, file.package)
        items = tuple(_items(file.values.get("defaults")))
        rooted = not node.group and package == "" and file.package is None
        if not rooted and any(group is not None for group, _, _ in items):
            raise _NotKnown  # groups below groups, or in another package
        return self.below(node, package, items, [(package, file)], depth)

    def below(
        self, node: _Node, package: str, items: Sequence[_Item], own: list[_Part], depth: int
    ) -> list[_Part]:
        """Return the configs of the list `items` in merge order, with `own` at `_self_`."""
        for group, name, is_override in items:
            if is_override and group is not None:
                self.overrides.setdefault(group, name)
        here = [item for item in items if not item[2]]
        if here and (None, _SELF, False) not in here:
            here.append((None, _SELF, False))
        if not here:
            return own
        parts: list[list[_Part]] = []
        for group, name, _ in reversed(here):  # the order in which Hydra collects overrides
            if group is None and name == _SELF:
                parts.append(own)
            elif group is None:
                parts.append(self.expanded(_Node(name, node.group, package), depth + 1))
            else:
                parts.append(self.expanded(self._choice(group, name, package), depth + 1))
        return [part for some in reversed(parts) for part in some]

    def _choice(self, group: str, name: str, package: str) -> _Node:
        if group in self.groups:
            raise _NotKnown  # a group chosen twice is rejected
        self.groups.add(group)
        if group in self.overrides:
            self.used.add(group)
            name = self.overrides[group]
        return _Node(name, group, package, is_option=True)

    def require_overrides_used(self) -> None:
        if self.used != self.overrides.keys():
            raise _NotKnown

    def _file(self, config_path: str) -> SourceFile:
        for directory in self.search:
            path = directory / f"{config_path}{SUFFIX}"
            self.looked_at[str(path)] = None
            if reads.is_file(path):
                found = read_source(path, self.shown if path == self.recipe else None)
                if not found.is_plain:
                    raise _NotKnown
                return found
        raise _NotKnown


def _final_package(node: _Node, header: str | None) -> str:
    """Return the package of a config, as Hydra's `_get_final_package` does."""
    if header == "_global_":
        return ""
    if header is not None:
        if not _PACKAGE.match(header) or "_global_" in header:
            raise _NotKnown
        return header
    own = node.group if node.is_option else ""
    return ".".join(part for part in (node.parent, own) if part)


def _comes_last(items: Sequence[_Item]) -> bool:
    """True if a config with the defaults list `items` is merged after all of them."""
    here = [item for item in items if not item[2]]
    return bool(here) and ((None, _SELF, False) not in here or here[-1] == (None, _SELF, False))


class _Ground(Struct, frozen=True):
    """A recipe's composed groups, without its own keys; `values` is None if groups need Hydra."""

    values: dict[str, Any] | None
    provenance: RecipeProvenance
    files: tuple[Path, ...]
    looked_at: tuple[str, ...]


_MOST_GROUNDS = 256
_looked_at: dict[tuple[object, ...], tuple[str, ...]] = {}
"""Paths, existing or not, that the last composition of each defaults list searched."""


def _ground(search: tuple[Path, ...], items: tuple[_Item, ...]) -> _Ground:
    """Compose the items of a defaults list. The result is cached until their files change."""
    choice = (search, items)
    known = _looked_at.get(choice)
    found = _composed_ground(search, items, None if known is None else tuple(map(_stamp, known)))
    if found.looked_at != known:
        if len(_looked_at) >= _MOST_GROUNDS:
            _looked_at.clear()
        _looked_at[choice] = found.looked_at
    return found


def _stamp(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)  # noqa: PTH116  a Path takes longer than all the rest
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_ctime_ns


@reads.cached(_MOST_GROUNDS)
def _composed_ground(
    search: tuple[Path, ...],
    items: tuple[_Item, ...],
    _stamps: tuple[tuple[int, ...] | None, ...] | None,
) -> _Ground:
    composing = _Composing(search)
    try:
        parts = composing.below(_Node(""), "", items, [], 0)
        composing.require_overrides_used()
        return _Ground(_merged(parts), *_provenance(parts), tuple(composing.looked_at))
    except _NotKnown:
        return _Ground(None, RecipeProvenance({}), (), tuple(composing.looked_at))


def _laid_over(ground: _Ground, file: SourceFile) -> Composed:
    if ground.values is None:
        raise _NotKnown
    values = copied(ground.values)
    _merge(values, _own_values(file))
    places = {**ground.provenance.places, **_places("", file)}
    files = tuple(dict.fromkeys((*ground.files, file.path)))
    return Composed(values, RecipeProvenance(places), files)


def _items(defaults: object) -> Iterator[_Item]:
    if defaults is None:
        return
    if not isinstance(defaults, list):
        raise _NotKnown
    seen_self = seen_override = False
    for item in defaults:
        group: str | None = None
        name: object = item
        is_override = False
        if isinstance(item, dict) and len(item) == 1:
            ((key, name),) = item.items()
            is_override = str(key).startswith(_OVERRIDE)
            group = str(key).removeprefix(_OVERRIDE)
            if not _GROUP.match(group) or group in _RESERVED:
                raise _NotKnown
        if not isinstance(name, str) or (name != _SELF and not _NAME.match(name)):
            raise _NotKnown
        if name.endswith(SUFFIX) or (group is not None and name == _SELF):
            raise _NotKnown
        if (seen_self and name == _SELF) or (seen_override and not is_override and name != _SELF):
            raise _NotKnown
        seen_self |= name == _SELF
        seen_override |= is_override
        yield group, name, is_override


def _merged(parts: Sequence[_Part]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for package, file in parts:
        own = _own_values(file)
        for key in reversed(package.split(".")) if package else ():
            own = {key: own}
        _merge(values, own)
    return values


def _own_values(file: SourceFile) -> dict[str, Any]:
    return {key: value for key, value in file.values.items() if key != "defaults"}


def _merge(into: dict[str, Any], values: dict[str, Any]) -> None:
    for key, value in values.items():
        old = into.get(key)
        if isinstance(value, dict):
            if isinstance(old, dict):
                _merge(old, value)
                continue
            if isinstance(old, list) or (isinstance(old, str) and "${" in old):
                raise _NotKnown  # Hydra rejects a list, or merges with the interpolation's target
            into[key] = {}
            _merge(into[key], value)
        elif isinstance(value, list) and isinstance(old, dict):
            raise _NotKnown  # Hydra rejects it
        elif value == "???" and key in into:
            raise _NotKnown  # a missing value replaces nothing
        else:
            into[key] = copied(value) if isinstance(value, list) else value


def _provenance(parts: Sequence[_Part]) -> tuple[RecipeProvenance, tuple[Path, ...]]:
    places = {key: at for part in parts for key, at in _places(*part).items()}
    return RecipeProvenance(places), tuple(dict.fromkeys(file.path for _, file in parts))


def _places(package: str, file: SourceFile) -> dict[KeyPath, Place]:
    prefix = tuple(package.split(".")) if package else ()
    return {prefix + key: place for key, place in file.positions.items() if key[0] != "defaults"}


class _PlainOverrides(Struct, frozen=True):
    """Overrides from the command line: values by key, and group options."""

    values: tuple[tuple[KeyPath, Any], ...]
    choices: tuple[tuple[str, str], ...]
    places: tuple[tuple[KeyPath, Place], ...]
    """Key and place of each override, in command-line order."""


def _plain_overrides(overrides: Sequence[str]) -> _PlainOverrides | None:
    """Return the overrides if all of them are plain; None if one needs Hydra."""
    values: list[tuple[KeyPath, Any]] = []
    choices: list[tuple[str, str]] = []
    places: dict[KeyPath, Place] = {}
    for text in overrides:
        key, equals, word = text.partition("=")
        path = tuple(key.split("."))
        if not equals or not _KEY.match(key) or path in places:
            return None
        if _OTHERWISE.intersection(part.lower() for part in path):
            return None
        if key in group_names():
            if not _OPTION.match(word) or word.lower() in _OTHERWISE:
                return None
            choices.append((key, word))
        elif _is_value(key) and (found := _typed(word)) is not None:
            values.append((path, found[0]))
        else:
            return None
        places[path] = Place(COMMAND_LINE, text=text)
    written = {path for path, _ in values}
    if any(path[:end] in written for path in written for end in range(1, len(path))):
        return None  # a key and a key below it
    return _PlainOverrides(tuple(values), tuple(choices), tuple(places.items()))


def _is_value(key: str) -> bool:
    known, alone = schema_paths(), {"name", "description"}
    if key.startswith("roles."):
        key = key.split(".", 2)[2] if key.count(".") > 1 else ""
        known, alone = role_paths(), {"replicas"}
    if _OPEN.match(key) or key in alone:
        return True
    return key.count(".") == 1 and key in known


def _typed(word: str) -> tuple[Any] | None:
    """Return an override's typed value in a 1-tuple; None if it needs Hydra."""
    if word in _CONSTANTS:
        return (_CONSTANTS[word],)
    if len(word) > _LONGEST:
        return None
    if _WHOLE.match(word):
        return (int(word),)
    if _FRACTION.match(word):
        return (float(word),)
    return (word,) if _WORD.match(word) and word.lower() not in _OTHERWISE else None


def _with_overrides(found: Composed, overrides: _PlainOverrides) -> Composed | None:
    """Return the recipe with the overrides' values and places; None if that needs Hydra."""
    if not overrides.places:
        return found
    raw = copy.deepcopy(found.raw)
    for path, value in overrides.values:
        node = raw
        for part in path[:-1]:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                return None
        if isinstance(node.get(path[-1]), dict | list):
            return None
        node[path[-1]] = value
    places = {**found.provenance.places, **dict(overrides.places)}
    return Composed(raw, RecipeProvenance(places), found.files)


def compose(
    recipe: str, overrides: Sequence[str] = (), config_dirs: Sequence[Path] = ()
) -> Composition:
    """Compose `recipe` (a name or a path to a YAML file) with Hydra `overrides`.

    Raises InputError with all problems found.
    """
    path = find_recipe(recipe, config_dirs)
    shown = recipe if recipe.endswith(SUFFIX) else str(path)
    read_source(path, shown)  # report syntax and size errors of the recipe itself, with a place
    found = quick_compose(path, shown, overrides, config_dirs)
    if found is None:
        from speclaunch.deployments.recipe.hydra_compose import hydra_compose  # noqa: PLC0415  slow to import

        found = hydra_compose(path, shown, overrides, config_dirs)
    values = resolve_values(found.raw, found.provenance, shown)
    if "hydra" in values:
        place = found.provenance.find(("hydra",)) or Place(shown)
        raise InputError("Hydra itself cannot be configured here", place, "remove `hydra`")
    return Composition(path.stem, path, values, found.provenance, found.files)
