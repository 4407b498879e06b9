"""What is composed without Hydra is what Hydra composes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from speclaunch.core.errors import InputError
from speclaunch.deployments.recipe.compose import compose, quick_compose
from speclaunch.deployments.recipe.find_recipe import recipe_names
from speclaunch.deployments.recipe.hydra_compose import hydra_compose
from speclaunch.deployments.recipe.source import Composed
from tests.support.corpora.wild_recipes import generated
from tests.support.loops import rows


def both(
    path: Path, overrides: Sequence[str] = (), config_dirs: tuple[Path, ...] = ()
) -> tuple[Composed | None, Any]:
    """What the quick way gives, and what Hydra does: values, or problems."""
    shown = str(path)
    try:
        quick = quick_compose(path, shown, overrides, config_dirs)
    except InputError as error:
        quick = None
        with pytest.raises(InputError) as raised:
            hydra_compose(path, shown, overrides, config_dirs)
        assert raised.value.problems == error.problems
        return None, error.problems
    try:
        return quick, hydra_compose(path, shown, overrides, config_dirs)
    except InputError as error:
        return quick, error.problems


def same(quick: Composed | None, stock: Any, text: str) -> bool:
    """Whether it went the quick way; whatever that gave is what Hydra gave."""
    if quick is None:
        return False
    assert isinstance(stock, Composed), (text, stock)
    assert repr(quick.raw) == repr(stock.raw), text  # order and types too; nan is not nan
    assert quick.files == stock.files, text
    assert list(quick.provenance.places.items()) == list(stock.provenance.places.items()), text
    return True


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(recipe_names()))
def test_our_recipes_go_the_quick_way(name: str) -> None:
    quick, stock = both(recipe_names()[name])
    assert same(quick, stock, name)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "seed",
    [0, *(pytest.param(n, marks=[pytest.mark.slow, pytest.mark.campaign]) for n in range(1, 11))],
)
def test_what_hydra_composes_or_refuses(seed: int, tmp_path: Path) -> None:
    """Over 2,000 generated recipes in all: what the quick way takes is equal, the rest is Hydra's."""
    chance = random.Random(seed)
    went = 0
    for number in range(200):
        folder = tmp_path / str(number)
        folder.mkdir()
        text = generated(chance, folder)
        path = folder / "mine.yaml"
        path.write_text(text)
        quick, stock = both(path)
        went += same(quick, stock, text)
    assert went >= 15


def test_a_group_that_changes_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "mine.yaml").write_text("defaults:\n  - own: a\n  - _self_\n")
    option = tmp_path / "own/a.yaml"
    option.write_text("# @package args\nport: 1\n")
    assert compose(str(tmp_path / "mine.yaml")).values["args"] == {"port": 1}
    option.write_text("# @package args\nport: 22\n")
    assert compose(str(tmp_path / "mine.yaml")).values["args"] == {"port": 22}
    (tmp_path / "own/a.yaml").unlink()
    with pytest.raises(InputError):
        compose(str(tmp_path / "mine.yaml"))


OVERRIDE_KEYS = (
    "args.port", "args.speculative_num_steps", "args.model_path", "args.a.b", "args", "engine.env.A_B", "engine.env",
    "engine.version", "engine.python", "launch.keep_runs", "launch.log.keep", "recovery.policy", "recovery.order",
    "recovery.floors", "hardware.name", "hardware", "speculation", "model", "engine", "recovery", "name", "description",
    "nothing", "launch.nothing", "args.null", "null", "args.1x", "args.ünï", "args.x-y", "serving", "defaults",
)  # fmt: skip
OVERRIDE_WORDS = (
    "1", "0", "-7", "-0", "+1", "007", "1_000", "0.5", "-0.25", ".5", "1.", "1e5", "1e-3", "1.5e3", "0x1F", "true",
    "True", "FALSE", "off", "yes", "null", "NULL", "None", "~", "", "nan", "inf", "-inf", "Infinity", "text", "eagle3_chain",
    "ngram", "cpu", "h100", "h100:8", "default", "/models/x-1.2/y", "org/name", "a.b.c", "a-b", "a--b", "a/-1", "x1.50", "e5",
    "1x", "1.2.3", "v0.5.11", ">=0.5.11", "'quoted'", '"quoted"', "[1,2]", "{a: 1}", "a,b", "a b", " a", "a ", "${args.port}",
    "a=b", "a:b", "$HOME", "a\\,b", "???", "ünï", "a\nb", "1\n", "text\n", "true\n", "9" * 30, "Qwen/Qwen2.5-7B-Instruct",
    "-", "--x", "a_", "_a", "/", "./x", "../x", "a@b", "a%b", "null/x", "true-1", "inf.x",
)  # fmt: skip
SIGNS = ("", "", "", "", "", "", "", "", "+", "++", "~")


def quickly(path: Path, overrides: Sequence[str]) -> Composed | None:
    return quick_compose(path, str(path), overrides, ())


def overridden_alike(path: Path, overrides: Sequence[str]) -> bool:
    """Whether the overrides went the quick way, with what Hydra gives."""
    if quickly(path, overrides) is None:
        return False
    return same(*both(path, overrides), " ".join(overrides))


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
    assert overridden_alike(recipe_names()["eagle3_llama8b"], overrides)


@rows(
    "override",
    [
        "+args.port=1", "++args.port=1", "~args.port", "args.port", "args.port=", "args.x=[1,2]", "args.x='a b'", "args.x=1,2",
        "args.x=${args.port}", "args.x=1e5", "args.x={a: 1}", "args.a.b=1", "speculation=1", "speculation=null", "hydra.x=1",
        "recovery.order=a", "args=1", "speculation@args=x", "launch.log.keep=1",
    ],
)  # fmt: skip
def test_what_is_not_plain_is_hydras(override: str) -> None:
    assert quickly(recipe_names()["eagle3_llama8b"], [override]) is None


def test_a_key_twice_is_hydras() -> None:
    path = recipe_names()["eagle3_llama8b"]
    assert quickly(path, ["args.port=1", "args.port=1"]) is None
    assert quickly(path, ["args.port=1", "args.port=2"]) is None


def test_a_choice_that_no_defaults_list_has_is_hydras() -> None:
    path = recipe_names()["cpu_ngram"]
    assert quickly(path, ["speculation=no_such_option"]) is None
    assert quickly(path, ["model=no_such_option"]) is None


def _campaign(seed: int, rounds: int) -> int:
    chance = random.Random(seed)
    recipes = sorted(recipe_names().values())
    taken = 0
    for _ in range(rounds):
        overrides = [
            chance.choice(SIGNS)
            + chance.choice(OVERRIDE_KEYS)
            + "="
            + chance.choice(OVERRIDE_WORDS)
            for _ in range(chance.choice((1, 1, 2, 3)))
        ]
        taken += overridden_alike(chance.choice(recipes), overrides)
    return taken


@pytest.mark.thorough
def test_overrides_by_chance() -> None:
    assert _campaign(13, 300) > 10


@pytest.mark.thorough
def test_many_overrides_by_chance() -> None:
    assert _campaign(14, 3000) > 60


@pytest.mark.thorough
@pytest.mark.parametrize("word", OVERRIDE_WORDS)
def test_every_word(word: str) -> None:
    path = recipe_names()["eagle3_llama8b"]
    for key in ("args.new", "engine.env.NEW", "description", "hardware"):
        overridden_alike(path, [f"{key}={word}"])
