"""What stands around each role of a recipe, as rules and renderers are told of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from speclaunch.engine.canonical import value_of
from speclaunch.engine.environment import unset_in
from speclaunch.errors import Place
from speclaunch.recipe.roles import ROLES, ROUTER, SIDES, place_of
from speclaunch.recipe.source import Composition
from speclaunch.surroundings import Group, Router, Setting, Surroundings, Upstream

PLATFORM = "recipe"
"""`Group.platform` of the roles of a recipe."""
PROGRAM = "sglang_router"
WORKER = "worker"


def surroundings(
    composition: Composition, roles: Sequence[tuple[str, Composition]]
) -> dict[str, Surroundings]:
    """What stands around each role, by its name."""
    routers = _routers(composition, roles)
    name = str(composition.values.get("name", composition.name))
    group = Group(name, PLATFORM, _place(composition, ()), routers)
    return {
        role: Surroundings(
            group,
            role,
            place_of(composition, role),
            nodes=_argument(one, "nnodes"),
            replicas=_replicas(composition, role),
        )
        for role, one in roles
    }


def _routers(
    composition: Composition, roles: Sequence[tuple[str, Composition]]
) -> tuple[Router, ...]:
    said = composition.values.get(ROUTER)
    if not isinstance(said, dict):
        return ()
    args = said.get("args")
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
            tuple(_upstream(composition, role, one) for role, one in roles),
            options,
        ),
    )


def _upstream(composition: Composition, role: str, one: Composition) -> Upstream:
    mode = value_of(_args(one), "disaggregation_mode")
    return Upstream(
        mode if mode in SIDES else WORKER,
        None,
        _argument(one, "port"),
        place_of(composition, role),
        _argument(one, "disaggregation_bootstrap_port") if mode == "prefill" else None,
    )


def _replicas(composition: Composition, role: str) -> Setting | None:
    own = composition.values[ROLES][role] or {}
    if own.get("replicas") is None:
        return None
    return _setting(composition, (ROLES, role, "replicas"), own["replicas"])


def _argument(one: Composition, name: str) -> Setting | None:
    value = value_of(_args(one), name)
    if value is None:
        return None
    given = next(key for key in _args(one) if value_of({key: True}, name))
    return _setting(one, ("args", given), value)


def _args(one: Composition) -> Mapping[str, Any]:
    found = one.values.get("args")
    return found if isinstance(found, dict) else {}


def _setting(one: Composition, path: tuple[str, ...], value: Any) -> Setting:
    return Setting(value, _place(one, path), not unset_in(value))


def _place(one: Composition, path: tuple[str, ...]) -> Place:
    return one.provenance.find(path) or Place(str(one.path))
