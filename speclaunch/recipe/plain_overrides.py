"""Overrides that are plainly `key=value`, laid over a composed recipe without Hydra.

Taken are values of the engine's arguments and variables and of the sections of a recipe, where the
value is a plain number, word or path; and a choice of a group (`speculation=eagle3_chain`). Quotes,
lists, interpolations, `+key`, `~key`, a key that is given twice, whatever else there is, and every
mistake are Hydra's (None): it has the grammar, and the words. tests/recipe/test_plain_overrides.py
compares both.

Source: hydra-core 1.3, hydra/grammar/OverrideLexer.g4 (what is a number, what a word), and
hydra/_internal/config_loader_impl.py, `_apply_overrides_to_config`.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any

from speclaunch.errors import COMMAND_LINE, Place
from speclaunch.patterns import lazy
from speclaunch.recipe.names import group_names, role_paths, schema_paths
from speclaunch.recipe.source import Composed, KeyPath, Provenance
from speclaunch.record import record

_KEY = lazy(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*\Z", re.ASCII)
_OPEN = lazy(r"(args|engine\.env|router\.args)\.[^.]+\Z")
"""The engine's own keys, and the router's, which need not stand in any of our files."""
_WHOLE = lazy(r"-?(0|[1-9][0-9]*)\Z", re.ASCII)
_FRACTION = lazy(r"-?[0-9]+\.[0-9]+\Z", re.ASCII)
_WORD = lazy(r"[A-Za-z/][A-Za-z0-9_./-]*\Z", re.ASCII)
_OPTION = lazy(r"[A-Za-z][A-Za-z0-9_-]*\Z", re.ASCII)
_OTHERWISE = frozenset({"null", "true", "false", "nan", "inf"})
"""Words with another meaning, in any case."""
_CONSTANTS = {"null": None, "true": True, "false": False}
_LONGEST = 4000
"""Digits beyond that Python refuses to read."""


@record
class PlainOverrides:
    """What a command line changes: values by their keys, and options of groups."""

    values: tuple[tuple[KeyPath, Any], ...]
    choices: tuple[tuple[str, str], ...]
    places: tuple[tuple[KeyPath, Place], ...]
    """In the order in which they were given."""


def plain_overrides(overrides: Sequence[str]) -> PlainOverrides | None:
    """The overrides, where all of them are plain; None where one needs Hydra."""
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
        return None  # a key, and one below it
    return PlainOverrides(tuple(values), tuple(choices), tuple(places.items()))


def _is_value(key: str) -> bool:
    if key.startswith("roles."):
        _, _, own = key.split(".", 2) if key.count(".") > 1 else ("", "", "")
        return own == "replicas" or _is_role_value(own)
    if _OPEN.match(key) or key in ("name", "description"):
        return True
    return key.count(".") == 1 and key in schema_paths()


def _is_role_value(key: str) -> bool:
    return _OPEN.match(key) is not None or (key.count(".") == 1 and key in role_paths())


def _typed(word: str) -> tuple[Any] | None:
    """The value that the grammar makes of a plain word; None where it is not plain."""
    if word in _CONSTANTS:
        return (_CONSTANTS[word],)
    if len(word) > _LONGEST:
        return None
    if _WHOLE.match(word):
        return (int(word),)
    if _FRACTION.match(word):
        return (float(word),)
    return (word,) if _WORD.match(word) and word.lower() not in _OTHERWISE else None


def with_overrides(found: Composed, overrides: PlainOverrides) -> Composed | None:
    """The recipe with its values changed; None where one stands in the way."""
    if not overrides.values and not overrides.places:
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
    return Composed(raw, Provenance(places), found.files)
