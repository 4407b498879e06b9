"""`--fit`: what would fit, as a change of the recipe."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from speclaunch.app.output.plan_document import plan_document
from speclaunch.app.output.plan_page import plan_page
from speclaunch.app.output.plan_text import show_plan
from speclaunch.deployments.recipe.load import load
from speclaunch.deployments.targets.prepare import Prepared, prepare
from speclaunch.engine.facts.facts import Facts
from speclaunch.engine.facts.hardware import declare
from speclaunch.engine.plan.budget import Fit
from speclaunch.engine.plan.fit import Alternative, Suggested, Suggestion
from speclaunch.engine.plan.memory.budget import budget
from speclaunch.engine.plan.plan import Plan
from speclaunch.engine.plan.resolve import resolve
from speclaunch.measure.advice.planned_deployment import Fitting, fitting
from tests.support.app.output.plan.helpers import (
    FAILS,
    FITS,
    TARGET,
    UNKNOWN,
    PlannedDeployment,
    planned,
    shown,
)

WORKS = Fitting(
    Suggestion(
        Fit.FITS,
        "45,000 tokens fit",
        "keep running requests",
        FAILS,
        (Suggested("mem_fraction_static", 0.95, 0.87, "it divides <memory>", "9 % of the tokens"),),
        FITS,
        "9 % of the tokens",
    ),
    ("- mem_fraction_static: 0.95", "+ mem_fraction_static: 0.87"),
    ("++args.mem_fraction_static=0.87",),
)
NOTHING = Fitting(
    Suggestion(
        Fit.FAILS,
        "the weights alone are too large",
        "keep running requests",
        FAILS,
        alternatives=(
            Alternative("tensor parallelism across 4 GPUs", {"tp_size": 4}, "fits", True),
        ),
    )
)


def having(found: Fitting) -> PlannedDeployment:
    return replace(planned(budget=FAILS), fitting=found)


@pytest.mark.parametrize(("width", "terminal"), [(60, True), (120, True), (400, False)])
def test_on_a_terminal(width: int, terminal: bool) -> None:
    text = shown(show_plan, having(WORKS), width=width, terminal=terminal)
    for said in (
        "these settings fit",
        "mem_fraction_static: 0.95 \N{RIGHTWARDS ARROW} 0.87",
        "cost: 9 % of the tokens",
        "-   mem_fraction_static: 0.95",
        "+   mem_fraction_static: 0.87",
        "++args.mem_fraction_static=0.87",
    ):
        assert said in text
    none = shown(show_plan, having(NOTHING), width=width, terminal=terminal)
    assert "no settings fit" in none and "tensor parallelism across 4 GPUs: fits" in none
    assert "What fits" not in shown(show_plan, planned())


@pytest.mark.thorough
def test_on_a_page_and_as_json() -> None:
    page = plan_page(having(WORKS))
    assert "<ins>+ mem_fraction_static: 0.87</ins>" in page
    assert "it divides &lt;memory&gt;" in page and "<memory>" not in page
    assert "tensor parallelism across 4 GPUs" in plan_page(having(NOTHING))
    found = json.loads(plan_document(having(WORKS)))["suggestion"]
    assert found["fit"] == "fits" and found["changes"][0]["value"] == 0.87
    assert found["overrides"] == ["++args.mem_fraction_static=0.87"]
    assert json.loads(plan_document(planned()))["suggestion"] is None


def asked(*overrides: str, hardware: str | None = "rtx4090") -> tuple[Prepared, Plan]:
    """NGRAM on Llama-3.1-8B, 16 GB of weights, on a GPU of 24 GB."""
    words = ["args.speculative_num_draft_tokens=8", *overrides]
    prepared = prepare(load("ngram_qwen7b", words), "0.5.12", dry_run=True)
    facts = Facts(
        replace(TARGET, config={"hidden_size": 4096, "intermediate_size": 14336}),
        None,
        declare(hardware) if hardware else None,
    )
    return prepared, resolve(prepared.request({}), facts)


def test_of_a_recipe_without_facts_nothing_is_known() -> None:
    found = fitting(*asked(hardware=None))
    assert found.suggestion.fit is Fit.UNKNOWN and not found.diff
    assert found.head == "fitting settings are unknown"


@pytest.mark.thorough
def test_following_the_suggestion_makes_it_fit() -> None:
    prepared, plan = asked("args.mem_fraction_static=0.99")
    assert budget(plan).fit is Fit.FAILS
    found = fitting(prepared, plan)
    assert found.suggestion.fit is Fit.FITS and found.diff
    changed = load("ngram_qwen7b", [
        "args.speculative_num_draft_tokens=8", "args.mem_fraction_static=0.99", *found.overrides
    ])  # fmt: skip
    after = prepare(changed, "0.5.12", dry_run=True)
    assert budget(resolve(after.request({}), plan.facts)).fit is Fit.FITS
    assert "- mem_fraction_static: 0.99" in found.diff


def test_what_fits_needs_no_change() -> None:
    found = fitting(*asked("args.mem_fraction_static=0.85"))
    assert found.head == "it fits unchanged" and found.diff == () and found.overrides == ()


def test_unknown_budgets_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    unknown = Fitting(Suggestion(Fit.UNKNOWN, "nobody can tell", "keep requests", UNKNOWN))
    assert "fitting settings are unknown" in shown(show_plan, having(unknown))
