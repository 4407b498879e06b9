"""The sizes that follow from a GPU's memory, equal to the engine's own in every cell.

`auto_memory.json` is what each release's own code sets (tools/auto_memory.py): ten kinds of GPU,
three sizes of tensor parallelism, no algorithm and four of them. Where a release's parser does not
know an algorithm the word is put past it, as the tool does: its memory step only reads the word.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from speclaunch.core.errors import COMMAND_LINE, Place
from speclaunch.deployments.sources.requests import from_words
from speclaunch.engine.facts.facts import Facts
from speclaunch.engine.facts.hardware import Hardware, Vendor
from speclaunch.engine.plan.plan import Plan
from speclaunch.engine.plan.request import RequestedValue
from speclaunch.engine.plan.resolve import resolve
from speclaunch.engine.releases.catalogue import load
from tests.engine.plan.resolving import LLAMA
from tests.support.engine.plan import auto_memory

RECORDS = auto_memory.records()
GPUS: dict[str, tuple[int, int]] = auto_memory.document()["gpus"]


def ours(version: str, cell: dict[str, Any]) -> Plan:
    request = from_words(["--model-path", "m", "--tp-size", str(cell["tp"])], {}, load(version))
    if cell["algorithm"] is not None:
        name = "speculative_algorithm"
        given = RequestedValue(name, cell["algorithm"], name, Place(COMMAND_LINE))
        request = replace(request, values={**request.values, name: given})
    memory, capability = GPUS[cell["gpu"]]
    hardware = Hardware(cell["gpu"], Vendor.NVIDIA, 8, memory, capability)
    return resolve(request, Facts(LLAMA, None, hardware))


def prefill(plan: Plan) -> Any:
    """Whether prefill has graphs; from 0.5.14 on, which kind."""
    if plan.in_versions(">=0.5.14"):
        return plan.value("cuda_graph_backend_prefill")
    if plan.in_versions(">=0.5.10"):
        return not plan.value("disable_piecewise_cuda_graph")
    return plan.value("enable_piecewise_cuda_graph")


@pytest.mark.thorough
@pytest.mark.parametrize("version", RECORDS)
def test_every_cell_is_the_engines(version: str) -> None:
    wrong = []
    for cell in RECORDS[version]:
        plan = ours(version, cell)
        found = {
            "chunked_prefill_size": plan.value("chunked_prefill_size"),
            "max_bs": plan.value("cuda_graph_max_bs_decode"),
            "bs": plan.value("cuda_graph_bs_decode"),
            "prefill": prefill(plan),
            "prefill_bs": plan.value("cuda_graph_bs_prefill"),
            "mem_fraction_static": plan.value("mem_fraction_static"),
        }
        wrong += [(cell, name) for name in auto_memory.FIELDS if found[name] != cell[name]]
    assert not wrong, wrong[:3]


def test_the_data_has_every_release_gpu_and_algorithm() -> None:
    assert len(RECORDS) >= 18
    for version, cells in RECORDS.items():
        keys = {(cell["gpu"], cell["tp"], cell["algorithm"]) for cell in cells}
        assert len(keys) == len(cells) == 150, version
    assert auto_memory.DATA.stat().st_size <= 200_000


def test_the_releases_differ_where_their_memory_step_changed() -> None:
    """Three of the changes that the data must show, or it is not the engines'."""

    def fraction(version: str, gpu: str, algorithm: str | None) -> float:
        (cell,) = (
            c
            for c in RECORDS[version]
            if (c["gpu"], c["tp"], c["algorithm"]) == (gpu, 1, algorithm)
        )
        return float(cell["mem_fraction_static"])

    assert fraction("0.5.9", "H100", "EAGLE3") == 0.81
    assert fraction("0.5.13.post1", "H100", "EAGLE3") == 0.779  # 4 GiB for the draft
    assert fraction("0.5.14", "H100", "EAGLE3") == fraction("0.5.14", "H100", None)
