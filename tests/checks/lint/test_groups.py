"""A group's file is checked through the recipes that choose it, and told once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from speclaunch.checks.lint import groups
from tests.checks.lint.linting import ENGINE, GROUP, RECIPE, Place

MINE = "conf/speculation/mine.yaml"
RECIPES = 6
OTHERS = ("recipes/r0.yaml", "recipes/r1.yaml", "recipes/r2.yaml")
"""Of the folder; they choose it, too."""
ALL = RECIPES + len(OTHERS)


@pytest.fixture
def repository(place: Place) -> Place:
    """Recipes with a group that is wrong, one that is right, and one that nobody chooses."""
    (place.folder / ".git").mkdir()
    place.write("speclaunch.toml", 'config-dir = "conf"\n')
    place.write(MINE, GROUP.format(algorithm="NO_SUCH"))
    place.write("conf/speculation/good.yaml", GROUP.format(algorithm="NGRAM"))
    place.write("conf/speculation/unused.yaml", GROUP.format(algorithm="NO_SUCH"))
    for number in range(RECIPES):
        text = RECIPE.format(name=f"n{number}", engine=ENGINE, model="org/model", tp=1)
        place.write(f"serving/n{number}.yaml", text)
    text = RECIPE.format(name="good", engine=ENGINE, model="org/model", tp=3)
    place.write("serving/good.yaml", text.replace("speculation: mine", "speculation: good"))
    return place


@pytest.mark.thorough
def test_a_group_is_checked_through_its_recipes(repository: Place) -> None:
    done = repository.lint(MINE)
    assert done.code == 1
    assert done.out.count("error[") == 1 and f"--> {MINE}:2:" in done.out
    assert f"through: recipes/r0.yaml and {ALL - 1} more" in done.out
    assert f"1 error in {ALL} deployments" in done.out
    assert repository.lint(MINE) == done == repository.fresh(MINE)


@pytest.mark.thorough
def test_what_is_wrong_elsewhere_is_not_its_own(repository: Place) -> None:
    done = repository.lint("conf/speculation/good.yaml")
    assert done.code == 0 and "1 deployment" in done.out and "serving/good.yaml:" not in done.out


def test_a_group_that_no_recipe_chooses_is_said_so(repository: Place) -> None:
    done = repository.lint("conf/speculation/unused.yaml")
    assert done.code == 0
    assert "conf/speculation/unused.yaml: not checked" in done.out
    assert "no recipe selects it" in done.out


@pytest.mark.thorough
def test_a_change_of_the_group_is_noticed(repository: Place) -> None:
    repository.lint(MINE)
    repository.write(MINE, GROUP.format(algorithm="NGRAM"))
    assert repository.lint(MINE).code == 0


@pytest.mark.thorough
def test_with_its_directory_it_is_told_once(repository: Place) -> None:
    alone = repository.lint("serving")
    assert alone.out.count(f"--> {MINE}:2:") == 1
    assert f"and {RECIPES - 1} more" in alone.out
    assert f"and {ALL - 1} more" in repository.lint("serving", MINE).out
    every = repository.lint("serving", *OTHERS)
    assert repository.lint("serving", *OTHERS, MINE) == every
    document = json.loads(repository.lint("serving", MINE, "--output-format", "json").out)
    assert document["summary"]["deployments"] == ALL + 1


@pytest.mark.thorough
def test_it_is_found_in_the_repository_and_from_another_directory(repository: Place) -> None:
    (repository.folder / "conf").rename(repository.folder / "deep")
    for name in ("serving", "deep"):
        (repository.folder / name).rename(repository.folder / f"x{name}")
    (repository.folder / "a/b").mkdir(parents=True)
    (repository.folder / "xdeep").rename(repository.folder / "a/b/conf")
    repository.write("speclaunch.toml", 'config-dir = "a/b/conf"\n')
    done = repository.lint(f"a/b/{MINE}")
    assert done.code == 1 and f"1 error in {ALL} deployments" in done.out


def test_nobody_looks_above_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr(groups, "find_files", lambda paths, _: looked.extend(paths) or ())
    repository = tmp_path / "repository"
    (repository / "model").mkdir(parents=True)
    (repository / "deep" / "conf" / "model").mkdir(parents=True)
    monkeypatch.chdir(repository)
    for has_git in (False, True):
        if has_git:
            (repository / ".git").mkdir()
        for file in ("model/a.yaml", "deep/conf/model/a.yaml"):
            list(groups.recipes_with(file, lambda _: (), None))
    assert looked == [".", "deep/conf", ".", "deep", "."]
