"""Every recipe that ships is planned whole, with nothing but the index: no network, no checkpoint."""

from __future__ import annotations

import pytest

from speclaunch.checks.rules.examine import Lookup, check_request
from speclaunch.checks.rules.registry import all_rules
from speclaunch.deployments.recipe.find_recipe import recipe_names
from speclaunch.deployments.recipe.load import load
from speclaunch.deployments.sources.requests import from_recipe
from speclaunch.engine.facts.hardware import declare
from speclaunch.engine.plan.budget import Fit
from speclaunch.engine.plan.memory.budget import budget
from speclaunch.engine.releases.catalogue import held_versions
from speclaunch.engine.releases.catalogue import load as load_catalogue
from speclaunch.engine.releases.command import render_args

OURS = sorted(name for name in recipe_names() if not name.startswith("cpu_"))
UNREAD = {"dflash_llama8b": {"SPL402"}}
"""Rules that want a key which no source shows: the draft's context."""


@pytest.mark.parametrize("name", OURS)
def test_its_checkpoints_are_known_and_its_memory_is(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", "/nonexistent")
    recipe = load(name)
    engine = recipe.deployment.engine
    version = next(v for v in reversed(held_versions()) if engine.specifier.contains(v))
    catalogue = load_catalogue(version)
    spelling = render_args(recipe.deployment.args, engine.env, catalogue)
    request = from_recipe(recipe, spelling, catalogue)
    found = check_request(request, Lookup(hardware=declare("h200:8")), all_rules())
    assert not [fact for fact in found.plan.facts.unknown if "checkpoint" in fact.what]
    assert {one.code for one in found.results.skipped} == UNREAD.get(name, set())
    assert not found.results.errors
    assert budget(found.plan).fit is Fit.FITS
