"""What `init` writes for 40 targets on six kinds of hardware, and whether a grid search does better.

`python -m tests.measure.advice.init_sweep` shows the whole sweep: the share refused, with reasons.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from speclaunch.checks.lint.configuration import Options
from speclaunch.checks.rules.examine import Lookup
from speclaunch.checks.rules.interface import Severity
from speclaunch.checks.rules.registry import all_rules
from speclaunch.core.errors import SpeclaunchError
from speclaunch.engine.facts.hardware import declare
from speclaunch.engine.plan.budget import Fit
from speclaunch.engine.plan.memory.budget import memory_verdict
from speclaunch.engine.plan.plan import Plan
from speclaunch.engine.plan.resolve import resolve
from speclaunch.measure.advice.drafts import too_early, ways_for
from speclaunch.measure.advice.new_recipe import NewRecipe, NotWrittenError, new_recipe
from speclaunch.measure.advice.placing import request_of, settle
from speclaunch.measure.advice.plan_requests import planned_side, sides
from tests.measure.advice.helpers import NEWEST, wanted
from tests.support.lint_report import collect, lint

HARDWARE = ("rtx4090:1", "l40s:2", "a100-80gb:1", "h100:2", "h200:8", "b200:4")
TARGETS = (
    "Qwen/Qwen3-4B", "meta-llama/Llama-3.2-3B-Instruct",
    "google/gemma-4-31B-it", "MiniMaxAI/MiniMax-M2.5", "Qwen/QwQ-32B",
    "Qwen/Qwen2-72B-Instruct", "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-VL-7B-Instruct",
    "Qwen/Qwen3-1.7B", "Qwen/Qwen3-8B", "Qwen/Qwen3-14B", "Qwen/Qwen3-32B", "Qwen/Qwen3-30B-A3B",
    "Qwen/Qwen3-235B-A22B", "Qwen/Qwen3-Next-80B-A3B-Instruct", "Qwen/Qwen3-VL-32B-Instruct",
    "Qwen/Qwen3.5-27B", "Qwen/Qwen3.5-35B-A3B", "XiaomiMiMo/MiMo-7B-RL", "zai-org/GLM-4.5-Air",
    "zai-org/GLM-4.6", "zai-org/GLM-5-FP8", "codellama/CodeLlama-7b-hf",
    "deepseek-ai/DeepSeek-R1", "deepseek-ai/DeepSeek-V3.2", "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
    "google/gemma-2-9b", "google/gemma-3-27b-it", "meta-llama/Llama-2-7b-chat-hf",
    "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.3-70B-Instruct",
    "meta-llama/Llama-4-Scout-17B-16E-Instruct", "microsoft/phi-4", "microsoft/Phi-3.5-mini-instruct",
    "mistralai/Mistral-7B-Instruct-v0.3", "mistralai/Mixtral-8x7B-v0.1", "moonshotai/Kimi-K2.5",
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "openai/gpt-oss-20b", "openai/gpt-oss-120b",
)  # fmt: skip
LENGTHENED = "SPL403"
"""The one warning that a recipe may have: it is in its result line, too."""
WORSE = 0.9
"""A recipe has at least this share of the KV tokens that a grid search finds."""
LEAST = 8192


@dataclass
class Swept:
    """One target on one kind of hardware."""

    target: str
    hardware: str
    recipe: NewRecipe | None
    refused: str = ""
    wrong: list[str] = field(default_factory=list)


def swept(target: str, hardware: str) -> Swept:
    """Return what `init` does, and what is wrong with it."""
    try:
        made = new_recipe(wanted(target, hardware))
    except NotWrittenError as error:
        found = Swept(target, hardware, None, str(error))
        better = fitting_by_grid(target, hardware)
        if better is not None:
            found.wrong.append(f"refused, and {better} fits")
        return found
    found = Swept(target, hardware, made)
    with tempfile.TemporaryDirectory() as folder:
        found.wrong += _checked(made, Path(folder) / "new.yaml")
    best = best_by_grid(made, hardware)
    tokens = made.placed.budget.tokens or 0
    if tokens < WORSE * best:
        found.wrong.append(f"{tokens:,} KV tokens, and a grid search finds {best:,}")
    return found


def _checked(made: NewRecipe, path: Path) -> Iterator[str]:
    path.write_text(made.text)
    (side,) = sides([f"recipe={path}"], None, [])
    plan = planned_side(side, Lookup(), all_rules(), fit=False, requested_load=None)
    if plan.budget.fit is not Fit.FITS:
        yield f"its plan says: {plan.budget.fit}, {plan.budget.why}"
    report = lint(collect([str(path)]), Options(Lookup(), all_rules(), installed=lambda: None))
    for one in (one for file in report.files for one in file.findings):
        if one.severity is not Severity.INFO and one.code != LENGTHENED:
            yield f"lint: {one.code} {one.message}"
    yield from _context(made, plan.plan, plan.budget.tokens or 0)


def _context(made: NewRecipe, plan: Plan, tokens: int) -> Iterator[str]:
    """A context that is not the whole one is a warning with both numbers, and no trial."""
    target = plan.facts.target
    own = None if target is None else target.context_in(NEWEST)
    if own is None:
        return
    served = min(plan.value("context_length") or own, tokens)
    said = " ".join(made.placed.warnings)
    if served < own and not (f"{served:,}" in said and f"{own:,}" in said):
        yield f"context: {served:,} of {own:,} without a warning ({said})"
    if served < min(own, LEAST):
        yield f"context: {served:,} of {own:,}"


def best_by_grid(made: NewRecipe, hardware: str) -> int:
    """Return the most KV tokens that fit with the recipe's requests, context and other settings."""
    lookup = Lookup(hardware=declare(hardware))
    arguments = made.placed.settled.arguments
    most = 0
    for step in range(20, 99):  # up to 0.98, the limit of `recovery.limits`
        tried = {**arguments, "mem_fraction_static": step / 100}
        memory = memory_verdict(_plan(tried, made.placed.settled.env, lookup))
        if memory.fit is Fit.FITS:
            most = max(most, memory.tokens or 0)
    return most


def fitting_by_grid(target: str, hardware: str) -> str | None:
    """Return settings that fit and that the rules accept, with a useful KV cache; None: none do."""
    lookup = Lookup(hardware=declare(hardware))
    rules = [rule for rule in all_rules() if rule.code not in ("SPL711", "SPL712")]
    asked = wanted(target, hardware)
    gpus = lookup.hardware
    assert gpus is not None
    for way in ways_for(asked.target):
        if way.unusable or too_early(way, NEWEST):
            continue
        for ranks in (one for one in (8, 4, 2, 1) if one <= gpus.count):
            base = {"model_path": target, **way.arguments, "tp_size": ranks}
            settled = settle(base, NEWEST, lookup, rules)
            if not settled.clean:
                continue
            for settings in _grid():
                plan = _plan({**settled.arguments, **settings}, settled.env, lookup)
                memory = memory_verdict(plan)
                useful = (memory.tokens or 0) >= LEAST or memory.requests_at_context
                if memory.fit is Fit.FITS and useful:
                    return f"{way.method} with {way.draft}, tp_size={ranks}, {settings}"
    return None


def _grid() -> Iterator[Mapping[str, Any]]:
    for running in (4, 16):
        for chunk in (1024, 4096):
            for fraction in range(40, 99, 3):
                yield {
                    "max_running_requests": running,
                    "cuda_graph_max_bs_decode": running,
                    "chunked_prefill_size": chunk,
                    "mem_fraction_static": fraction / 100,
                }


def _plan(arguments: Mapping[str, Any], env: Mapping[str, str], lookup: Lookup) -> Plan:
    request = request_of(arguments, env, NEWEST)
    return resolve(request, lookup.facts(request))


def main() -> None:
    """Print the sweep, the refusals with their reasons, and what is wrong."""
    reasons: Counter[str] = Counter()
    written = 0
    for target in TARGETS:
        for hardware in HARDWARE:
            try:
                found = swept(target, hardware)
            except SpeclaunchError as error:
                print(f"{target} {hardware}: {type(error).__name__} {error}", flush=True)
                continue
            if found.recipe is None:
                reasons[_reason(found.refused)] += 1
                said = f"refused ({_reason(found.refused)})"
            else:
                written += 1
                placed = found.recipe.placed
                said = (
                    f"{found.recipe.way.method} on {placed.ranks}, "
                    f"{placed.budget.tokens or 0:,} tokens; {'; '.join(placed.warnings)}"
                )
            print(f"{target} {hardware}: {said}", flush=True)
            for wrong in found.wrong:
                print(f"    WRONG {wrong}", flush=True)
    print(f"written {written}; refused: {dict(reasons)}")


def _reason(text: str) -> str:
    unknown = "is unknown" in text or "memory unknown" in text
    if unknown and "missing" not in text and "more than is available" not in text:
        return "memory unknown"
    if "has no class" in text:
        return "no class"
    return "memory" if "GiB" in text or "tokens" in text else "rules"


if __name__ == "__main__":
    main()
