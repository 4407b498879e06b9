"""`speclaunch init --force`: the best supported recipe, despite what the rules find in it."""

from __future__ import annotations

from speclaunch.plan.memory.budget import budget
from speclaunch.plan.plan import UnknownValueError
from speclaunch.planning.new_recipe import Wanted, usable_ways
from speclaunch.planning.new_recipe_text import text_of
from speclaunch.planning.placing import TP, Placed, sizes
from speclaunch.planning.settling import settle
from speclaunch.planning.ways import Way
from speclaunch.record import record


@record
class ForcedRecipe:
    """A recipe that may not serve."""

    text: str
    way: Way
    placed: Placed


def forced_recipe(wanted: Wanted) -> ForcedRecipe | None:
    """Return the recipe of the best supported way on all GPUs of the hardware, with the fixes of
    the rules; None if the release takes no way."""
    hardware = wanted.lookup.hardware
    if hardware is None:
        return None
    ranks = sizes(hardware)[-1]
    for way, arguments in usable_ways(wanted):
        settled = settle({**arguments, TP: ranks}, wanted.version, wanted.lookup)
        try:
            placed = Placed(settled, ranks, budget(settled.plan), dict(settled.applied))
        except UnknownValueError:
            continue
        text = text_of(wanted.target, way, placed, wanted.hardware, {})
        return ForcedRecipe(text, way, placed)
    return None
