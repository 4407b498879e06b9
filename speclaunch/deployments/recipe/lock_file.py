"""Read a lock's file, find its recipe, and list the recipe's later changes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import (
    HIDDEN,
    InputError,
    Place,
    Problem,
    from_here,
    is_secret_variable,
    lazy,
    reads,
)
from speclaunch.deployments.recipe.find_recipe import (
    override_key,
    recipe_names,
    recipe_of_lock,
    with_overrides,
)
from speclaunch.deployments.recipe.load import OF_A_HOST, Recipe, changed_args, load, select_role
from speclaunch.deployments.recipe.lock import (
    IMAGE,
    LockDifference,
    LockedImage,
    LockSubject,
)
from speclaunch.deployments.recipe.source import MAX_FILE_BYTES
from speclaunch.engine import is_secret_text, render_args, resolve_version, unset_in
from speclaunch.engine import load as load_catalogue

if TYPE_CHECKING:
    from speclaunch.deployments.recipe.lock import Lock

_IS_LOCK = lazy(r"^lock:", re.MULTILINE)


def of_this_host(overrides: Sequence[str]) -> list[str]:
    """Return the overrides that differ between ranks of the same lock."""
    return [word for word in overrides if override_key(word).removeprefix("args.") in OF_A_HOST]


def read_lock(
    path: Path, config_dirs: Sequence[Path] = (), overrides: Sequence[str] = ()
) -> Recipe:
    """Return the recipe in a lock file, with its record in `deployment.lock`. Raises InputError."""
    shown = from_here(path)
    if reads.is_dir(path):
        raise InputError(Problem(f"{shown} is a directory"))
    if not reads.is_file(path):
        remedy = "write it: speclaunch launch recipe=NAME --smoke --lock"
        raise InputError(Problem(f"there is no lock {shown}", help=remedy))
    recipe = load(str(path), overrides, config_dirs)
    if recipe.deployment.lock is None:
        raise InputError(Problem(f"{shown} is not a lock: it has no section `lock`"))
    return recipe


def record(lock: Recipe) -> Lock:
    """Return the record of a lock."""
    found = lock.deployment.lock
    assert found is not None  # noqa: S101  `read_lock` checked it
    return found


def lock_and_recipe(
    recipe: Recipe, overrides: Sequence[str] = (), config_dirs: Sequence[Path] = ()
) -> tuple[Recipe, Recipe]:
    """Return the lock of a recipe, and the recipe to compare it with.

    The recipe gets the overrides in its lock, and `overrides`, which `recipe` already has. A lock
    is its own lock; it is compared with the recipe that it names, if that still exists. A rank sets
    its own number and address in both. Raises InputError.
    """
    path = recipe.lock_path
    lock = read_lock(path, config_dirs, of_this_host(overrides))
    locked, named = record(lock), str(recipe.path)
    if path == recipe.path:
        named = recipe_of_lock(str(path)) or locked.recipe
        if "/" not in named and named not in recipe_names(config_dirs):
            return lock, recipe
    words = with_overrides(locked.overrides, overrides)
    if path != recipe.path and len(words) == len(overrides):
        return lock, recipe
    return lock, select_role(load(named, words, config_dirs), locked.role)


def with_lock_differences(recipe: Recipe, config_dirs: Sequence[Path] = ()) -> Recipe:
    """Return the recipe, and its roles, with the differences from their locks."""
    return replace(
        recipe,
        lock_differences=() if recipe.parts else tuple(_problems(recipe, config_dirs)),
        parts=tuple(with_lock_differences(part, config_dirs) for part in recipe.parts),
    )


def _problems(recipe: Recipe, config_dirs: Sequence[Path]) -> Iterator[Problem]:
    path = recipe.lock_path
    try:
        if not (reads.is_file(path) and _IS_LOCK.search(reads.read_text(path, MAX_FILE_BYTES))):
            return  # a lock of another program
        lock, source = lock_and_recipe(recipe, (), config_dirs)
    except (InputError, OSError, UnicodeDecodeError) as error:
        why = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error
        message = f"its lock {from_here(path)} cannot be compared: {why}"
        yield Problem(message, recipe.place("args"))
        return
    for difference in recipe_differences(source, lock):
        problem = difference.problem
        yield replace(problem, place=recipe.place("args")) if path == recipe.path else problem


def accept_lengths(recipe: Recipe) -> dict[str, float]:
    """Return the acceptance lengths in a recipe's lock, by certificate.

    Empty without a readable lock, or if its checkpoints or speculation differ from the recipe's.
    """
    try:
        if not reads.is_file(recipe.lock_path):
            return {}
        lock = read_lock(recipe.lock_path)
    except (InputError, OSError, UnicodeDecodeError):
        return {}
    for difference in recipe_differences(recipe, lock):
        if difference.subject is LockSubject.ARGUMENT and difference.name.startswith(_OF_LENGTH):
            return {}
    known = record(lock).certificates
    return {item.title: item.accept_length for item in known if item.accept_length is not None}


_OF_LENGTH = ("speculative_", "model_path", "revision")
"""Prefixes of arguments that determine the acceptance length."""


class _Stated(Struct, frozen=True):
    """Recipe value that its lock fixes."""

    text: str
    place: Place
    is_known: bool = True
    """False for secrets and unset variables, which are not compared."""


def recipe_differences(recipe: Recipe, lock: Recipe) -> Iterator[LockDifference]:
    """Yield a recipe's changes to the arguments, variables, engine and image in its lock.

    Values that need an unset variable are unknown and do not count. Secrets are not compared.
    """
    locked = record(lock)
    args = changed_args(recipe.deployment.args, locked.steps)
    now = _stated(recipe, args, image_of(recipe), locked)
    before = _stated(lock, lock.deployment.args, locked.image, locked)
    for subject, name in dict.fromkeys((*now, *before)):
        new, old = now.get((subject, name)), before.get((subject, name))
        if new and old and (new.text == old.text or not (new.is_known and old.is_known)):
            continue
        place = new.place if new else recipe.place("args")
        texts = [None if stated is None else stated.text for stated in (old, new)]
        yield LockDifference(subject, name, texts[0], texts[1], place)
    engine = recipe.deployment.engine
    if not engine.specifier.contains(locked.engine.version):
        place = recipe.place("engine", "version")
        stated = engine.version or engine.requires
        yield LockDifference(LockSubject.ENGINE, "SGLang", locked.engine.version, stated, place)


def _stated(
    recipe: Recipe, args: Mapping[str, Any], image: LockedImage | None, lock: Lock
) -> dict[tuple[LockSubject, str], _Stated]:
    """Return a recipe's arguments under the names of the lock's release, and its variables."""
    found: dict[tuple[LockSubject, str], _Stated] = {}
    rendered = render_args(args, {}, load_catalogue(resolve_version(lock.engine.version).held))
    for argument in rendered.arguments:
        hidden = argument.secret or any(map(is_secret_text, argument.values))
        text = HIDDEN if hidden else " ".join(argument.values) or argument.flag
        found[LockSubject.ARGUMENT, argument.name] = _Stated(
            text, recipe.place("args", argument.recipe_name), not hidden and not argument.unset
        )
    for name, value in recipe.deployment.engine.env.items():
        hidden = is_secret_variable(name) or is_secret_text(value)
        text = HIDDEN if hidden else "removed" if value is None else str(value)
        place = recipe.place("engine", "env", name)
        found[LockSubject.VARIABLE, name] = _Stated(text, place, not hidden and not unset_in(value))
    if image is not None:
        place = recipe.place("deploy", "image")
        found[LockSubject.IMAGE, IMAGE] = _Stated(image.text, place)
    return found


def image_of(recipe: Recipe) -> LockedImage | None:
    """Return the image of a recipe, with the digest in its name."""
    image = recipe.deployment.deploy.image
    if image is None:
        return None
    name, _, digest = image.partition("@")
    return LockedImage(name, digest or None)
