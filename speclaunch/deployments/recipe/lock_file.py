"""The file of a lock: its name, its recipe, and what a recipe changed since."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from speclaunch.core import (
    HIDDEN,
    InputError,
    Problem,
    from_here,
    is_secret_variable,
    lazy,
    reads,
)
from speclaunch.deployments.recipe.find_recipe import recipe_names, recipe_of_lock
from speclaunch.deployments.recipe.load import Recipe, changed_args, load, select_role
from speclaunch.deployments.recipe.lock import (
    LockDifference,
    LockedImage,
    LockSubject,
    image_difference,
)
from speclaunch.deployments.recipe.source import MAX_FILE_BYTES
from speclaunch.engine import is_secret_text, render_args, resolve_version, unset_in
from speclaunch.engine import load as load_catalogue

if TYPE_CHECKING:
    from speclaunch.deployments.recipe.lock import Lock
    from speclaunch.engine import RenderedArgument

_IS_LOCK = lazy(r"^lock:", re.MULTILINE)
_KEY = lazy(r"[+~]*([^=]*)")


def read_lock(path: Path, config_dirs: Sequence[Path] = ()) -> Recipe:
    """Return the recipe in a lock file, with its record in `deployment.lock`. Raises InputError."""
    shown = from_here(path)
    if not reads.is_file(path):
        remedy = "write it: speclaunch launch recipe=NAME --smoke --lock"
        raise InputError(Problem(f"there is no lock {shown}", help=remedy))
    recipe = load(str(path), (), config_dirs)
    if recipe.deployment.lock is None:
        raise InputError(Problem(f"{shown} is not a lock: it has no section `lock`"))
    return recipe


def record(lock: Recipe) -> Lock:
    """Return the record of a recipe that is a lock."""
    found = lock.deployment.lock
    assert found is not None  # noqa: S101  `read_lock` checked it
    return found


def lock_and_recipe(
    recipe: Recipe, overrides: Sequence[str] = (), config_dirs: Sequence[Path] = ()
) -> tuple[Recipe, Recipe]:
    """Return the lock of a recipe, and the recipe to compare it with.

    The recipe gets the overrides that its lock records, and `overrides`, which are already in
    `recipe`. A lock is its own lock, and is compared with the recipe that it names, if that still
    exists. Raises InputError.
    """
    path = recipe.lock_path
    lock = read_lock(path, config_dirs)
    locked, named = record(lock), str(recipe.path)
    if path == recipe.path:
        named = recipe_of_lock(str(path)) or locked.recipe
        if "/" not in named and named not in recipe_names(config_dirs):
            return lock, recipe
    own = {_key(word) for word in overrides}
    words = [word for word in locked.overrides if _key(word) not in own]
    if path != recipe.path and not words:
        return lock, recipe
    return lock, select_role(load(named, [*words, *overrides], config_dirs), locked.role)


def _key(word: str) -> str:
    """Return the key of an override: `args.port` for `++args.port=1` and `~args.port`."""
    found = _KEY.match(word)
    return found[1] if found else word


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
        message = f"its lock {from_here(path)} cannot be compared: {error}"
        yield Problem(message, recipe.start)
        return
    for difference in recipe_differences(source, lock):
        is_own = path == recipe.path
        yield replace(difference.problem, place=recipe.start) if is_own else difference.problem


def recipe_differences(recipe: Recipe, lock: Recipe) -> tuple[LockDifference, ...]:
    """Return what a recipe changes of the arguments, variables, engine and image in its lock.

    Values that need an unset variable are unknown, and no difference. Secrets are not compared.
    """
    return (
        *_arguments(recipe, lock),
        *_variables(recipe, lock),
        *_engine(recipe, lock),
        *image_difference(record(lock).image, image_of(recipe), recipe.place("deploy", "image")),
    )


def _arguments(recipe: Recipe, lock: Recipe) -> Iterator[LockDifference]:
    own, locked = _rendered(recipe, record(lock).steps, lock), _rendered(lock, {}, lock)
    for name in dict.fromkeys((*own, *locked)):
        now, before = own.get(name), locked.get(name)
        if now is not None and before is not None:
            if now.secret or before.secret or now.unset or before.unset:
                continue
            if now.values == before.values and now.flag == before.flag:
                continue
        place = recipe.place("args", now.recipe_name) if now else recipe.place("args")
        shown = now.recipe_name if now is not None else before.recipe_name if before else name
        yield LockDifference(LockSubject.ARGUMENT, shown, _shown(before), _shown(now), place)


def _rendered(
    recipe: Recipe, steps: Mapping[str, Any], lock: Recipe
) -> dict[str, RenderedArgument]:
    catalogue = load_catalogue(resolve_version(record(lock).engine.version).held)
    args = changed_args(recipe.deployment.args, steps)
    rendered = render_args(args, {}, catalogue)
    return {argument.name: argument for argument in rendered.arguments}


def _shown(argument: RenderedArgument | None) -> str | None:
    if argument is None:
        return None
    if argument.secret or any(map(is_secret_text, argument.values)):
        return HIDDEN
    return " ".join(argument.values) or argument.flag


def _variables(recipe: Recipe, lock: Recipe) -> Iterator[LockDifference]:
    own, locked = recipe.deployment.engine.env, lock.deployment.engine.env
    for name in dict.fromkeys((*own, *locked)):
        now, before = own.get(name, ...), locked.get(name, ...)
        if now == before or unset_in(now) or unset_in(before):
            continue
        secret = is_secret_variable(name) or is_secret_text(now) or is_secret_text(before)
        if secret and now is not ... and before is not ...:
            continue
        place = recipe.place("engine", "env", name)
        yield LockDifference(
            LockSubject.VARIABLE, name, _variable(before, secret), _variable(now, secret), place
        )


def _variable(value: Any, secret: bool) -> str | None:
    if value is ...:
        return None
    return HIDDEN if secret else "removed" if value is None else str(value)


def _engine(recipe: Recipe, lock: Recipe) -> Iterator[LockDifference]:
    engine, version = recipe.deployment.engine, record(lock).engine.version
    if not engine.specifier.contains(version):
        stated = engine.version or engine.requires
        place = recipe.place("engine", "version")
        yield LockDifference(LockSubject.ENGINE, "SGLang", version, stated, place)


def image_of(recipe: Recipe) -> LockedImage | None:
    """Return the image of a recipe, with the digest in its name."""
    image = recipe.deployment.deploy.image
    if image is None:
        return None
    name, _, digest = image.partition("@")
    return LockedImage(name, digest or None)
