"""The same budget in less time: the bytes of weights depend on few things, so they are kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from speclaunch.engine.plan.budget import MemorySize
from speclaunch.engine.plan.memory import terms
from speclaunch.engine.plan.memory.weights import weight_size
from speclaunch.engine.plan.plan import Plan


@contextmanager
def kept_weights() -> Iterator[None]:
    """Within this, weights of the same models, ranks and version are worked out once."""
    found: dict[tuple[object, ...], MemorySize] = {}

    def kept(plan: Plan, *, draft: bool = False) -> MemorySize:
        facts = plan.facts
        key = (
            facts.target.name if facts.target else None,
            facts.draft.name if facts.draft else None,
            draft,
            plan.version,
            *(plan.value(name) for name in ("tp_size", "quantization", "speculative_algorithm")),
        )
        if key not in found:
            found[key] = weight_size(plan, draft=draft)
        return found[key]

    with mock.patch.object(terms, "weight_size", kept):
        yield
