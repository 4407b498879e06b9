"""The fewest GPUs that hold a way."""

from __future__ import annotations

import pytest

from speclaunch.checks.rules.examine import Lookup
from speclaunch.engine.facts.hardware import declare
from speclaunch.measure.advice.drafts import SpeculationMethod, ways_for
from speclaunch.measure.advice.placing import NoPlace, PlacedArguments, in_gib, place, sizes
from tests.measure.advice.helpers import NEWEST, wanted
from tests.support.loops import rows


def placed(
    target: str, hardware: str, method: SpeculationMethod = SpeculationMethod.NGRAM
) -> PlacedArguments | NoPlace:
    known = wanted(target, hardware).target
    way = next(one for one in ways_for(known) if one.method is method)
    lookup = Lookup(hardware=declare(hardware))
    return place({"model_path": target, **way.arguments}, NEWEST, lookup)


@rows(
    "hardware, tried",
    [
        ("h200:8", (1, 2, 4, 8)),
        ("h200:6", (1, 2, 4, 6)),
        ("h200:1", (1,)),
        ("h200", (1, 2, 4, 8)),
        ("cpu", (1,)),
    ],
)
def test_numbers_of_gpus(hardware: str, tried: tuple[int, ...]) -> None:
    assert sizes(declare(hardware)) == tried


@pytest.mark.parametrize(("hardware", "ranks"), [("h200:8", 1), ("h100:8", 2), ("l4:8", 8)])
def test_the_fewest_gpus_that_hold_a_request(hardware: str, ranks: int) -> None:
    found = placed("Qwen/Qwen3-32B", hardware)
    assert isinstance(found, PlacedArguments), found
    assert found.ranks == ranks and found.holds_a_request
    assert ("tp_size" in found.arguments) is (ranks > 1)


@pytest.mark.parametrize(("hardware", "ranks"), [("h100:1", 1), ("h100:8", 2)])
def test_more_gpus_before_reduced_settings(hardware: str, ranks: int) -> None:
    found = placed("Qwen/Qwen3-32B", hardware, SpeculationMethod.EAGLE3)
    assert isinstance(found, PlacedArguments), found
    assert found.ranks == ranks and found.holds_a_request
    assert found.is_reduced is (ranks == 1) is ("chunked_prefill_size" in found.arguments)


def test_weights_that_are_too_large_say_how_large() -> None:
    found = placed("Qwen/Qwen3-32B", "rtx4090:1")
    assert isinstance(found, NoPlace) and found.memory and not found.unknown
    assert found.least_bytes is not None and found.least_bytes > 60e9


@pytest.mark.thorough
def test_attention_without_trees_takes_ngram_as_a_chain() -> None:
    found = placed("deepseek-ai/DeepSeek-V3.2", "h200:8")
    assert isinstance(found, PlacedArguments), found
    assert found.arguments["speculative_ngram_max_bfs_breadth"] == 1


def test_without_hardware_there_is_no_place() -> None:
    found = place({"model_path": "Qwen/Qwen3-8B"}, NEWEST, Lookup())
    assert isinstance(found, NoPlace) and found.unknown


def test_bytes_as_people_read_them() -> None:
    assert in_gib(3 << 30) == "3.0 GiB" and in_gib(5 << 20) == "5 MiB"
