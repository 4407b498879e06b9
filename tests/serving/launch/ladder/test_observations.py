"""What a failed start shows, from the log of an engine that did it."""

from __future__ import annotations

import pytest

from speclaunch.serving.launch.calibration import Observation, observe
from speclaunch.serving.launch.diagnosis.diagnose import diagnose
from speclaunch.serving.launch.diagnosis.interface import Direction
from speclaunch.serving.launch.engine_log import Phase
from speclaunch.serving.launch.phases import PhaseStep
from speclaunch.serving.launch.planner import Attempt
from tests.support.serving.launch.ladder.deployments import DTYPE, TREE, failed, planner

PLAN = planner({**TREE, "mem_fraction_static": 0.9})({})
HEAD = (
    "[2026-11-21 09:00:00] Load weight begin. avail mem=80.00 GB",
    "[2026-11-21 09:00:01] Load weight end. elapsed=1.00 s, type=LlamaForCausalLM, "
    "dtype=torch.bfloat16, avail mem=64.00 GB, mem usage=16.00 GB.",
)
POOL = (
    "[2026-11-21 09:00:02] KV Cache is allocated. #tokens: 421332, K size: 25.00 GB, "
    "V size: 25.00 GB",
    "[2026-11-21 09:00:02] Memory pool end. avail mem=14.00 GB",
    "[2026-11-21 09:00:02] Capture cuda graph begin. This can take up to several minutes. "
    "avail mem=13.50 GB",
)
ERROR = (
    "[2026-11-21 09:00:03] Scheduler hit an exception: Traceback (most recent call last):",
    "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
    "Current value: mem_fraction_static=0.21",
)
OUT_OF_MEMORY = (
    "[2026-11-21 09:00:03] Scheduler hit an exception: Traceback (most recent call last):",
    "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 2.00 GiB. "
    "GPU 0 has a total capacity of 79.10 GiB of which 1.20 GiB is free.",
    "Possible solutions:",
)


def observed(*lines: str, changes: dict[str, float] | None = None) -> Observation:
    diagnosis = diagnose(lines, version="0.5.10.post1", exit_code=1)
    steps = (PhaseStep(Phase.KV_POOL, 1.0, detail="421,332 tokens"),)
    found = observe(Attempt(1, changes or {}, None, steps, False, diagnosis), PLAN)
    assert found is not None
    return found


def test_the_weights_are_read_off_the_free_memory_before_and_after() -> None:
    found = observed(*HEAD, *ERROR)
    assert found.direction is Direction.RAISE
    assert found.least == pytest.approx(16 / 80)


def test_the_draft_after_the_pool_is_not_among_the_weights() -> None:
    """Up to 0.5.13 a second model is loaded when the pool is there: it does not count."""
    found = observed(*HEAD, *POOL, *HEAD, *OUT_OF_MEMORY)
    assert found.least == pytest.approx(16 / 80)


def test_a_capture_that_ran_out() -> None:
    found = observed(*HEAD, *POOL, *OUT_OF_MEMORY)
    assert found.direction is Direction.LOWER
    assert found.phase is Phase.GRAPHS
    assert found.tokens == 421332


def test_the_fraction_is_the_one_of_the_attempt() -> None:
    assert observed(*HEAD, *POOL, *OUT_OF_MEMORY).fraction == 0.9
    changed = {"mem_fraction_static": 0.8}
    assert observed(*HEAD, *POOL, *OUT_OF_MEMORY, changes=changed).fraction == 0.8


def test_what_memory_does_not_explain_shows_nothing() -> None:
    assert observe(failed(1, DTYPE), PLAN) is None
    assert observe(Attempt(1), PLAN) is None
