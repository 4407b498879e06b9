"""What an interpreter's environment holds, read from packages made for it."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from speclaunch.core.errors import LaunchError
from speclaunch.engine.facts.packages import Torch, read_packages

_ENGINE = """
import sys
sys.exit("the engine must not be imported")
            assert_pkg_version(
                "flashinfer_python",
                "0.6.17",
                "Please uninstall",
            )
        if _is_cuda:
            assert_pkg_version(
                "sglang-kernel",
                "0.4.6.post1",
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("env")
    venv.create(root, with_pip=False)
    (packages,) = root.glob("lib/python3*/site-packages")
    for name, version, more in (
        ("sglang", "0.5.18", "Requires-Dist: torch==2.13.0\nRequires-Dist: Typing_Extensions\n"),
        ("sglang_kernel", "0.4.1", ""),
        ("torch", "2.13.0", ""),
    ):
        folder = packages / f"{name}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{more}\n"
        )
    (packages / "sglang/srt/entrypoints").mkdir(parents=True)
    (packages / "sglang/__init__.py").write_text("raise SystemExit('imported')\n")
    (packages / "sglang/srt/entrypoints/engine.py").write_text(_ENGINE)
    (packages / "torch").mkdir()
    (packages / "torch/__init__.py").write_text("raise SystemExit('imported')\n")
    (packages / "torch/version.py").write_text(
        "from typing import Optional\n__version__ = '2.13.0+cu130'\ndebug = False\n"
        "cuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n"
    )
    return root / "bin" / "python"


def test_packages_are_read_and_not_imported(environment: Path) -> None:
    found = read_packages(environment)
    assert found.requires == ("torch==2.13.0", "Typing_Extensions")
    assert found.installed == {"sglang": "0.5.18", "sglang-kernel": "0.4.1", "torch": "2.13.0"}
    assert found.minimums == {"flashinfer-python": "0.6.17", "sglang-kernel": "0.4.6.post1"}
    assert found.torch == Torch("2.13.0+cu130", "13.0", None)
    assert not found.has_pip


def test_an_interpreter_without_any_of_it() -> None:
    found = read_packages(Path(sys.executable))
    assert (found.requires, found.minimums, found.torch) == ((), {}, None)


@pytest.mark.parametrize("body", ["exit 3", "echo hello", "echo '{}'", "echo '[]'"])
def test_what_is_no_python(body: str, tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    with pytest.raises(LaunchError, match="did not list its packages"):
        read_packages(program)


@pytest.mark.thorough
def test_one_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("speclaunch.engine.facts.packages._PACKAGES_SECONDS", 0.3)
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nsleep 47.11\n")
    program.chmod(0o755)
    with pytest.raises(LaunchError, match="no answer within"):
        read_packages(program)
    left = subprocess.run(["pgrep", "-f", "sleep 47.11"], capture_output=True, check=False)
    assert left.stdout == b""
