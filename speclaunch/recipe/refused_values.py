"""What the schema of a recipe refuses, in words and with places."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speclaunch.engine.nearest import suggest
from speclaunch.errors import Place, Problem
from speclaunch.recipe.names import group_names, is_server_argument
from speclaunch.recipe.roles import ROLES, says
from speclaunch.recipe.source import Composition, KeyPath, exists

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_Role = tuple[Mapping[str, Any], str] | None
"""The values of the whole recipe, and which of its roles is judged; None: the recipe itself."""


def refused_paths(error: ValidationError) -> Iterator[KeyPath]:
    """The keys of what was refused."""
    for detail in error.errors(include_url=False):
        yield tuple(part for part in detail["loc"] if part != "[key]")


def problems(
    error: ValidationError,
    composition: Composition,
    role: _Role = None,
) -> list[Problem]:
    """What was refused. `role`: of which role the values are."""
    return [_problem(one, composition, role) for one in error.errors(include_url=False)]


def _key(path: KeyPath, role: _Role) -> str:
    """A key as the recipe has it: below a role where the role says it."""
    if role is not None and says(*role, path):
        path = (ROLES, role[1], *path)
    return ".".join(str(part) for part in path)


def _problem(detail: ErrorDetails, composition: Composition, role: _Role) -> Problem:
    path: KeyPath = tuple(part for part in detail["loc"] if part != "[key]")
    # pydantic appends the member of a union that it tried (`args.x.str`): not a key of ours.
    while len(path) > 1 and not exists(composition.values, path) and detail["type"] != "missing":
        path = path[:-1]
    provenance = composition.provenance
    written = provenance.places.get(tuple(map(str, path)))  # a key that YAML reads as a number
    place = written or provenance.find(path) or Place(str(composition.path))
    key = _key(path, role)
    if detail["type"] == "extra_forbidden":
        return _unknown_key(path, composition, role)
    if detail["type"] in ("model_type", "dict_type"):
        return Problem(f"{key}: expected `key: value` lines below it", place)
    if detail["type"] == "missing":
        return Problem(f"{key!r} is missing", place)
    message = detail["msg"].removeprefix("Value error, ")
    return Problem(f"{key}: {message[0].lower()}{message[1:]}", place)


def _unknown_key(path: KeyPath, composition: Composition, role: _Role) -> Problem:
    key = _key(path, role)
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


def _known_keys(path: KeyPath) -> str | None:
    """What may stand where an unknown key stands, the nearest first."""
    from pydantic import BaseModel  # noqa: PLC0415  slow to import

    from speclaunch.recipe.schema import Deployment  # noqa: PLC0415

    model: Any = Deployment
    for part in path[:-1]:
        model = _below(model, str(part))
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return None
    known = sorted(model.model_fields)
    name = str(path[-1])
    near = suggest(name, [*known, "defaults"] if len(path) == 1 else known)
    if len(path) == 1 and is_server_argument(name):
        return f"server arguments of the engine go under `args`: args.{name}"
    if len(path) == 3 and path[0] == "roles" and is_server_argument(name) and not near:
        return f"server arguments of a role go under its `args`: {path[0]}.{path[1]}.args.{name}"
    if near:
        return near
    listed = ", ".join(f"`{name}`" for name in known)
    if len(path) == 1:
        return f"a recipe has {listed}; server arguments of the engine go under `args`"
    return f"`{'.'.join(str(part) for part in path[:-1])}` has {listed}"


def _below(model: Any, part: str) -> Any:
    """What stands below a key of a section: another section, or the sections under any name."""
    if model is None or not hasattr(model, "model_fields"):
        return _section(typing.get_args(model)[1]) if typing.get_origin(model) is dict else None
    field = model.model_fields.get(part)
    return None if field is None else _section(field.annotation)


def _section(annotation: Any) -> Any:
    """A type without `None` and what is noted with it."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _section(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return next(one for one in typing.get_args(annotation) if one is not type(None))
    return annotation
