"""Every value that resolution sets has a reason and the engine's own line for it."""

from __future__ import annotations

import re

import pytest

from speclaunch.deployments.recipe.find_recipe import recipe_names
from speclaunch.deployments.recipe.load import load as load_recipe
from speclaunch.deployments.sources.requests import from_recipe, from_words
from speclaunch.engine.facts.facts import Facts
from speclaunch.engine.facts.hardware import declare
from speclaunch.engine.plan.plan import Plan
from speclaunch.engine.plan.resolve import resolve
from speclaunch.engine.releases.catalogue import load as load_catalogue
from speclaunch.engine.releases.command import render_args
from tests.engine.plan.resolving import B200, H100, LLAMA, plan
from tests.support.conformance import data
from tests.support.conformance.compare import checkpoint, hardware

VERSIONS = ("0.4.6.post5", "0.5.2", "0.5.3.post3", "0.5.10.post1", "0.5.14", "0.5.18", "0.5.23")
SOURCE = re.compile(
    r"sglang \d+\.\d+\.\d+[\w.]* [\w/]+\.py:\d+(, (\d+\.\d+[\w.]* )?[\w/]*(\.py)?:\d+)*"
)


def unexplained(found: Plan) -> list[str]:
    """Values without a reason, or with one that is not whole."""
    wrong = []
    for name in found.resolved:
        reason = found.reasons.get(name)
        if reason is None or not reason.why.strip() or not SOURCE.fullmatch(reason.source):
            wrong.append(f"{name}: {reason}")
    return wrong


@pytest.mark.campaign
@pytest.mark.thorough
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", sorted(recipe_names()))
def test_every_value_of_our_recipes_has_a_reason(name: str, version: str) -> None:
    recipe = load_recipe(name)
    catalogue = load_catalogue(version)
    spelling = render_args(recipe.deployment.args, recipe.deployment.engine.env, catalogue)
    request = from_recipe(recipe, spelling, catalogue)
    for machine in (H100, B200, declare("cpu"), None):
        found = resolve(request, Facts(LLAMA, None, machine))
        assert not unexplained(found)
        assert set(found.reasons) == set(found.resolved)


@pytest.mark.campaign
@pytest.mark.thorough
@pytest.mark.parametrize("version", data.versions())
def test_every_value_of_the_configurations_has_a_reason(version: str) -> None:
    """Every eighth of them: each algorithm, backend and model is among them."""
    for said in data.load(version)[::8]:
        request = from_words(said.words, said.env, load_catalogue(version))
        path = request.values.get("model_path")
        draft = request.values.get("speculative_draft_model_path")
        facts = Facts(
            checkpoint(str(path.value)) if path else None,
            checkpoint(str(draft.value)) if draft else None,
            hardware(said.machine),
        )
        assert not unexplained(resolve(request, facts)), said.words


def test_a_reason_has_the_numbers_that_decide() -> None:
    found = plan("0.5.13.post1", "--speculative-algorithm EAGLE3 --tp-size 2")
    why = found.reasons["mem_fraction_static"].why
    for number in ("81559", "12288", "8192 tokens", "256", "4096 for the draft of EAGLE3"):
        assert number in why
    assert "60 to 160 GiB" in found.reasons["cuda_graph_max_bs_decode"].why
    assert "tp_size 2" in found.reasons["cuda_graph_max_bs_decode"].why


def test_a_given_value_needs_no_reason() -> None:
    found = plan("0.5.23", "--mem-fraction-static 0.7 --chunked-prefill-size 4096")
    assert not {"mem_fraction_static", "chunked_prefill_size"} & set(found.reasons)
    assert found.value("mem_fraction_static") == 0.7
