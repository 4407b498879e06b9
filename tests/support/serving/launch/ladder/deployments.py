"""Deployments for tests of the ladder: a small model on one GPU, and budgets that are simple enough
to work out by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from packaging.specifiers import SpecifierSet

from speclaunch.deployments.sources.requests import from_words
from speclaunch.engine.facts.facts import Facts
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
from speclaunch.engine.plan.plan import Plan
from speclaunch.engine.plan.resolution.graphs import captured_sizes
from speclaunch.engine.plan.resolve import resolve
from speclaunch.engine.releases.catalogue import load
from speclaunch.engine.releases.command import render_args
from speclaunch.serving.launch.diagnosis.interface import Cause, Diagnosis, Direction
from speclaunch.serving.launch.engine_log import Phase
from speclaunch.serving.launch.planner import Attempt
from tests.support.serving.simulator.models import TARGETS, one_layer_draft

GIB = 1 << 30
TARGET = next(model for model in TARGETS if model.name == "llama-3.1-8b")
TREE = {
    "speculative_num_steps": 5,
    "speculative_eagle_topk": 8,
    "speculative_num_draft_tokens": 64,
}
CHAIN = {
    "speculative_num_steps": 5,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 6,
}


def planner(
    args: Mapping[str, Any], version: str = "0.5.23", hardware: str = "h100"
) -> Callable[[Mapping[str, Any]], Plan]:
    """`plan_with` of an EAGLE-3 deployment of Llama-3.1-8B with these arguments on top."""
    draft = one_layer_draft(TARGET, eagle3=True)
    facts = Facts(TARGET.checkpoint(), draft.checkpoint(), declare(hardware))
    catalogue = load(version)
    base = {
        "model_path": TARGET.name,
        "speculative_algorithm": "EAGLE3",
        "speculative_draft_model_path": draft.name,
        **args,
    }

    def plan_with(changes: Mapping[str, Any]) -> Plan:
        spelling = render_args({**base, **changes}, {}, catalogue)
        assert not spelling.problems, spelling.problems
        words = [word for argument in spelling.arguments for word in argument.tokens]
        return resolve(from_words(words, {}, catalogue), facts)

    return plan_with


@dataclass(frozen=True)
class Arithmetic:
    """A budget: `weights` GiB; the graphs take `graph_mib` for each request of the largest and each
    draft token; a prefill takes `token_mib` for each token of a chunk; 1 MiB holds `per_mib` tokens.
    """

    weights: float = 16.0
    memory: float = 80.0
    graph_mib: float = 2.0
    token_mib: float = 1.0
    per_mib: float = 8.0
    pool_least: float = 0.01
    known: bool = True

    def needs(self, plan: Plan) -> tuple[float, float]:
        """GiB of graphs and of activations."""
        rows = max(captured_sizes(plan), default=0) * plan.value("speculative_num_draft_tokens")
        return rows * self.graph_mib / 1024, plan.value(
            "chunked_prefill_size"
        ) * self.token_mib / 1024

    def __call__(self, plan: Plan) -> MemoryBudget:
        if not self.known:
            return MemoryBudget(Fit.UNKNOWN, "the weights are not known", unknown=("the weights",))
        graphs, activations = self.needs(plan)
        fraction = float(plan.value("mem_fraction_static"))
        low = round(self.weights / self.memory + self.pool_least, 3)
        high = round(1 - (graphs + activations) / self.memory, 3)
        pool = fraction * self.memory - self.weights
        fits = low <= fraction <= high
        taken = {
            MemoryUse.TARGET_WEIGHTS: self.weights,
            MemoryUse.TARGET_KV: max(0.0, pool),
            MemoryUse.GRAPHS: graphs,
            MemoryUse.ACTIVATIONS: activations,
        }
        free = self.memory - sum(taken.values())
        shares = [MemoryShare(use, MemorySize(int(size * GIB), "")) for use, size in taken.items()]
        shares.append(
            MemoryShare(MemoryUse.FREE, MemorySize(int(max(0.0, free) * GIB), "", exact=False))
        )
        rank = RankBudget((0,), int(self.memory * GIB), tuple(shares), int(max(0.0, -free) * GIB))
        tokens = int(max(0.0, pool) * 1024 * self.per_mib)
        phase = MemoryPhase.KV_POOL if fraction < low else MemoryPhase.GRAPHS
        return MemoryBudget(
            Fit.FITS if fits else Fit.FAILS,
            f"{tokens:,} tokens",
            None if fits else phase,
            ranks=(rank,),
            target_kv=MemorySize(int((1 << 20) / self.per_mib), ""),
            tokens=tokens,
            running_requests=plan.value("max_running_requests"),
            context_length=8192,
            requests_at_context=tokens // 8192,
            mem_fraction_static=fraction,
            working_fractions=(low, high) if low <= high else None,
            likely_fractions=(low, high) if low <= high else None,
        )


def cause(name: str, *, memory: bool = True, **directions: Direction) -> Cause:
    """A cause with directions by argument."""
    return Cause(name, name, "", "", memory, directions, SpecifierSet())


CAPTURE = cause(
    "capture-out-of-memory",
    mem_fraction_static=Direction.LOWER,
    cuda_graph_max_bs_decode=Direction.LOWER,
)
POOL = cause(
    "pool-exceeds-machine",
    mem_fraction_static=Direction.LOWER,
    max_running_requests=Direction.LOWER,
)
NO_POOL = cause("kv-pool-too-small", mem_fraction_static=Direction.RAISE)
EXHAUSTED = cause(
    "pool-exhausted",
    mem_fraction_static=Direction.RAISE,
    max_running_requests=Direction.LOWER,
)
FORWARD = cause("forward-out-of-memory", mem_fraction_static=Direction.LOWER)
SLOTS = cause("request-slots", max_running_requests=Direction.LOWER)
DTYPE = cause("dtype-mismatch", memory=False)
WEIGHTS = cause("weights-do-not-fit", memory=False)


def failed(
    number: int,
    why: Cause | None,
    changes: Mapping[str, Any] | None = None,
    phase: Phase | None = None,
    **numbers: float,
) -> Attempt:
    """An attempt that failed with a cause."""
    phases = {CAPTURE.name: Phase.GRAPHS, NO_POOL.name: Phase.WEIGHTS, DTYPE.name: Phase.GRAPHS}
    at = phase or phases.get(why.name if why else "", Phase.READY)
    served = at is Phase.READY
    diagnosis = Diagnosis(at, served, why, numbers=numbers)
    return Attempt(number, changes or {}, None, (), served, diagnosis)
