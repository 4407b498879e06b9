"""The driver and the GPUs."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from speclaunch.engine.facts.facts import UnknownFact
from speclaunch.engine.facts.hardware import OtherProcess
from speclaunch.engine.facts.packages import Packages, Torch
from speclaunch.serving.doctor.checks.machine import check_driver, check_gpus
from speclaunch.serving.doctor.facts import CheckLine, CheckState, Process, Tools
from tests.support.loops import rows
from tests.support.serving.doctor.helpers import (
    GIB,
    HEALTHY,
    NO_GPU,
    gpu,
    h100s,
    machine,
    only,
    said,
    target,
)


def torch(cuda: str | None, version: str = "2.9.1") -> Packages:
    packages = HEALTHY.packages
    assert isinstance(packages, Packages)
    return replace(packages, torch=Torch(version, cuda))


@rows(
    "version, cuda, state",
    [
        ("580.65.06", "13.0", CheckState.OK),
        ("590.44", "12.8", CheckState.OK),
        ("570.86.15", "13.0", CheckState.ERROR),
        ("570.86.15", "12.9", CheckState.OK),  # minor versions are compatible within a major one
        ("525.60.13", "12.1", CheckState.OK),
        ("520.61", "12.1", CheckState.ERROR),
        ("440.33", "11.8", CheckState.ERROR),
        ("600.1", "14.0", CheckState.NOTE),
        ("unheard", "13.0", CheckState.NOTE),
    ],
)
def test_the_driver_against_the_cuda_of_torch(version: str, cuda: str, state: CheckState) -> None:
    line = only(
        check_driver, machine(hardware=h100s(gpu(0, 79), driver=version), packages=torch(cuda))
    )
    assert line.state is state, line
    assert line.state is not CheckState.ERROR or "or newer" in (line.fix or "")
    fitting = {"570.86.15": "CUDA 12.x", "520.61": "CUDA 11.x", "440.33": "an older CUDA"}
    assert line.state is not CheckState.ERROR or (line.fix or "").endswith(fitting[version])


def test_an_older_driver_may_do_with_the_compatibility_package() -> None:
    found = machine(
        hardware=h100s(gpu(0, 79), driver="570.1"), packages=torch("13.0"), tools=Tools(compat=True)
    )
    assert only(check_driver, found).state is CheckState.WARNING


def test_a_torch_without_cuda_sees_no_gpu() -> None:
    assert only(check_driver, machine(packages=torch(None, "2.9.1+cpu"))).state is CheckState.ERROR
    on_cpu = machine(packages=torch(None, "2.9.1+cpu"), target=target(cpu=True))
    assert only(check_driver, on_cpu).state is CheckState.OK
    needs_it = machine(packages=torch(None, "2.9.1+cpu"), target=target(cpu=False))
    assert only(check_driver, needs_it).state is CheckState.ERROR


def test_no_driver_is_said_once_by_the_gpus() -> None:
    assert said(check_driver, machine(hardware=NO_GPU)) == []
    unknown = machine(packages=UnknownFact("packages", "no"))
    assert only(check_driver, unknown).state is CheckState.OK


# GPUs


@rows(
    "aim, devices, state",
    [
        (None, (), CheckState.NOTE),
        (target(device="cpu"), (), CheckState.NOTE),
        (target(), (), CheckState.ERROR),
        (target(device=None), (), CheckState.ERROR),
        (target(), ("AMD",), CheckState.UNKNOWN),  # there is one that is not looked at
        (target(cpu=True), (), CheckState.OK),
    ],
)
def test_no_gpu(aim: Any, devices: tuple[str, ...], state: CheckState) -> None:
    line = only(check_gpus, machine(hardware=NO_GPU, target=aim, tools=Tools(devices=devices)))
    assert line.state is state


def first(line_of: list[CheckLine]) -> CheckLine:
    return line_of[0]


@pytest.mark.parametrize(
    ("needed", "state"), [(1, CheckState.OK), (2, CheckState.OK), (4, CheckState.ERROR)]
)
def test_gpus_enough(needed: int, state: CheckState) -> None:
    found = machine(hardware=h100s(gpu(0, 79), gpu(1, 79)), target=target(gpus=needed))
    line = first(said(check_gpus, found))
    assert line.state is state
    assert line.found == "2 x NVIDIA H100, 79.6 GiB each, compute capability 9.0"
    assert line.state is CheckState.OK or f"needs {needed} GPUs" in line.why


def test_another_machine_than_the_recipe_names() -> None:
    line = first(said(check_gpus, machine(target=target(meant_for="8 x h200"))))
    assert line.state is CheckState.WARNING
    assert "is for 8 x h200" in line.why


def memory_lines(*found: Any, **changes: Any) -> list[CheckLine]:
    lines = said(check_gpus, machine(hardware=h100s(*found), **changes))
    return [line for line in lines if line.check == "gpu-memory"]


def test_free_gpus() -> None:
    (line,) = memory_lines(gpu(0, 79.2), gpu(1, 79.2))
    assert (line.state, line.found) == (CheckState.OK, "all free")


def test_what_others_hold_is_missing_from_the_engines_share() -> None:
    holder = OtherProcess(77, "?", 38 * GIB)
    (line,) = memory_lines(
        gpu(0, 40, holder),
        target=target(mem_fraction=0.7),
        processes=(Process(77, 1, "python", ("python", "train.py"), "bob"),),
    )
    assert line.state is CheckState.WARNING
    assert line.found == "GPU 0: 40.0 of 80.0 GiB free; python (process 77 of bob) holds 38.0 GiB"
    assert "28.0 GiB for weights and KV cache instead of 56.0" in line.why
    assert line.fix is None  # it is no leftover, and not ours


def test_without_a_recipe_it_is_good_to_know() -> None:
    (line,) = memory_lines(gpu(0, 40, OtherProcess(77, "train", None)))
    assert line.state is CheckState.NOTE
    assert "train (process 77)" in line.found


def test_what_the_driver_does_not_tell() -> None:
    plain = replace(gpu(0, 10), free_bytes=None)
    assert memory_lines(plain) == []
    odd = replace(h100s(plain), memory_mib=None, capability=None)
    (line,) = said(check_gpus, machine(hardware=odd, target=target()))
    assert line.found == "1 x NVIDIA H100"
    unseen = machine(
        hardware=h100s(gpu(0, 40, OtherProcess(77, "train", 38 * GIB))),
        processes=UnknownFact("processes", "no"),
    )
    assert "train (process 77) holds 38.0 GiB" in said(check_gpus, unseen)[1].found


def test_a_small_holder_is_named_and_no_warning() -> None:
    (line,) = memory_lines(gpu(0, 79, OtherProcess(5, "Xorg", 4 << 20)), target=target())
    assert line.state is CheckState.NOTE


def test_a_leftover_engine_on_a_gpu_is_ended() -> None:
    scheduler = Process(42, 1, "sglang::schedul", ("sglang::scheduler",), "me", session=40)
    (line,) = memory_lines(
        gpu(0, 10, OtherProcess(42, "sglang::schedul", 70 * GIB)), processes=(scheduler,)
    )
    assert (line.state, line.fix, line.command) == (CheckState.WARNING, "kill 42", True)
    (theirs,) = memory_lines(
        gpu(0, 10, OtherProcess(42, "sglang::schedul", 70 * GIB)),
        processes=(replace(scheduler, user="bob"),),
    )
    assert theirs.fix is None


@rows(
    "free, ranks, env, states",
    [
        ((79, 79), 2, {}, [CheckState.OK]),
        ((79, 72), 2, {}, [CheckState.WARNING]),  # a tenth less is borne
        ((79, 60), 2, {}, [CheckState.WARNING, CheckState.ERROR]),
        ((79, 60), 1, {}, [CheckState.WARNING]),
        ((79, 79, 60), 2, {}, [CheckState.WARNING]),  # the third is not used
        (
            (79, 60),
            2,
            {"SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK": "false"},
            [CheckState.WARNING, CheckState.WARNING],
        ),
        (
            (79, 60),
            2,
            {"SGL_DISABLE_TP_MEMORY_INBALANCE_CHECK": "1"},
            [CheckState.WARNING, CheckState.WARNING],
        ),
        (
            (79, 60),
            2,
            {"SGL_DISABLE_TP_MEMORY_INBALANCE_CHECK": "0"},
            [CheckState.WARNING, CheckState.ERROR],
        ),
    ],
)
def test_ranks_refuse_gpus_that_differ_in_free_memory(
    free: tuple[int, ...], ranks: int, env: dict[str, str], states: list[CheckState]
) -> None:
    found = [gpu(index, amount) for index, amount in enumerate(free)]
    aim = target(gpus=ranks, tensor_parallel=ranks)
    assert [line.state for line in memory_lines(*found, target=aim, env=env)] == states
