"""Composes a recipe that uses only what nearly all recipes use, without Hydra.

The defaults list may name configs (`- base`), options of groups (`- model: glm46`), `_self_` and
`- override group: option`; a file may say its package (`# @package args`). It gives what Hydra
gives (tests/recipe/test_quick_compose.py compares them); whatever it does not know, and every
mistake, it leaves to Hydra (None), which has the words for it.

Source of what Hydra does: hydra-core 1.3, hydra/_internal/defaults_list.py (the order, `_self_`,
overrides), hydra/core/default_element.py (packages), omegaconf 2.3, basecontainer.py (`_map_merge`,
how values are laid over each other).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from speclaunch import reads
from speclaunch.errors import Place
from speclaunch.patterns import lazy
from speclaunch.recipe.composed import Composed
from speclaunch.recipe.find_recipe import SUFFIX
from speclaunch.recipe.source import KeyPath, Provenance, SourceFile, read_source
from speclaunch.record import record

_SELF = "_self_"
_NAME = lazy(r"[A-Za-z0-9][\w.-]*\Z", re.ASCII)
_GROUP = lazy(r"[A-Za-z][\w-]*\Z", re.ASCII)
_PACKAGE = lazy(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)*\Z", re.ASCII)
_OVERRIDE = "override "
_MOST_DEEP = 12
_RESERVED = frozenset({"optional", "override", "hydra"})


class _NotKnown(Exception):
    """Something that only Hydra knows how to take, or to refuse."""


def quick_compose(path: Path, shown: str, search: Sequence[Path]) -> Composed | None:
    """The recipe at `path`, its groups looked for in the directories of `search`; None where it
    needs Hydra. Raises InputError for a file that cannot be read."""
    try:
        composing = _Composing(
            tuple(dict.fromkeys(reads.resolve(one) for one in search)), path, shown
        )
        parts = composing.expanded(_Node(path.stem), 0)
        composing.require_overrides_used()
        values: dict[str, Any] = {}
        for package, file in parts:
            own = {key: value for key, value in file.values.items() if key != "defaults"}
            _merge(values, _embedded(own, package))
    except _NotKnown:
        return None
    return Composed(values, *_provenance(parts))


@record
class _Node:
    """A config of the defaults tree: its name, its group, and the package of who names it."""

    name: str
    group: str = ""
    parent: str = ""
    """The final package of the parent."""
    is_option: bool = False
    """Chosen of a group: its package is the group, unless its header says another."""

    @property
    def config_path(self) -> str:
        return f"{self.group}/{self.name}" if self.group else self.name


_Part = tuple[str, SourceFile]
"""A config's package and its file."""


@record(frozen=False)
class _Composing:
    search: tuple[Path, ...]
    recipe: Path
    shown: str
    """How the recipe is called where a place in it is told."""
    overrides: dict[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)

    def expanded(self, node: _Node, depth: int) -> list[_Part]:
        """The configs below a node and its own, in the order in which they are merged."""
        if depth > _MOST_DEEP:
            raise _NotKnown
        file = self._file(node.config_path)
        package = _final_package(node, file.package)
        items = list(_items(file.values.get("defaults")))
        own: _Part = (package, file)
        rooted = not node.group and package == "" and file.package is None
        if not rooted and any(group is not None for group, _, _ in items):
            raise _NotKnown  # groups below groups, or in another package
        for group, name, is_override in items:
            if is_override and group is not None:
                self.overrides.setdefault(group, name)
        here = [item for item in items if not item[2]]
        if here and (None, _SELF, False) not in here:
            here.append((None, _SELF, False))
        if not here:
            return [own]
        parts: list[list[_Part]] = []
        for group, name, _ in reversed(here):  # the order in which overrides become known
            if group is None and name == _SELF:
                parts.append([own])
            elif group is None:
                parts.append(self.expanded(_Node(name, node.group, package), depth + 1))
            else:
                parts.append(self.expanded(self._choice(group, name, package), depth + 1))
        return [part for some in reversed(parts) for part in some]

    def _choice(self, group: str, name: str, package: str) -> _Node:
        if group in self.groups:
            raise _NotKnown  # twice: refused
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
            if reads.is_file(path):
                found = read_source(path, self.shown if path == self.recipe else None)
                if not found.is_plain:
                    raise _NotKnown
                return found
        raise _NotKnown


def _final_package(node: _Node, header: str | None) -> str:
    """`_get_final_package`: a header is absolute, anything else is below the parent's."""
    if header is not None:
        if header == "_global_":
            return ""
        if not _PACKAGE.match(header) or "_global_" in header:
            raise _NotKnown
        return header
    own = node.group if node.is_option else ""
    return ".".join(part for part in (node.parent, own) if part)


def _items(defaults: object) -> Iterator[tuple[str | None, str, bool]]:
    """The items of a defaults list: the group (None: a config), the name, whether it overrides."""
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


def _embedded(values: dict[str, Any], package: str) -> dict[str, Any]:
    for key in reversed(package.split(".")) if package else ():
        values = {key: values}
    return values


def _merge(into: dict[str, Any], values: dict[str, Any]) -> None:
    """Mappings are laid over each other, anything else takes the place of what was there."""
    for key, value in values.items():
        old = into.get(key)
        if isinstance(value, dict):
            if isinstance(old, dict):
                _merge(old, value)
                continue
            if isinstance(old, list) or (isinstance(old, str) and "${" in old):
                raise _NotKnown  # refused; OmegaConf would merge with what it leads to
            copied: dict[str, Any] = {}
            _merge(copied, value)
            into[key] = copied
        elif isinstance(value, list) and isinstance(old, dict):
            raise _NotKnown  # refused
        elif value == "???" and key in into:
            raise _NotKnown  # what is missing takes no place
        else:
            into[key] = copy.deepcopy(value) if isinstance(value, list) else value


def _provenance(parts: Sequence[_Part]) -> tuple[Provenance, tuple[Path, ...]]:
    places: dict[KeyPath, Place] = {}
    for package, file in parts:
        prefix = tuple(package.split(".")) if package else ()
        for key, place in file.positions.items():
            if key[0] != "defaults":
                places[prefix + key] = place
    return Provenance(places), tuple(dict.fromkeys(file.path for _, file in parts))
