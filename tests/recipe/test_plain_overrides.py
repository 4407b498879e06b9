"""Overrides that are taken without Hydra give what they give with it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from speclaunch.errors import InputError
from speclaunch.recipe.compose import recipe_names
from speclaunch.recipe.find_recipe import recipe_dirs
from speclaunch.recipe.hydra_compose import hydra_compose
from speclaunch.recipe.plain_overrides import plain_overrides, with_overrides
from speclaunch.recipe.quick_compose import quick_compose
from speclaunch.recipe.source import Composed
from speclaunch.resources import conf_dir

KEYS = (
    "args.port", "args.speculative_num_steps", "args.model_path", "args.a.b", "args", "engine.env.A_B", "engine.env",
    "engine.version", "engine.python", "launch.keep_runs", "launch.log.keep", "recovery.policy", "recovery.order",
    "recovery.floors", "hardware.name", "hardware", "speculation", "model", "engine", "recovery", "name", "description",
    "nothing", "launch.nothing", "args.null", "null", "args.1x", "args.ünï", "args.x-y", "serving", "defaults",
)  # fmt: skip
WORDS = (
    "1", "0", "-7", "-0", "+1", "007", "1_000", "0.5", "-0.25", ".5", "1.", "1e5", "1e-3", "1.5e3", "0x1F", "true",
    "True", "FALSE", "off", "yes", "null", "NULL", "None", "~", "", "nan", "inf", "-inf", "Infinity", "text", "eagle3_chain",
    "ngram", "cpu", "h100", "h100:8", "default", "/models/x-1.2/y", "org/name", "a.b.c", "a-b", "a--b", "a/-1", "x1.50", "e5",
    "1x", "1.2.3", "v0.5.11", ">=0.5.11", "'quoted'", '"quoted"', "[1,2]", "{a: 1}", "a,b", "a b", " a", "a ", "${args.port}",
    "a=b", "a:b", "$HOME", "a\\,b", "???", "ünï", "a\nb", "1\n", "text\n", "true\n", "9" * 30, "Qwen/Qwen2.5-7B-Instruct",
    "-", "--x", "a_", "_a", "/", "./x", "../x", "a@b", "a%b", "null/x", "true-1", "inf.x",
)  # fmt: skip
SIGNS = ("", "", "", "", "", "", "", "", "+", "++", "~")


def quick(path: Path, overrides: list[str]) -> Composed | None:
    plain = plain_overrides(overrides)
    if plain is None:
        return None
    search = [path.parent, *recipe_dirs(()), conf_dir()]
    found = quick_compose(path, str(path), search, dict(plain.choices))
    return None if found is None else with_overrides(found, plain)


def stock(path: Path, overrides: list[str]) -> Any:
    try:
        return hydra_compose(path, str(path), overrides, ())
    except InputError as error:
        return error.problems


def same(path: Path, overrides: list[str]) -> bool:
    """Whether they were taken the quick way; what that gave is what Hydra gave."""
    found = quick(path, overrides)
    if found is None:
        return False
    expected = stock(path, overrides)
    assert isinstance(expected, Composed), (overrides, expected)
    assert repr(found.raw) == repr(expected.raw), overrides
    assert found.files == expected.files, overrides
    assert list(found.provenance.places.items()) == list(expected.provenance.places.items())
    return True


@pytest.mark.parametrize(
    "overrides",
    [
        ["args.port=1234"],
        ["args.mem_fraction_static=0.75", "args.new_one=true", "engine.env.NEW=1"],
        ["args.model_path=/models/llama-3.1/8b", "name=mine", "launch.keep_runs=3"],
        ["hardware=cpu"],
        ["speculation=eagle3_chain", "args.speculative_num_steps=2"],
        ["recovery=default", "recovery.max_attempts=2", "engine.env.CLEARED=null"],
    ],
)
def test_what_is_usual_goes_the_quick_way(overrides: list[str]) -> None:
    assert same(recipe_names()["eagle3_llama8b"], overrides)


@pytest.mark.parametrize(
    "override",
    [
        "+args.port=1", "++args.port=1", "~args.port", "args.port", "args.port=", "args.x=[1,2]", "args.x='a b'", "args.x=1,2",
        "args.x=${args.port}", "args.x=1e5", "args.x={a: 1}", "args.a.b=1", "speculation=1", "speculation=null", "hydra.x=1",
        "recovery.order=a", "args=1", "speculation@args=x", "launch.log.keep=1",
    ],
)  # fmt: skip
def test_what_is_not_plain_is_hydras(override: str) -> None:
    assert quick(recipe_names()["eagle3_llama8b"], [override]) is None


def test_a_key_twice_is_hydras() -> None:
    assert plain_overrides(["args.port=1", "args.port=1"]) is None
    assert plain_overrides(["args.port=1", "args.port=2"]) is None


def test_a_choice_that_no_defaults_list_has_is_hydras() -> None:
    path = recipe_names()["cpu_ngram"]
    assert quick(path, ["speculation=no_such_option"]) is None
    assert quick(path, ["model=no_such_option"]) is None


def _campaign(seed: int, rounds: int) -> int:
    chance = random.Random(seed)
    recipes = sorted(recipe_names().values())
    taken = 0
    for _ in range(rounds):
        overrides = [
            chance.choice(SIGNS) + chance.choice(KEYS) + "=" + chance.choice(WORDS)
            for _ in range(chance.choice((1, 1, 2, 3)))
        ]
        taken += same(chance.choice(recipes), overrides)
    return taken


@pytest.mark.thorough
def test_overrides_by_chance() -> None:
    assert _campaign(13, 300) > 10


@pytest.mark.thorough
def test_many_overrides_by_chance() -> None:
    assert _campaign(14, 3000) > 60


@pytest.mark.thorough
@pytest.mark.parametrize("word", WORDS)
def test_every_word(word: str) -> None:
    path = recipe_names()["eagle3_llama8b"]
    for key in ("args.new", "engine.env.NEW", "description", "hardware"):
        same(path, [f"{key}={word}"])
