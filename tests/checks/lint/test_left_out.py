"""What is left out below a directory; Git itself says what it ignores."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from speclaunch.checks.lint.configuration import find_files
from speclaunch.checks.lint.left_out import LeftOut
from tests.support.work import calls

SERVER = "python3 -m sglang.launch_server --model-path m\n"
FILES = ("a.sh", "b.sh", "gen/a.sh", "gen/deep/b.sh", "src/a.sh", "src/gen/c.sh", "src/x/a.sh")
git = pytest.mark.skipif(shutil.which("git") is None, reason="git says what it ignores")


def tree(folder: Path, *files: str) -> Path:
    for name in files or FILES:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SERVER)
    return folder


def found(folder: Path, top: str = ".", **how: object) -> list[str]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        rules = LeftOut(**how)  # type: ignore[arg-type]
        return sorted(os.path.normpath(one.path) for one in find_files([top], lambda: rules))
    finally:
        os.chdir(before)


def of_git(folder: Path) -> list[str]:
    words = ["git", "-C", str(folder), "ls-files", "-z", "--others", "--exclude-standard"]
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    said = subprocess.run(words, capture_output=True, text=True, check=True, env=env).stdout
    return sorted(name for name in said.split("\0") if name.endswith(".sh"))


NAMES = ("gen", "gen/", "/gen", "*.sh", "a.sh", "src/*", "src/x", "**/deep", "x/", "src/**/c.sh")
MORE = ("# no", "", "[ab].sh", "\\!a.sh", "/b.sh", "gen/**", "gen/deep/", "?.sh ")
LINE = st.builds(str.__add__, st.sampled_from(["", "", "!"]), st.sampled_from([*NAMES, *MORE]))
LINES = st.lists(LINE, max_size=5).map("\n".join)


@pytest.mark.thorough
@git
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(top=LINES, inner=LINES, excluded=LINES)
def test_git_ignores_the_same(
    top: str, inner: str, excluded: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tree(tmp_path_factory.mktemp("tree"))
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / ".gitignore").write_text(top)
    (folder / "src/.gitignore").write_text(inner)
    (folder / ".git/info/exclude").write_text(excluded)
    assert found(folder) == of_git(folder)
    below = [name for name in of_git(folder) if name.startswith("src/")]
    if below:  # else it is ignored itself, and was named
        assert found(folder, "src") == below


@git
def test_in_a_work_tree_beside_the_repository(tmp_path: Path) -> None:
    main, beside = tree(tmp_path / "main", "a.sh"), tmp_path / "beside"
    run = ["git", "-C", str(main), "-c", "user.name=x", "-c", "user.email=x@y"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x", "--no-verify"]):
        subprocess.run([*run, *words], check=True)
    subprocess.run([*run, "worktree", "add", "-q", str(beside)], check=True, capture_output=True)
    (main / ".git/info/exclude").write_text("gen/\n")
    tree(beside, "gen/b.sh")
    assert found(beside) == ["a.sh"]


def test_outside_of_a_work_tree_nothing_is_ignored(tmp_path: Path) -> None:
    tree(tmp_path)
    (tmp_path / ".gitignore").write_text("*\n")
    assert len(found(tmp_path)) == len(FILES)
    (tmp_path / ".git").mkdir()
    assert found(tmp_path) == []
    assert len(found(tmp_path, by_git=False)) == len(FILES)


def test_each_repository_below_has_its_own(tmp_path: Path) -> None:
    tree(tmp_path, "one/a.sh", "one/x/a.sh", "two/a.sh", "b.sh")
    (tmp_path / ".gitignore").write_text("b.sh\n")
    (tmp_path / "one/.git").mkdir()
    (tmp_path / "one/.gitignore").write_text("/a.sh\n")
    (tmp_path / "two/.gitignore").write_text("/a.sh\n")
    assert found(tmp_path) == ["b.sh", "one/x/a.sh", "two/a.sh"]
    (tmp_path / ".git").mkdir()
    assert found(tmp_path) == ["one/x/a.sh"]


def test_what_is_named_is_never_left_out(tmp_path: Path) -> None:
    tree(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("gen/\n*.sh\n!c.sh\n")
    assert found(tmp_path) == []
    assert found(tmp_path, "a.sh") == ["a.sh"]
    (tmp_path / ".gitignore").write_text("gen/\n")
    assert found(tmp_path, "gen") == ["gen/a.sh", "gen/deep/b.sh"]
    assert found(tmp_path, "gen", exclude=["gen"]) == ["gen/a.sh", "gen/deep/b.sh"]
    assert found(tmp_path, ".", exclude=["a.sh", "/src/x"]) == ["b.sh"]


def test_a_gitignore_that_no_one_can_read_ignores_nothing(tmp_path: Path) -> None:
    tree(tmp_path, "a.sh")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_bytes(b"\xff\xfe[\n!\nb.sh\n")
    assert found(tmp_path) == ["a.sh"]


@pytest.mark.thorough
@pytest.mark.parametrize("ignored", [False, True])
def test_many_files_are_little_work(tmp_path: Path, ignored: bool) -> None:
    for folder in range(100):
        (tmp_path / f"d{folder}").mkdir()
        for name in range(100):
            (tmp_path / f"d{folder}/f{name}.json").touch()
    (tmp_path / ".git").mkdir()
    if ignored:
        (tmp_path / ".gitignore").write_text("build/\n*.pyc\n!keep.pyc\n/d99/\n")
    assert calls(lambda: found(tmp_path)) < 800_000  # of 10,000 files: 456,000


def test_a_link_out_of_the_repository_is_not_followed(tmp_path: Path) -> None:
    outside = tree(tmp_path / "outside", "secret.sh")
    repository = tree(tmp_path / "repository", "shared/a.sh", "deploy/b.sh")
    (repository / "deploy" / "inside.sh").symlink_to("../shared/a.sh")
    (repository / "deploy" / "outside.sh").symlink_to(outside / "secret.sh")
    assert found(repository, "deploy") == ["deploy/b.sh"]
    assert found(repository) == ["deploy/b.sh", "deploy/inside.sh", "shared/a.sh"]
    (repository / ".git").mkdir()
    assert found(repository, "deploy") == ["deploy/b.sh", "deploy/inside.sh"]
    assert found(repository, "deploy/outside.sh") == ["deploy/outside.sh"]
