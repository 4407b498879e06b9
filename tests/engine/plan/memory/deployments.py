"""Plans to budget, with sizes that are given: the accounting is tested apart from the sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from speclaunch.engine.facts.facts import Checkpoint, Facts
from speclaunch.engine.facts.hardware import Hardware, declare
from speclaunch.engine.plan.budget import MemorySize
from speclaunch.engine.plan.memory import kv, terms
from speclaunch.engine.plan.memory.kv import PoolLayout
from speclaunch.engine.plan.plan import Plan, UnknownValueError
from speclaunch.engine.plan.resolve import resolve
from tests.support.checks.rules.harness import request_of

LLAMA_8B = Checkpoint(
    "llama-8b",
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
    config={"intermediate_size": 14336},
)
EAGLE3 = Checkpoint(
    "llama-8b-eagle3",
    architectures=("LlamaForCausalLMEagle3",),
    model_type="llama",
    dtype="bfloat16",
    context_length=131072,
    hidden_size=4096,
    vocab_size=128256,
    num_hidden_layers=1,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    config={"intermediate_size": 14336},
)
PLAIN = {"model_path": "llama-8b", "dtype": "bfloat16"}
SPECULATING = PLAIN | {
    "speculative_algorithm": "EAGLE3",
    "speculative_draft_model_path": "llama-8b-eagle3",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}
LLAMA_BYTES = 16_060_522_496
"""8,030,261,248 parameters, 2 bytes each."""
EAGLE3_BYTES = 850_000_000
LLAMA_TOKEN = 131_072
"""2 (K and V) · 8 heads · 128 · 2 bytes · 32 layers."""
EAGLE3_TOKEN = 4_096


PLAIN_LAYOUT = PoolLayout(32, LLAMA_TOKEN)


class Sizes(Struct, frozen=True):
    """What the models take of a rank."""

    weights: int | None = LLAMA_BYTES
    draft_weights: int | None = EAGLE3_BYTES
    layout: PoolLayout = PLAIN_LAYOUT
    draft_token: int = EAGLE3_TOKEN
    cell: int | None = None
    """None: what the target's layers take, and from 0.5.14 the draft's, too."""
    exact: bool = True
    freed: int = 0
    """What the draft takes until the pool is allocated (0.5.14 and later)."""


def give(monkeypatch: pytest.MonkeyPatch, sizes: Sizes) -> None:
    """Let the budget work with these sizes."""
    layout = sizes.layout
    both = layout.full_token_bytes + layout.swa_token_bytes

    def weights(plan: Plan, *, draft: bool = False) -> MemorySize:
        found = sizes.draft_weights if draft else sizes.weights
        if found is None:
            raise UnknownValueError(f"the {'draft' if draft else 'target'} weights are not known")
        return MemorySize(found, "given", sizes.exact)

    def cell(plan: Plan) -> MemorySize:
        if sizes.cell is not None:
            return MemorySize(sizes.cell, "given")
        counts = plan.in_versions(">=0.5.14") and plan.algorithm not in (None, "NGRAM")
        return MemorySize(both + (sizes.draft_token if counts else 0), "given")

    monkeypatch.setattr(terms, "weight_size", weights)
    monkeypatch.setattr(terms, "freed_after_pool", lambda plan: sizes.freed)
    monkeypatch.setattr(
        kv,
        "token_size",
        lambda plan, *, draft=False: MemorySize(sizes.draft_token if draft else both, ""),
    )
    monkeypatch.setattr(kv, "pool_layout", lambda plan: layout)
    monkeypatch.setattr(kv, "pool_cell", cell)


def plan(
    args: Mapping[str, Any],
    version: str,
    hardware: str | Hardware | None = "h100-80gb",
    target: Checkpoint | None = LLAMA_8B,
    draft: Checkpoint | None = EAGLE3,
    env: Mapping[str, str] | None = None,
) -> Plan:
    """A resolved plan."""
    machine = declare(hardware) if isinstance(hardware, str) else hardware
    facts = Facts(target, draft if "speculative_draft_model_path" in args else None, machine)
    return resolve(request_of(dict(args), None, dict(env or {}), version), facts)


def with_memory(mib: int) -> Hardware:
    """An H100 with another amount of memory."""
    return replace(declare("h100-80gb"), memory_mib=mib)
