from __future__ import annotations

import re
from pathlib import Path

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from omegaconf import OmegaConf

from speclaunch.core.errors import COMMAND_LINE, InputError, Place, Problem
from speclaunch.core.resources import conf_dir, recipes_dir
from speclaunch.deployments.recipe.compose import compose
from speclaunch.deployments.recipe.find_recipe import recipe_names
from speclaunch.deployments.recipe.load import load
from speclaunch.deployments.recipe.resolve_values import register_resolvers
from tests.support.loops import rows


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A user's directory with a recipe that builds on ours, and a group option of its own."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text("# @package args\nmodel_path: org/mine\n")
    (tmp_path / "mine.yaml").write_text(
        "defaults:\n  - ngram_qwen7b\n  - override model: mine\n  - _self_\nargs:\n  port: 31000\n"
    )
    return tmp_path


def problems(recipe: str, *overrides: str, dirs: tuple[Path, ...] = ()) -> tuple[Problem, ...]:
    with pytest.raises(InputError) as caught:
        load(recipe, overrides, dirs)
    return caught.value.problems


def only(recipe: str, *overrides: str, dirs: tuple[Path, ...] = ()) -> Problem:
    (problem,) = problems(recipe, *overrides, dirs=dirs)
    return problem


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["cpu_ngram", "eagle3_llama8b", "mtp_deepseek_v3"])
@pytest.mark.parametrize("overrides", [[], ["++args.tp_size=4", "serving=public"]])
def test_the_short_way_through_hydra_gives_what_the_public_way_gives(
    name: str, overrides: list[str]
) -> None:
    ours = compose(name, overrides)
    register_resolvers()
    with initialize_config_dir(str(recipes_dir()), version_base=None):
        search = [f"hydra.searchpath=[file://{conf_dir()}]"]
        public = OmegaConf.to_container(hydra_compose(name, [*search, *overrides]), resolve=True)
    assert ours.values == public


def test_values_come_from_groups_recipe_and_overrides_in_this_order() -> None:
    recipe = load("cpu_ngram", ["args.port=31000", "args.random_seed=7"])
    assert recipe.deployment.args["speculative_num_draft_tokens"] == 8  # the recipe's, over 12
    assert recipe.deployment.args["port"] == 31000
    assert recipe.deployment.args["random_seed"] == 7  # in none of our files
    assert recipe.place("args", "speculative_num_draft_tokens").path.endswith("cpu_ngram.yaml")
    assert recipe.place("args", "device").path.endswith("hardware/cpu.yaml")
    assert recipe.place("args", "port").path == COMMAND_LINE


def test_a_users_recipe_builds_on_ours(own: Path) -> None:
    recipe = load("mine", config_dirs=[own])
    args = recipe.deployment.args
    assert (args["model_path"], args["port"]) == ("org/mine", 31000)
    assert args["speculative_algorithm"] == "NGRAM"
    assert recipe.deployment.name == "mine"
    assert "mine" in recipe_names([own]) and "eagle3_llama8b" in recipe_names([own])


def test_a_recipe_is_also_found_by_its_path(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(own)
    for path in ("mine.yaml", "./mine.yaml", str(own / "mine.yaml")):
        assert load(path).deployment.args["port"] == 31000


def test_groups_are_exchanged_and_arguments_taken_away() -> None:
    args = load("ngram_qwen7b", ["serving=public", "~args.port"]).deployment.args
    assert args["host"] == "0.0.0.0"
    assert "port" not in args


def test_a_list_a_quoted_text_and_null_as_overrides() -> None:
    args = load(
        "ngram_qwen7b",
        ["args.cuda_graph_bs=[1,2,4]", "args.served_model_name='a, b'", "args.host=null"],
    ).deployment.args
    assert args["cuda_graph_bs"] == [1, 2, 4]
    assert args["served_model_name"] == "a, b"
    assert args["host"] is None


def test_unknown_recipe() -> None:
    problem = only("eagle3_lama8b")
    assert "unknown recipe 'eagle3_lama8b'" in problem.message
    assert problem.help is not None and "eagle3_llama8b" in problem.help


def test_unknown_recipe_next_to_a_similar_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "qwen.yaml").write_text("args: {}\n")
    monkeypatch.chdir(tmp_path)
    assert only("qwen.yam").help == "did you mean `qwen.yaml`?"


def test_a_file_that_is_not_a_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "serve it.sh").write_text("python -m sglang.launch_server --model-path m\n")
    monkeypatch.chdir(tmp_path)
    for path in ("serve it.sh", "./serve it.sh"):
        problem = only(path)
        assert problem.message == f"{path} is not a recipe: its name does not end in .yaml"
        assert problem.help == f"convert it: speclaunch import '{path}' > NAME.yaml"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("override", "message", "help_has"),
    [
        ("model=foo", "'model' has no option 'foo'", "options of `model`: "),
        ("speculation=ngramm", "'speculation' has no option 'ngramm'", "did you mean"),
        ("engine.versoin=3", "unknown key 'engine.versoin'", "engine.version"),
        ("modell=foo", "unknown key 'modell'", "model"),
        ("bad", "cannot read the override 'bad'", "key=value"),
        ("a==", "cannot read the override 'a=='", "quote"),
        ("args.port=1,2", "several values", "[a,b]"),
        ("hydra.run.dir=/tmp", "Hydra itself cannot be configured", None),
        ("~args.nothing", "does not exist", None),
        ("mem_fraction_static=0.5", "unknown key", "args.mem_fraction_static=0.5"),
        ("engine.version=>=0.5.11", "cannot read the override", "engine.version=\"'>=0.5.11'\""),
        ("model=null", "'null' is not an option of `model`", None),
        ("~speculation=xx", "speculation=xx", None),
        ("+args.port=3", "args.port already exists", "args.port=3"),
        ("engine.env.A-B=1", "not the name of an environment variable", None),
        ("engine=null", "'null' is not an option of `engine`", None),
        ("engine.version=0.5.x", "neither a version", None),
        ("launch.grace_seconds=soon", "launch.grace_seconds: input should be a valid number", None),
        ("+launch.gracee=1", "unknown key 'launch.gracee'", "grace_seconds"),
        ("args.model_path=${nope}", "nope", None),
        ("args.model_path=???", "args.model_path has no value yet", "args.model_path=…"),
    ],
)
def test_a_bad_override_is_one_clear_message_with_a_place(
    override: str, message: str, help_has: str | None
) -> None:
    problem = only("ngram_qwen7b", override)
    assert message in problem.message
    assert problem.place is not None
    assert problem.place.path == COMMAND_LINE
    assert problem.place.text == override
    if help_has:
        assert problem.help is not None and help_has in problem.help


BAD_FILES = [
    ("recovry: {}\nargs: {}\n", "unknown key 'recovry'", 1, "`recovery`"),
    ("args: {}\nlaunch:\n  grace: 3\n", "unknown key 'launch.grace'", 3, "grace_seconds"),
    ("args: {}\nport: 3\n", "unknown key 'port'", 2, "set server arguments under `args`"),
    ("args: 3\n", "args: expected `key: value` lines", 1, None),
    ("engine: {version: 0.5}\nargs: {}\n", "write the version in quotes", 1, None),
    ("engine:\n  env:\n    'A B': 1\nargs: {}\n", "not the name of an environment", 3, None),
    ("name: x\n", "'args' is missing", None, None),
    (
        "defaults:\n  - base\n  - model: nope\n",
        "'model' has no option 'nope'",
        3,
        "options of `model`: ",
    ),
    ("defaults:\n  - nope\n", "unknown configuration 'nope'", None, None),
    ("defaults:\n  - bases: x\n", "unknown group 'bases'", 2, None),
    ("args:\n  a: 1\n  a: 2\n", "duplicate key", 3, None),
    ("defaults: base\n", "an item of a defaults list must be like", 1, None),
    ("defaults:\n  - [base]\n", "an item of a defaults list must be like", 2, None),
    ("defaults:\n  - base\nargs: []\n", "args: expected", 3, None),
    ("default:\n  - base\nargs: {}\n", "unknown key 'default'", 1, "`defaults`"),
    ("tp_size: 2\nargs: {}\n", "unknown key 'tp_size'", 1, "args.tp_size"),
    (
        "defaults:\n  - base\n  - speculaton: x\n",
        "unknown group 'speculaton'",
        3,
        "`speculation`",
    ),
    ("args:\n\tport: 1\n", "not valid YAML", 2, "spaces, not tabs"),
    ("engine: text\nargs: {}\n", "engine: expected `key: value` lines", 1, None),
    ("defaults:\n  - base\n  - engine: default\nargs: {}\n", "engine", 3, None),
    ("defaults:\n  - a\n  - _self_\nargs: {}\n", "includes itself", None, None),
]


@pytest.mark.parametrize(("text", "message", "line", "help_has"), BAD_FILES)
def test_a_bad_file_is_one_clear_message_with_a_place(
    tmp_path: Path, text: str, message: str, line: int | None, help_has: str | None
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    problem = only(str(path))
    assert message in problem.message
    assert problem.place is not None and problem.place.path == str(path)
    if line is not None:
        assert problem.place.line == line
    if help_has:
        assert problem.help is not None and help_has in problem.help


@pytest.mark.parametrize("written", ["dup.yaml", "./dup.yaml", "sub/../dup.yaml"])
def test_a_key_given_twice_is_placed_as_the_recipe_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "dup.yaml").write_text("args:\n  model_path: m\n  tp_size: 1\n  tp_size: 2\n")
    monkeypatch.chdir(tmp_path)
    found = only(written)
    assert found.place == Place(written, 4, 3) and "duplicate key tp_size" in found.message


def test_every_option_that_is_missing_is_said_at_once(own: Path) -> None:
    (own / "wrong.yaml").write_text(
        "defaults:\n  - base\n  - model: nope\n  - speculation: ngramm\n  - mine: x\n"
        "  - optional extra: nope2\n  - override serving: publik\n  - _self_\n"
    )
    found = problems(str(own / "wrong.yaml"))
    assert [(one.place and one.place.line, one.message) for one in found] == [
        (3, "'model' has no option 'nope'"),
        (4, "'speculation' has no option 'ngramm'"),
        (5, "unknown group 'mine'"),
        (7, "'serving' has no option 'publik'"),
    ]
    assert "did you mean `ngram`" in str(found[1].help)


def test_every_problem_is_said_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("args: {}\nrecovry: {}\nlaunch: {grace_seconds: -1}\nengine: {pyhton: x}\n")
    assert [problem.place.line for problem in problems(str(path)) if problem.place] == [2, 3, 4]


def test_paths_that_are_no_recipes(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text("args: {}\n")
    assert "must end in .yaml" in only(str(tmp_path / "a.yml")).message
    assert "no such file" in only(str(tmp_path / "b.yaml")).message
    assert "no such directory" in only("cpu_ngram", dirs=(tmp_path / "none",)).message


def test_a_file_of_nearly_the_name_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "qwen3.yaml").write_text("args: {}\n")
    (tmp_path / "other.sh").write_text("")
    expected = f"did you mean `{tmp_path / 'qwen3.yaml'}`?"
    for name in ("qwen3.yml", "qwne3.yaml", "qwen.yaml", "qwne3"):
        assert only(str(tmp_path / name)).help == expected, name
    (tmp_path / "qwen3.yml").write_text("args: {}\n")  # it exists: rename it
    assert "rename it" in str(only(str(tmp_path / "qwen3.yml")).help)
    assert only(str(tmp_path / "nothing-like-it.yaml")).help is None


def test_a_bad_group_file_is_named_with_its_place(own: Path) -> None:
    (own / "model" / "mine.yaml").write_text("a: " + "[" * 100_000)
    problem = only("mine", dirs=(own,))
    assert "nested more than" in problem.message
    assert problem.place is not None and problem.place.path == str(own / "model" / "mine.yaml")


def test_a_group_file_without_its_package_line_is_told_so(own: Path) -> None:
    (own / "model" / "mine.yaml").write_text("model_path: org/mine\n")
    problem = only("mine", dirs=(own,))
    assert problem.place is not None and problem.place.path == str(own / "model" / "mine.yaml")
    assert problem.help is not None and "# @package args" in problem.help


@pytest.mark.thorough
def test_a_group_that_the_recipe_does_not_choose(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("defaults:\n  - base\nargs: {}\n")
    problem = only(str(path), "model=llama3_8b")
    assert "has no `model` to replace" in problem.message
    assert problem.help == "add it: +model=llama3_8b"
    assert load(str(path), ["+model=llama3_8b"]).deployment.args["model_path"]


def test_a_recipe_without_self_warns_nobody(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("defaults:\n  - base\nargs: {port: 3}\n")
    assert load(str(path)).deployment.args["port"] == 3
    assert not recwarn.list


def test_yaml_runs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text('args:\n  x: !!python/object/apply:os.system ["touch /tmp/owned"]\n')
    assert "could not determine a constructor" in only(str(path)).message


def test_environment_values_become_text(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("args: {}\nengine:\n  env: {A: true, B: 1, C: null, D: x}\n")
    assert load(str(path)).deployment.engine.env == {"A": "True", "B": "1", "C": None, "D": "x"}


@rows(
    "overrides, said",
    [
        (["args.tp_size=2", "args.tp_size=4"], "args.tp_size is set twice: args.tp_size=2 and"),
        (["serving=public", "serving=local"], "serving is set twice"),
        (["args.tp_size=2", "args.port=1", "args.tp_size=4"], "args.tp_size=2 and args.tp_size=4"),
        (["name=a", "name=b"], "name is set twice"),
    ],
)
def test_a_key_with_two_values_is_refused(overrides: list[str], said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        compose("ngram_qwen7b", overrides)


@pytest.mark.thorough
def test_a_key_can_be_said_again_and_replaced() -> None:
    for overrides in (
        ["args.tp_size=2", "args.tp_size=2"],
        ["args.tp_size=4", "++args.tp_size=2"],
        ["args.tp_size=4", "~args.tp_size", "args.tp_size=2"],
    ):
        assert compose("ngram_qwen7b", overrides).values["args"]["tp_size"] == 2
