"""What a misspelled name may have been, and what it surely was not."""

from __future__ import annotations

import pytest

from speclaunch.engine.releases import nearest as near
from speclaunch.engine.releases.catalogue import held_versions, load
from speclaunch.engine.releases.nearest import distance, nearest
from tests.support.loops import rows


@rows(
    "one, other, slips",
    [("", "abc", 3), ("port", "port", 0), ("prot", "port", 1), ("tp_siz", "tp_size", 1), ("ab", "cd", 2)],
)  # fmt: skip
def test_slips(one: str, other: str, slips: int) -> None:
    assert distance(one, other) == distance(other, one) == slips


@rows(
    "flag, meant",
    [
        ("--enable-metric", "--enable-metrics"),
        ("--mem-fracton-static", "--mem-fraction-static"),
        ("--max-run-requests", "--max-running-requests"),
        ("--Attention-Backend", "--attention-backend"),
        ("--kv-cache-type", "--kv-cache-dtype"),
    ],
)
def test_a_slip_is_recognised(flag: str, meant: str) -> None:
    assert load("0.5.23").close(flag)[0] == meant


@pytest.mark.parametrize("flag", ["--speculative-draft", "--speculative-drafts", "--no-such-flag"])
def test_a_common_beginning_is_no_slip(flag: str) -> None:
    assert load("0.5.23").close(flag) == ()


def test_the_only_name_that_goes_on_is_meant() -> None:
    assert nearest("tp", ["tp_size", "pp_size"]) == ("tp_size",)
    assert nearest("tp", ["tp_size", "tp_rank"]) == ()
    assert nearest("memfraction", load("0.5.23").names) == ("mem_fraction_static",)
    assert load("0.5.23").close("--memfraction") == ("--mem-fraction-static",)


def test_what_versions_share_is_compared_once() -> None:
    flag = "--not-one-of-these-flags"
    near._typos.cache_clear()
    for version in held_versions():
        load(version).close(flag)
    every = {one for version in held_versions() for one in load(version)._by_flag}
    assert 0 < near._typos.cache_info().misses <= len(every)
