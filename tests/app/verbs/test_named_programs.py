"""Verbs that only read run no program that a file names, unless the user trusts it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.program import run

pytestmark = [pytest.mark.thorough, pytest.mark.core]

RECIPE = """\
engine: {{python: {python}{more}}}
args: {{model_path: Qwen/Qwen3-8B, speculative_algorithm: NGRAM}}
"""
ANSWER = '{"python": "3.11.7", "packages": {"sglang": "0.5.18"}, "sglang": null}'
READING = {
    "plan": "plan mine.yaml",
    "doctor": "doctor mine.yaml",
    "doctor with the engine's opinion": "doctor mine.yaml --ask always",
    "render": "render --to shell mine.yaml",
    "dry run": "launch --dry-run mine.yaml",
    "dry run with the engine's opinion": "launch --dry-run mine.yaml --ask always",
    "bench": "bench --dry-run mine.yaml",
    "prove": "prove --dry-run mine.yaml",
    "tune": "tune --dry-run mine.yaml",
    "sweep": "sweep --dry-run mine.yaml args.port=30001,30002",
    "lint": "lint --no-cache mine.yaml",
    "lint with the engine's opinion": "lint --no-cache mine.yaml --ask always",
    "migrate": "migrate mine.yaml --to 0.5.23",
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A repository whose interpreter leaves a mark when it runs."""
    folder = tmp_path / "repository"
    program = folder / ".venv" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/executed\necho '{ANSWER}'\n")
    program.chmod(0o755)
    write(folder)
    return folder


def write(folder: Path, python: str = "./.venv/bin/python", more: str = "") -> None:
    (folder / "mine.yaml").write_text(RECIPE.format(python=python, more=more))


def install(venv: Path, version: str, more: str = "") -> Path:
    """Make it a virtual environment with an engine; its site-packages."""
    (venv / "pyvenv.cfg").write_text(f"home = /usr/bin\nversion = 3.11.7\n{more}")
    site = venv / "lib" / "python3.11" / "site-packages"
    (site / f"sglang-{version}.dist-info").mkdir(parents=True)
    (site / f"sglang-{version}.dist-info" / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n"
    )
    return site


def environment(folder: Path) -> dict[str, str]:
    env = {n: v for n, v in os.environ.items() if n not in ("VIRTUAL_ENV", "CONDA_PREFIX")}
    return {**env, "SPECLAUNCH_HOME": str(folder.parent / "home"), "PATH": os.defpath}


def executed(folder: Path) -> bool:
    return (folder.parent / "executed").exists()


@pytest.mark.parametrize("more", ["", ", catalogue: installed"], ids=["", "catalogue"])
@pytest.mark.parametrize("verb", READING)
def test_a_reading_verb_runs_no_program_of_a_file(verb: str, more: str, directory: Path) -> None:
    write(directory, more=more)
    done = run(*READING[verb].split(), cwd=directory, env=environment(directory))
    assert not executed(directory)
    assert done.returncode in (0, 1, 2), done.stderr
    assert "Traceback" not in done.stderr
    assert "a bug in speclaunch" not in done.stderr


@pytest.mark.parametrize("verb", ["plan", "render", "dry run", "bench", "prove", "tune", "doctor"])
def test_it_says_that_the_engine_is_unknown_and_how_to_know_it(verb: str, directory: Path) -> None:
    done = run(*READING[verb].split(), cwd=directory, env=environment(directory))
    said = " ".join((done.stdout + done.stderr).split())
    assert "engine unknown:" in said
    assert "was not executed" in said
    assert "--trust-engine" in said


@pytest.mark.parametrize(
    "verb", ["plan", "render", "dry run", "bench", "prove", "tune", "doctor", "sweep"]
)
def test_a_trusted_program_runs(verb: str, directory: Path) -> None:
    words = [*READING[verb].split(), "--trust-engine"]
    run(*words, cwd=directory, env=environment(directory))
    assert executed(directory)


def test_lint_runs_a_trusted_program_for_the_installed_catalogue(directory: Path) -> None:
    write(directory, more=", catalogue: installed")
    run("lint", "--trust-engine", "mine.yaml", cwd=directory, env=environment(directory))
    assert executed(directory)


def test_a_program_of_the_command_line_is_the_users_own(directory: Path) -> None:
    write(directory, python="/nowhere/python")
    done = run(
        *("plan", "mine.yaml", "engine.python=./.venv/bin/python"),
        cwd=directory,
        env=environment(directory),
    )
    assert executed(directory)
    assert done.returncode == 0, done.stderr
    assert "0.5.18" in done.stdout


@pytest.mark.parametrize(
    "verb", ["plan", "render", "dry run", "bench", "doctor", "prove", "tune", "sweep"]
)
def test_the_version_is_read_off_the_files(verb: str, directory: Path) -> None:
    install(directory / ".venv", "0.5.17")
    done = run(*READING[verb].split(), cwd=directory, env=environment(directory))
    assert not executed(directory)
    assert "engine unknown" not in done.stdout + done.stderr
    if verb in ("plan", "doctor"):
        assert "0.5.17" in done.stdout


def test_a_stated_version_needs_no_program(directory: Path) -> None:
    write(directory, more=", version: 0.5.16")
    for words in (READING["plan"], f"{READING['plan']} --engine 0.5.16"):
        done = run(*words.split(), cwd=directory, env=environment(directory))
        assert done.returncode == 0, done.stderr
        assert "0.5.16" in done.stdout
    assert not executed(directory)


def test_a_bare_name_is_no_permission(directory: Path) -> None:
    """It names whatever PATH has, also what is no interpreter."""
    write(directory, python="engine-python")
    program = directory.parent / "bin" / "engine-python"
    program.parent.mkdir()
    program.write_bytes((directory / ".venv/bin/python").read_bytes())
    program.chmod(0o755)
    env = environment(directory)
    env["PATH"] = f"{program.parent}{os.pathsep}{env['PATH']}"
    done = run("plan", "mine.yaml", cwd=directory, env=env)
    assert "engine unknown" in done.stderr
    assert not executed(directory)


def test_the_interpreter_that_would_be_asked_anyway_is_no_program_of_the_file(
    directory: Path,
) -> None:
    write(directory, python=sys.executable)
    done = run("plan", "mine.yaml", cwd=directory, env=environment(directory))
    assert "engine unknown" not in done.stderr
