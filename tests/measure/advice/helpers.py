"""Recipes for targets of the index, made once for all tests."""

from __future__ import annotations

from functools import cache

from speclaunch.checks.rules.examine import Lookup
from speclaunch.engine.facts.hardware import declare
from speclaunch.measure.advice.drafts import find_target
from speclaunch.measure.advice.new_recipe import NewRecipe, RecipeRequest, new_recipe

NEWEST = "0.5.23"


def wanted(target: str, hardware: str, version: str = NEWEST, **more: object) -> RecipeRequest:
    lookup = Lookup(hardware=declare(hardware))
    return RecipeRequest(find_target(target, lookup), version, lookup, hardware, **more)  # type: ignore[arg-type]


@cache
def made(target: str, hardware: str, version: str = NEWEST) -> NewRecipe:
    return new_recipe(wanted(target, hardware, version))
