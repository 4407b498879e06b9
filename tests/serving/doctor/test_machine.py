"""Memory, limits, disks: what is said of them, and how they are read here."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

import pytest

from speclaunch.engine.facts.facts import Checkpoint, UnknownFact
from speclaunch.serving.doctor import machine as reading
from speclaunch.serving.doctor.checks.machine import check_disk, check_limits, check_memory
from speclaunch.serving.doctor.facts import (
    CheckLine,
    CheckState,
    LocalModel,
    MachineMemory,
    ProcessLimits,
    VolumeUse,
)
from speclaunch.serving.doctor.machine import read_processes
from tests.support.loops import rows
from tests.support.serving.doctor.helpers import GB, GIB, machine, only, said, target, volume


def line_of(check: str, **changes: Any) -> CheckLine:
    (line,) = [line for line in said(check_memory, machine(**changes)) if line.check == check]
    return line


def weights(size: int) -> tuple[LocalModel, ...]:
    return (LocalModel("target", "m", present=True, checkpoint=Checkpoint("m", weight_bytes=size)),)


@rows(
    "have, aim, size, state",
    [
        (MachineMemory(64 * GIB, 60 * GIB), None, 0, CheckState.OK),
        (MachineMemory(4 * GIB, 1 * GIB), None, 0, CheckState.OK),
        (MachineMemory(64 * GIB, 60 * GIB), target(), 16 * GIB, CheckState.OK),
        (MachineMemory(64 * GIB, 60 * GIB), target(), 140 * GIB, CheckState.NOTE),
        (MachineMemory(64 * GIB, 4 * GIB), target(), 1, CheckState.WARNING),
        (MachineMemory(64 * GIB, 60 * GIB, 4 * GIB, GIB), target(), 1, CheckState.WARNING),
        (MachineMemory(8 * GIB, 4 * GIB), target(device="cpu"), 1 * GIB, CheckState.OK),
        (MachineMemory(8 * GIB, 1 * GIB), target(device="cpu"), 1, CheckState.WARNING),
        (MachineMemory(8 * GIB, 4 * GIB), target(device="cpu"), 6 * GIB, CheckState.WARNING),
    ],
)
def test_memory(have: MachineMemory, aim: Any, size: int, state: CheckState) -> None:
    assert line_of("memory", memory=have, target=aim, models=weights(size)).state is state


def test_a_limit_is_named_with_what_is_left_of_it() -> None:
    line = line_of("memory", memory=MachineMemory(64 * GIB, 60 * GIB, 16 * GIB, 6 * GIB))
    assert "10.0 GiB available" in line.found
    assert "limits it to 16.0 of 64.0 GiB" in line.found


@rows(
    "cpus, aim, state",
    [
        (1, None, CheckState.OK),
        (1, target(device="cpu"), CheckState.OK),
        (1, target(), CheckState.WARNING),
        (2, target(), CheckState.NOTE),
        (3, target(), CheckState.OK),
        (8, target(gpus=8), CheckState.WARNING),
        (10, target(gpus=8), CheckState.OK),
        (1.5, target(), CheckState.WARNING),
    ],
)
def test_processors(cpus: float, aim: Any, state: CheckState) -> None:
    have = MachineMemory(64 * GIB, 60 * GIB, cpus=cpus, machine_cpus=32)
    line = line_of("processors", memory=have, target=aim)
    assert line.state is state
    assert line.found == f"{cpus:g} of 32 available"


@rows(
    "free, aim, state",
    [
        (0.067, None, CheckState.OK),
        (0.067, target(gpus=1), CheckState.OK),
        (0.067, target(gpus=2), CheckState.WARNING),
        (32, target(gpus=2), CheckState.OK),
    ],
)
def test_ranks_talk_through_shared_memory(free: float, aim: Any, state: CheckState) -> None:
    line = line_of("shared-memory", shared_memory=volume(VolumeUse.SHARED_MEMORY, free), target=aim)
    assert line.state is state
    assert line.state is CheckState.OK or "--shm-size" in (line.fix or "")


@rows(
    "have, states",
    [
        (
            ProcessLimits(1024, 1048576, None, None),
            [CheckState.OK],
        ),  # the engine raises its own soft limit
        (ProcessLimits(1024, 4096, None, None), [CheckState.WARNING]),
        (ProcessLimits(20000, 20000, None, None), [CheckState.NOTE]),
        (ProcessLimits(None, None, None, None), [CheckState.OK]),
        (ProcessLimits(65535, 65535, None, 1000), [CheckState.WARNING]),
        (ProcessLimits(100, 100, None, 100), [CheckState.WARNING, CheckState.WARNING]),
    ],
)
def test_limits(have: ProcessLimits, states: list[CheckState]) -> None:
    assert [line.state for line in said(check_limits, machine(limits=have))] == states


def test_one_line_a_disk() -> None:
    found = machine(
        volumes=(
            volume(VolumeUse.MODELS, 300, device=1),
            volume(VolumeUse.TEMPORARY, 300, device=1),
            volume(VolumeUse.SPECLAUNCH, 300, device=2),
        )
    )
    shared, other = said(check_disk, found)
    assert "models /models, temporary files /temporary files" in shared.found
    assert "speclaunch /speclaunch" in other.found


@pytest.mark.parametrize(
    ("free", "state"), [(300, CheckState.OK), (3, CheckState.WARNING), (0.1, CheckState.WARNING)]
)
def test_space(free: float, state: CheckState) -> None:
    line = only(check_disk, machine(volumes=(volume(VolumeUse.MODELS, free),)))
    assert line.state is state
    assert line.state is CheckState.OK or "HF_HOME" in (line.fix or "")


def test_what_cannot_be_written_and_what_cannot_be_told() -> None:
    found = machine(
        volumes=(volume(VolumeUse.SPECLAUNCH, 300, writable=False), UnknownFact("models", "gone"))
    )
    lines = said(check_disk, found)
    assert [(line.state, line.found) for line in lines] == [
        (CheckState.UNKNOWN, "models: gone"),
        (CheckState.OK, lines[1].found),
        (CheckState.WARNING, "/speclaunch cannot be written"),
    ]
    assert "SPECLAUNCH_HOME" in (lines[2].fix or "")


# read from this machine


def test_memory_is_read() -> None:
    found = reading.read_memory()
    assert 0 < found.available <= found.total
    assert 0 < found.cpus <= found.machine_cpus
    assert found.limit is None or found.limit < found.total


def test_limits_are_read() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = reading.read_limits()
    assert found.files_soft == (None if soft == resource.RLIM_INFINITY else soft)
    assert found.files_hard == (None if hard == resource.RLIM_INFINITY else hard)


def test_the_disk_of_a_directory_that_is_not_there_yet(tmp_path: Path) -> None:
    found = reading.read_volume(VolumeUse.MODELS, tmp_path / "a" / "b")
    assert found.path == tmp_path / "a" / "b"
    assert found.device == tmp_path.stat().st_dev
    assert found.writable
    assert 0 < found.free <= found.total
    (tmp_path / "file").touch()
    assert reading.read_volume(VolumeUse.MODELS, tmp_path / "file" / "below").device == found.device


def test_a_directory_that_may_not_be_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.stat

    def stat(self: Path, **more: Any) -> os.stat_result:
        if self.name == "closed":
            raise PermissionError(13, "Permission denied", str(self))
        return real(self, **more)

    monkeypatch.setattr(Path, "stat", stat)
    assert not reading.read_volume(VolumeUse.MODELS, tmp_path / "closed").writable


@pytest.mark.parametrize(
    ("files", "limit", "used", "quota"),
    [
        ({}, None, None, None),
        ({"memory.max": "max", "cpu.max": "max 100000"}, None, None, None),
        (
            {"memory.max": "1000", "memory.current": "400", "cpu.max": "150000 100000"},
            1000,
            400,
            1.5,
        ),
        (
            {
                "memory/memory.limit_in_bytes": "2000",
                "memory/memory.usage_in_bytes": "300",
                "cpu/cpu.cfs_quota_us": "200000",
                "cpu/cpu.cfs_period_us": "100000",
            },
            2000,
            300,
            2.0,
        ),
        (
            {"memory/memory.limit_in_bytes": str((1 << 63) - 4096), "cpu/cpu.cfs_quota_us": "-1"},
            None,
            None,
            None,
        ),
    ],
)
def test_control_groups(
    files: dict[str, str],
    limit: int | None,
    used: int | None,
    quota: float | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    monkeypatch.setattr(reading, "_CGROUPS", tmp_path)
    assert reading._memory_limit() == (limit, used)
    assert reading._cpu_quota() == quota


def test_tools_are_found_where_the_engine_would_look(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("c++", "nvcc"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "compat").mkdir()
    found = reading.read_tools(
        {"PATH": str(tmp_path / "bin"), "LD_LIBRARY_PATH": str(tmp_path / "compat")}
    )
    assert (found.compiler, found.nvcc) == (tmp_path / "bin" / "c++", tmp_path / "bin" / "nvcc")
    assert found.compat
    home = reading.read_tools({"PATH": "/nowhere", "CUDA_HOME": str(tmp_path)})
    assert (home.compiler, home.nvcc) == (None, tmp_path / "bin" / "nvcc")


def test_processes_are_read() -> None:
    found = {process.pid: process for process in read_processes()}
    me = found[os.getpid()]
    assert me.parent == os.getppid()
    assert me.session == os.getsid(0)
    assert me.argv
    assert not me.zombie
    assert GB
