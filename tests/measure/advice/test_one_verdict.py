"""Every verb repeats one memory verdict: 200 random deployments, all its users compared."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from speclaunch.app.output.plan_document import plan_document
from speclaunch.app.output.plan_page import plan_page
from speclaunch.app.output.plan_text import show_plan
from speclaunch.app.verbs.bench_sides import memory_warnings
from speclaunch.checks.edit.render_check import findings_of_recipe, plan_rendering
from speclaunch.checks.editors.document import EditorSettings, check_document
from speclaunch.checks.lint.configuration import Options
from speclaunch.checks.rules.examine import Lookup
from speclaunch.checks.rules.registry import all_rules
from speclaunch.deployments.recipe.load import load
from speclaunch.engine.facts.hardware import declare
from speclaunch.engine.plan.budget import Fit
from speclaunch.measure.advice.drafts import listing
from speclaunch.measure.advice.new_recipe import NotWrittenError, new_recipe
from speclaunch.measure.advice.plan_requests import planned_side, sides
from speclaunch.measure.advice.planned_deployment import PlannedDeployment
from speclaunch.measure.bench.sides import SideOptions, candidate
from speclaunch.serving.doctor.checks.machine import check_budget
from speclaunch.serving.doctor.facts import CheckState
from speclaunch.serving.doctor.gather import target_of
from speclaunch.serving.launch.inputs import _budget
from speclaunch.serving.launch.preflight import preflight
from speclaunch.serving.launch.session import Session
from tests.measure.advice.helpers import NEWEST, wanted
from tests.support.app.output.plan.helpers import shown
from tests.support.lint_report import collect, lint
from tests.support.serving.doctor.helpers import HEALTHY

CASES, A_PART = 200, 10
HARDWARE = ("rtx4090:1", "l40s:2", "a100-80gb:1", "h100:2", "h200:4", "b200:8", "h100:8")
TARGETS = (
    ("meta-llama/Llama-3.1-8B-Instruct", "lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B"),
    ("Qwen/Qwen3-8B", "z-lab/Qwen3-8B-DFlash-b16"),
    ("Qwen/Qwen3-32B", "Qwen/Qwen3-0.6B"),
    ("meta-llama/Llama-3.3-70B-Instruct", "meta-llama/Llama-3.2-1B-Instruct"),
    ("openai/gpt-oss-120b", ""),
    ("deepseek-ai/DeepSeek-R1", ""),
    ("Qwen/Qwen3-235B-A22B", ""),
    ("openbmb/MiniCPM3-4B", ""),
)
VERSIONS = ("0.5.23", "0.5.16", "0.5.12.post1")
_MEMORY = {"SPL506": Fit.FAILS, "SPL711": Fit.FAILS, "SPL712": Fit.TIGHT}


def recipe(number: int) -> str:
    """A random deployment: near the bound where the memory is enough, as often as not."""
    dice = random.Random(number)
    target, draft = dice.choice(TARGETS)
    args: dict[str, object] = {"model_path": target, "trust_remote_code": True}
    args["tp_size"] = dice.choice((1, 2, 4, 8))
    speculation = dice.choice(("ngram", "none", "draft"))
    if speculation == "draft" and draft:
        eagle, block = "EAGLE3" in draft, "DFlash" in draft
        args["speculative_algorithm"] = "EAGLE3" if eagle else "DFLASH" if block else "STANDALONE"
        args["speculative_draft_model_path"] = draft
        if not block:
            args |= {"speculative_num_steps": 3, "speculative_eagle_topk": 1}
            args["speculative_num_draft_tokens"] = 4
    elif speculation == "ngram":
        args |= {"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 8}
    for name, values in (
        ("mem_fraction_static", (None, 0.6, 0.75, 0.85, 0.9, 0.93, 0.96, 0.99)),
        ("max_running_requests", (None, 8, 48, 256)),
        ("chunked_prefill_size", (None, 2048, 16384)),
        ("context_length", (None, 8192)),
    ):
        value = dice.choice(values)
        if value is not None:
            args[name] = value
    found = {
        "defaults": ["base", "_self_"],
        "engine": {"version": dice.choice(VERSIONS)},
        "hardware": {"name": dice.choice(HARDWARE)},
        "args": args,
    }
    return yaml.safe_dump(found, sort_keys=False)


def by_codes(codes: Iterator[str]) -> Fit | None:
    """Return the verdict that findings state; None: it fits, or nobody knows."""
    found = {_MEMORY[code] for code in codes if code in _MEMORY}
    assert len(found) < 2
    return next(iter(found), None)


def plan(one: PlannedDeployment) -> Fit:
    text = shown(show_plan, one).partition("\nMemory")[2]
    heads = {
        "fits": Fit.FITS,
        "tight: fits only in the best case": Fit.TIGHT,
        "does not fit": Fit.FAILS,
        "memory use unknown": Fit.UNKNOWN,
    }
    assert f'"fit": "{one.budget.fit.value}"' in plan_document(one)
    return heads[text.strip().splitlines()[0].strip()]


def page(one: PlannedDeployment) -> Fit:
    heads = {
        "memory fits": Fit.FITS,
        "memory is tight": Fit.TIGHT,
        "memory: unknown": Fit.UNKNOWN,
    }
    heads["memory is too small"] = heads["too few GPUs"] = Fit.FAILS
    text = plan_page(one)
    return next(fit for head, fit in heads.items() if head in text)


def by_lint(path: Path) -> Fit | None:
    options = Options(Lookup(), all_rules(), installed=lambda: None)
    report = lint(collect([str(path)]), options)
    return by_codes(one.code for file in report.files for one in file.findings)


def by_lsp(path: Path) -> Fit | None:
    found = check_document(str(path), path.read_text(), {}, EditorSettings())
    return by_codes(one.finding.code for one in found.found)


def by_doctor(one: PlannedDeployment, session: Session) -> Fit:
    target = target_of(
        session.prepared.recipe,
        one.plan,
        version=one.version,
        requested=(),
        installed=None,
        hardware=None,
        elsewhere=True,
        meant_for=None,
        compiled=False,
        own_variables=frozenset(),
    )
    (line,) = check_budget(replace(HEALTHY, target=target))
    if line.state is CheckState.UNKNOWN:
        return Fit.UNKNOWN
    assert (line.state is CheckState.OK) == (one.budget.fit is Fit.FITS)
    name = session.prepared.recipe.deployment.name
    said = line.found.removeprefix(f"{name} ").partition(":")[0]
    return next(fit for fit in Fit if fit.text == said)


def by_launch(one: PlannedDeployment, session: Session) -> Fit | None:
    lookup = Lookup(hardware=declare(session.prepared.recipe.deployment.hardware.name))
    findings = preflight(session.prepared, lookup, all_rules()).findings
    assert _budget(session.plan_with({})).fit == one.budget.fit.value
    return by_codes(finding.code for finding in findings)


def by_bench(path: Path) -> Fit | None:
    side = candidate([f"recipe={path}"], SideOptions((), None, Lookup(), dry_run=True))
    for text in memory_warnings([side]):
        return next(fit for fit in Fit if f" {fit.text}:" in text)
    return None


def by_render(path: Path) -> Fit | None:
    recipe, lookup = load(str(path)), Lookup()
    found = findings_of_recipe(plan_rendering(recipe, None, lookup), recipe, lookup, all_rules())
    return by_codes(one.code for one in found)


@pytest.mark.thorough
@pytest.mark.campaign
@pytest.mark.parametrize("part", range(CASES // A_PART))
def test_every_user_of_the_verdict_agrees(
    part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong: list[str] = []
    for number in range(part * A_PART, (part + 1) * A_PART):
        path = tmp_path / f"r{number}.yaml"
        path.write_text(recipe(number))
        (side,) = sides([f"recipe={path}"], None, [])
        one = planned_side(side, Lookup(), all_rules(), fit=False, requested_load=None)
        session = Session(side.prepared, one.plan.facts, ())
        fit = one.budget.fit
        users: dict[str, Callable[[], Fit | None]] = {
            "plan": lambda one=one: plan(one),
            "page": lambda one=one: page(one),
            "lint": lambda path=path: by_lint(path),
            "lsp": lambda path=path: by_lsp(path),
            "doctor": lambda one=one, session=session: by_doctor(one, session),
            "launch": lambda one=one, session=session: by_launch(one, session),
            "render": lambda path=path: by_render(path),
            "bench": lambda path=path: by_bench(path),
        }
        for name, ask in users.items():
            found = ask()
            silent = found is None and fit in (Fit.FITS, Fit.UNKNOWN)
            if found is not fit and not silent:
                wrong.append(f"{path.name}: plan {fit}, {name} {found}")
        if one.fails != (fit is Fit.FAILS or any(x.severity == "error" for x in one.findings)):
            wrong.append(f"{path.name}: exit code")
    assert not wrong


@pytest.mark.thorough
def test_the_deployments_have_every_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = set()
    for number in range(40):
        (tmp_path / "r.yaml").write_text(recipe(number))
        (side,) = sides(["recipe=r.yaml"], None, [])
        found.add(planned_side(side, Lookup(), (), fit=False, requested_load=None).budget.fit)
    assert found == set(Fit)


@pytest.mark.campaign
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("target", "hardware"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", "h100:2"),
        ("Qwen/Qwen3-14B", "rtx5090:1"),
        ("Qwen/Qwen3-8B", "rtx4090:1"),
        ("openai/gpt-oss-20b", "t4:1"),
    ],
)
def test_drafts_and_init_agree(target: str, hardware: str) -> None:
    """What `drafts` says of a way is the verdict of the recipe that `init` writes for it."""
    asked = wanted(target, hardware)
    wrong = []
    for one in listing(asked.target, asked.lookup, (NEWEST,)).ways:
        if one.memory is None or one.memory.verdict is Fit.UNKNOWN:
            continue
        found = {}
        for tight in (False, True):
            try:
                made = new_recipe(replace(asked, way=one.way, tight=tight))
            except NotWrittenError:
                found[tight] = Fit.FAILS
            else:
                found[tight] = made.planned.budget.fit
        fits = {
            Fit.FITS: (Fit.FITS, Fit.FITS),
            Fit.TIGHT: (Fit.FAILS, Fit.TIGHT),
            Fit.FAILS: (Fit.FAILS, Fit.FAILS),
        }[one.memory.verdict]
        if (found[False], found[True]) != fits:
            wrong.append((one.way.method, one.way.draft, one.memory.verdict, found))
    assert not wrong
