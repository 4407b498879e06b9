"""Machine facts for the tests of checks: a machine on which all is well, to be changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from speclaunch.engine.facts.facts import UnknownFact
from speclaunch.engine.facts.hardware import Gpu, Hardware, OtherProcess, Vendor
from speclaunch.engine.facts.packages import Packages, Torch
from speclaunch.engine.facts.runtime import Runtime
from speclaunch.serving.doctor.facts import (
    CheckLine,
    CheckState,
    CpuEngineState,
    DiskVolume,
    Hub,
    MachineFacts,
    MachineMemory,
    OwnInstallation,
    Port,
    Process,
    ProcessLimits,
    RecipeNeeds,
    Tools,
    VolumeUse,
)

GIB = 1 << 30
GB = 10**9
PYTHON = Path("/env/bin/python")
NO_GPU = UnknownFact("the GPUs", "no NVIDIA GPU or driver answers", "name them")

TARGET = RecipeNeeds(name="r", version="0.5.18", device="cuda", gpus=1, tensor_parallel=1)


def gpu(index: int, free: float, *processes: OtherProcess, total: float = 80) -> Gpu:
    return Gpu(index, "NVIDIA H100", int(total * GIB), int(free * GIB), processes)


def h100s(*gpus: Gpu, driver: str = "580.65.06") -> Hardware:
    return Hardware(
        "NVIDIA H100", Vendor.NVIDIA, len(gpus), 81559, 90, driver, gpus, declared=False
    )


def runtime(version: str = "0.5.18", python: str = "3.11.7") -> Runtime:
    return Runtime(PYTHON, python, {"sglang": version})


def volume(use: VolumeUse, free: float, *, device: int = 1, writable: bool = True) -> DiskVolume:
    return DiskVolume(use, Path("/") / use, device, int(free * GB), 500 * GB, writable)


HEALTHY = MachineFacts(
    own=OwnInstallation(
        "0.1.0", "3.11.7", Path("/usr/bin/python3"), Path("/home/me/.cache/speclaunch")
    ),
    runtime=runtime(),
    packages=Packages(
        requires=(
            "sglang-kernel==0.4.6.post1",
            "torch==2.13.0",
            "flashinfer_python==0.6.17",
            "aiohttp",
        ),
        installed={
            "sglang": "0.5.18",
            "sglang-kernel": "0.4.6.post1",
            "torch": "2.13.0",
            "flashinfer-python": "0.6.17",
            "aiohttp": "3.0",
        },
        minimums={"flashinfer-python": "0.6.17", "sglang-kernel": "0.4.6.post1"},
        torch=Torch("2.13.0+cu130", "13.0"),
        ninja=True,
    ),
    cpu_engine=CpuEngineState(True, "0.5.23", Path("/cpu/python")),
    hardware=h100s(gpu(0, 79)),
    processes=(Process(1, 0, "init", ("init",), "root"),),
    user="me",
    volumes=(volume(VolumeUse.MODELS, 300),),
    memory=MachineMemory(256 * GIB, 200 * GIB, None, None, 32, 32),
    shared_memory=volume(VolumeUse.SHARED_MEMORY, 60),
    limits=ProcessLimits(65535, 1048576, 8 << 20, None),
    hub=Hub(Path("/hub"), "HF_TOKEN"),
    port=Port("127.0.0.1", 30000),
    tools=Tools(Path("/usr/bin/c++"), Path("/usr/local/cuda/bin/nvcc")),
)


def machine(**changes: Any) -> MachineFacts:
    return replace(HEALTHY, **changes)


def target(**changes: Any) -> RecipeNeeds:
    return replace(TARGET, **changes)


def said(
    check: Callable[[MachineFacts], Iterator[CheckLine]], found: MachineFacts
) -> list[CheckLine]:
    return list(check(found))


def only(check: Callable[[MachineFacts], Iterator[CheckLine]], found: MachineFacts) -> CheckLine:
    (line,) = check(found)
    return line


def worse(lines: list[CheckLine]) -> list[CheckLine]:
    """The lines that are a warning or an error."""
    return [line for line in lines if line.state in (CheckState.WARNING, CheckState.ERROR)]
