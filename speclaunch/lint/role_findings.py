"""What the roles of one recipe have to say of each other, for whoever starts or shows one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from speclaunch.engine.catalogue import load as load_catalogue
from speclaunch.engine.command import spell
from speclaunch.facts.hardware import choose_hardware
from speclaunch.lint.ignores import unsilenced
from speclaunch.plan.request import from_recipe
from speclaunch.plan.resolve import resolve
from speclaunch.rules.examine import Lookup, examine_together

if TYPE_CHECKING:  # Hydra is slow to import
    from speclaunch.plan.plan import Plan
    from speclaunch.recipe.load import Recipe
    from speclaunch.rules.finding import Finding
    from speclaunch.rules.interface import Rule


def findings_across(
    recipe: Recipe, version: str, lookup: Lookup, rules: Iterable[Rule]
) -> tuple[Finding, ...]:
    """The findings that need all roles of a recipe, at one engine version, but for what its
    comments silence. Each role is taken on the hardware that it names."""
    if not recipe.parts:
        return ()
    plans = [_plan(role, version, lookup) for role in recipe.parts]
    found = [finding for _, finding in examine_together(plans, rules)]
    return tuple(unsilenced(found, recipe.path))


def _plan(role: Recipe, version: str, lookup: Lookup) -> Plan:
    catalogue = load_catalogue(version)
    deployment = role.deployment
    spelling = spell(deployment.args, deployment.engine.env, catalogue)
    request = from_recipe(role, spelling, catalogue)
    chosen = choose_hardware(lookup.hardware, deployment.hardware.name, None)
    here = replace(lookup, hardware=chosen.hardware)
    return resolve(request, here.facts(request))
