"""Which folders of facts count for a file, and that nothing in one leads out of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from speclaunch.core.reads.safe_json import UnreadableFileError
from speclaunch.engine.facts.checkpoint_file import (
    FOLDER,
    facts_file,
    home_of_facts,
    models_folders,
    read_file,
    stored_names,
)


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A repository, so that no search leaves it."""
    (tmp_path / ".git").mkdir()
    return tmp_path.resolve()


def folder(at: Path) -> Path:
    made = at / FOLDER
    made.mkdir(parents=True)
    return made


def entry(folder: Path, name: str) -> Path:
    path = folder / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    return path


def test_the_nearest_folder_goes_first(top: Path) -> None:
    outer, inner = folder(top), folder(top / "serving" / "recipes")
    (top / "other").mkdir()
    recipe = top / "serving" / "recipes" / "deep" / "a.yaml"
    recipe.parent.mkdir()
    recipe.touch()
    assert models_folders(recipe) == (inner, outer)
    assert models_folders(recipe.parent) == (inner, outer)
    assert models_folders(recipe.parent / "not-there.yaml") == (inner, outer)
    assert models_folders(top / "other") == (outer,)


def test_a_repository_ends_the_search(top: Path) -> None:
    folder(top)
    (top / "module").mkdir()
    (top / "module" / ".git").write_text("gitdir: ../.git/modules/module")
    own = folder(top / "module")
    assert models_folders(top / "module" / "recipe.yaml") == (own,)


def test_the_home_ends_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(tmp_path)
    own = folder(tmp_path / "home")
    (tmp_path / "home" / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert models_folders(tmp_path / "home" / "work") == (own.resolve(),)


def test_a_relative_path_and_one_with_parents_in_it(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer, inner = folder(top), folder(top / "a")
    (top / "b").mkdir()
    monkeypatch.chdir(top / "a")
    assert models_folders(Path("recipe.yaml")) == (inner, outer)
    assert models_folders(Path("../b/recipe.yaml")) == (outer,)


@pytest.mark.parametrize("start", ["\0", "x" * 5000, "a\0/b"])
def test_a_path_that_cannot_be(start: str, top: Path) -> None:
    assert models_folders(top / start / "r.yaml") in ((), models_folders(top))


def test_where_new_facts_go(top: Path) -> None:
    (top / "a").mkdir()
    assert home_of_facts(top / "a" / "recipe.yaml") == top / "a" / FOLDER
    kept = folder(top)
    assert home_of_facts(top / "a" / "recipe.yaml") == kept


def test_the_file_of_a_checkpoint(top: Path) -> None:
    outer, inner = folder(top), folder(top / "a")
    far = entry(outer, "org/far")
    entry(outer, "org/both")
    near = entry(inner, "org/both")
    folders = models_folders(top / "a")
    assert facts_file(folders, "org/far") == far
    assert facts_file(folders, "org/both") == near
    assert facts_file(folders, "org/none") is None


@pytest.mark.parametrize(
    "name", ["../secret", "org/../../secret", "/etc/passwd", "..", "org/.hidden", "a/b/c", "", "\0"]
)
def test_a_name_never_leaves_the_folder(name: str, top: Path) -> None:
    entry(top / ".speclaunch", "secret")
    entry(folder(top), "org/.hidden")
    assert facts_file(models_folders(top), name) is None


def test_a_link_within_the_folder_counts(top: Path) -> None:
    kept = folder(top)
    entry(kept, "org/name")
    link = kept / "org" / "alias.json"
    link.symlink_to("name.json")
    assert facts_file([kept], "org/alias") == link


@pytest.mark.parametrize("target", ["../../../out.json", "/dev/zero", "loop.json", "gone.json"])
def test_a_link_out_of_the_folder_is_refused(target: str, top: Path) -> None:
    kept = folder(top)
    entry(top, "out")
    link = kept / "org" / "loop.json"
    link.parent.mkdir()
    link.symlink_to(target)
    out = target not in ("loop.json", "gone.json")  # these fail when they are read
    with pytest.raises(UnreadableFileError, match=r"loop\.json links outside" if out else "loop"):
        assert facts_file([kept], "org/loop") == link
        read_file(link, "org/loop")


@pytest.mark.parametrize("part", [".speclaunch", ".speclaunch/models", ".speclaunch/models/org"])
def test_a_directory_that_is_a_link_is_refused(part: str, top: Path) -> None:
    elsewhere = top / "elsewhere"
    entry(folder(elsewhere), "org/name")
    (top / "repo" / part).parent.mkdir(parents=True)
    (top / "repo" / part).symlink_to(elsewhere / part)
    with pytest.raises(UnreadableFileError, match="replace the link with the file"):
        facts_file(models_folders(top / "repo"), "org/name")


def test_the_names_that_are_kept(top: Path) -> None:
    kept = folder(top)
    for name in ("b/two", "b/one", "alone", "c/.hidden", ".d/no"):
        entry(kept, name)
    (kept / "README.md").touch()
    (kept / "b" / "notes.txt").touch()
    os.mkfifo(kept / "b" / "pipe")
    (kept / "away").symlink_to(top)
    assert list(stored_names(kept)) == ["alone", "b/one", "b/two"]
    assert list(stored_names(top / "none")) == []
