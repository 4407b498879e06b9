"""From a recipe's name or path and overrides to plain values with their places.

`quick_compose.py` composes what nearly all recipes use, `hydra_compose.py` everything else. Both
have one interface and give the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from speclaunch.errors import InputError, Place, Problem
from speclaunch.recipe.find_recipe import SUFFIX, find_recipe, recipe_names
from speclaunch.recipe.quick_compose import quick_compose
from speclaunch.recipe.resolve_values import resolve_values
from speclaunch.recipe.source import Composition, read_source

__all__ = ["Composition", "compose", "find_recipe", "recipe_names"]


def compose(
    recipe: str, overrides: Sequence[str] = (), config_dirs: Sequence[Path] = ()
) -> Composition:
    """Compose `recipe` (a name or a path to a YAML file) with Hydra `overrides`.

    Raises InputError with every problem that can be told apart.
    """
    path = find_recipe(recipe, config_dirs)
    shown = recipe if recipe.endswith(SUFFIX) else str(path)
    read_source(path, shown)  # the recipe itself: syntax and size, with a place
    found = quick_compose(path, shown, overrides, config_dirs)
    if found is None:
        from speclaunch.recipe.hydra_compose import hydra_compose  # noqa: PLC0415  slow to import

        found = hydra_compose(path, shown, overrides, config_dirs)
    values = resolve_values(found.raw, found.provenance, shown)
    if "hydra" in values:
        place = found.provenance.find(("hydra",)) or Place(shown)
        raise InputError(Problem("Hydra itself cannot be configured here", place))
    return Composition(path.stem, path, values, found.provenance, found.files)
