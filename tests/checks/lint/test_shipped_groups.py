"""What is wrong in a group of ours is told where somebody's recipe chooses it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from speclaunch.checks.lint.recipe_findings import at_the_choice, unsilenced
from speclaunch.checks.rules.interface import Finding, Severity
from speclaunch.core.errors import COMMAND_LINE
from speclaunch.core.errors import Place as Where
from speclaunch.core.resources import conf_dir, recipes_dir
from tests.checks.lint.linting import Place

RECIPE = """\
name: r
defaults:
  - base
  - model: glm45
  - speculation: eagle3_tree
  - override serving: public{comment}
  - _self_
engine: {{version: "0.5.9"}}
args:
  speculative_draft_model_path: d
  tp_size: 8{more}
"""
PLAIN = RECIPE.format(comment="", more="")
OPEN = "SPL801"


def told(place: Place, name: str = "r.yaml") -> dict[str, dict[str, Any]]:
    """The findings of a recipe, by their codes."""
    said = json.loads(place.lint(name, "--output-format", "json").out)
    return {one["code"]: one for file in said["files"] for one in file["findings"]}


def where(one: dict[str, Any]) -> tuple[str, int, int]:
    return one["path"], one["line"], one["column"]


@pytest.mark.thorough
def test_it_stands_at_the_entry_that_chooses_the_group(place: Place) -> None:
    place.write("r.yaml", PLAIN)
    found = told(place)
    assert where(found[OPEN]) == ("r.yaml", 6, 5)
    (other,) = found[OPEN]["others"]
    assert other["path"].endswith("conf/serving/public.yaml") and other["line"] == 3
    assert where(found["SPL903"]) == ("r.yaml", 5, 5)


def test_a_comment_at_the_entry_silences_it(place: Place) -> None:
    comment = f"  # speclaunch: ignore[{OPEN}] the gateway checks"
    place.write("r.yaml", RECIPE.format(comment=comment, more=""))
    assert {OPEN, "SPL091"}.isdisjoint(told(place))


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("conf/model/glm45.yaml", 4),
        ("conf/speculation/eagle3_tree.yaml", 5),
        ("conf/serving/public.yaml", 6),
        ("conf/base.yaml", 3),
        ("conf/recovery/default.yaml", 2),  # chosen by `base`
        ("recipes/ngram_qwen7b.yaml", 2),
    ],
)
@pytest.mark.parametrize("more", ["", "\n  host: ${oc.env:HOST,x}", "\n  page_size: 0x10"])
def test_each_file_of_ours_has_its_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, line: int, more: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(RECIPE.format(comment="", more=more))
    folder = conf_dir() if name.startswith("conf/") else recipes_dir()
    (found,) = at_the_choice([finding(str(folder.parent / name))], "r.yaml")
    assert (found.place.path, found.place.line) == ("r.yaml", line)
    assert [one.path for one in found.others] == [str(folder.parent / name)]


def finding(path: str) -> Finding:
    return Finding(OPEN, "x", Severity.ERROR, "m", "", None, Where(path, 3), "0.5.23")


def test_what_stands_elsewhere_stays(tmp_path: Path) -> None:
    own = tmp_path / "r.yaml"
    own.write_text(PLAIN)
    (tmp_path / "mine.yaml").write_text("# @package args\n")
    for path in (str(own), str(tmp_path / "mine.yaml"), COMMAND_LINE):
        assert list(at_the_choice([finding(path)], str(own))) == [finding(path)]
    shipped = finding(str(conf_dir() / "serving" / "public.yaml"))
    ours = str(recipes_dir() / "ngram_qwen7b.yaml")
    assert list(at_the_choice([shipped], ours)) == [shipped]


@pytest.mark.parametrize("comment", ["", f"  # speclaunch: ignore[{OPEN}] the gateway"])
def test_a_launch_and_a_plan_go_by_the_same_comments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comment: str
) -> None:
    """However the recipe was named."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "r.yaml"
    path.write_text(RECIPE.format(comment=comment, more=f"\n  host: 0.0.0.0{comment}"))
    shipped = finding(str(conf_dir() / "serving" / "public.yaml"))
    for shown in ("r.yaml", str(path), os.path.relpath(path)):
        own = Finding(OPEN, "x", Severity.ERROR, "m", "", None, Where(shown, 12), "0.5.23")
        left = unsilenced([shipped, own], path)
        assert [one.place.line for one in left] == ([] if comment else [6, 12]), shown
