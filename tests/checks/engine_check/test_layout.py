"""The files of a judge: what is taken from a wheel or a folder, what is left out, what is pinned."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from speclaunch.checks.engine_check.add_judge import fetch, lay_out, leave_out, light_requirements
from speclaunch.core.errors import InputError, LaunchError
from speclaunch.engine.facts.runtime import pip_command

METADATA = """Metadata-Version: 2.1
Name: sglang
Version: 0.5.18
Requires-Dist: torch==2.13.0
Requires-Dist: transformers==5.12.1
Requires-Dist: compressed_tensors (==0.18.0)
Requires-Dist: tokenizers<1
Requires-Dist: huggingface-hub==1.3.0; extra == "x"
"""
FILES = {
    "sglang/__init__.py": "",
    "sglang/srt/server_args.py": "",
    "sglang/srt/models/llama.py": "",
    "sglang/srt/models/used.py": "",
    "sglang/srt/arg_groups/hook.py": "",
    "sglang/srt/layers/moe/configs/E=8.json": "{}",
    "sglang/kernels/jit/csrc/deep/a.cuh": "",
    "sglang/srt/rust/_server.cpython-311-x86_64-linux-gnu.so": "",
    "sglang-0.5.18.dist-info/METADATA": METADATA,
}


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "sglang-0.5.18-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        for name, text in FILES.items():
            file.writestr(name, text)
    return path


def names(site: Path) -> set[str]:
    return {str(path.relative_to(site)) for path in site.rglob("*") if path.is_file()}


def test_a_wheel_without_what_is_compiled(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    assert lay_out(wheel, site) == ["transformers==5.12.1", "compressed_tensors==0.18.0"]
    assert names(site) == {name for name in FILES if not name.endswith((".so", ".cuh"))}
    assert (site / "sglang/kernels/jit/csrc/deep").is_dir()  # releases look for the folder


def test_a_checkout_says_its_pins_in_its_project(tmp_path: Path) -> None:
    package = tmp_path / "python" / "sglang"
    (package / "srt").mkdir(parents=True)
    (package / "srt/server_args.py").touch()
    (tmp_path / "python/pyproject.toml").write_text(
        '[project]\ndependencies = ["torch==2.9.1", "transformers==4.57.1"]\n'
    )
    assert fetch("x", str(tmp_path), tmp_path, print) == package
    assert lay_out(package, tmp_path / "site") == ["transformers==4.57.1"]
    (tmp_path / "python/pyproject.toml").write_text("[project")
    assert lay_out(package, tmp_path / "other") == []


def test_what_is_no_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="neither a wheel nor a folder"):
        fetch("x", str(tmp_path), tmp_path, print)


def test_what_was_loaded_and_what_validates_stays(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    lay_out(wheel, site)
    leave_out(site, [str(site / "sglang/srt/models/used.py")])
    assert names(site) == {
        *("sglang/__init__.py", "sglang/srt/server_args.py", "sglang/srt/models/used.py"),
        *("sglang/srt/arg_groups/hook.py", "sglang-0.5.18.dist-info/METADATA"),
    }


def test_the_packages_are_the_releases_pins_then_the_cpu_engines() -> None:
    wanted = light_requirements(["transformers==4.57.1", "compressed-tensors==0.18.0"])
    assert wanted[0] == "transformers==4.57.1"
    assert not any(one.startswith(("torch", "compressed", "numpy", "tokenizers")) for one in wanted)
    assert sum("==" in one for one in wanted) > 20
    assert light_requirements([])[0].startswith("transformers==5")


@pytest.mark.thorough
def test_pip_is_there_where_only_python_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment of uv's has none: the one that Python brings is run from its wheel."""
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *more: None if name == "pip" else real(name, *more),
    )
    command = pip_command()
    assert command[:2] != [sys.executable, "-m"]
    done = subprocess.run([*command, "--version"], capture_output=True, text=True)
    assert done.stdout.startswith("pip ")
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    with pytest.raises(LaunchError, match="has no pip"):
        pip_command()
