"""The commands of one server that runs on several hosts: one for each host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.rules.roles import ADDRESS, NODES, RANK
from speclaunch.rules.roles.sides import mode, model_of
from speclaunch.surroundings import Setting


def known(plan: Plan, name: str) -> Any:
    """The effective value of an argument; None where nobody can tell."""
    try:
        return plan.value(name)
    except UnknownValueError:
        return None


def is_of_several(plan: Plan) -> bool:
    """Whether a command is that of one host of several."""
    nodes = known(plan, NODES)
    return isinstance(nodes, int) and nodes > 1


def servers(plans: Sequence[Plan]) -> Iterator[tuple[Plan, ...]]:
    """The commands of each server that has one for each of its hosts.

    A file says which belong together (leader and worker of one role), or they follow each other in
    one file, for one model, with ranks that go up: each rank 0 begins another server.
    """
    found: list[tuple[Any, list[Plan]]] = []
    for plan in plans:
        if not is_of_several(plan):
            continue
        home = _home(plan)
        open_ = next((some for key, some in reversed(found) if key == home), None)
        if open_ is None or (home[0] == "file" and _begins(plan, open_)):
            found.append((home, [plan]))
        else:
            open_.append(plan)
    yield from (tuple(some) for some in _joined(found))


def _joined(found: Sequence[tuple[Any, list[Plan]]]) -> Iterator[list[Plan]]:
    """Commands whose roles the file calls differently (`rank0`, `rank1`) are of one server where
    their deployment has one leader alone, or they meet at one address."""
    apart: dict[Any, list[Plan]] = {}
    for home, some in found:
        first, *others = some
        around = first.request.surroundings
        if others or around is None or around.part is None:
            yield some
        else:
            apart.setdefault((*home[:2], mode(first)), []).extend(some)
    for some in apart.values():
        parts = [plan.request.surroundings.part for plan in some if plan.request.surroundings]
        given = [plan.request.given.get(ADDRESS) for plan in some]
        meet = {str(one.value) if one is not None else None for one in given}
        if parts.count("leader") == 1 or (len(meet) == 1 and None not in meet):
            yield some
        else:
            yield from ([one] for one in some)


def _home(plan: Plan) -> tuple[Any, ...]:
    around = plan.request.surroundings
    if around is not None and around.part is None and _runs_on_all(around.nodes):
        return "object", around.place
    if around is not None:
        return "group", (around.group.name, around.group.place), around.role
    return "file", plan.request.place.path, model_of(plan), mode(plan), plan.request.version


def _runs_on_all(nodes: Setting | None) -> bool:
    """Whether one command is that of all hosts of a server: its object has several."""
    return nodes is not None and nodes.known and isinstance(nodes.value, int) and nodes.value > 1


def _begins(plan: Plan, others: Sequence[Plan]) -> bool:
    """Whether a command begins another server than those before it."""
    last = known(others[-1], RANK)  # same either way: an unknown rank is alone
    rank = known(plan, RANK)
    return not isinstance(rank, int) or not isinstance(last, int) or rank == 0
