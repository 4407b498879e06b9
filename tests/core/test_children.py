"""Child processes start isolated from the current directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from speclaunch import __version__
from speclaunch.core import children


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with modules that end the process."""
    for name in ("json", "sitecustomize", "usercustomize", "speclaunch", "runpy", "ctypes"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('executed')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


SCRIPT = "import json, os; print(json.dumps([os.getcwd(), os.environ.get('PYTHONPATH')]))"


@pytest.mark.parametrize(
    ("path", "left"),
    [
        ("", None),
        (".", None),
        (":", None),
        ("lib:/nowhere", "/nowhere"),
        ("/nowhere:", "/nowhere"),
        ("/a:/b", "/a:/b"),
    ],
)
def test_a_child_needs_no_directory(
    path: str, left: str | None, hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", path)
    assert children.environment().get("PYTHONPATH") == left
    assert os.environ["PYTHONPATH"] == path
    done = children.run([sys.executable, "-c", SCRIPT])
    said = "null" if left is None else f'"{left}"'
    assert (done.stdout, done.stderr) == (f'["/", {said}]\n', "")


def test_a_script_of_ours_ignores_the_directory_that_it_runs_in(hostile: Path) -> None:
    done = children.run(children.isolated(sys.executable, "-c", SCRIPT), cwd=hostile)
    assert str(hostile) in done.stdout
    env = children.safe_path(os.environ)
    done = children.run([sys.executable, "-c", SCRIPT], cwd=hostile, env=env)
    assert str(hostile) in done.stdout
    assert children.without_safe_path(env) == dict(os.environ)
    assert children.safe_path({"PYTHONSAFEPATH": "1"}) == {"PYTHONSAFEPATH": "1"}


def test_a_program_is_found_by_absolute_entries_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "tool"
    program.write_text("#!/bin/sh\necho ran\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f":.:{os.path.relpath(tmp_path)}")
    assert children.find_program("tool") is None
    for name in ("tool", "./tool"):
        with pytest.raises(FileNotFoundError, match="tool"):
            children.run([name])
    monkeypatch.setenv("PATH", f".:{tmp_path}")
    assert children.find_program("tool") == str(program)
    assert children.run(["tool"]).stdout == "ran\n"


def test_a_child_ends_in_time() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        children.run(["/bin/sleep", "60"], timeout=0.1)


@pytest.mark.thorough
def test_our_own_process_is_this_installation(hostile: Path, tmp_path: Path) -> None:
    """Whatever the directory holds, and where no interpreter would find the package."""
    done = children.run(children.own_command("--version"), cwd=hostile)
    assert (done.stdout, done.stderr) == (f"speclaunch {__version__}\n", "")
    done = children.run(children.bound(children.own_command("--version")), cwd=hostile)
    assert done.stdout == f"speclaunch {__version__}\n"
    package = tmp_path / "elsewhere" / "speclaunch"
    package.mkdir(parents=True)
    shutil.copytree(Path(children.__file__).parent, package / "core")
    (package / "__init__.py").write_text("__version__ = 'another'\n")
    (package / "__main__.py").write_text(
        "import sys\nimport speclaunch.core.errors\nfrom speclaunch import __version__\n"
        "print(__version__, speclaunch.core.errors.__file__, sys.argv[1:])\n"
    )
    command = [sys.executable, "-P", package / "core" / "own_process.py", "speclaunch", "a", "b"]
    done = children.run(command, cwd=hostile)
    assert done.stdout == f"another {package}/core/errors.py ['a', 'b']\n", done.stderr
