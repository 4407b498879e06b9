"""40 targets of the index on six kinds of hardware: what `init` writes fits, and nothing is better."""

from __future__ import annotations

import pytest

from tests.measure.advice.init_sweep import HARDWARE, TARGETS, swept


@pytest.mark.thorough
@pytest.mark.campaign
@pytest.mark.parametrize("hardware", HARDWARE)
@pytest.mark.parametrize("target", TARGETS)
def test_no_grid_search_finds_better(target: str, hardware: str) -> None:
    """Its plan says `fits`, its lint is clean, no context is cut silently, no refusal where a
    setting fits, no less than nine tenths of the KV tokens."""
    assert swept(target, hardware).wrong == []


def test_the_sweep_is_large_enough() -> None:
    assert (len(set(TARGETS)), len(set(HARDWARE))) == (40, 6)
