"""The file of a lock: its name, its recipe, and what a recipe changed since."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speclaunch.core import (
    HIDDEN,
    InputError,
    Problem,
    from_here,
    is_secret_variable,
    reads,
    recipes_dir,
)
from speclaunch.deployments.recipe.find_recipe import SUFFIX
from speclaunch.deployments.recipe.load import Recipe, changed_args, load, select_role
from speclaunch.deployments.recipe.lock import (
    LockDifference,
    LockedImage,
    LockSubject,
    image_difference,
)
from speclaunch.engine import (
    is_secret_text,
    render_args,
    resolve_version,
    unset_in,
)
from speclaunch.engine import (
    load as load_catalogue,
)

if TYPE_CHECKING:
    from speclaunch.deployments.recipe.lock import Lock
    from speclaunch.engine import RenderedArgument

LOCK_SUFFIX = f".lock{SUFFIX}"


def is_lock_file(path: Path | str) -> bool:
    """True if a file has the name of a lock."""
    return str(path).endswith(LOCK_SUFFIX)


def lock_path(recipe: Recipe) -> Path:
    """Return the lock file: next to the recipe; for a shipped recipe in the working directory.

    A lock is its own lock. The lock of a role has the role in its name.
    """
    path = recipe.path
    if is_lock_file(path):
        return path
    folder = Path.cwd() if path.is_relative_to(recipes_dir().resolve()) else path.parent
    role = f".{recipe.role}" if recipe.role else ""
    return folder / f"{path.stem}{role}{LOCK_SUFFIX}"


def recipe_of_lock(path: str) -> str | None:
    """Return the recipe next to a lock file, from its name; None if there is none."""
    if not is_lock_file(path):
        return None
    stem = path.removesuffix(LOCK_SUFFIX)
    for candidate in dict.fromkeys((stem, stem.rpartition(".")[0])):
        if candidate and reads.is_file(f"{candidate}{SUFFIX}"):
            return f"{candidate}{SUFFIX}"
    return None


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


def recipe_with_overrides(recipe: Recipe, lock: Lock, config_dirs: Sequence[Path] = ()) -> Recipe:
    """Return the recipe as it was when its lock was written: with the lock's overrides and role."""
    if not lock.overrides and lock.role == recipe.role:
        return recipe
    return select_role(load(str(recipe.path), lock.overrides, config_dirs), lock.role)


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
