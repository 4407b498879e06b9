"""Which interpreter is taken, and that ours is read without starting another."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from speclaunch.errors import LaunchError
from speclaunch.facts import runtime
from speclaunch.facts.runtime import Runtime, find_runtime, probe


def test_our_own_interpreter_says_the_same_about_itself() -> None:
    assert runtime._own() == probe(Path(sys.executable))


def test_a_link_beside_the_program_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []

    def refuse(path: Path) -> Runtime:
        asked.append(path)
        raise LaunchError("no")

    (tmp_path / "python3").write_text("")
    (tmp_path / "python3").chmod(0o755)
    (tmp_path / "python").symlink_to("python3")
    monkeypatch.setattr(runtime, "probe", refuse)
    monkeypatch.setattr(runtime, "_own", lambda: Runtime(Path("x"), "3.11", {}))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/nowhere")
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(LaunchError, match="no Python with sglang"):
        find_runtime(None)
    assert asked == [tmp_path / "python3"]
