"""Completion: what a word can become, and what a real shell makes of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from speclaunch.app.verbs.completing import candidates
from speclaunch.app.verbs.integrations import SCRIPTS
from speclaunch.app.verbs.verbs import VERBS
from speclaunch.deployments.recipe.find_recipe import group_options, recipe_names
from speclaunch.deployments.targets.assemble import RENDERERS
from speclaunch.engine.releases.catalogue import held_versions, load
from tests.app.verbs.shells import Shell, is_there
from tests.support.loops import rows
from tests.support.program import run

NEWEST = load(held_versions()[-1])


def values(*words: str) -> list[str]:
    return [one.value for one in candidates(words)]


def test_verbs_and_recipes_come_first() -> None:
    assert values("") == ["recipe=", *(verb.name for verb in VERBS)]
    assert values("rec") == ["recipe=", "recipes"]
    assert values("recipe=")[:2] == [f"recipe={name}" for name in sorted(recipe_names())][:2]
    assert values("launch", "recipe=eagle3_l") == ["recipe=eagle3_llama8b"]
    assert values("plan", "eagle3_l") == ["eagle3_llama8b"]
    assert values("launch", "eagle3_l") == []


def test_options_and_their_values() -> None:
    assert values("lint", "--output-form") == ["--output-format"]
    assert "json" in values("lint", "--output-format", "")
    assert "--output-format=json" in values("lint", "--output-format=")
    assert values("lint", "--engine", "0.5.22") == ["0.5.22"]
    assert values("lint", "--engine", "0.5.23,0.5.22") == ["0.5.23,0.5.22"]
    assert "h100-80gb" in values("lint", "--hardware", "h100")
    assert values("render", "--to", "") == list(RENDERERS)
    assert values("explain", "SPL80")[0] == "SPL801"
    assert values("lint", "") == []  # files are the shell's
    assert "--version" in values("-")
    assert values("recipes", "s") == ["schema"]
    assert values("completion", "z") == ["zsh"]


def test_groups_keys_arguments_and_choices() -> None:
    recipe = "recipe=eagle3_llama8b"
    assert values(recipe, "specul") == ["speculation="]
    options = group_options()["speculation"]
    assert values(recipe, "speculation=") == [f"speculation={one}" for one in options]
    assert values(recipe, "+model=glm4") == ["+model=glm45", "+model=glm46"]
    assert values(recipe, "launch.v") == ["launch.verify."]
    assert values(recipe, "launch.verify.en") == ["launch.verify.enabled="]
    assert values(recipe, "launch.verify.enabled=") == [
        "launch.verify.enabled=true", "launch.verify.enabled=false",
    ]  # fmt: skip
    assert values(recipe, "args.speculative_num_s") == ["args.speculative_num_steps="]
    assert len(values(recipe, "args.")) > 400
    backends = NEWEST.by_name("attention_backend").choices  # type: ignore[union-attr]
    assert values(recipe, "args.attention_backend=") == [
        f"args.attention_backend={b}" for b in backends or ()
    ]
    assert values(recipe, "args.trust_remote_code=") == [
        "args.trust_remote_code=true",
        "args.trust_remote_code=false",
    ]
    assert "args.speculative_algorithm=EAGLE3" in values(recipe, "args.speculative_algorithm=")
    assert "engine.env.SGLANG_ENABLE_SPEC_V2=" in values(
        recipe, "engine.version=0.5.5", "engine.env.SGLANG_ENABLE_S"
    )
    assert values(recipe, "'args.speculative_num_s") == [
        "args.speculative_num_steps="
    ]  # a quote is open
    assert values(recipe, "recovery.policy=b") == ["recovery.policy=budget"]


def test_arguments_are_those_of_the_version_that_is_meant(tmp_path: Path) -> None:
    old = "args.cuda_graph_max_bs="
    assert old in values("recipe=eagle3_llama8b", "--engine", "0.5.9", "args.cuda_graph_max")
    assert old not in values("recipe=eagle3_llama8b", "args.cuda_graph_max")
    pinned = tmp_path / "pinned.yaml"
    pinned.write_text('engine: {version: "0.5.9"}\nargs: {model_path: m}\n')
    assert old in values(f"recipe={pinned}", "args.cuda_graph_max")
    broken = tmp_path / "broken.yaml"
    broken.write_text("args: [")
    assert old not in values(f"recipe={broken}", "args.cuda_graph_max")


def test_recipes_and_groups_of_your_own(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "ours.yaml").write_text("# @package args\nmodel_path: m\n")
    (tmp_path / "ours_eagle3.yaml").write_text("args: {model_path: m}\n")
    own = ("--config-dir", str(tmp_path))
    assert "recipe=ours_eagle3" in values("launch", *own, "recipe=ours")
    assert "model=ours" in values("launch", *own, "recipe=ours_eagle3", "model=o")
    assert values(f"recipe={tmp_path}/ours") == [f"recipe={tmp_path}/ours_eagle3.yaml"]
    assert values("launch", "--config-dir", str(tmp_path / "none"), "recipe=ours") == []


def test_a_file_name_that_a_shell_would_execute_is_no_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "$(touch executed)", "`x`", "a;b", "a b", "\x1b[2J", "a\nb", "a'b", "a&b"):
        (tmp_path / f"{name}.yaml").write_text("args: {model_path: m}\n")
    assert values("recipe=./") == ["recipe=./mine.yaml"]


@rows("words", [("",), ("x", "y", "="), ("--engine",), ("recipe=", "args.=", "~"),
                                   ("recipe=x", "args.a.b.c="), ("'",), ("recipe=\0",), ("lint", "--engine=")])  # fmt: skip
def test_odd_words_are_no_crash(words: tuple[str, ...]) -> None:
    candidates(words)


@pytest.mark.thorough
def test_it_loads_little() -> None:
    code = (
        "import sys; from speclaunch.app.verbs.completing import candidates; "
        "candidates(['recipe=eagle3_llama8b', 'args.dtype=']); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = ("hydra", "omegaconf", "pydantic", "typer", "click", "rich", "speclaunch.checks.rules.")
    assert not [name for name in done.stdout.split() if name.startswith(heavy)]


def test_the_verb_prints_a_script() -> None:
    for shell, script in SCRIPTS.items():
        done = run("completion", shell)
        assert (done.returncode, done.stdout) == (0, script)
    wrong = run("completion", "fihs")
    assert wrong.returncode == 2 and "did you mean `fish`" in wrong.stderr


def test_a_script_of_another_making_gets_no_answer() -> None:
    """Those that typer once installed ask with words that nobody answers any more."""
    import os

    done = run(
        env={**os.environ, "_SPECLAUNCH_COMPLETE": "complete_bash", "COMP_WORDS": "speclaunch"}
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.fixture(scope="module", params=["bash", "zsh", "fish"])
def shell(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shell]:
    name = request.param
    if not is_there(name):
        pytest.skip(f"{name} is not installed")
    cwd = tmp_path_factory.mktemp(name)
    (cwd / "mine.yaml").write_text("args: {model_path: m}\n")
    script = cwd / "completion"
    script.write_text(SCRIPTS[name])
    found = Shell(name, script, cwd)
    yield found
    found.end()


TYPED = [
    ("speclaunch expl", ["speclaunch", "explain"]),
    ("speclaunch recipe=eagle3_l", ["speclaunch", "recipe=eagle3_llama8b"]),
    ("speclaunch recipe=eagle3_llama8b specula", ["speclaunch", "recipe=eagle3_llama8b", "speculation="]),
    ("speclaunch recipe=x speculation=eagle3_w", ["speclaunch", "recipe=x", "speculation=eagle3_wide_tree"]),
    ("speclaunch recipe=x args.speculative_num_s", ["speclaunch", "recipe=x", "args.speculative_num_steps="]),
    ("speclaunch recipe=x args.attention_backend=flashin", ["speclaunch", "recipe=x", "args.attention_backend=flashinfer"]),
    ("speclaunch recipe=x launch.wat", ["speclaunch", "recipe=x", "launch.watchdog."]),
    ("speclaunch lint --output-form", ["speclaunch", "lint", "--output-format"]),
    ("speclaunch lint --output-format=js", ["speclaunch", "lint", "--output-format=json"]),
    ("speclaunch lint min", ["speclaunch", "lint", "mine.yaml"]),
    ("speclaunch recipe=min", ["speclaunch", "recipe=min"]),  # a recipe's name, or the file's
    ("speclaunch recipe=./min", ["speclaunch", "recipe=./mine.yaml"]),
    ("speclaunch explain SPL80", ["speclaunch", "explain", "SPL80"]),
]  # fmt: skip


@pytest.mark.thorough
def test_a_real_shell_completes(shell: Shell) -> None:
    found = {typed: shell.completed(typed) for typed, _ in TYPED}
    assert found == dict(TYPED)


@pytest.mark.thorough
def test_a_real_shell_lists_what_there_is(shell: Shell) -> None:
    said = shell.listed("speclaunch recipe=x args.dtype=")
    assert "bfloat16" in said and "float32" in said
    assert "eagle3_tree" in shell.listed("speclaunch recipe=x speculation=")
