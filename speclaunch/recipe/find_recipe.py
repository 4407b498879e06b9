"""Which file a recipe is: by its name, or by its path."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from speclaunch import reads
from speclaunch.engine.nearest import suggest
from speclaunch.errors import InputError, Problem
from speclaunch.resources import recipes_dir

SUFFIX = ".yaml"
"""Of every recipe and group file: Hydra knows no other."""


def recipe_names(config_dirs: Sequence[Path] = ()) -> dict[str, Path]:
    """The recipes that can be asked for by name, the user's own before ours."""
    found: dict[str, Path] = {}
    for directory in recipe_dirs(config_dirs):
        for path in reads.below(directory, SUFFIX):
            if reads.is_file(path):  # no directory, no pipe
                found.setdefault(path.stem, path)
    return found


def find_recipe(recipe: str, config_dirs: Sequence[Path] = ()) -> Path:
    """The file of a recipe given by name or by path."""
    for directory in config_dirs:
        if not reads.is_dir(directory):
            raise InputError(Problem(f"--config-dir {directory}: no such directory"))
    if recipe.endswith((SUFFIX, ".yml")) or "/" in recipe:
        path = Path(recipe).expanduser()
        if path.suffix != SUFFIX:
            with_suffix = path.with_name(path.name + SUFFIX)
            if path.suffix != ".yml" and reads.is_file(with_suffix):
                return reads.resolve(with_suffix)
            raise InputError(
                Problem(
                    f"{recipe}: the name of a recipe must end in {SUFFIX}",
                    help="rename it, or give the name of a recipe: `speclaunch recipes ls`",
                )
            )
        if not reads.is_file(path):
            what = "it is not a regular file" if reads.exists(path) else "no such file"
            raise InputError(Problem(f"cannot read {recipe}: {what}"))
        return reads.resolve(path)
    names = recipe_names(config_dirs)
    if recipe not in names:
        raise InputError(
            Problem(
                f"unknown recipe {recipe!r}",
                help=_nearby_file(recipe)
                or suggest(recipe, names)
                or "`speclaunch recipes ls` lists them",
            )
        )
    return reads.resolve(names[recipe])


def _nearby_file(recipe: str) -> str | None:
    file = f"{recipe}{SUFFIX}"
    return f"name the file with its suffix: recipe={file}" if reads.is_file(file) else None


def recipe_dirs(config_dirs: Sequence[Path]) -> list[Path]:
    """Where recipes are looked for by name, the user's own before ours."""
    own = [d for base in config_dirs for d in (base, base / "recipes") if reads.is_dir(d)]
    return [*own, recipes_dir()]
