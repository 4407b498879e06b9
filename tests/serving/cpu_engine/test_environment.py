"""Paths and variables of the CPU engine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from speclaunch.core.files import speclaunch_home
from speclaunch.engine import held_versions
from speclaunch.engine.facts.cpu_engine import (
    MODEL_MODULES,
    RELEASES,
    REQUIREMENTS,
    SGLANG_VERSION,
    SHIM,
    CpuEngine,
    disabled_models,
    requirements,
    why_not_on_cpu,
)
from tests.support.loops import rows


@pytest.fixture
def engine(home: Path) -> CpuEngine:
    engine = CpuEngine(home)
    models = engine.venv / "lib" / "python3.11" / "site-packages" / "sglang" / "srt" / "models"
    models.mkdir(parents=True)
    for name in ("__init__", "llama", "zebra", "grok", "glm4_moe"):
        (models / f"{name}.py").touch()
    (models / "package").mkdir()
    return engine


def test_everything_lies_below_the_home(home: Path) -> None:
    engine = CpuEngine(home)
    paths = [engine.python, engine.models, engine.manifest, engine.log, engine.model("cycle")]
    assert all(path.is_relative_to(home / "cpu-engine") for path in paths)


def test_another_release_has_its_own_folder_and_the_same_models(home: Path) -> None:
    default, other = CpuEngine(home), CpuEngine(home, "0.5.18")
    assert other.root == home / "cpu-engine-0.5.18"
    assert other.python.is_relative_to(other.root) and other.cache != default.cache
    assert other.models == default.models
    assert default.install_command == "speclaunch engine install cpu"
    assert other.install_command == "speclaunch engine install cpu --release 0.5.18"


@rows("release", RELEASES)
def test_a_release_pins_all_packages_of_the_default(release: str) -> None:
    default, own = REQUIREMENTS.read_text().splitlines(), requirements(release).splitlines()
    assert [line.split("==")[0] for line in own] == [line.split("==")[0] for line in default]
    assert f"sglang=={release}" in own
    assert set(RELEASES[release].split()) <= set(own)
    changed = [line for line in own if line not in default]
    different = release != SGLANG_VERSION
    assert len(changed) == len(RELEASES[release].split()) + different


def test_early_and_unknown_releases_are_refused_with_the_reason() -> None:
    refused = {version for version in held_versions() if why_not_on_cpu(version)}
    assert refused == set(held_versions()) - set(RELEASES)
    assert "CPU kernels since 0.5.16" in str(why_not_on_cpu("0.5.15.post1"))
    assert "untested" in str(why_not_on_cpu("0.9.0"))
    assert "not a release" in str(why_not_on_cpu("newest"))


def test_early_releases_compile_the_corpus_with_a_header(home: Path) -> None:
    name, header = "CPLUS_INCLUDE_PATH", SHIM / "include"
    early = CpuEngine(home, "0.5.18").environment({name: "/mine"})
    assert early[name] == f"{header}{os.pathsep}/mine"
    assert (header / "cstdint").is_file()
    assert name not in CpuEngine(home).environment({})


def test_the_models_that_are_not_needed_are_disabled(engine: CpuEngine) -> None:
    assert disabled_models(engine.venv) == ["grok", "zebra"]
    assert engine.environment({})["SGLANG_DISABLED_MODEL_ARCHS"] == "grok,zebra"


def test_without_sglang_nothing_is_disabled(tmp_path: Path) -> None:
    assert disabled_models(tmp_path) == []


def test_the_shim_and_the_tools_come_first_on_the_paths(engine: CpuEngine) -> None:
    environment = engine.environment({"PATH": "/usr/bin", "PYTHONPATH": "/mine"})
    assert environment["PATH"] == f"{engine.venv / 'bin'}{os.pathsep}/usr/bin"
    assert environment["PYTHONPATH"] == f"{SHIM}{os.pathsep}/mine"
    assert engine.environment(environment) == environment, "said twice, it is the same"
    assert engine.environment({})["PYTHONPATH"] == str(SHIM)


def test_nothing_is_compiled_outside_of_the_home(engine: CpuEngine, home: Path) -> None:
    environment = engine.environment({})
    for name in ("SGLANG_CACHE_DIR", "SGLANG_JIT_CACHE_DIR", "TORCH_EXTENSIONS_DIR"):
        assert Path(environment[name]).is_relative_to(home)


def test_the_home_is_configurable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path))
    assert speclaunch_home() == tmp_path
    monkeypatch.delenv("SPECLAUNCH_HOME")
    assert speclaunch_home().name == "speclaunch"


def test_every_requirement_is_pinned_once_and_torch_is_not_among_them() -> None:
    lines = [line for line in REQUIREMENTS.read_text().splitlines() if not line.startswith("#")]
    names = [line.split("==")[0].lower() for line in lines]
    assert all(line.count("==") == 1 for line in lines)
    assert len(set(names)) == len(names)
    assert "torch" not in names
    assert {"sglang", "ninja", "torchvision"} <= set(names)
    assert "llama" in MODEL_MODULES
