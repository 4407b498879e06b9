"""Which role of a recipe is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speclaunch.engine.canonical import value_of
from speclaunch.engine.environment import unset_in
from speclaunch.engine.nearest import suggest
from speclaunch.errors import COMMAND_LINE, InputError, Place, Problem

if TYPE_CHECKING:  # Hydra is slow to import
    from speclaunch.recipe.load import Recipe

_OF_A_HOST = {"node_rank": "args.node_rank=0", "dist_init_addr": "args.dist_init_addr=HOST:20000"}
"""What differs by host, or by start, with an example."""


def select_role(recipe: Recipe, role: str | None, why: str = "one role is needed") -> Recipe:
    """The role of that name, or the recipe itself where it has none.

    Raises InputError where the recipe has several and none is named, and for one that it does not
    have.
    """
    if role is None and len(recipe.parts) < 2:
        return recipe.roles[0]
    roles = {str(one.role): one for one in recipe.parts}
    named = recipe.deployment.name
    if role is None:
        raise InputError(
            Problem(
                f"{named} has several roles, and {why}: {', '.join(roles)}",
                help=f"name one: --role {next(iter(roles))}",
            )
        )
    if role in roles:
        return roles[role]
    place = Place(COMMAND_LINE, text=f"--role {role}")
    if not roles:
        raise InputError(Problem(f"{named} has no roles", place, "remove --role"))
    near = suggest(role, roles)
    listed = f"the roles are {', '.join(roles)}"
    help_ = f"{near} {listed}" if near else listed
    raise InputError(Problem(f"{named} has no role {role!r}", place, help_))


def require_host(recipe: Recipe) -> None:
    """Raises InputError where a server has several hosts and nobody says which one this is."""
    args = recipe.deployment.args
    nodes = value_of(args, "nnodes")
    nodes = int(nodes) if isinstance(nodes, str) and nodes.isdecimal() else nodes
    if not isinstance(nodes, int) or nodes < 2 or value_of(args, "use_ray"):
        return
    missing = [name for name in _OF_A_HOST if _is_missing(value_of(args, name))]
    if missing:
        raise InputError(
            Problem(
                f"{recipe.deployment.name} runs on {nodes} hosts, and {' and '.join(missing)} "
                f"{'is' if len(missing) == 1 else 'are'} not given",
                recipe.place("args", "nnodes"),
                f"start it on each host with {' '.join(_OF_A_HOST[name] for name in missing)} "
                f"(rank 0 to {nodes - 1}; the address is that of rank 0)",
            )
        )


def _is_missing(value: object) -> bool:
    return value is None or bool(unset_in(value))
