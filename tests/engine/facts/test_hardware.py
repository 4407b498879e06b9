from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from speclaunch.core.errors import InputError
from speclaunch.engine.facts.facts import UnknownFact
from speclaunch.engine.facts.hardware import Hardware, Vendor, declare, hardware_names
from speclaunch.engine.facts.hardware_probe import probe_hardware
from tests.support.loops import rows


@rows(
    "said, name, count, capability",
    [
        ("h100", "h100-80gb", 1, 90),
        ("H100-80GB:8", "h100-80gb", 8, 90),
        ("h100-80gb-sxm", "h100-80gb", 1, 90),
        ("a100-40gb", "a100-40gb", 1, 80),
        ("A100 80GB PCIe", "a100-80gb", 1, 80),
        ("RTX 4090:2", "rtx4090", 2, 89),
        ("4090", "rtx4090", 1, 89),
        ("a100-80:2", "a100-80gb", 2, 80),
        ("H20 141", "h20-141gb", 1, 90),
        ("NVIDIA B200", "b200", 1, 100),
        ("h200-141gb:8", "h200", 8, 90),
        ("T4-16GB", "t4", 1, 75),
        ("h100-nvl", "h100-94gb", 1, 90),
        # as nvidia-smi calls them
        ("NVIDIA H100 80GB HBM3", "h100-80gb", 1, 90),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb", 1, 80),
        ("NVIDIA GH200 480GB", "gh200-96gb", 1, 90),
        ("NVIDIA GH200 144G HBM3e", "gh200-144gb", 1, 90),
        ("NVIDIA L20", "l20", 1, 89),
        ("NVIDIA B300 SXM6 AC", "b300", 1, 103),
        ("NVIDIA GeForce RTX 5090", "rtx5090", 1, 120),
        ("NVIDIA RTX 6000 Ada Generation", "rtx6000ada", 1, 89),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtxpro6000", 1, 120),
        ("Tesla V100-SXM2-16GB", "v100-16gb", 1, 70),
        ("AMD Instinct MI300X", "mi300x", 1, None),
        ("mi300x", "mi300x", 1, None),
        ("h100:256", "h100-80gb", 256, 90),  # of all machines
        ("cpu", "cpu", 1, None),
    ],
)
def test_names_as_people_say_them(said: str, name: str, count: int, capability: int | None) -> None:
    found = declare(said)
    assert (found.name, found.count, found.capability) == (name, count, capability)
    assert found.declared


def test_every_name_means_itself() -> None:
    assert [declare(name).name for name in hardware_names()] == list(hardware_names())
    assert declare("cpu").device == "cpu"
    assert declare("mi300x").device == "cuda"
    assert declare("h200").memory_mib == 143771


@rows(
    "said, hint",
    [
        ("h1000", "h100-80gb"),
        ("rtx4080", "rtx4090"),
        ("banana", "known names"),
        ("", "known names"),
        ("h100-40gb", "a100-40gb"),
        ("8xh200", "h200:8"),
        ("h100-80gb x4", "h100-80gb:4"),
        ("x" * 5000, "known names"),
        ("h100:" + "9" * 5000, "h100-80gb:8"),
        ("h100:0", "h100-80gb:8"),
        ("h100:many", "h100-80gb:8"),
        ("h100:10000", "h100-80gb:8"),
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
        if "shutdown" in self.changes:
            raise self.changes["shutdown"]

    def nvmlDeviceGetCount(self) -> int:
        return int(self.changes.get("count", 2))

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, handle: int) -> Any:
        return [b"NVIDIA H100", "NVIDIA A100"][handle]

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return ["GPU-aaaa-1", "GPU-bbbb-2"][handle]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        if "memory" in self.changes:
            raise self.changes["memory"]
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


@rows(
    "visible, indices",
    [
        ("0", [0]),
        (" 1 , 0", [1, 0]),
        ("GPU-bbbb", [1]),
        ("GPU-bbbb-2,0", [1, 0]),
        ("0,7,1", [0]),
        ("0,-1,1", [0]),
        ("1,GPU-cccc,0", [1]),
    ],
)
def test_the_visible_gpus(visible: str, indices: list[int]) -> None:
    found = probed(Library(), CUDA_VISIBLE_DEVICES=visible)
    assert [gpu.index for gpu in found.gpus] == indices


@rows(
    "library, environment, said",
    [
        (Library(), {"CUDA_VISIBLE_DEVICES": ""}, "leaves no GPU"),
        (Library(), {"CUDA_VISIBLE_DEVICES": "-1"}, "leaves no GPU"),
        (Library(), {"CUDA_VISIBLE_DEVICES": "1,1"}, "leaves no GPU"),
        (Library(), {"CUDA_VISIBLE_DEVICES": "GPU-"}, "leaves no GPU"),
        (Library(), {"CUDA_VISIBLE_DEVICES": "9" * 5000}, "leaves no GPU"),
        (Library(), {"CUDA_VISIBLE_DEVICES": "MIG-1234"}, "a slice of a GPU"),
        (Library(count=0), {}, "sees no GPU"),
        (Library(init=RuntimeError("x")), {}, "no NVIDIA GPU or driver found (RuntimeError)"),
        (Library(memory=OSError("gone")), {}, "did not answer (OSError: gone)"),
    ],
)
def test_why_there_is_nothing_to_see(
    library: Library, environment: dict[str, str], said: str
) -> None:
    found = probe_hardware(library, environment)
    assert isinstance(found, UnknownFact)
    assert said in found.why
    assert library.ended == ("init" not in library.changes)


def test_what_a_board_does_not_tell() -> None:
    class NVMLError_NotSupported(Exception):
        """As pynvml calls it."""

    hidden = probed(Library(processes=OSError("not permitted")))
    assert [gpu.processes for gpu in hidden.gpus] == [(), ()]
    shared = probed(Library(memory=NVMLError_NotSupported()))
    assert shared.memory_mib == psutil.virtual_memory().total >> 20


def test_a_driver_that_cannot_be_left_is_no_matter() -> None:
    assert probed(Library(shutdown=OSError("gone"))).count == 2


def test_the_real_library_without_a_driver() -> None:
    pynvml = pytest.importorskip("pynvml")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        found = probe_hardware()
        assert isinstance(found, UnknownFact)
        assert "no NVIDIA GPU or driver" in found.why
    else:
        pynvml.nvmlShutdown()
        found = probe_hardware(environment={})
        assert isinstance(found, Hardware), found
        assert found.memory_mib
        assert found.capability
