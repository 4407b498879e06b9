"""Write a lock, read its file, find its recipe, and list the recipe's later changes.

A lock contains a recipe without groups and variables, followed by the record of the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import (
    HIDDEN,
    InputError,
    Place,
    Problem,
    from_here,
    is_secret_variable,
    json_value,
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
from speclaunch.deployments.recipe.lock import IMAGE, Lock, LockDifference, LockedImage, LockSubject
from speclaunch.deployments.recipe.sections import plain_class
from speclaunch.deployments.recipe.source import MAX_FILE_BYTES
from speclaunch.deployments.sources.recipe_text import Interpolation, scalar
from speclaunch.deployments.targets.prepare import Prepared
from speclaunch.engine import (
    FromEnvironment,
    is_secret_argument,
    is_secret_text,
    render_args,
    resolve_version,
    unset_in,
)
from speclaunch.engine import load as load_catalogue

_IS_LOCK = lazy(r"^lock:", re.MULTILINE)


def of_this_host(overrides: Sequence[str]) -> list[str]:
    """Return the overrides that set host-specific arguments."""
    return [word for word in overrides if override_key(word).removeprefix("args.") in OF_A_HOST]


def read_lock(
    path: Path, config_dirs: Sequence[Path] = (), overrides: Sequence[str] = ()
) -> Recipe:
    """Return the recipe in a lock file, with its record in `deployment.lock`. Raises InputError."""
    shown = from_here(path)
    if reads.is_dir(path):
        raise InputError(f"{shown} is a directory", help="name the lock file")
    remedy = "write a lock: speclaunch launch recipe=NAME --smoke --lock"
    if not reads.is_file(path):
        raise InputError(f"there is no lock {shown}", help=remedy)
    recipe = load(str(path), overrides, config_dirs)
    if recipe.deployment.lock is None:
        raise InputError(f"{shown} is not a lock: it has no section `lock`", help=remedy)
    return recipe


def record(lock: Recipe) -> Lock:
    """Return the record in a lock (`deployment.lock`)."""
    found = lock.deployment.lock
    assert found is not None  # noqa: S101  `read_lock` checked it
    return found


def lock_and_recipe(
    recipe: Recipe, overrides: Sequence[str] = (), config_dirs: Sequence[Path] = ()
) -> tuple[Recipe, Recipe]:
    """Return the lock of a recipe, and the recipe to compare it with.

    The recipe gets the overrides in its lock, then `overrides` (already part of `recipe`). If
    `recipe` is itself a lock, it is compared with the recipe that it names, or with itself if that
    recipe is missing. Overrides that differ between hosts apply to both. Raises InputError.
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
    """Value in a recipe that the recipe's lock pins."""

    text: str
    place: Place
    is_known: bool = True
    """False for secrets and unset variables, which are not compared."""


def recipe_differences(recipe: Recipe, lock: Recipe) -> Iterator[LockDifference]:
    """Yield a recipe's changes to the arguments, variables, engine and image in its lock.

    Secrets, and values that need an unset variable, are not compared.
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
    """Return a recipe's arguments (named as in the lock's release), variables and image."""
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
    """Return a recipe's image, split into name and digest; None if it sets no image."""
    image = recipe.deployment.deploy.image
    if image is None:
        return None
    name, _, digest = image.partition("@")
    return LockedImage(name, digest or None)


_HEAD = """\
# Lock of {recipe}: exactly what served. Written by speclaunch; do not edit.
# Start it:  speclaunch recipe={path}
# Compare:   speclaunch recipe={recipe} --locked
"""
_SECTIONS = ("hardware", "launch", "recovery", "deploy")


def lock_text(prepared: Prepared, lock: Lock, path: Path) -> str:
    """Return the text of the lock file `path`, with a deployment's settings and record.

    A variable (`${oc.env:API_KEY}`) replaces each secret.
    """
    deployment = prepared.recipe.deployment
    engine = {
        "version": prepared.version,
        "python": deployment.engine.python,
        "catalogue": deployment.engine.catalogue,
        "env": {n: _exact(n, v, is_secret_variable(n)) for n, v in deployment.engine.env.items()},
    }
    document: dict[str, Any] = {
        "name": deployment.name,
        "description": deployment.description,
        "args": {
            name: _home_free(prepared, _exact(name.upper(), value, is_secret_argument(name)))
            for name, value in deployment.args.items()
        },
        "engine": {key: value for key, value in engine.items() if value},
    }
    for name in _SECTIONS:
        section = str(plain_class("Deployment").model_fields[name].section)
        if changed := _without_defaults(getattr(deployment, name), section):
            document[name] = changed
    document["lock"] = _home_free(prepared, {"format": lock.format, **json_value(lock)})
    head = _HEAD.format(recipe=lock.recipe, path=f"./{path.name}")
    return head + "\n".join(_lines(document, "")) + "\n"


def _exact(variable: str, value: Any, is_secret: bool) -> Any:
    """Return a value for the lock file, with a variable reference for a secret."""
    if value is None or not (is_secret or is_secret_text(value)):
        return str(value) if isinstance(value, FromEnvironment) else value
    if isinstance(value, FromEnvironment) and len(value.template) == 1:
        variable = value.variables[0] if value.variables else variable
    return Interpolation(f"${{oc.env:{variable}}}")


def _home_free(prepared: Prepared, value: Any) -> Any:
    """Return a value with `${cpu_model:NAME}` instead of user-specific paths of tiny models."""
    if isinstance(value, dict):
        return {key: _home_free(prepared, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_home_free(prepared, item) for item in value]
    if isinstance(value, str) and prepared.cpu and Path(value).parent == prepared.cpu.models:
        return Interpolation(f"${{cpu_model:{Path(value).name}}}")
    return value


def _without_defaults(section: Any, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, row in plain_class(name).model_fields.items():
        value = getattr(section, key)
        if row.section is not None and value is not None:
            value = _without_defaults(value, row.section)
            if not value:
                continue
        elif value == row.default:
            continue
        found[key] = json_value(value)
    return found


def _lines(values: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield ("" if indent else "\n") + f"{indent}{scalar(key)}:"
            yield from _lines(value, f"{indent}  ")
        elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
            yield f"{indent}{scalar(key)}:"
            for item in value:
                yield from _item(item, f"{indent}  ")
        else:
            yield f"{indent}{scalar(key)}: {scalar(value)}"


def _item(item: dict[str, Any], indent: str) -> Iterator[str]:
    if not any(isinstance(value, list) for value in item.values()):
        yield f"{indent}- {scalar(item)}"
        return
    first, *others = _lines(item, f"{indent}  ")
    yield f"{indent}- {first.strip()}"
    yield from others
