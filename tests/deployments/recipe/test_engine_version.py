"""A pin is a wish that `--engine` overrides with a note; `engine.requires` is a bound."""

from __future__ import annotations

from pathlib import Path

import pytest

from speclaunch.checks.lint.configuration import Options
from speclaunch.checks.rules.examine import Lookup
from speclaunch.core.errors import InputError
from speclaunch.deployments.recipe.load import load
from speclaunch.deployments.recipe.schema import Engine
from speclaunch.deployments.recipe.sections import plain_class
from speclaunch.deployments.targets.prepare import prepare
from tests.support.lint_report import collect, lint

RECIPE = "defaults: [base]\nengine: {engine}\nargs: {{model_path: m}}\n"
CASES = (
    # engine.version, engine.requires; the pin, then: versions that it takes, and that it refuses
    ('version: "0.5.23"', "0.5.23", ("0.5.23", "0.5.20", "0.4.10.post2"), ()),
    ('version: ">=0.5.11"', None, ("0.5.23", "0.5.11"), ("0.5.9",)),
    ('requires: ">=0.5.11"', None, ("0.5.23", "0.5.11"), ("0.5.9",)),
    ('version: "0.5.23", requires: ">=0.5.11"', "0.5.23", ("0.5.23", "0.5.11"), ("0.5.9",)),
    ('version: "0.5.23", requires: "0.5.23"', "0.5.23", ("0.5.23",), ("0.5.20",)),
    ('version: ">=0.5.11", requires: "<0.5.20"', None, ("0.5.11",), ("0.5.9", "0.5.23")),
)


@pytest.fixture(params=CASES, ids=lambda case: case[0])
def recipe(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "r.yaml"
    path.write_text(RECIPE.format(engine=f"{{{request.param[0]}}}"))
    return path


def case_of(path: Path) -> tuple[str | None, tuple[str, ...], tuple[str, ...]]:
    return next(rest for said, *rest in CASES if f"{{{said}}}" in path.read_text())  # type: ignore[return-value]


def test_engine_overrides_a_pin_and_no_bound(recipe: Path) -> None:
    pin, taken, refused = case_of(recipe)
    assert load(str(recipe)).deployment.engine.pinned == pin
    for version in taken:
        made = prepare(load(str(recipe)), version, dry_run=True)
        assert made.version == version
        said = None if pin in (None, version) else f"--engine {version} overrides engine.version"
        assert said is None or said in str(made.overridden)
        assert (made.overridden in made.rendered_args.notes) is (said is not None)
    for version in refused:
        with pytest.raises(InputError, match="cannot be served by"):
            prepare(load(str(recipe)), version, dry_run=True)


def test_lint_overrides_a_pin_only_for_the_option(recipe: Path) -> None:
    pin, taken, refused = case_of(recipe)
    for version in (*taken, *refused):
        for by_option in (True, False):
            how = Options(Lookup(), (), (version,), overrides_pins=by_option)
            (file,) = lint(collect([str(recipe)]), how).files
            is_pinned_elsewhere = pin not in (None, version)
            is_left = version in refused or (is_pinned_elsewhere and not by_option)
            assert (file.skipped is not None) is is_left, (version, by_option)
            assert (file.note is not None) is (is_pinned_elsewhere and not is_left)


def test_both_forms_of_the_section_agree() -> None:
    for values in (
        {"version": "0.5.23"},
        {"version": ">=0.5.11"},
        {"requires": ">=0.5.11,<0.6"},
        {"version": "0.5.23", "requires": "0.5.23"},
        {"version": ">=0.5.11", "requires": "<0.5.20"},
        {},
    ):
        one, other = Engine.model_validate(values), plain_class("Engine")(**values)
        assert (one.pinned, one.needs) == (other.pinned, other.needs)
        assert (one.bounds, one.specifier) == (other.bounds, other.specifier)
    with pytest.raises(ValueError, match="neither a version"):
        Engine(requires="soon")
