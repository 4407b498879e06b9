from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from speclaunch.errors import InputError
from speclaunch.facts.declared import declare, names
from speclaunch.facts.facts import UnknownFact
from speclaunch.facts.hardware import Hardware, Vendor
from speclaunch.facts.probe import probe_hardware


@pytest.mark.parametrize(
    ("said", "name", "count", "capability"),
    [
        ("h100", "h100-80gb", 1, 90),
        ("H100-80GB:8", "h100-80gb", 8, 90),
        ("h100-80gb-sxm", "h100-80gb", 1, 90),
        ("a100-40gb", "a100-40gb", 1, 80),
        ("A100 80GB PCIe", "a100-80gb", 1, 80),
        ("RTX 4090:2", "rtx4090", 2, 89),
        ("NVIDIA B200", "b200", 1, 100),
        ("mi300x", "mi300x", 1, None),
        ("cpu", "cpu", 1, None),
    ],
)
def test_names_as_people_say_them(said: str, name: str, count: int, capability: int | None) -> None:
    found = declare(said)
    assert (found.name, found.count, found.capability) == (name, count, capability)
    assert found.declared


def test_every_name_means_itself() -> None:
    assert [declare(name).name for name in names()] == list(names())
    assert declare("cpu").device == "cpu"
    assert declare("mi300x").device == "cuda"
    assert declare("h200").memory_mib == 143771


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("h1000", "h100-80gb"),
        ("rtx4080", "rtx4090"),
        ("banana", "names are"),
        ("", "names are"),
        ("h100:0", "h100-80gb:8"),
        ("h100:many", "h100-80gb:8"),
        ("h100:65", "h100-80gb:8"),
    ],
)
def test_a_wrong_name_gets_a_hint(said: str, hint: str) -> None:
    with pytest.raises(InputError) as raised:
        declare(said)
    assert hint in (raised.value.problems[0].help or "")


class Library:
    """What nvidia-ml-py answers on a machine with two different GPUs."""

    ended = 0

    def __init__(self, **changes: Any) -> None:
        self.changes = changes

    def nvmlInit(self) -> None:
        if "init" in self.changes:
            raise self.changes["init"]

    def nvmlShutdown(self) -> None:
        self.ended += 1

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, handle: int) -> Any:
        return [b"NVIDIA H100", "NVIDIA A100"][handle]

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return ["GPU-aaaa-1", "GPU-bbbb-2"][handle]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        total = [85_000_000_000, 42_949_672_960][handle]
        return SimpleNamespace(total=total, free=total - 1)

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:
        return [(9, 0), (8, 0)][handle]

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        if "processes" in self.changes:
            raise self.changes["processes"]
        return [SimpleNamespace(pid=2**22 + 1, usedGpuMemory=7)] if handle == 0 else []

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.65"


def probed(library: Library, **environment: str) -> Hardware:
    found = probe_hardware(library, environment)
    assert isinstance(found, Hardware), found
    return found


def test_the_least_of_different_gpus_counts() -> None:
    library = Library()
    found = probed(library)
    assert (found.count, found.memory_mib, found.capability) == (2, 40960, 80)
    assert found.vendor is Vendor.NVIDIA
    assert found.driver == "580.65"
    assert found.gpus[0].processes[0].memory_bytes == 7
    assert found.gpus[0].processes[0].name == "?"
    assert not found.declared
    assert library.ended == 1


@pytest.mark.parametrize(
    ("visible", "indices"),
    [("0", [0]), ("1,0", [1, 0]), ("GPU-bbbb", [1]), ("0,7,1", [0]), ("1,1", [1])],
)
def test_the_visible_gpus(visible: str, indices: list[int]) -> None:
    found = probed(Library(), CUDA_VISIBLE_DEVICES=visible)
    assert [gpu.index for gpu in found.gpus] == indices


@pytest.mark.parametrize(
    ("library", "environment", "said"),
    [
        (Library(), {"CUDA_VISIBLE_DEVICES": ""}, "leaves no GPU"),
        (Library(init=RuntimeError("x")), {}, "no NVIDIA driver answers"),
        (Library(processes=OSError("gone")), {}, "does not say"),
    ],
)
def test_why_there_is_nothing_to_see(
    library: Library, environment: dict[str, str], said: str
) -> None:
    found = probe_hardware(library, environment)
    assert isinstance(found, UnknownFact)
    assert said in found.why
