"""What holds for every budget, whatever the sizes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speclaunch.engine.plan.budget import Fit, MemoryBudget, MemoryUse
from speclaunch.engine.plan.memory.budget import budget
from speclaunch.engine.plan.memory.kv import PoolLayout
from tests.engine.plan.memory.deployments import PLAIN, SPECULATING, Sizes, give, plan, with_memory

pytestmark = pytest.mark.thorough

GIB = 1 << 30
VERSIONS = ("0.4.6.post5", "0.5.2", "0.5.6.post2", "0.5.9", "0.5.10.post1", "0.5.13.post1")
VERSIONS += ("0.5.14", "0.5.17", "0.5.20", "0.5.23")

layouts = st.one_of(
    st.builds(PoolLayout, st.just(32), st.integers(1_000, 2_000_000)),
    st.builds(
        PoolLayout,
        st.just(12),
        st.integers(1_000, 500_000),
        st.just(12),
        st.integers(1_000, 500_000),
        st.sampled_from([0.05, 0.5, 0.8, 1.0]),
    ),
)
sizes = st.builds(
    Sizes,
    st.integers(0, 100 * GIB),
    st.integers(0, 20 * GIB),
    layouts,
    st.integers(100, 100_000),
    exact=st.booleans(),
)
fractions = st.integers(1, 999).map(lambda step: step / 1000)
memories = st.integers(8_000, 300_000)
arguments = st.fixed_dictionaries(
    {"mem_fraction_static": fractions},
    optional={
        "page_size": st.sampled_from([1, 16, 64]),
        "max_total_tokens": st.integers(1, 2_000_000),
        "max_running_requests": st.integers(1, 600),
        "context_length": st.sampled_from([2048, 32768, 131072]),
    },
)


def budgeted(
    given_sizes: Sizes, args: dict[str, Any], version: str, mib: int, speculating: bool
) -> MemoryBudget:
    with pytest.MonkeyPatch.context() as patch:
        give(patch, given_sizes)
        base = SPECULATING if speculating else PLAIN
        return budget(plan({**base, **args}, version, with_memory(mib)))


@settings(max_examples=150, deadline=None)
@given(sizes, arguments, st.sampled_from(VERSIONS), memories, st.booleans())
def test_shares_add_up(
    given_sizes: Sizes, args: dict[str, Any], version: str, mib: int, speculating: bool
) -> None:
    found = budgeted(given_sizes, args, version, mib, speculating)
    for rank in found.ranks:
        total = sum(share.size.bytes for share in rank.shares)
        assert total == rank.memory_bytes + rank.short_bytes
        assert all(share.size.bytes >= 0 for share in rank.shares)
        assert [share.use for share in rank.shares].count(MemoryUse.FREE) == 1
        assert found.fit is not Fit.FITS or rank.short_bytes == 0
    if found.fit is Fit.FAILS:
        assert found.phase is not None and found.message
    if found.fit is Fit.FITS:
        assert found.tokens and found.running_requests
        assert found.requests_at_context is not None
        limit = args.get("max_total_tokens")
        if limit is not None and not given_sizes.layout.swa_layers:  # up to 0.5.10 split after it
            assert found.tokens <= limit
        limit = args.get("max_running_requests")
        assert limit is None or found.running_requests <= limit
        assert found.working_fractions is not None
        least, most = found.working_fractions
        assert least <= args["mem_fraction_static"] <= most


@settings(max_examples=100, deadline=None)
@given(
    sizes,
    arguments,
    st.sampled_from(VERSIONS),
    memories,
    st.integers(1, 50_000),
    fractions,
)
def test_more_never_gives_less(
    given_sizes: Sizes,
    args: dict[str, Any],
    version: str,
    mib: int,
    more: int,
    fraction: float,
) -> None:
    """More memory, or a larger fraction, never gives fewer tokens to a pool that is there."""
    args |= {"max_running_requests": 48, "context_length": 8192}
    base = budgeted(given_sizes, args, version, mib, False).tokens
    larger = budgeted(given_sizes, args, version, mib + more, False).tokens
    if base is not None and larger is not None:
        assert larger >= base
    higher = max(fraction, args["mem_fraction_static"])
    raised = budgeted(given_sizes, {**args, "mem_fraction_static": higher}, version, mib, False)
    if base is not None and raised.tokens is not None:
        assert raised.tokens >= base


@settings(max_examples=60, deadline=None)
@given(sizes, arguments, st.sampled_from(VERSIONS), memories, fractions)
def test_the_range_is_where_it_works(
    given_sizes: Sizes, args: dict[str, Any], version: str, mib: int, fraction: float
) -> None:
    """It fits within the likely range, and within the working range it may serve."""
    found = budgeted(given_sizes, args, version, mib, True)
    other = budgeted(given_sizes, {**args, "mem_fraction_static": fraction}, version, mib, True)
    assert other.working_fractions == found.working_fractions
    assert _within(fraction, other.likely_fractions) == (other.fit is Fit.FITS)
    if _within(fraction, other.working_fractions):
        assert other.fit.may_serve


def _within(fraction: float, ends: tuple[float, float] | None) -> bool:
    return ends is not None and ends[0] <= fraction <= ends[1]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 400),
    st.integers(1, 400_000),
    arguments,
    st.sampled_from([one for one in VERSIONS if one >= "0.5.3"]),
    memories,
    st.booleans(),
    st.booleans(),
)
def test_recurrent_states_add_up(
    mib_each: int,
    cell: int,
    args: dict[str, Any],
    version: str,
    mib: int,
    speculating: bool,
    cached: bool,
) -> None:
    """The states and the KV cache together never take more than the fraction leaves to them."""
    layout = PoolLayout(8, cell, state_layers=24, state_request_bytes=mib_each << 20)
    given_sizes = Sizes(4 * GIB, GIB, layout, 100)
    args = {**args, "disable_radix_cache": True} if not cached else args
    found = budgeted(given_sizes, args, version, mib, speculating)
    if found.fit is not Fit.FITS:
        return
    rank = found.ranks[0]
    taken = {share.use: share.size.bytes for share in rank.shares}
    static = (
        taken.get(MemoryUse.STATE, 0) + taken[MemoryUse.TARGET_KV] + taken[MemoryUse.TARGET_WEIGHTS]
    )
    free = rank.memory_bytes - 1126 * (1 << 20)
    headroom = 700 * 7 * cell if version < "0.5.7" else 0
    slack = (args.get("page_size", 1) + 1) * cell + headroom
    assert static <= args["mem_fraction_static"] * free + slack
