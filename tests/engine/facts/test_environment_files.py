"""An environment is read by its files: nothing in it runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from speclaunch.engine.facts.environment_files import EnvironmentFiles, read_environment

NAMES = ("sglang", "torch", "sgl-kernel")


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    root = tmp_path / "venv"
    (root / "bin").mkdir(parents=True)
    (root / "lib/python3.11/site-packages").mkdir(parents=True)
    (root / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.7\n")
    return root


def site(root: Path) -> Path:
    return root / "lib/python3.11/site-packages"


def read(root: Path) -> EnvironmentFiles | None:
    return read_environment(root / "bin" / "python", NAMES)


def test_versions_are_in_the_names_of_the_metadata(venv: Path) -> None:
    for name in ("sglang-0.5.23.dist-info", "sgl_kernel-0.3.1.post1.dist-info", "x.dist-info"):
        (site(venv) / name).mkdir()
    (site(venv) / "sglang").mkdir()
    (site(venv) / "sglang" / "__init__.py").write_text("raise SystemExit\n")
    assert read(venv) == EnvironmentFiles(
        "3.11.7", {"sglang": "0.5.23", "sgl-kernel": "0.3.1.post1"}, site(venv) / "sglang"
    )


def test_a_prefix_without_a_configuration(venv: Path) -> None:
    (venv / "pyvenv.cfg").unlink()
    (site(venv) / "torch-2.9.0+cu130.dist-info").mkdir()
    assert read(venv) == EnvironmentFiles("3.11", {"torch": "2.9.0+cu130"})


@pytest.mark.parametrize("kept", ["true", "false"])
def test_the_base_counts_where_the_configuration_says_so(
    kept: str, venv: Path, tmp_path: Path
) -> None:
    base = tmp_path / "base"
    (site(base) / "sglang-0.5.20.dist-info").mkdir(parents=True)
    (venv / "pyvenv.cfg").write_text(
        f"home = {base}/bin\nversion_info = 3.11.9.final.0\ninclude-system-site-packages = {kept}\n"
    )
    packages = {"sglang": "0.5.20"} if kept == "true" else {}
    assert read(venv) == EnvironmentFiles("3.11.9", packages)


@pytest.mark.parametrize("way", ["direct_url", "pth"])
def test_an_editable_installation_leads_to_its_checkout(
    way: str, venv: Path, tmp_path: Path
) -> None:
    checkout = tmp_path / "checkout" / "python"
    (checkout / "sglang").mkdir(parents=True)
    (checkout / "sglang" / "__init__.py").write_text("")
    metadata = site(venv) / "sglang-0.5.24.dev3+gabc.dist-info"
    metadata.mkdir()
    if way == "pth":
        (site(venv) / "__editable__.sglang.pth").write_text(f"import os\n{checkout}\n")
    else:
        (metadata / "direct_url.json").write_text(
            json.dumps({"url": f"file://{checkout.parent}", "dir_info": {"editable": True}})
        )
    found = read(venv)
    assert found is not None
    assert found.packages == {"sglang": "0.5.24.dev3+gabc"}
    assert found.sglang_path == checkout / "sglang"


def test_what_is_no_environment(tmp_path: Path, venv: Path) -> None:
    assert read_environment(tmp_path / "python", NAMES) is None
    assert read_environment(tmp_path / "bin" / "python", NAMES) is None
    assert read(venv) == EnvironmentFiles("3.11.7", {})


def test_hostile_files_end(venv: Path) -> None:
    (venv / "pyvenv.cfg").unlink()
    (venv / "pyvenv.cfg").symlink_to("/dev/zero")
    metadata = site(venv) / "sglang-0.5.23.dist-info"
    metadata.mkdir()
    (metadata / "direct_url.json").write_text("[" * 50_000)
    os.mkfifo(site(venv) / "a.pth")
    (site(venv) / "b.pth").symlink_to("/dev/zero")
    assert read(venv) == EnvironmentFiles("3.11", {"sglang": "0.5.23"})
