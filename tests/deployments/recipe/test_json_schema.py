"""The JSON schema of recipes takes what lint takes, and refuses what lint refuses."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from speclaunch.core.errors import InputError
from speclaunch.core.resources import conf_dir, recipes_dir
from speclaunch.deployments.recipe.json_schema import recipe_schema
from speclaunch.deployments.recipe.load import load as load_recipe
from speclaunch.deployments.recipe.sections import schema_paths
from speclaunch.engine.plan.about import about, suggested_values
from speclaunch.engine.releases.catalogue import held_versions, history, load, released_names
from speclaunch.engine.releases.command import render_args
from speclaunch.engine.releases.renames import other_names
from speclaunch.engine.releases.shell import check_values
from tests.deployments.recipe.test_compose import BAD_FILES
from tests.support.loops import rows
from tests.support.program import COMMAND as PROGRAM

DOCS = Path(__file__).resolve().parents[3] / "docs" / "reference"
NEWEST = held_versions()[-1]
RECIPES = sorted(recipes_dir().glob("*.yaml"))
OPTIONS = sorted(path for path in conf_dir().rglob("*.yaml") if path.parent != conf_dir())


def text(version: str = NEWEST) -> str:
    found = recipe_schema(load(version), suggested=suggested_values(version))
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


@functools.cache
def judge(version: str = NEWEST, section: str | None = None) -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator(recipe_schema(load(version), (), section))


def complaints(document: Any, version: str = NEWEST, section: str | None = None) -> list[str]:
    return [error.message for error in judge(version, section).iter_errors(document)]


def test_the_one_in_the_documentation_is_that_of_the_newest_release() -> None:
    """`speclaunch recipes schema -o docs/reference/recipe.schema.json` writes it."""
    assert (DOCS / "recipe.schema.json").read_text() == text()


@pytest.mark.thorough
def test_it_is_a_schema() -> None:
    for version in (held_versions()[0], NEWEST):
        jsonschema.Draft7Validator.check_schema(json.loads(text(version)))


@pytest.mark.thorough
@pytest.mark.parametrize("version", held_versions())
def test_it_is_a_schema_for_every_release(version: str) -> None:
    jsonschema.Draft7Validator.check_schema(json.loads(text(version)))


@pytest.mark.thorough
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_that_ships_is_accepted_for_every_release_it_is_for(path: Path) -> None:
    document = yaml.safe_load(path.read_text())
    fitting = list(load_recipe(path.stem).deployment.engine.specifier.filter(held_versions()))
    for version in {fitting[0], fitting[-1]}:
        assert complaints(document, version) == []


@pytest.mark.thorough
@pytest.mark.parametrize("path", OPTIONS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_option_of_a_group_is_accepted(path: Path) -> None:
    written = path.read_text()
    document = yaml.safe_load(written) or {}
    package = written.split("# @package ")[1].split()[0] if "# @package" in written else None
    section = None if package == "_global_" else package or path.parent.name
    assert complaints(document, NEWEST, section) == []


IN_ANOTHER_FILE = (
    "nope",
    "includes itself",
    "'args' is missing",
    "duplicate key",
    "not valid YAML",
)
"""What no schema can tell: what is in other files, or in none, and what is no YAML."""


def bad_files() -> Iterator[str]:
    for case in BAD_FILES:
        written, message = case[0], case[1]
        twice = written.endswith("- engine: default\nargs: {}\n")
        if not twice and not any(one in message for one in IN_ANOTHER_FILE):
            yield written


@rows("written", list(bad_files()))
def test_what_the_composition_refuses_of_a_file_is_refused(written: str) -> None:
    assert complaints(yaml.safe_load(written))


def misspelt(name: str) -> Iterator[str]:
    yield name + name[-1]
    yield name[:-1]
    yield name[1:] + name[0]
    yield name.replace("_", "__", 1) if "_" in name else f"{name}_"


@rows("key", sorted(schema_paths()))
def test_a_misspelt_key_is_refused_wherever_it_stands(key: str) -> None:
    *sections, name = key.split(".")
    siblings = {one.rpartition(".")[2] for one in schema_paths() if one.count(".") == len(sections)}
    for wrong in misspelt(name):
        document: dict[str, Any] = {wrong: {}}
        for section in reversed(sections):
            document = {section: document}
        if wrong not in siblings:
            assert complaints(document), document


@pytest.mark.thorough
def test_a_misspelt_argument_is_refused() -> None:
    known = {*released_names()} | set(load(NEWEST).names)
    for name in load(NEWEST).names:
        for wrong in set(misspelt(name)) - known:
            assert complaints({wrong: 1}, NEWEST, "args"), wrong


def test_an_argument_that_is_gone_is_refused_with_its_successor() -> None:
    (error,) = judge().iter_errors({"args": {"enable_ep_moe": True}})
    schema = next(iter(error.context or [error])).schema
    assert "ep_size" in schema["errorMessage"]


VALUES = [True, False, 0, 1, 8, -1, 0.5, "1", "x", "0.5", "32k", "1Ki", "", "auto", "{}", '{"a": 1}',
          [], [1], ["a", "b"], [0.5], {}, {"a": 1}, "triton", "EAGLE"]  # fmt: skip


def lint_takes(name: str, value: Any, version: str) -> bool:
    catalogue = load(version)
    spelling = render_args({name: value}, {}, catalogue)
    return not spelling.problems and not check_values(spelling, catalogue)


def is_judged(name: str, value: Any, version: str) -> bool:
    """Whether a schema can tell: not what stands in a text that is JSON, or in an item of it."""
    told = about(name, load(version))
    argument = told.argument if told is not None else None
    has_json = argument is not None and (
        "json" in argument.type or "config" in argument.type or argument.dest == "lora_paths"
    )
    return not (has_json and isinstance(value, str | dict) and not lint_takes(name, value, version))


def form(name: str, version: str) -> object:
    """What the values of an argument depend on: those of one form are alike."""
    told = about(name, load(version))
    one = told.argument if told is not None else None
    own = load(version).by_name(name)
    if one is None:
        return name
    return one.kind, one.type, one.choices, one.nargs, own is None or own.flag != one.flag


def differing(version: str) -> Iterator[tuple[str, Any, bool]]:
    """Where the schema and lint do not agree: name, value, and whether lint takes it. Every name is
    asked for some values, one of each form for all."""
    catalogue = load(version)
    names = {*catalogue.names, *(o for name in catalogue.names for o in other_names(name))}
    seen: set[object] = set()
    for name in sorted(names):
        alike = form(name, version)
        for value in VALUES if alike not in seen else (True, "x"):
            schema_takes = judge(version, "args").is_valid({name: value})
            differs = schema_takes != lint_takes(name, value, version)
            if differs and is_judged(name, value, version):
                yield name, value, not schema_takes
        seen.add(alike)


@pytest.mark.thorough
@pytest.mark.parametrize("version", [*held_versions()[1:-1:6], NEWEST])
def test_schema_and_lint_agree_about_every_argument(version: str) -> None:
    assert list(differing(version)) == []


FRACTIONS = st.floats(-1e9, 1e9).filter(lambda number: not number.is_integer())
"""To a schema 1.0 is the same as 1."""


@pytest.mark.thorough
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(load(NEWEST).names),
    st.one_of(
        st.sampled_from(VALUES), st.integers(-9, 99), FRACTIONS, st.booleans(),
        st.text(alphabet="0123456789.eE+-kMGi_ ", max_size=5),
    ),
)  # fmt: skip
def test_schema_and_lint_agree_about_any_value(name: str, value: Any) -> None:
    assume(is_judged(name, value, NEWEST))
    assert judge(NEWEST, "args").is_valid({name: value}) == lint_takes(name, value, NEWEST)


CASES = Path(__file__).parents[2] / "checks" / "rules" / "cases"


@pytest.mark.thorough
def test_schema_and_lint_agree_about_every_argument_of_the_rules_cases() -> None:
    asked = refused = 0
    for file in sorted(CASES.glob("*.yaml")):
        for title, case in yaml.safe_load(file.read_text())["cases"].items():
            version = case.get("engine")
            if not isinstance(case.get("args"), dict) or version not in held_versions():
                continue
            for name, value in case["args"].items():
                if value is None or not is_judged(name, value, version):
                    continue
                taken = judge(version, "args").is_valid({name: value})
                assert taken == lint_takes(name, value, version), (file.stem, title, name)
                asked, refused = asked + 1, refused + (not taken)
    assert asked > 500 and refused > 10, (asked, refused)


@pytest.mark.parametrize(
    "document",
    [
        {"args": {"tp_size": "${oc.env:TP}", "model_path": "???", "dtype": None}},
        {"launch": {"grace_seconds": "${launch.ready_timeout_seconds}"}},
        {"recovery": {"order": ["${x}", "draft_tree"], "policy": False}},
        {"recovery": {"minimal": {"tp_size": 1}}, "engine": {"env": {"A": True, "B": 1, "C": None}}},
        {"args": {"cuda_graph_bs_decode": ["${args.tp_size}", 2]}},
        {"defaults": ["base", "_self_", {"override /model": "ours"}, {"optional serving@x": None}]},
    ],
    ids=str,
)  # fmt: skip
def test_what_stands_for_a_value_is_accepted(document: dict[str, Any]) -> None:
    assert complaints(document) == []


@pytest.mark.thorough
def test_groups_of_your_own_are_known_by_their_directory(tmp_path: Path) -> None:
    (tmp_path / "team").mkdir()
    (tmp_path / "team" / "blue.yaml").write_text("# @package args\nport: 1\n")
    document = {"defaults": ["base", {"team": "blue"}]}
    assert complaints(document)
    own = recipe_schema(load(NEWEST), [tmp_path])
    assert jsonschema.Draft7Validator(own).is_valid(document)


def test_what_it_says_of_an_argument() -> None:
    known = recipe_schema(load("0.5.14"))["definitions"]["args"]["properties"]
    assert "calls it `cuda_graph_max_bs_decode`" in known["cuda_graph_max_bs"]["deprecationMessage"]
    assert "whole number" in known["tp_size"]["description"] and known["tp_size"]["default"] == 1
    assert all(one.get("description") for one in known.values())
    assert all(history(name) for name in known)


def test_a_section_that_a_recipe_does_not_have() -> None:
    with pytest.raises(InputError, match="`arg` is not a section") as caught:
        recipe_schema(load(NEWEST), (), "arg")
    assert "args" in str(caught.value.problems[0].help)


@pytest.mark.thorough
def test_the_command_line_writes_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [*PROGRAM, "recipes", "schema", "--engine", "0.5.14", "-o", "s.json"],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "wrote s.json\n")
    assert (tmp_path / "s.json").read_text() == text("0.5.14")
    nowhere = subprocess.run(
        [*PROGRAM, "recipes", "schema", "-o", "no/s.json"],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert nowhere.returncode == 2 and "cannot write no/s.json" in nowhere.stderr


@pytest.mark.thorough
def test_check_jsonschema_agrees(tmp_path: Path) -> None:
    program = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--schemafile",
        str(DOCS / "recipe.schema.json"),
    ]
    every = subprocess.run([*program, *map(str, RECIPES)], capture_output=True, text=True)
    assert every.returncode == 0, every.stdout
    (tmp_path / "wrong.yaml").write_text("args:\n  mem_fraction_statik: 0.7\n")
    wrong = subprocess.run([*program, str(tmp_path / "wrong.yaml")], capture_output=True, text=True)
    assert wrong.returncode == 1 and "mem_fraction_statik" in wrong.stdout
