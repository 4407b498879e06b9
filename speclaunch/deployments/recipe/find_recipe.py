"""Find a recipe's file by the name or path on a command line."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from speclaunch.core import (
    HIDDEN,
    InputError,
    Problem,
    conf_dir,
    expand_user,
    holds_secret,
    lazy,
    reads,
    recipes_dir,
)
from speclaunch.engine import is_secret_key, nearest, suggest

SUFFIX = ".yaml"
"""Suffix of recipe and group files, the only suffix that Hydra supports."""
LOCK_SUFFIX = f".lock{SUFFIX}"
_MOST_NAMES = 2000
"""Maximum number of file names in a directory that are compared with a missing name."""
_MODEL = lazy(r"[A-Za-z0-9][\w.-]*/[\w.-]+(?<!\.yml)(?<!\.json)(?<!\.sh)")
"""Pattern of a hub name (an organization and a checkpoint): `Qwen/Qwen3-8B`."""


def recipe_names(config_dirs: Sequence[Path] = ()) -> dict[str, Path]:
    """Return recipe files by recipe name. The user's own recipes take precedence."""
    found: dict[str, Path] = {}
    for directory in recipe_dirs(config_dirs):
        for path in reads.below(directory, SUFFIX):
            if reads.is_file(path) and not is_lock_file(path):  # excludes directories and pipes
                found.setdefault(path.stem, path)
    return found


def find_recipe(recipe: str, config_dirs: Sequence[Path] = ()) -> Path:
    """Return the path of a recipe by its name or path. Raises InputError if there is none."""
    for directory in config_dirs:
        if not reads.is_dir(directory):
            raise InputError(f"--config-dir {directory}: no such directory")
    if recipe.endswith((SUFFIX, ".yml")) or "/" in recipe:
        path = expand_user(recipe)
        if path.suffix != SUFFIX:
            with_suffix = path.with_name(path.name + SUFFIX)
            if path.suffix != ".yml" and reads.is_file(with_suffix):
                return reads.resolve(with_suffix)
            raise InputError(_not_a_recipe(recipe, config_dirs))
        if not reads.is_file(path):
            what = "it is not a regular file" if reads.exists(path) else "no such file"
            raise InputError(f"cannot read {recipe}: {what}", help=similar_file(recipe))
        return reads.resolve(path)
    names = recipe_names(config_dirs)
    if recipe not in names:
        if reads.is_file(recipe):
            raise InputError(_not_a_recipe(recipe, config_dirs))
        near = suggest(recipe, names) or similar_file(recipe)
        help_ = near or "`speclaunch recipes ls` lists them"
        if reads.is_file(file := f"{recipe}{SUFFIX}"):
            help_ = f"name the file with its suffix: recipe={file}"
        raise InputError(f"unknown recipe {recipe!r}", help=help_)
    return reads.resolve(names[recipe])


def is_lock_file(path: Path | str) -> bool:
    """True if a file has the name of a lock."""
    return str(path).endswith(LOCK_SUFFIX)


def recipe_of_lock(path: str) -> str | None:
    """Return the path of the recipe next to a lock; None if there is none.

    A role's lock is called NAME.ROLE.lock.yaml.
    """
    stem = path.removesuffix(LOCK_SUFFIX)
    if stem == path:
        return None
    folder, _, name = stem.rpartition("/")
    names = dict.fromkeys((name, name.rpartition(".")[0]))
    files = [f"{folder}/{name}{SUFFIX}" if folder else f"{name}{SUFFIX}" for name in names if name]
    return next(filter(reads.is_file, files), None)


def no_recipe(words: Sequence[str], usage: str) -> Problem:
    """Return the problem of `words`, which name no recipe."""
    from speclaunch.deployments.recipe.sections import meant_as_recipe  # noqa: PLC0415 - for a mistake only

    if "recipe=" in words:
        listed = ", ".join(sorted(recipe_names()))
        return Problem("no recipe specified", help=f"choose a file, or one of: {listed}")
    fallback = f"{usage}; `speclaunch recipes ls` lists them"
    return Problem("no recipe specified", help=meant_as_recipe(words) or fallback)


def similar_file(path: str) -> str | None:
    """Return `did you mean …?` with a similar name in a missing file's folder; None without one."""
    try:
        missing = expand_user(path)
        if reads.exists(missing) or not reads.is_dir(missing.parent):
            return None
        names = sorted(reads.names(missing.parent))[:_MOST_NAMES]
    except (OSError, ValueError, RuntimeError):  # an invalid file name
        return None
    twins = [name for name in names if missing.stem == Path(name).stem and name != missing.name]
    known = {Path(name).stem: name for name in names} | {name: name for name in names}
    close = twins[:1] or [known[close_name] for close_name in nearest(missing.name, known, 1)]
    return f"did you mean `{Path(path).with_name(close[0])}`?" if close else None


def _not_a_recipe(recipe: str, config_dirs: Sequence[Path]) -> Problem:
    """Return the problem of a path without a recipe's suffix."""
    if _MODEL.fullmatch(recipe) and not reads.is_dir(Path(recipe).parent):
        help_ = f"write a recipe for it: speclaunch init {recipe} --hardware NAME"
        return Problem(f"{recipe} is a model, not a recipe", help=help_)
    if Path(recipe).suffix != ".yml" and reads.is_file(expand_user(recipe)):
        help_ = f"convert it: speclaunch import {shlex.quote(recipe)} > NAME{SUFFIX}"
        return Problem(f"{recipe} is not a recipe: its name does not end in {SUFFIX}", help=help_)
    stem = Path(recipe).stem
    near = similar_file(recipe) or suggest(stem, recipe_names(config_dirs))
    if stem in recipe_names(config_dirs) and "/" not in recipe:
        near = f"did you mean `{stem}`?"
    rename = "rename it, or use a recipe name: `speclaunch recipes ls`"
    return Problem(f"{recipe}: recipe files must end in {SUFFIX}", help=near or rename)


def recipe_dirs(config_dirs: Sequence[Path]) -> list[Path]:
    """Return the directories to search for recipe names, the user's own first."""
    own = [d for base in config_dirs for d in (base, base / "recipes") if reads.is_dir(d)]
    return [*own, recipes_dir()]


def group_options(config_dirs: Sequence[Path] = ()) -> dict[str, list[str]]:
    """Return the options of each group (a directory name), including the user's own."""
    found: dict[str, set[str]] = {}
    for base in (*config_dirs, conf_dir()):
        for path in base.rglob(f"*{SUFFIX}"):
            group = path.parent.relative_to(base).as_posix()
            if group not in (".", "recipes") and not group.startswith("."):
                found.setdefault(group, set()).add(path.stem)
    return {group: sorted(found[group]) for group in sorted(found)}


def split_recipe(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the recipe (`recipe=NAME`, or only its name or path) and the overrides.

    Raises InputError unless there is exactly one recipe.
    """
    named = [word for word in words if _names_a_recipe(word)]
    rest = [word for word in words if not _names_a_recipe(word)]
    names = [word.removeprefix("recipe=") for word in named]
    if len(names) > 1:
        message = f"several recipes specified: {', '.join(names)}"
        raise InputError(message, help="name one recipe; `speclaunch plan` compares two")
    if not names or not names[0]:
        raise InputError(no_recipe(words, "speclaunch recipe=NAME"))
    return names[0], rest


def recipes(words: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return the recipes with their overrides. Overrides before the first recipe apply to all.

    Raises InputError if no recipe is named.
    """
    common: list[str] = []
    found: list[tuple[str, list[str]]] = []
    for word in words:
        if _names_a_recipe(word):
            found.append((word.removeprefix("recipe="), []))
        elif found:
            found[-1][1].append(word)
        else:
            common.append(word)
    if not found or not all(name for name, _ in found):
        raise InputError(no_recipe(words, "speclaunch plan recipe=NAME"))
    return [(name, list(with_overrides(common, own))) for name, own in found]


def with_overrides(words: Sequence[str], overrides: Sequence[str]) -> tuple[str, ...]:
    """Return `words` plus `overrides`, which replace earlier overrides of the same keys."""
    replaced = set(map(override_key, overrides))
    return (*(word for word in words if override_key(word) not in replaced), *overrides)


def override_key(word: str) -> str:
    """Return the key of an override: `args.port` for `++args.port=1` and `~args.port`."""
    return word.lstrip("+~").partition("=")[0]


def shown_overrides(overrides: Sequence[str]) -> list[str]:
    """Return overrides with secrets redacted."""
    return [
        f"{key}={HIDDEN}" if equals and (is_secret_key(key) or holds_secret(value)) else word
        for word in overrides
        for key, equals, value in [word.partition("=")]
    ]


def _names_a_recipe(word: str) -> bool:
    return word.startswith("recipe=") or ("=" not in word and not word.startswith("~"))
