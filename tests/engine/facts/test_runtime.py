"""Which interpreter is taken, and that ours is read without starting another."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import sys
from pathlib import Path

import pytest

from speclaunch.core import children
from speclaunch.core.errors import LaunchError
from speclaunch.engine.facts import installed_packages, runtime
from speclaunch.engine.facts.packages import read_packages
from speclaunch.engine.facts.runtime import (
    NoEngineError,
    Runtime,
    find_runtime,
    probe,
    pyenv_choice,
    pyenv_environment,
)
from tests.support.program import run


def test_our_own_interpreter_says_the_same_about_itself() -> None:
    assert runtime._own() == probe(Path(sys.executable))


def test_a_link_beside_the_program_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []

    def refuse(path: Path, _: object) -> Runtime:
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


def test_the_same_script_by_another_name_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pyenv's are; two that differ are asked, both."""
    for name, script in (("python3", "exit 1"), ("python", "exit 1")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/nowhere")
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    own = Path(sys.executable).absolute()
    assert list(runtime._candidates()) == [own, tmp_path / "python3"]
    (tmp_path / "python").write_text("#!/bin/sh\nexit 2\n")
    assert list(runtime._candidates()) == [own, tmp_path / "python3", tmp_path / "python"]


def test_the_interpreters_are_asked_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one answers when it sees that the second one runs."""
    answer = 'echo \'{"python": "3.11", "packages": %s, "sglang": null}\''
    scripts = {
        "python3": f'until [ -e "{tmp_path}/seen" ]; do sleep 0.05; done\n' + answer % "{}",
        "python": f'touch "{tmp_path}/seen"\n' + answer % '{"sglang": "0.5.18"}',
    }
    for name, script in scripts.items():
        folder = tmp_path / f"of-{name}"
        folder.mkdir()
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    path = os.pathsep.join([f"{tmp_path}/of-python3", f"{tmp_path}/of-python", os.environ["PATH"]])
    monkeypatch.setenv("PATH", path)
    monkeypatch.setattr(runtime, "_own", lambda: Runtime(Path("x"), "3.11", {}))
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    done: list[bool] = []
    found = find_runtime(None, meanwhile=lambda: done.append(True))
    assert (found.interpreter, found.sglang) == (tmp_path / "of-python" / "python", "0.5.18")
    assert done == [True]


@pytest.fixture
def shims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with pyenv's script for `python3`, and two versions of it."""
    root = tmp_path / "pyenv"
    for version in ("3.11.7", "3.12.1"):
        (root / "versions" / version / "bin").mkdir(parents=True)
        program = root / "versions" / version / "bin" / "python3"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    (root / "shims").mkdir()
    (root / "shims" / "python3").write_text(
        f'#!/usr/bin/env bash\nset -e\nexport PYENV_ROOT="{root}"\n'
        f'exec "{root}/libexec/pyenv" exec "$program" "$@"\n'
    )
    (root / "version").write_text("3.12.1\n3.11.7\n")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for name in ("PYENV_ROOT", "PYENV_DIR", "PYENV_VERSION"):
        monkeypatch.delenv(name, raising=False)
    return root


def test_what_pyenv_chooses(shims: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shim = shims / "shims" / "python3"

    def chosen() -> str | None:
        found = pyenv_choice(shim)
        return None if found is None else found.relative_to(shims / "versions").parts[0]

    assert chosen() == "3.12.1"
    (tmp_path / ".python-version").write_text("# ours\n3.11.7 # this one\n")
    assert chosen() == "3.11.7"
    monkeypatch.setenv("PYENV_VERSION", "3.12.1:3.11.7")
    assert chosen() == "3.12.1"
    for unclear in ("3.12", "system", "../x", "3.13.0", ""):
        monkeypatch.setenv("PYENV_VERSION", unclear)
        assert chosen() == ("3.11.7" if unclear == "" else None), unclear
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert chosen() is None
    assert pyenv_choice(Path(sys.executable)) is None
    assert pyenv_choice(tmp_path / "nothing") is None


def test_packages_are_those_of_the_metadata(tmp_path: Path) -> None:
    names = ("sglang", "flashinfer-python", "pytest", "hydra-core", "nothing-of-the-kind")
    expected = {}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            expected[name] = importlib.metadata.version(name)
    assert "hydra-core" in expected
    assert installed_packages.installed(names, sys.path) == expected
    assert installed_packages.installed(("nothing-of-the-kind",), sys.path) == {}
    assert installed_packages.installed(names, [str(tmp_path), str(tmp_path / "no")]) == {}


def broken(folder: Path, body: str) -> Path:
    """A `python3` on PATH that is none."""
    program = folder / "bin" / "python3"
    program.parent.mkdir(exist_ok=True)
    program.write_text(body)
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("#!/bin/sh\necho no version is set >&2\nexit 126\n", "no version is set"),
        ("#!/nowhere/sh\n", "cannot be run: No such file"),
    ],
)
def test_an_interpreter_that_fails_is_reported(
    body: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = broken(tmp_path, body)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}/nowhere")
    monkeypatch.setattr(runtime, "_own", lambda: Runtime(Path("x"), "3.11", {}))
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(NoEngineError, match=why) as caught:
        find_runtime(None)
    (said,) = caught.value.failed
    assert str(program) in said
    assert why in said


@pytest.mark.thorough
def test_a_failed_interpreter_is_visible(tmp_path: Path) -> None:
    program = broken(tmp_path, "#!/bin/sh\necho no version is set >&2\nexit 126\n")
    (tmp_path / "mine.yaml").write_text("args: {model_path: a/b, speculative_algorithm: NGRAM}\n")
    env = {n: v for n, v in os.environ.items() if n not in ("VIRTUAL_ENV", "CONDA_PREFIX")}
    env |= {"PATH": str(program.parent), "SPECLAUNCH_HOME": str(tmp_path / "home")}
    for words in ("lint mine.yaml", "plan mine.yaml", "doctor", "engine ls"):
        done = run(*words.split(), cwd=tmp_path, env=env)
        assert "no version is set" in " ".join((done.stdout + done.stderr).split()), words


@pytest.mark.thorough
def test_pythonpath_and_the_users_own_packages_are_read_and_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start with -I would see neither; what stands first counts."""
    for folder, version in (("one", "0.5.20"), ("two", "0.5.21")):
        (tmp_path / folder / f"sglang-{version}.dist-info").mkdir(parents=True)
        (tmp_path / folder / f"sglang-{version}.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n"
        )
        for name in ("json.py", "sitecustomize.py", "site.py"):
            (tmp_path / folder / name).write_text("raise SystemExit('imported')\n")
        (tmp_path / folder / "sglang").mkdir()
        (tmp_path / folder / "sglang" / "__init__.py").write_text("raise SystemExit\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", "two", *map(str, [tmp_path / "one"])]))
    monkeypatch.chdir(tmp_path)
    found = probe(Path(sys.executable))
    assert found.sglang == "0.5.20"
    assert found.sglang_path == tmp_path / "one" / "sglang"
    assert read_packages(Path(sys.executable)).installed["sglang"] == "0.5.20"


@pytest.mark.thorough
def test_the_users_own_packages_count_outside_of_a_virtual_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = Path(os.path.realpath(sys.executable))
    code = "import site; print(site.getusersitepackages())"
    monkeypatch.setenv("PYTHONUSERBASE", str(tmp_path))
    monkeypatch.delenv("PYTHONNOUSERSITE", raising=False)
    said = children.run(children.isolated(base, "-c", code))
    folder = Path(said.stdout.strip()) / "sglang-0.5.19.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.19\n")
    assert probe(base).sglang == "0.5.19"
    assert probe(Path(sys.executable)).sglang is None
    monkeypatch.setenv("PYTHONNOUSERSITE", "1")
    assert probe(base).sglang is None


def test_a_script_of_pyenv_chooses_as_in_the_directory(
    shims: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs in another one; a version is a name, and leads nowhere else."""
    shim = shims / "shims" / "python3"
    assert pyenv_environment(shim)["PYENV_VERSION"] == "3.12.1:3.11.7"
    (tmp_path / ".python-version").write_text("3.11\n../../evil\n/evil\n")
    assert pyenv_environment(shim)["PYENV_VERSION"] == "3.11"
    monkeypatch.setenv("PYENV_VERSION", "3.12")
    assert pyenv_environment(shim)["PYENV_VERSION"] == "3.12"
    assert pyenv_environment(Path(sys.executable)) == dict(os.environ)
