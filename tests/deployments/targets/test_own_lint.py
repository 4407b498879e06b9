"""What is rendered gives our own lint nothing to say, beyond what it says of the recipe itself."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from speclaunch.deployments.recipe.find_recipe import recipe_names
from tests.deployments.targets import deployments
from tests.support import program

TARGETS = ("docker-compose", "kubernetes", "leaderworkerset", "rolebasedgroup")
VERSIONS = ("0.5.9", "0.5.18", "0.5.23")
RECIPES = sorted(name for name in recipe_names() if not name.startswith("cpu_"))


TO_FILL_IN = {"SPL881": "FILL IN the RDMA devices"}
"""Findings about what the text leaves open, with the comment that says so."""


def found(path: str, version: str) -> Counter[tuple[str, str]]:
    """Codes and messages. The engine's own changes (info) are the same on every platform."""
    done = program.run("lint", path, "--engine", version, "--output-format", "json")
    files = json.loads(done.stdout)["files"]
    return Counter(
        (one["code"], one["message"])
        for file in files
        for one in file["findings"]
        if one["severity"] != "info"
    )


def nothing_new(recipe: str, shown: str, target: str, version: str, folder: Path) -> None:
    done = program.run("render", f"recipe={recipe}", "--to", target, "--engine", version)
    if done.returncode != 0:
        assert done.returncode in (1, 2) and "error: " in done.stderr, done.stderr
        assert "this is a bug" not in done.stderr
        return
    path = folder / f"rendered-{target}.yaml"
    path.write_text(done.stdout)
    codes = {code for code, _ in found(shown, version)}
    codes |= {code for code, comment in TO_FILL_IN.items() if comment in done.stdout}
    news = [one for one in found(str(path), version) if one[0] not in codes]
    assert not news, news


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", RECIPES)
def test_a_shipped_recipe_renders_soundly(name: str, version: str, tmp_path: Path) -> None:
    recipe = str(Path(__file__).parents[3] / "recipes" / f"{name}.yaml")
    for target in TARGETS:
        nothing_new(name, recipe, target, version, tmp_path)


@pytest.mark.campaign
@pytest.mark.thorough
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", sorted(deployments.RECIPES))
def test_a_deployment_renders_soundly(name: str, target: str, tmp_path: Path) -> None:
    recipe = str(deployments.write(tmp_path, name))
    nothing_new(recipe, recipe, target, "0.5.23", tmp_path)


@pytest.mark.thorough
def test_a_rendered_text_that_somebody_spoils_is_noticed(tmp_path: Path) -> None:
    """The test can fail: ranks of one server with other words are two engines."""
    recipe = str(deployments.write(tmp_path, "several_hosts"))
    done = program.run("render", f"recipe={recipe}", "--to", "leaderworkerset")
    assert done.returncode == 0, done.stderr
    spoiled = done.stdout.replace("- '16'", "- '8'", 1)
    assert spoiled != done.stdout
    path = tmp_path / "spoiled.yaml"
    path.write_text(spoiled)
    assert "SPL830" in {code for code, _ in found(str(path), "0.5.23")}
