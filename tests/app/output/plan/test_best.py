"""`--best`, and what `--fit` says of settings that fit and are of little use."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from speclaunch.app.output.plan_document import plan_document
from speclaunch.app.output.plan_page import plan_page
from speclaunch.app.output.plan_text import show_plan
from speclaunch.core.errors import InputError
from speclaunch.deployments.recipe.load import load
from speclaunch.deployments.targets.prepare import prepare
from speclaunch.engine.plan.budget import Fit
from speclaunch.engine.plan.fit import RequestLoad
from speclaunch.engine.plan.fit_predictor import margins
from speclaunch.engine.plan.memory.budget import budget
from speclaunch.engine.plan.resolve import resolve
from speclaunch.measure.advice.planned_deployment import Advice, PlannedDeployment, advice, fitting
from tests.app.output.plan.test_fitting import asked
from tests.support.app.output.plan.helpers import planned, shown


def having(found: Advice) -> PlannedDeployment:
    return replace(planned(), advice=found, margins=found.best.margins)


@pytest.mark.thorough
def test_on_a_terminal_on_a_page_and_as_json() -> None:
    found = advice(*asked(hardware="h100"), 16, 4096)
    assert found.best.fit is Fit.FITS
    text = shown(show_plan, having(found), width=200, terminal=False)
    for said in (
        "Best for the load  16 requests of 4,096 tokens",
        "the complete load fits",
        "mem_fraction_static, certain",
        "mem_fraction_static, likely",
        "mem_fraction_static, edge",
        "free in the best case",
        "+   max_running_requests: 16",
    ):
        assert said in text, said
    assert "Best for the load" in plan_page(having(found))
    document = json.loads(plan_document(having(found)))
    best = document["best"]
    assert (best["requests"], best["context"], best["requests_with_room"]) == (16, 4096, 16)
    assert best["arguments"]["max_running_requests"] == 16
    assert best["margins"]["likely"]["mem_fraction_static"] > 0.5
    assert document["margins"] == best["margins"]
    none = json.loads(plan_document(planned()))
    assert none["best"] is None and none["margins"] is None


def test_a_load_that_nobody_knows_has_no_numbers() -> None:
    found = advice(*asked(hardware=None), 4)
    nobody = replace(found, best=replace(found.best, load=RequestLoad(0, 0)))
    assert "0 requests" not in shown(show_plan, having(nobody), width=200)
    best = json.loads(plan_document(having(nobody)))["best"]
    assert best["requests"] is None and best["context"] is None
    assert (RequestLoad(4, 0).summary, RequestLoad(1, 8192).summary) == (
        "4 requests",
        "1 request of 8,192 tokens",
    )


def test_following_the_advice_serves_the_load() -> None:
    words = ["args.speculative_num_draft_tokens=8"]
    prepared, plan = asked()
    found = advice(prepared, plan, 64, 4096)
    assert found.best.fit is Fit.FAILS and found.head == "part of the load fits"
    after = prepare(load("ngram_qwen7b", [*words, *found.overrides]), "0.5.12", dry_run=True)
    there = budget(resolve(after.request({}), plan.facts))
    assert there.fit is Fit.FITS and there.running_requests == found.best.requests
    assert found.best.requests * 4096 <= (there.tokens or 0)


@pytest.mark.thorough
def test_what_cannot_be() -> None:
    with pytest.raises(InputError, match="exceeds this model's limit"):
        advice(*asked(), 1, 1 << 20)
    unknown = advice(*asked(hardware=None), 1, 100)
    assert unknown.best.fit is Fit.UNKNOWN and unknown.head == "the best settings are unknown"
    assumed = advice(*asked("~speculation", hardware="h100"))
    assert assumed.best.load == RequestLoad(32, 4096, ("--requests 32", "--context 4096"))
    beyond = advice(*asked("++args.tp_size=16", hardware="h100:8"), 1, 100)
    assert beyond.best.fit is Fit.FAILS and "needs 16 GPUs" in beyond.best.why


def test_a_pool_that_fits_and_serves_nobody_is_not_good_enough() -> None:
    """At the least fraction there is a pool, of a few tokens for each of 48 requests."""
    _, plan = asked()
    choices = margins(plan)
    assert choices is not None and choices.likely is not None
    least = round(choices.least + 0.002, 3)
    prepared, plan = asked(f"args.mem_fraction_static={least}")
    now = budget(plan)
    assert now.fit is Fit.FITS and (now.tokens or 0) < 48 * 512
    found = fitting(prepared, plan)
    assert found.head == "these settings fit better"
    assert "for each of 48 running requests" in found.suggestion.why
    assert "is likely to work" in found.suggestion.why
    (change,) = found.suggestion.changes
    assert change.value == pytest.approx(choices.likely.fraction, abs=0.0011)


def test_a_fraction_at_the_edge_is_not_good_enough() -> None:
    _, plan = asked()
    choices = margins(plan)
    assert choices is not None and choices.edge is not None
    prepared, plan = asked(f"args.mem_fraction_static={choices.edge.fraction:.3f}")
    assert budget(plan).fit is Fit.TIGHT
    found = fitting(prepared, plan)
    assert found.suggestion.fit is Fit.FITS and found.head == "these settings fit"
    assert found.suggestion.arguments["mem_fraction_static"] < choices.edge.fraction


def test_ranks_without_a_gpu_fit_nothing() -> None:
    found = fitting(*asked("++args.tp_size=16", hardware="h200:8"))
    assert found.head == "no settings fit"
    assert "tp_size=16 needs 16 GPUs on one machine, but h200 has 8" in found.suggestion.why


@pytest.mark.thorough
def test_an_assumed_load_is_stated_with_the_new_command() -> None:
    found = advice(*asked(hardware="h100"))
    assert found.best.fit is Fit.FITS and found.command is not None
    text = shown(show_plan, having(found), width=200, terminal=False)
    assert "no load is set; this assumes --requests 32 --context 4096" in text
    fraction = found.best.changes["mem_fraction_static"]
    assert f"--mem-fraction-static {fraction:g}" in text.partition("with the settings above")[2]
    assert "(assumed: --requests 32 --context 4096)" in plan_page(having(found))
    best = json.loads(plan_document(having(found)))["best"]
    assert best["assumed"] == ["--requests 32", "--context 4096"]
    assert best["command"] == found.command
