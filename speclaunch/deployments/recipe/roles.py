"""Roles of a recipe: each role's keys, merged over the shared keys.

A role is merged over a composed recipe: mappings are merged recursively, anything else replaces the
old value, as between files. Null removes a shared value. For arguments and variables null remains
and means the engine's default. An argument is replaced under any of its names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from msgspec.structs import replace

from speclaunch.core import COMMAND_LINE, Place, Problem
from speclaunch.deployments.recipe.sections import MOST_ROLES, ROLES
from speclaunch.deployments.recipe.source import Composition, KeyPath, RecipeProvenance, copied
from speclaunch.engine import (
    Group,
    Router,
    ServerContext,
    Setting,
    Upstream,
    canonical,
    suggest,
    unset_in,
    value_of,
)

ROUTER = "router"
_OF_THE_WHOLE = (ROLES, ROUTER)
"""Sections that a role does not have."""
_OF_A_ROLE = ("replicas",)
"""Keys of a role that a deployment does not have."""
_MODE = "disaggregation_mode"
SIDES = ("prefill", "decode")
"""Roles whose name implies their `disaggregation_mode`."""


def role_names(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the readable roles in a recipe's values."""
    roles = values.get(ROLES)
    if not isinstance(roles, dict):
        return ()
    found = (
        name
        for name, role in roles.items()
        if isinstance(name, str) and (role is None or isinstance(role, dict))
    )
    return tuple(islice(found, MOST_ROLES))


def shared(composition: Composition) -> Composition:
    """Return the recipe without its roles. `args` may be missing if the roles set it."""
    if not role_names(composition.values):
        return composition
    return replace(composition, values={"args": {}, **composition.values})


def of_role(composition: Composition, role: str) -> Composition:
    """Return one role of a recipe as a separate recipe, named NAME/ROLE."""
    own = dict(composition.values[ROLES][role] or {})
    for key in _OF_A_ROLE:
        own.pop(key, None)
    values = {
        key: copied(value) for key, value in composition.values.items() if key not in _OF_THE_WHOLE
    }
    gone: list[KeyPath] = []
    own_args = own.pop("args", None)
    args = _laid_over_args(values.pop("args", None), own_args, gone)
    _lay_over(values, own, (), gone)
    values["args"] = args
    at = (ROLES, role)
    places = _places(composition.provenance, at, gone)
    name = values.get("name", composition.name)
    values["name"] = f"{name}/{role}"
    sets_mode = isinstance(own_args, dict) and _MODE in map(canonical, map(str, own_args))
    if role in SIDES and isinstance(args, dict) and not sets_mode:
        for other in [name for name in args if canonical(name) == _MODE]:
            del args[other]
            places.pop(("args", other), None)
        args[_MODE] = role
        place = composition.provenance.find(at)
        if place is not None:
            places["args", _MODE] = place
    return replace(composition, values=values, provenance=RecipeProvenance(places))


def place_of(composition: Composition, role: str) -> Place:
    """Return the place at which a role begins."""
    at = (ROLES, role)
    found = composition.provenance
    return found.places.get(at) or found.first_below(at) or Place(str(composition.path))


def invented(composition: Composition) -> Iterator[Problem]:
    """Yield problems for roles that exist only in an override: `roles.prefil.args.tp_size=4`."""
    names = role_names(composition.values)
    places = composition.provenance.places
    written = {
        key[1]
        for key, place in places.items()
        if len(key) > 1 and key[0] == ROLES and place.path != COMMAND_LINE
    }
    for name in names:
        if name in written:
            continue
        place = composition.provenance.first_below((ROLES, name)) or Place(COMMAND_LINE)
        if place.text is None or place.text.startswith("+"):
            continue
        known = [str(name) for name in names if name in written]
        if not known:
            text = f"the recipe has no roles: unknown role {name!r}"
            yield Problem(
                text, place, "set it for the entire recipe: args.…, without `roles.NAME.`"
            )
            continue
        listed = f"the roles are {', '.join(known)}"
        near = suggest(name, known)
        help_ = f"{near} {listed}" if near else f"{listed}; `+{place.text}` adds one"
        yield Problem(f"the recipe has no role {name!r}", place, help_)


def _laid_over_args(base: Any, own: Any, gone: list[KeyPath]) -> Any:
    """Merge arguments over others. Arguments match under any of their names."""
    if own is None:
        return {} if base is None else base
    if not isinstance(own, dict) or not isinstance(base, dict | None):
        return own
    values = dict(base or {})
    for name in own:
        same = canonical(str(name))
        for other in [name for name in values if name not in own and canonical(str(name)) == same]:
            del values[other]
            gone.append(("args", other))
    for name, value in own.items():
        old = values.get(name)
        if isinstance(value, dict) and isinstance(old, dict):
            _lay_over(old, value, ("args", name), gone, keeps_null=True)
        else:
            values[name] = value
    return values


def _lay_over(
    into: dict[Any, Any],
    own: Mapping[Any, Any],
    path: KeyPath,
    gone: list[KeyPath],
    *,
    keeps_null: bool = False,
) -> None:
    for key, value in own.items():
        here = (*path, key)
        old = into.get(key)
        null_remains = keeps_null or here == ("engine", "env")
        if value is None and not keeps_null:
            into.pop(key, None)
            gone.append(here)
        elif isinstance(value, dict) and isinstance(old, dict):
            _lay_over(old, value, here, gone, keeps_null=null_remains)
        elif isinstance(value, dict):
            into[key] = {}
            _lay_over(into[key], value, here, gone, keeps_null=null_remains)
        else:
            into[key] = value


def _places(provenance: RecipeProvenance, at: KeyPath, gone: list[KeyPath]) -> dict[KeyPath, Place]:
    """Merge the role's places over the shared places, without removed keys."""
    depth = len(at)
    own = {key[depth:]: place for key, place in provenance.places.items() if key[:depth] == at}
    taken = {path: len(path) for path in gone}
    found = {
        key: place
        for key, place in provenance.places.items()
        if key[0] not in _OF_THE_WHOLE
        and not any(key[:length] == path for path, length in taken.items())
    }
    return {**found, **{key: place for key, place in own.items() if key}}


# -- server context of each role, for rules and renderers

PLATFORM = "recipe"
"""`Group.platform` of the roles of a recipe."""
PROGRAM = "sglang_router"
WORKER = "worker"


def server_context(
    composition: Composition, roles: Sequence[tuple[str, Composition]]
) -> dict[str, ServerContext]:
    """Return the server context of each role, by its name."""
    routers = _routers(composition, roles)
    name = str(composition.values.get("name", composition.name))
    group = Group(name, PLATFORM, _place(composition, ()), routers)
    return {
        role: ServerContext(
            group,
            role,
            place_of(composition, role),
            nodes=_argument(part, "nnodes"),
            replicas=_replicas(composition, role),
        )
        for role, part in roles
    }


def _routers(
    composition: Composition, roles: Sequence[tuple[str, Composition]]
) -> tuple[Router, ...]:
    router = composition.values.get(ROUTER)
    if not isinstance(router, dict):
        return ()
    args = router.get("args")
    options = {
        str(name).replace("_", "-"): _setting(composition, (ROUTER, "args", name), value)
        for name, value in (args if isinstance(args, dict) else {}).items()
        if value is not None
    }
    return (
        Router(
            ROUTER,
            PROGRAM,
            _place(composition, (ROUTER,)),
            tuple(_upstream(composition, role, part) for role, part in roles),
            options,
        ),
    )


def _upstream(composition: Composition, role: str, part: Composition) -> Upstream:
    mode = value_of(_args(part), "disaggregation_mode")
    return Upstream(
        mode if mode in SIDES else WORKER,
        None,
        _argument(part, "port"),
        place_of(composition, role),
        _argument(part, "disaggregation_bootstrap_port") if mode == "prefill" else None,
    )


def _replicas(composition: Composition, role: str) -> Setting | None:
    own = composition.values[ROLES][role] or {}
    if own.get("replicas") is None:
        return None
    return _setting(composition, (ROLES, role, "replicas"), own["replicas"])


def _argument(part: Composition, name: str) -> Setting | None:
    value = value_of(_args(part), name)
    if value is None:
        return None
    used_name = next(key for key in _args(part) if value_of({key: True}, name))
    return _setting(part, ("args", used_name), value)


def _args(part: Composition) -> Mapping[str, Any]:
    found = part.values.get("args")
    return found if isinstance(found, dict) else {}


def _setting(part: Composition, path: tuple[str, ...], value: Any) -> Setting:
    return Setting(value, _place(part, path), not unset_in(value))


def _place(part: Composition, path: tuple[str, ...]) -> Place:
    return part.provenance.find(path) or Place(str(part.path))
