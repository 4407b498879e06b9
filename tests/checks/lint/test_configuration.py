"""`speclaunch.toml` and `[tool.speclaunch]`: found upward, checked as a whole, the options first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from speclaunch.checks.lint.configuration import Configuration, LintSettings
from speclaunch.core.errors import InputError
from speclaunch.engine.facts.project_settings import (
    PROJECT_KEYS,
    EngineCheckMode,
    SettingsFrom,
    nearest_file,
    read_settings,
)
from tests.checks.lint.linting import SERVER, Place

OLD = SERVER.format(model="m", more="--cuda-graph-max-bs 4")
"""Which 0.5.20 took away."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / "a/b").mkdir(parents=True)
    forget()
    return tmp_path


def forget() -> None:
    nearest_file.cache_clear()
    read_settings.cache_clear()


def of(path: str, stated: LintSettings | None = None, **how: Any) -> LintSettings:
    forget()
    project = SettingsFrom(**how)
    return Configuration(replace(stated or LintSettings(), project=project)).of(path)


def refused(path: str = "a/x.sh") -> list[str]:
    with pytest.raises(InputError) as raised:
        of(path)
    return [f"{one.place}: {one.message} {one.help or ''}" for one in raised.value.problems]


def test_the_nearest_file_counts_and_speclaunch_toml_goes_first(folder: Path) -> None:
    (folder / "speclaunch.toml").write_text('ignore = ["SPL1"]')
    (folder / "a/pyproject.toml").write_text('[tool.speclaunch]\nignore = "SPL2,SPL3"')
    (folder / "a/b/pyproject.toml").write_text('[project]\nname = "speclaunch-recipes"')
    assert of("x.sh").ignore == ("SPL1",)
    assert of("a/x.sh").ignore == of("a/b/x.sh").ignore == ("SPL2", "SPL3")
    (folder / "a/speclaunch.toml").write_text('ignore = "spl4"')
    assert of("a/b/x.sh").ignore == ("SPL4",)
    assert of("a/b/x.sh", enabled=False).ignore == ()
    assert of("a/b/x.sh", file=folder / "speclaunch.toml").ignore == ("SPL1",)
    (folder / "a/b/.git").mkdir()
    assert of("a/b/x.sh").ignore == ()


def test_all_of_it(folder: Path) -> None:
    (folder / "a/models").mkdir()
    (folder / "a/speclaunch.toml").write_text(
        'engine = ["0.5.18", "0.5.23"]\nhardware = "h100:8"\nmodels = ["models", "/not/here"]\n'
        'config-dir = "."\nselect = ["SPL"]\nbaseline = "known.json"\n'
        '[assume]\n"my/x" = "org/y"\n'
    )
    found = of("a/b/x.sh")
    assert found.versions == ("0.5.18", "0.5.23") and found.hardware == "h100:8"
    assert found.config_dirs == (folder / "a",) and found.select == ("SPL",)
    assert found.baseline == folder / "a/known.json"
    project = found.project.of(folder / "a")
    assert project.model_dirs == (folder / "a/models", Path("/not/here"))
    assert project.assume == (("my/x", "org/y"),)


def test_options_go_before_the_file(folder: Path) -> None:
    (folder / "speclaunch.toml").write_text(
        'engine = "0.5.18"\nhardware = "h100"\nselect = "SPL1"\nignore = "SPL2"\n'
        'config-dir = "a"\nbaseline = "one.json"'
    )
    said = LintSettings(
        ("0.5.23",), "t4", (), (Path("b"),), (), ("SPL3",), ("SPL4",), False, Path("two")
    )
    found = of("x.sh", said)
    assert (found.versions, found.hardware) == (("0.5.23",), "t4")
    assert (found.select, found.ignore, found.baseline) == (("SPL3",), ("SPL4",), Path("two"))
    assert found.config_dirs == (Path("b"), folder / "a")


def test_settings_by_path(folder: Path) -> None:
    (folder / "a/speclaunch.toml").write_text(
        'engine = "0.5.23"\nignore = "SPL1"\n'
        '[[overrides]]\npaths = ["b/", "*.yaml"]\nengine = "0.5.18"\nignore = "SPL2"\n'
        '[[overrides]]\npaths = "b/x.sh"\nhardware = "t4"\nengine = "0.5.17"\nselect = "SPL3"\n'
    )
    assert of("a/x.sh").versions == ("0.5.23",) and of("a/x.sh").ignore == ("SPL1",)
    assert of("a/x.yaml").versions == of("a/b/y.sh").versions == ("0.5.18",)
    last = of("a/b/x.sh")
    assert (last.versions, last.hardware) == (("0.5.17",), "t4")
    assert (last.select, last.ignore) == (("SPL3",), ("SPL1", "SPL2"))


def test_a_chain_of_files(folder: Path) -> None:
    (folder / "base.toml").write_text(
        'engine = "0.5.18"\nhardware = "t4"\nmodels = "a"\n[assume]\n"x/a" = "y/a"\n"x/b" = "y/b"\n'
        '[[overrides]]\npaths = "*.sh"\nignore = "SPL1"\n'
    )
    (folder / "a/pyproject.toml").write_text('[tool.speclaunch]\nextend = "../base.toml"')
    (folder / "a/b/speclaunch.toml").write_text(
        'extend = "../pyproject.toml"\nhardware = "h100"\n[assume]\n"x/b" = "z/b"\n'
        '[[overrides]]\npaths = "*.sh"\nignore = "SPL2"\n'
    )
    found = of("a/b/x.sh")
    assert (found.versions, found.hardware) == (("0.5.18",), "h100")
    assert found.ignore == ("SPL1", "SPL2")
    project = found.project.of(folder / "a/b")
    assert dict(project.assume) == {"x/a": "y/a", "x/b": "z/b"}
    assert project.model_dirs == (folder / "a",)


@pytest.mark.parametrize(
    "other", ["../a/speclaunch.toml", "../speclaunch.toml", "b/../speclaunch.toml"]
)
def test_a_circle_is_refused_with_its_place(folder: Path, other: str) -> None:
    (folder / "a/speclaunch.toml").write_text(f'hardware = "t4"\nextend = "{other}"')
    (folder / "speclaunch.toml").write_text('extend = "a/speclaunch.toml"')
    (said,) = refused()
    assert "is cyclic" in said and any(at in said for at in (":1:10", ":2:10"))


def test_every_problem_has_its_place(folder: Path) -> None:
    (folder / "a/speclaunch.toml").write_text(
        'engin = "0.5.23"\nengine = ["0.5.x", 3]\nhardware = "h1000"\nselect = "SLP1"\n'
        'models = "nowhere"\nextend = 3\n[[overrides]]\nignore = ["SPL1", "SPL999"]\npath = "x"\n'
        '[assum]\n[assume]\n"a/b" = 3\n'
    )
    said = refused()
    for at, part in (
        ("1:1", "unknown key `engin` did you mean `engine`?"),
        ("2:11", "'0.5.x' is not a version"),
        ("2:20", "contains a value that is not a string: 3"),
        ("3:12", "unknown hardware 'h1000' did you mean"),
        ("4:10", "unknown rule code 'SLP1' did you mean `SPL1`?"),
        ("5:10", "no such directory: nowhere"),
        ("6:10", "`extend` is not a string: 3"),
        ("7:1", "`overrides` has no `paths`"),
        ("8:19", "unknown rule code 'SPL999'"),
        ("9:1", "unknown key `path` did you mean `paths`?"),
        ("10:1", "unknown key `assum` did you mean `assume`?"),
        ("12:9", "not of the form ORGANIZATION/NAME"),
    ):
        assert any(one.startswith(f"a/speclaunch.toml:{at}: ") and part in one for one in said), at
    assert len(said) == 12
    assert [one.split(":")[1] for one in said] == sorted(
        (one.split(":")[1] for one in said), key=int
    )


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("engine = ", "1:1: speclaunch.toml is not TOML"),
        ("overrides = 3", "1:13: speclaunch.toml: `overrides` is not an array of tables"),
        ("engine = []", "1:10: speclaunch.toml: `engine` names no version"),
        ('extend = "gone.toml"', "1:10: `extend`: no such file: gone.toml"),
        ('ask = "allways"', "1:7: speclaunch.toml: `ask` cannot be 'allways' did you mean `al"),
        ('ask = "yes"', "1:7: speclaunch.toml: `ask` cannot be 'yes' valid values: auto, always"),
        ("ask = true", "1:7: speclaunch.toml: `ask` is not a string: True"),
        ('hardware = ""', "1:12: speclaunch.toml: `hardware` is not a string"),
    ],
)
def test_a_single_problem(folder: Path, text: str, part: str) -> None:
    (folder / "a/speclaunch.toml").write_text(text)
    (said,) = refused()
    assert part in said


VALUES = st.recursive(
    st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from(["", "SPL1", "0.5.23", "h100:8", "a", "!"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*PROJECT_KEYS, "paths", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.mark.thorough
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(said=st.dictionaries(st.sampled_from([*PROJECT_KEYS, "x"]), VALUES, max_size=5))
def test_whatever_it_says_is_settings_or_a_problem_with_a_place(folder: Path, said: Any) -> None:
    (folder / "a/speclaunch.toml").write_text(
        "\n".join(f"{k} = {toml(v)}" for k, v in said.items())
    )
    try:
        of("a/x.sh")
    except InputError as error:
        assert all(one.place is not None for one in error.problems)


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


@pytest.mark.thorough
def test_whether_the_engine_is_asked(place: Place) -> None:
    place.write("x.sh", OLD)
    for said in EngineCheckMode:
        place.write("speclaunch.toml", f'engine = "0.5.18"\nask = "{said}"\n')
        done = place.lint("x.sh")
        must = said == "always"
        assert (done.code, "--ask always: no judge" in done.out + done.err) == (2 * must, must)
    place.write("pyproject.toml", '[tool.speclaunch]\nask = "always"\n')
    (place.folder / "speclaunch.toml").unlink()
    assert place.lint("x.sh", "--engine", "0.5.18").code == 2
    assert place.lint("x.sh", "--engine", "0.5.18", "--ask", "never").code == 0
    assert place.lint("x.sh", "--engine", "0.5.18", "--no-config").code == 0


@pytest.mark.thorough
def test_lint_uses_it(place: Place) -> None:
    place.write("old/x.sh", OLD)
    place.write("new/x.sh", OLD)
    place.write(
        "speclaunch.toml",
        'engine = "0.5.23"\nexclude = ["recipes/", "*.md"]\n'
        '[[overrides]]\npaths = "old/"\nengine = "0.5.18"\n',
    )
    said = place.lint("old", "new")
    assert said.code == 1 and "1 error" in said.out and "error[SPL002]" in said.out
    assert place.lint("old").code == 0
    assert place.lint("old", "--engine", "0.5.23").code == 1
    assert place.lint("old", "--no-config", "--engine", "0.5.23").code == 1
    assert "recipes/" not in place.lint(".").out
    place.write("other.toml", 'engine = "0.5.18"\n')
    assert place.lint("new", "--config", "other.toml").code == 0
    assert place.lint("new", "--config", "gone.toml").code == 2
    assert place.lint("new", "--config", "other.toml", "--no-config").code == 2


@pytest.mark.thorough
def test_models_of_the_repository_are_facts_of_every_verb(place: Place) -> None:
    place.write(
        "checkpoints/org/model/config.json", (place.folder / "models/own/config.json").read_text()
    )
    place.write("speclaunch.toml", 'models = "checkpoints"\n')
    said = place.lint("recipes/r0.yaml", "--config-dir", "groups", "--info")
    assert "checkpoint facts from a directory: org/model" in said.out


@pytest.mark.thorough
def test_what_is_excluded_is_left_to_itself_by_tools_that_name_every_file(place: Place) -> None:
    place.write("old/deep/x.sh", OLD)
    place.write("speclaunch.toml", 'engine = "0.5.23"\nexclude = ["old/"]\n')
    assert place.lint("old/deep/x.sh").code == 1
    assert place.lint("old/deep/x.sh", "--only-deployments").code == 0
    assert place.lint("old/deep/x.sh", "--only-deployments", "--no-config").code == 0
    said = place.lint("old/deep/x.sh", "--only-deployments", "--no-config", "--engine", "0.5.23")
    assert said.code == 1
    more = ("--no-config", "--engine", "0.5.23", "--exclude", "*.sh")
    assert place.lint("old/deep/x.sh", "--only-deployments", *more).code == 0
