"""What Python made of a judge's sources, in one file: read back as it was, and never instead."""

from __future__ import annotations

import compileall
import subprocess
import sys
from pathlib import Path

import pytest

from speclaunch.checks.engine_check import engine_judge
from speclaunch.checks.engine_check.worker import compiled

JUDGE = engine_judge.START.parent.parent


@pytest.fixture
def site(tmp_path: Path) -> Path:
    package = tmp_path / "site" / "mine"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from mine.part import f\n")
    (package / "part.py").write_text("def f():\n    return f.__code__.co_filename\n")
    compileall.compile_dir(package, quiet=2)
    return tmp_path / "site"


def run(site: Path) -> str:
    code = f"""
import sys
sys.path[:0] = [{str(JUDGE)!r}, {str(site)!r}]
sys.dont_write_bytecode = True
from worker.compiled import use
use({str(site)!r})
import mine
print(mine.f())
"""
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    return done.stdout.strip() or done.stderr


def test_it_is_kept_in_one_file_and_read_back(site: Path) -> None:
    compiled.pack(site)
    assert not list(site.rglob("__pycache__")) and (site / compiled.NAME).is_file()
    # a source that cannot be compiled shows that the kept code is what runs
    (site / "mine/part.py").write_text("def f(:\n")
    assert run(site) == str(site / "mine/part.py")


def test_it_says_where_the_source_is_now(site: Path, tmp_path: Path) -> None:
    compiled.pack(site)
    moved = site.rename(tmp_path / "moved")
    assert run(moved) == str(moved / "mine/part.py")


@pytest.mark.parametrize("data", [b"", b"1234", b"\0" * 40])
def test_a_file_that_is_none_is_passed_over(site: Path, data: bytes) -> None:
    (site / compiled.NAME).write_bytes(data)
    assert run(site) == str(site / "mine/part.py")


def test_code_of_another_python_is_passed_over(site: Path) -> None:
    compiled.pack(site)
    kept = site / compiled.NAME
    kept.write_bytes(b"\1\2\r\n" + kept.read_bytes()[4:])
    assert run(site) == str(site / "mine/part.py")
