"""Canonical names: one name per server argument, the same for all versions.

The catalogue's names differ by version (`tensor_parallel_size` up to 0.5.13, `tp_size` from
0.5.14). Flag and destination can differ, too. Code that identifies an argument therefore compares
canonical names only; tests/engine/releases/test_canonical.py checks every literal name in the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from speclaunch.engine.releases.catalogue import Catalogue, held_versions
from speclaunch.engine.releases.catalogue import load as load_catalogue
from speclaunch.engine.releases.renames import RENAMES, other_names


@lru_cache(maxsize=4096)
def canonical(name: str) -> str:
    """Return the newest engine's destination for an argument, from any of its names.

    `cuda_graph_max_bs` becomes `cuda_graph_max_bs_decode`, `tensor_parallel_size` becomes
    `tp_size`. A removed argument keeps its last name.
    """
    if not isinstance(name, str):  # a key of an invalid recipe, which is reported as such
        return name
    newest = load_catalogue(held_versions()[-1])
    argument = newest.by_name(current_name(name, newest) or name)
    if argument is not None:
        return argument.dest
    last = name
    for rename in RENAMES:  # in chronological order
        last = rename.new if rename.old == last else last
    return last


def current_name(name: str, catalogue: Catalogue) -> str | None:
    """Return a release's current name for an argument; None if it has none."""
    for known in (name, *other_names(name)):
        argument = catalogue.by_name(known)
        if argument is not None and not argument.deprecated:
            return known
    return None


def value_of(args: Mapping[str, Any], name: str) -> Any:
    """Return the value of the argument `name` in `args`, under any of its names; None if absent."""
    if name in args:
        return args[name]
    return next((value for key, value in args.items() if canonical(key) == name), None)
