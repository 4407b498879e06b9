"""The words of a sweep mean what Hydra's own sweeper makes of them."""

from __future__ import annotations

import pytest
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from speclaunch.app.verbs.verbs import rewrite_multirun
from speclaunch.core.errors import InputError
from speclaunch.deployments.recipe.find_recipe import recipe_names
from speclaunch.deployments.recipe.hydra_compose import MOST_JOBS, sweep_words
from tests.support.loops import rows


def jobs(*words: str) -> list[tuple[str, ...]]:
    return [(one.recipe, *one.overrides) for one in sweep_words(words).jobs]


def test_choices_ranges_and_lists() -> None:
    assert jobs("recipe=a,b", "args.x=1,3") == [
        ("a", "args.x=1"),
        ("a", "args.x=3"),
        ("b", "args.x=1"),
        ("b", "args.x=3"),
    ]
    assert jobs("a", "args.x=range(1,8,3)", "args.y=[1,2],[3]") == [
        ("a", f"args.x={x}", f"args.y={y}") for x in (1, 4, 7) for y in ("[1,2]", "[3]")
    ]
    assert jobs("recipe=r.yaml", "~engine.env", "++args.k='a,b'") == [
        ("r.yaml", "~engine.env", "++args.k='a,b'")
    ]


def test_a_glob_names_recipes_and_options_of_groups() -> None:
    ours = [name for name in sorted(recipe_names()) if name.startswith("cpu_")]
    assert [one.recipe for one in sweep_words(["recipe=glob(cpu_*)"]).jobs] == ours
    (option,) = sweep_words(["recipe=a", "speculation=glob(ngr*)"]).jobs
    assert option.overrides == ("speculation=ngram",)


def test_what_differs_is_told_apart() -> None:
    first, second = sweep_words(["recipe=a", "args.y=2", "args.x=1,3"]).jobs
    assert (first.varied, second.varied) == (("args.x=1",), ("args.x=3",))


def test_what_is_said_to_hydra_chooses_the_launcher() -> None:
    found = sweep_words(["recipe=a", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"])
    assert (found.launcher, len(found.jobs)) == ("joblib", 1)
    assert found.hydra == ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    assert sweep_words(["recipe=a"]).launcher == "basic"


@rows(
    "words, said",
    [
        (["recipe=a", "args.x={"], "cannot read the override"),
        (["recipe=a", "args.x=interval(0,1)"], "an interval has infinitely many values"),
        (["recipe=a", f"args.x=range(0,{MOST_JOBS + 1})"], "the range has 2,001 values"),
        (["recipe=a", "args.x=range(0,50)", "args.y=range(0,50)"], "2,500 jobs"),
        (["recipe=a", "args.x=1", "args.x=2"], "args.x is set twice"),
        (["recipe=a", "hydra.sweep.dir=x"], "cannot be configured here"),
        (["recipe=a", "hydra/launcher=basic,joblib"], "cannot be configured here"),
        (["args.x=1,2"], "no recipe specified"),
        (["recipe=", "args.x=1,2"], "no recipe specified"),
        (["recipe=glob(nothing*)"], "nothing matches"),
    ],
)
def test_what_is_no_sweep_is_said(words: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said.replace("(", r"\(")):
        sweep_words(words)


_VALUE = st.one_of(
    st.integers(-9, 99).map(str),
    st.sampled_from(["true", "null", "0.5", "a/b-c", "'x, y'", "[1,2]", "{a: 1}", '"q"', "1e3"]),
)


@pytest.mark.thorough
@given(
    st.lists(st.lists(_VALUE, min_size=1, max_size=3), min_size=1, max_size=3),
    st.sampled_from(["{}", "choice({})", "sort({})"]),
)
def test_the_product_is_hydras_own(axes: list[list[str]], form: str) -> None:
    several = [f"args.k{n}={form.format(','.join(values))}" for n, values in enumerate(axes)]
    words = ["recipe=r", *several]
    parser = OverridesParser.create()
    try:
        (batch,) = BasicSweeper.split_arguments(parser.parse_overrides(words), None)
    except Exception:  # what Hydra refuses (a list to be sorted) we refuse, too
        with pytest.raises(InputError):
            sweep_words(words)
        return
    ours = [["recipe=r", *one.overrides] for one in sweep_words(words).jobs]
    parsed = [[one.value() for one in parser.parse_overrides(list(job))] for job in ours]
    assert parsed == [[one.value() for one in parser.parse_overrides(list(job))] for job in batch]


@rows(
    "words, meant",
    [
        ("-m recipe=a,b x=1", "sweep recipe=a,b x=1"),
        ("recipe=a,b --multirun --smoke", "sweep recipe=a,b"),
        ("launch -m a,b", "sweep a,b"),
        ("plan -m a,b --hardware h100", "sweep --plan a,b --hardware h100"),
        ("recipe=a", "recipe=a"),
        ("lint -m x", "lint -m x"),
    ],
)
def test_m_is_a_sweep(words: str, meant: str) -> None:
    assert rewrite_multirun(words.split()) == meant.split()
