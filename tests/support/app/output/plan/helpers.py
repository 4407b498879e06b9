"""Plans with budgets made by hand, to be shown."""

from __future__ import annotations

from io import StringIO
from typing import Any

from msgspec.structs import replace
from rich.console import Console

from speclaunch.checks.rules.examine import check_rules
from speclaunch.checks.rules.registry import all_rules
from speclaunch.deployments.recipe.load import load
from speclaunch.deployments.targets.prepare import prepare
from speclaunch.engine.facts.facts import Checkpoint, Facts
from speclaunch.engine.facts.hardware import declare
from speclaunch.engine.plan.budget import (
    Fit,
    MemoryBudget,
    MemoryPhase,
    MemoryShare,
    MemorySize,
    MemoryUse,
    RankBudget,
)
from speclaunch.engine.plan.effective_arguments import effective_arguments
from speclaunch.engine.plan.resolve import resolve
from speclaunch.measure.advice.planned_deployment import PlannedDeployment, command_of, coverage

GIB = 1 << 30
MEMORY = 80 * GIB
TARGET = Checkpoint(
    "meta-llama/Meta-Llama-3.1-8B-Instruct",
    architectures=("LlamaForCausalLM",),
    model_type="llama",
    dtype="bfloat16",
    context_length=131072,
    hidden_size=4096,
    vocab_size=128256,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    is_moe=False,
)
DRAFT = replace(
    TARGET,
    name="jamesliu1/sglang-EAGLE3-Llama-3.1-Instruct-8B",
    architectures=("LlamaForCausalLMEagle3",),
    dtype="float16",
    num_hidden_layers=1,
    draft_vocab_size=32000,
    context_length=2048,
    has_token_map=True,
)
RECIPE = "eagle3_llama8b"


def size(gib: float, why: str = "measured", *, exact: bool = True) -> MemorySize:
    return MemorySize(int(gib * GIB), why, exact)


def rank(*ranks: int, short: float = 0, **gib: float) -> RankBudget:
    """A rank of 80 GiB: uses by name, what is left is free."""
    shares = [
        MemoryShare(MemoryUse[name.upper()], size(amount, exact=name != "graphs"))
        for name, amount in gib.items()
    ]
    free = MEMORY + int(short * GIB) - sum(share.size.bytes for share in shares)
    shares.append(MemoryShare(MemoryUse.FREE, MemorySize(free, "what is left")))
    return RankBudget(ranks, MEMORY, tuple(shares), int(short * GIB))


FITS = MemoryBudget(
    Fit.FITS,
    "56.0 of 80.0 GiB are static, and 12.1 GiB remain for graphs and activations",
    ranks=(
        rank(
            0, 1, 2, 3,
            runtime=0.6, target_weights=14.96, draft_weights=0.78, target_kv=37.2, draft_kv=1.2,
            request_slots=0.02, graphs=1.4, activations=2.1,
        ),
    ),
    target_kv=MemorySize(131072, "2 x 32 layers x 8 heads x 128 x 2 bytes"),
    draft_kv=MemorySize(4096, "2 x 1 layer x 8 heads x 128 x 2 bytes"),
    tokens=304_742,
    running_requests=48,
    context_length=131072,
    requests_at_context=2,
    mem_fraction_static=0.7,
    working_fractions=(0.231, 0.912),
    notes=("graphs and activations are estimates",),
)  # fmt: skip
FAILS = MemoryBudget(
    Fit.FAILS,
    "capturing CUDA graphs needs 7.4 GiB, 1.2 GiB are left",
    MemoryPhase.GRAPHS,
    "Capture cuda graph failed: CUDA out of memory",
    ranks=(
        rank(
            0,
            short=6.2, runtime=0.6, target_weights=14.96, draft_weights=0.78, target_kv=57.2,
            draft_kv=1.8, graphs=7.4, activations=3.46,
        ),
    ),
    tokens=468_000,
    running_requests=48,
    context_length=131072,
    requests_at_context=3,
    mem_fraction_static=0.95,
    working_fractions=(0.231, 0.912),
)  # fmt: skip
UNKNOWN = MemoryBudget(Fit.UNKNOWN, "nobody can tell", unknown=("the memory of the GPU",))


_KEPT: dict[str, PlannedDeployment] = {}


def planned(
    *overrides: str,
    recipe: str = RECIPE,
    version: str = "0.5.23",
    hardware: str | None = "h100",
    budget: MemoryBudget = FITS,
    target: Checkpoint | None = TARGET,
    draft: Checkpoint | None = DRAFT,
) -> PlannedDeployment:
    """A recipe planned for hardware that is named, with a budget made by hand."""
    key = repr((overrides, recipe, version, hardware, target, draft))
    if key not in _KEPT:
        _KEPT[key] = _planned(overrides, recipe, version, hardware, Facts(target, draft))
    found = _KEPT[key]
    return replace(found, budget=budget, coverage=coverage(found.plan, budget.running_requests))


def _planned(
    overrides: tuple[str, ...], recipe: str, version: str, hardware: str | None, facts: Facts
) -> PlannedDeployment:
    prepared = prepare(load(recipe, list(overrides)), version, dry_run=True)
    facts = replace(facts, hardware=declare(hardware) if hardware else None)
    plan = resolve(prepared.request({}), facts)
    judgement = check_rules(plan, all_rules())
    deployment = prepared.recipe.deployment
    return PlannedDeployment(
        label=deployment.name,
        name=deployment.name,
        description=deployment.description,
        path=str(prepared.recipe.path),
        version=version,
        hardware=hardware,
        hardware_note="" if hardware else "no GPU answers",
        plan=plan,
        rows=effective_arguments(plan),
        budget=FITS,
        coverage=coverage(plan),
        findings=judgement.findings,
        skipped=judgement.skipped,
        command=command_of(prepared),
    )


def shown(
    show: Any, *arguments: Any, width: int = 120, terminal: bool = True, encoding: str = "utf-8",
    color: bool = False, **options: Any,
) -> str:  # fmt: skip
    """What a function prints on a terminal of some width, or into a pipe."""

    class Stream(StringIO):
        pass

    Stream.encoding = encoding  # type: ignore[assignment]
    stream = Stream()
    console = Console(
        file=stream, width=width if terminal else 400, force_terminal=terminal, highlight=False,
        soft_wrap=True, color_system="truecolor" if color else None, legacy_windows=False,
    )  # fmt: skip
    show(console, *arguments, **options)
    return stream.getvalue()
