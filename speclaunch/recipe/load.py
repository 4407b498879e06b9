"""From a composed recipe to a validated Deployment, with every problem and its place."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speclaunch.engine.nearest import suggest
from speclaunch.errors import InputError, Place, Problem
from speclaunch.recipe.compose import Composition, compose
from speclaunch.recipe.deployment import plain_deployment
from speclaunch.recipe.interpolation import restored, unset_places, without_unset
from speclaunch.recipe.names import group_names, is_server_argument
from speclaunch.recipe.source import KeyPath, Provenance
from speclaunch.record import record

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from speclaunch.recipe.schema import Deployment


@record
class Unset:
    """A value of a recipe that needs an environment variable which is not set."""

    key: str
    variable: str
    place: Place


@record
class Recipe:
    """A Deployment, the file it was asked for with, and where each of its values came from."""

    deployment: Deployment
    path: Path
    provenance: Provenance

    unset: tuple[Unset, ...] = ()
    """What needs a variable that is not set: unknown for a check, and nothing can be started."""

    def place(self, *keys: str | int) -> Place:
        """The place of a value, or the recipe's own first line."""
        return self.provenance.find(keys) or Place(str(self.path))

    def require_environment(self) -> None:
        """Raises InputError with every value whose variable is not set."""
        if self.unset:
            raise InputError(
                Problem(
                    f"{one.key}: the environment variable {one.variable} is not set",
                    one.place,
                    f"set it: export {one.variable}=…; or set a default: "
                    f"${{oc.env:{one.variable},…}}",
                )
                for one in self.unset
            )


def load(recipe: str, overrides: Sequence[str] = (), config_dirs: Sequence[Path] = ()) -> Recipe:
    """Compose and validate. Raises InputError that names every problem."""
    return validate(compose(recipe, overrides, config_dirs))


def load_sound_part(
    recipe: str, config_dirs: Sequence[Path] = ()
) -> tuple[Recipe | None, tuple[Problem, ...]]:
    """The recipe without what its schema refuses, and what that is; so all of it can be checked.

    None where too little is left. Raises InputError where it cannot be composed at all.
    """
    composition = compose(recipe, (), config_dirs)
    try:
        return validate(composition), ()
    except InputError as error:
        refused = error.problems
    try:
        return validate(replace(composition, values=_pruned(composition.values))), refused
    except InputError:
        return None, refused


def _pruned(values: dict[str, Any]) -> dict[str, Any]:
    """Without every value that the schema refuses."""
    from pydantic import ValidationError  # noqa: PLC0415

    from speclaunch.recipe.schema import Deployment  # noqa: PLC0415

    left = copy.deepcopy(values)
    try:
        Deployment.model_validate(_knowable({"name": "unknown", **left}))
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            path = _existing(tuple(part for part in detail["loc"] if part != "[key]"), left)
            if path:
                del _at(left, path[:-1])[path[-1]]
    return left


def _existing(path: KeyPath, values: object) -> KeyPath:
    while path and not _exists(values, path):
        path = path[:-1]
    return path


def _at(values: Any, path: KeyPath) -> Any:
    for part in path:
        values = values[part]
    return values


def validate(composition: Composition) -> Recipe:
    """Check a composition against the schema of a recipe."""
    values = {"name": composition.name, **composition.values}
    known = _knowable(values)
    deployment = plain_deployment(known) or _judged(known, composition)
    env = restored(deployment.engine.env, _below(values, "engine", "env"))
    deployment = deployment.model_copy(
        update={
            "args": restored(deployment.args, values.get("args")),
            "engine": deployment.engine.model_copy(update={"env": env}),
        }
    )
    unset = tuple(
        Unset(
            ".".join(map(str, path)),
            variable,
            composition.provenance.find(path) or Place(str(composition.path)),
        )
        for path, variable in unset_places(values)
    )
    return Recipe(deployment, composition.path, composition.provenance, unset)


def _judged(known: dict[str, Any], composition: Composition) -> Deployment:
    """What the schema makes of values, or says of them."""
    from pydantic import ValidationError  # noqa: PLC0415 - slow to import, and seldom needed

    from speclaunch.recipe.schema import Deployment  # noqa: PLC0415

    try:
        return Deployment.model_validate(known)
    except ValidationError as error:
        found = [_problem(detail, composition) for detail in error.errors(include_url=False)]
        raise InputError(sorted(found, key=_position)) from None


def _knowable(values: dict[str, Any]) -> dict[str, Any]:
    """What the schema can judge: where a variable is not set, its default counts.

    The engine's arguments and variables stay, as unknown values.
    """
    known = {"name": "unknown", **without_unset(values)}
    if "args" in values:
        known["args"] = values["args"]
    env = _below(values, "engine", "env")
    if env is not None and isinstance(known.get("engine"), dict):
        known["engine"]["env"] = env
    return known


def _below(values: Any, *keys: str) -> Any:
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def _position(problem: Problem) -> tuple[str, int, int]:
    place = problem.place or Place("")
    return (place.path, place.line, place.column)


def _problem(detail: ErrorDetails, composition: Composition) -> Problem:
    path: KeyPath = tuple(part for part in detail["loc"] if part != "[key]")
    # pydantic appends the member of a union that it tried (`args.x.str`): not a key of ours.
    while len(path) > 1 and not _exists(composition.values, path) and detail["type"] != "missing":
        path = path[:-1]
    place = composition.provenance.find(path) or Place(str(composition.path))
    key = ".".join(str(part) for part in path)
    if detail["type"] == "extra_forbidden":
        return _unknown_key(path, composition)
    if detail["type"] in ("model_type", "dict_type"):
        return Problem(f"{key}: expected `key: value` lines below it", place)
    if detail["type"] == "missing":
        return Problem(f"{key!r} is missing", place)
    message = detail["msg"].removeprefix("Value error, ")
    return Problem(f"{key}: {message[0].lower()}{message[1:]}", place)


def _unknown_key(path: KeyPath, composition: Composition) -> Problem:
    key = ".".join(str(part) for part in path)
    provenance = composition.provenance
    place = provenance.places.get(path) or provenance.first_below(path)
    if place is not None and key in group_names() and Path(place.path).parent.name == key:
        return Problem(
            f"the values of this option go under `{key}`, which is not a section of a recipe",
            place,
            "write `# @package args` on the first line of the file",
        )
    place = place or provenance.find(path) or Place(str(composition.path))
    return Problem(f"unknown key {key!r}", place, _known_keys(path))


def _exists(values: object, path: KeyPath) -> bool:
    for part in path:
        try:
            values = values[part]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return False
    return True


def _known_keys(path: KeyPath) -> str | None:
    """What may stand where an unknown key stands, the nearest first."""
    from pydantic import BaseModel  # noqa: PLC0415

    from speclaunch.recipe.schema import Deployment  # noqa: PLC0415

    model: Any = Deployment
    for part in path[:-1]:
        model = model.model_fields[str(part)].annotation
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return None
    known = sorted(model.model_fields)
    prefix = "".join(f"{part}." for part in path[:-1])
    name = str(path[-1])
    if len(path) == 1 and is_server_argument(name):
        return f"server arguments of the engine go under `args`: args.{name}"
    near = suggest(name, [*known, "defaults"] if len(path) == 1 else known)
    if near:
        return near
    if len(path) == 1:
        return (
            f"a recipe has {', '.join(f'`{name}`' for name in known)}; "
            "server arguments of the engine go under `args`"
        )
    return f"`{prefix[:-1]}` has {', '.join(f'`{name}`' for name in known)}"
