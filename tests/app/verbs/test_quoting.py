"""Files outside of the project are neither extended nor quoted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.program import run

SECRET = "root-hash-7f3a9"
SERVER = "python -m sglang.launch_server --model-path a/b\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository, and a file of secrets outside of it."""
    (tmp_path / "secret").write_text(f"{SECRET}: [x\n{SECRET}\n")
    folder = tmp_path / "repository"
    (folder / ".git").mkdir(parents=True)
    (folder / "a.sh").write_text(SERVER)
    return folder


def refused(folder: Path, *words: str) -> str:
    done = run(*words, cwd=folder)
    said = done.stdout + done.stderr
    assert done.returncode == 2, said
    assert SECRET not in said
    return said


@pytest.mark.thorough
@pytest.mark.parametrize("key", ["extend", "baseline"])
@pytest.mark.parametrize("link", [False, True])
def test_a_configuration_does_not_lead_out(repository: Path, key: str, *, link: bool) -> None:
    named = "../secret"
    if link:
        (repository / "inside").symlink_to("../secret")
        named = "inside"
    (repository / "speclaunch.toml").write_text(f'{key} = "{named}"\n')
    said = refused(repository, "lint", "a.sh")
    assert f"`{key}` " in said and "outside the project" in said
    assert "it on the command line: --" in said


@pytest.mark.thorough
def test_what_the_command_line_names_is_read(repository: Path) -> None:
    other = repository.parent / "other.toml"
    other.write_text('engine = "0.5.18"\n')
    (repository.parent / "baseline.json").write_text('{"version": 1, "findings": []}')
    (repository / "speclaunch.toml").write_text('baseline = "../baseline.json"\n')
    words = ("--config", str(other), "--baseline", "../baseline.json")
    done = run("lint", *words, "a.sh", cwd=repository)
    assert done.returncode == 0, done.stderr
    assert "0.5.18" in done.stdout


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["speclaunch.toml", "x.yaml", "x.json", "x.sh", "Dockerfile"])
def test_a_link_out_of_the_project_is_not_quoted(repository: Path, name: str) -> None:
    path = repository / name
    path.symlink_to("../secret")
    if name == "speclaunch.toml":
        assert "links outside the project" in refused(repository, "lint", "a.sh")
    for words in (("lint", name), ("lint", "."), ("import", name), ("plan", f"recipe=./{name}")):
        done = run(*words, cwd=repository)
        assert SECRET not in done.stdout + done.stderr, words
    (repository.parent / "secret").write_text(f"{SERVER}--{SECRET} 'x\n")
    for words in (("lint", name), ("lint", "."), ("import", name)):
        done = run(*words, cwd=repository)
        assert f"'{SECRET}" not in done.stdout + done.stderr, words


@pytest.mark.thorough
def test_files_of_the_project_are_quoted(repository: Path) -> None:
    (repository / "a").mkdir()
    (repository / "a/x.yaml").write_text("args:\n  tp_size: 1: 2\n")
    (repository / "a/link.yaml").symlink_to("x.yaml")
    for name in ("x.yaml", "link.yaml"):
        for folder, words in ((repository, f"a/{name}"), (repository / "a", name), (Path("/"), "")):
            done = run("lint", words or str(repository / "a" / name), cwd=folder)
            assert "tp_size: 1: 2" in done.stdout, (name, folder)
