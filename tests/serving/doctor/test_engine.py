"""The engine, the packages next to it, compilers."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from speclaunch.engine.facts.facts import UnknownFact
from speclaunch.engine.facts.packages import Packages, Torch
from speclaunch.serving.doctor.checks.engine import (
    check_compilers,
    check_engine,
    check_packages,
    check_python,
)
from speclaunch.serving.doctor.facts import (
    CheckLine,
    CheckState,
    CpuEngineState,
    MachineFacts,
    NoAnswer,
    Tools,
)
from tests.support.loops import rows
from tests.support.serving.doctor.helpers import (
    HEALTHY,
    NO_GPU,
    machine,
    only,
    runtime,
    said,
    target,
)

NO_ENGINE = UnknownFact("engine", "no Python with sglang was found", "name it: engine.python=…")


def engine_line(found: MachineFacts) -> CheckLine:
    (line,) = [line for line in said(check_engine, found) if line.check == "engine"]
    return line


def cpu_line(found: MachineFacts) -> CheckLine:
    (line,) = [line for line in said(check_engine, found) if line.check == "cpu-engine"]
    return line


def test_speclaunch_itself() -> None:
    line = only(check_python, HEALTHY)
    assert "0.1.0 on Python 3.11.7 (/usr/bin/python3)" in line.found


@rows(
    "version, aim, state, why, fix",
    [
        ("0.5.23", None, CheckState.OK, "", None),
        ("0.5.18", None, CheckState.OK, "newest known version is 0.5.23", None),
        ("0.5.99", None, CheckState.NOTE, "newer than every known", "catalogue add installed"),
        ("0.3.0", None, CheckState.WARNING, "older than every known", "catalogue add installed"),
        ("0.5.18", {"fits": True, "needs": ">=0.5"}, CheckState.OK, "newest", None),
        (
            "0.5.18",
            {"fits": False, "needs": "0.5.23", "pinned": "0.5.23"},
            CheckState.ERROR,
            "is pinned to 0.5.23",
            "/env/bin/python -m pip install sglang==0.5.23",
        ),
        (
            "0.5.7",
            {"fits": False, "needs": ">=0.5.11,<0.6"},
            CheckState.ERROR,
            "needs >=0.5.11,<0.6",
            "/env/bin/python -m pip install 'sglang>=0.5.11,<0.6'",
        ),
        (
            "0.5.18",
            {"requested": ("0.5.23",)},
            CheckState.WARNING,
            "--engine 0.5.23",
            "sglang==0.5.23",
        ),
        ("0.5.18", {"requested": ("0.5.23", "0.5.18")}, CheckState.OK, "newest", None),
    ],
)
def test_the_installed_engine(
    version: str, aim: dict[str, Any] | None, state: CheckState, why: str, fix: str | None
) -> None:
    line = engine_line(
        machine(runtime=runtime(version), target=target(**aim) if aim is not None else None)
    )
    assert (line.state, why in line.why) == (state, True), line
    assert (fix or "") in (line.fix or "")
    assert line.command is (fix is not None)
    assert f"SGLang {version}, Python 3.11.7 (/env/bin/python)" in line.found


def test_no_engine_stops_a_recipe_and_is_good_to_know_without_one() -> None:
    assert engine_line(machine(runtime=NO_ENGINE)).state is CheckState.NOTE
    line = engine_line(machine(runtime=NO_ENGINE, target=target()))
    assert (line.state, line.fix) == (CheckState.ERROR, NO_ENGINE.help)


def test_an_engine_that_does_not_answer_is_unknown() -> None:
    found = machine(runtime=NoAnswer("engine", "no answer within 5 s"), target=target())
    line = engine_line(found)
    assert line.state is CheckState.UNKNOWN
    assert "engine.python=" in (line.fix or "")


@rows(
    "installed, begun, cpu, state",
    [
        (True, True, True, CheckState.OK),
        (False, True, False, CheckState.WARNING),
        (False, True, True, CheckState.ERROR),
        (False, False, False, CheckState.NOTE),
        (False, False, True, CheckState.ERROR),
    ],
)
def test_the_cpu_engine(installed: bool, begun: bool, cpu: bool, state: CheckState) -> None:
    have = CpuEngineState(installed, "0.5.23", engine_path(), begun)
    line = cpu_line(machine(cpu_engine=have, target=target(cpu=cpu)))
    assert line.state is state
    expected = None if installed else "speclaunch engine install cpu"
    assert (line.fix, line.command) == (expected, not installed)


def engine_path() -> Any:
    state = HEALTHY.cpu_engine
    assert isinstance(state, CpuEngineState)
    return state.python


def test_a_recipe_of_the_cpu_engine_needs_no_other() -> None:
    found = machine(runtime=NO_ENGINE, target=target(cpu=True, device="cpu"))
    assert [line.check for line in said(check_engine, found)] == ["cpu-engine"]


# packages


SKIP = "SGLANG_SKIP_SGL_KERNEL_VERSION_CHECK"


def installed(**changes: str | None) -> Packages:
    packages = HEALTHY.packages
    assert isinstance(packages, Packages)
    have = {name.replace("_", "-"): version for name, version in changes.items()}
    merged = {**packages.installed, **have}
    return replace(packages, installed={n: v for n, v in merged.items() if v is not None})


def test_packages_that_are_as_they_should_be() -> None:
    line = only(check_packages, HEALTHY)
    assert line.state is CheckState.OK
    assert "sglang-kernel 0.4.6.post1" in line.found


@pytest.mark.parametrize("version", ["0.4.1", None])
def test_a_kernel_package_below_the_engines_own_minimum(version: str | None) -> None:
    found = machine(packages=installed(sglang_kernel=version))
    line = only(check_packages, found)
    assert line.state is CheckState.ERROR
    assert "below 0.4.6.post1" in line.why
    assert line.fix == "/env/bin/python -m pip install sglang-kernel==0.4.6.post1"
    assert line.command
    without = only(check_packages, replace(found, hardware=NO_GPU))
    assert without.state is CheckState.WARNING  # the engine looks at it on a CUDA GPU only


@rows(
    "version, value, errors",
    [
        ("0.5.18", "1", 0),
        ("0.5.18", "0", 1),
        ("0.5.1.post3", "true", 0),
        ("0.4.10.post2", "true", 1),  # that release has no such variable
    ],
)
def test_the_check_may_be_switched_off(version: str, value: str, errors: int) -> None:
    found = machine(
        packages=installed(sglang_kernel="0.4.1"),
        runtime=runtime(version),
        env={SKIP: value},
    )
    states = [line.state for line in said(check_packages, found)]
    assert states.count(CheckState.ERROR) == errors
    assert states  # its requirement is still not met


@pytest.mark.parametrize(("backends", "errors"), [((), 0), (("flashinfer",), 1), (("fa3",), 0)])
def test_flashinfer_is_asked_for_by_its_backend_alone(
    backends: tuple[str, ...], errors: int
) -> None:
    found = machine(
        packages=installed(flashinfer_python="0.6.1"), target=target(attention_backends=backends)
    )
    assert only(check_packages, found).state is (CheckState.ERROR if errors else CheckState.WARNING)


@pytest.mark.parametrize(
    ("version", "state"), [("0.5.6.post2", CheckState.ERROR), ("0.5.7", CheckState.WARNING)]
)
def test_the_variable_covers_flashinfer_later(version: str, state: CheckState) -> None:
    found = machine(
        packages=installed(flashinfer_python="0.6.1"),
        target=target(attention_backends=("flashinfer",)),
        runtime=runtime(version),
        env={SKIP: "1"},
    )
    assert only(check_packages, found).state is state


def test_other_versions_than_asked_for_are_warned_of_together() -> None:
    found = machine(packages=installed(torch="2.9.1", flashinfer_python=None, aiohttp=None))
    serious, other = said(check_packages, found)
    assert serious.state is CheckState.WARNING
    assert (
        serious.found
        == "torch 2.9.1 (needs ==2.13.0), flashinfer-python is missing (needs ==0.6.17)"
    )
    assert serious.fix == "/env/bin/python -m pip install torch==2.13.0 flashinfer-python==0.6.17"
    assert (other.state, other.found) == (CheckState.NOTE, "aiohttp is missing")


def test_what_is_told_already_is_not_told_again() -> None:
    packages_ = installed(sglang_kernel="0.4.1", torch="2.9.1")
    twice = replace(packages_, requires=(*packages_.requires, 'torch==2.13.0; extra == "srt"'))
    kernel, torch = said(check_packages, machine(packages=twice))
    assert kernel.found == "sglang-kernel 0.4.1"
    assert torch.found == "torch 2.9.1 (needs ==2.13.0)"


def test_local_versions_are_the_same_release() -> None:
    found = machine(packages=installed(torch="2.13.0+cu130", sglang_kernel="0.4.6.post1+cu124"))
    assert only(check_packages, found).state is CheckState.OK


def test_an_environment_without_pip_is_told_uv() -> None:
    found = machine(packages=replace(installed(torch="2.9.1"), has_pip=False))
    assert only(check_packages, found).fix == (
        "uv pip install --python /env/bin/python torch==2.13.0"
    )


def test_of_many_mismatches_sglang_itself_is_installed_again() -> None:
    found = machine(
        packages=replace(installed(), requires=tuple(f"needed-{n}==1" for n in range(9)))
    )
    line, kernels = said(check_packages, found)
    assert kernels.state is CheckState.OK
    assert "and 3 more" in line.found
    assert line.fix == "/env/bin/python -m pip install sglang==0.5.18"


def test_both_kernel_packages_overwrite_each_other() -> None:
    found = machine(packages=installed(sgl_kernel="0.3.21"))
    line = only(check_packages, found)
    assert line.state is CheckState.WARNING
    assert line.found == "sgl-kernel 0.3.21 and sglang-kernel 0.4.6.post1"
    assert "then install sglang-kernel" in (line.fix or "")


@rows(
    "name, version, off, state",
    [
        ("flashinfer_cubin", "0.6.17", None, CheckState.OK),
        ("flashinfer_cubin", "0.6.8", None, CheckState.ERROR),
        ("flashinfer_cubin", "0.6.8", "1", CheckState.OK),
        ("flashinfer_jit_cache", "0.6.17+cu130", None, CheckState.OK),
        ("flashinfer_jit_cache", "0.6.9+cu130", None, CheckState.ERROR),
    ],
)
def test_flashinfers_binaries(name: str, version: str, off: str | None, state: CheckState) -> None:
    env = {"FLASHINFER_DISABLE_VERSION_CHECK": off} if off else {}
    line = only(check_packages, machine(packages=installed(**{name: version}), env=env))
    assert line.state is state
    assert line.state is CheckState.OK or version in line.found
    by_name = name == "flashinfer_cubin" and state is CheckState.ERROR
    assert line.command is by_name
    assert not by_name or "flashinfer-cubin==0.6.17" in (line.fix or "")


def test_binaries_without_flashinfer_itself_are_not_compared() -> None:
    found = machine(packages=installed(flashinfer_cubin="0.6.8", flashinfer_python=None))
    assert [line.found for line in said(check_packages, found)] == [
        "flashinfer-python is missing (needs ==0.6.17)"
    ]


def test_requirements_of_an_extra_count_for_old_releases() -> None:
    old = Packages(
        requires=(
            'sgl-kernel==0.3.7; extra == "srt"',
            'sgl-kernel; extra == "blackwell"',
            'openai==9; extra == "openai"',
            'numpy==1; python_version < "3.9"',
            "not a requirement at all ;;",
            'sglang[srt]; extra == "srt"',
        ),
        installed={"sgl-kernel": "0.3.5"},
    )
    line = only(check_packages, machine(packages=old, runtime=runtime("0.5.1.post3")))
    assert line.found == "sgl-kernel 0.3.5 (needs ==0.3.7)"


def test_packages_are_not_compared_for_amd_nor_for_the_cpu_engine() -> None:
    amd = machine(packages=replace(installed(torch="2.9"), torch=Torch("2.9+rocm6", None, "6.4")))
    assert only(check_packages, amd).state is CheckState.OK
    cpu = machine(packages=installed(torch="2.9"), target=target(cpu=True))
    assert said(check_packages, cpu) == []


# compilers


@rows(
    "algorithm, compiled, compiler, ninja, states",
    [
        ("NGRAM", False, True, True, [CheckState.OK]),
        ("NGRAM", False, False, True, [CheckState.WARNING]),
        ("NGRAM", False, True, False, [CheckState.OK, CheckState.WARNING]),
        ("NGRAM", True, False, False, []),
        ("EAGLE", False, False, False, []),
    ],
)
def test_ngram_needs_a_compiler_once(
    algorithm: str, compiled: bool, compiler: bool, ninja: bool, states: list[CheckState]
) -> None:
    tools = HEALTHY.tools
    assert isinstance(tools, Tools)
    found = machine(
        tools=tools if compiler else replace(tools, compiler=None),
        packages=replace(installed(), ninja=ninja),
        hardware=NO_GPU,
        target=target(algorithm=algorithm, compiled=compiled),
    )
    assert [line.state for line in said(check_compilers, found)] == states


def test_nvcc_is_looked_for_where_there_is_a_gpu() -> None:
    assert only(check_compilers, HEALTHY).state is CheckState.OK
    assert only(check_compilers, machine(tools=Tools())).state is CheckState.NOTE
    assert said(check_compilers, machine(tools=Tools(), hardware=NO_GPU)) == []
