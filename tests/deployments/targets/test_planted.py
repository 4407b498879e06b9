"""What `lint` calls an error, no other verb writes: every recipe, target and planted error.

The oracle is `lint` itself, of the recipe that the error was planted in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from speclaunch.deployments.recipe.find_recipe import recipe_names
from speclaunch.deployments.recipe.load import load
from speclaunch.deployments.targets.assemble import RENDERERS
from speclaunch.engine.releases.catalogue import held_versions
from tests.deployments.targets import deployments
from tests.support import program

PLANTED: Mapping[str, str] = {
    "nothing": "",
    "a fraction in percent": "args: {mem_fraction_static: 83}",
    "no rank": "args: {tp_size: 0}",
    "stages": "args: {speculative_algorithm: NGRAM, pp_size: 2}",
    "no draft": "args: {speculative_algorithm: DFLASH, speculative_draft_model_path: null}",
    "a small GPU": "hardware: {name: 'rtx4090:1'}",
}


def lint(path: Path, *words: str) -> tuple[set[str], set[str]]:
    """The codes of errors and of warnings."""
    done = program.run("lint", path, *words, "--output-format", "json", cwd=path.parent)
    found = [one for file in json.loads(done.stdout)["files"] for one in file["findings"]]
    errors = {one["code"] for one in found if one["severity"] == "error"}
    assert (done.returncode != 0) is bool(errors), done.stderr
    return errors, {one["code"] for one in found if one["severity"] == "warning"}


def newest(recipe: str) -> str:
    """The newest release that can serve a recipe."""
    return list(load(recipe).deployment.engine.specifier.filter(held_versions()))[-1]


def role_of(recipe: str) -> tuple[str, ...]:
    """What names one role of a recipe that has several."""
    parts = load(recipe).parts
    return ("--role", str(parts[0].role)) if parts else ()


def plant(folder: Path, recipe: str, planted: str) -> Path:
    path = folder / "planted.yaml"
    path.write_text(f"defaults: [{recipe}, _self_]\nname: planted\n{planted}\n")
    return path


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.parametrize("target", deployments.SERVING)
@pytest.mark.parametrize("recipe", sorted(recipe_names()))
def test_no_target_carries_a_planted_error(recipe: str, target: str, tmp_path: Path) -> None:
    role = role_of(recipe) if RENDERERS[target].single_server else ()
    version = ("--engine", newest(recipe))
    output = tmp_path / f"out{RENDERERS[target].suffix}"
    words = ("render", "planted.yaml", "--to", target, *role, *version, "--output", output)
    for name, text in PLANTED.items():
        path = plant(tmp_path, recipe, text)
        errors, warnings = lint(path, *version)
        done = program.run(*words, cwd=tmp_path)
        assert done.returncode in (0, 1, 2), done.stderr
        assert output.exists() is (done.returncode == 0), (name, done.stderr)
        if errors:
            assert done.returncode == 1, (name, errors, done.stderr)
        is_carried = "was not written" in done.stderr or done.returncode == 0
        if is_carried and not role:  # the other role's findings are not of this rendering
            assert errors <= set(_codes(done.stderr, "error")), (name, done.stderr)
            assert warnings <= set(_codes(done.stderr, "warning")), (name, done.stderr)
        if errors:
            forced = program.run(*words, "--force", cwd=tmp_path)
            assert (forced.returncode == 0) is is_carried, (name, forced.stderr)
        output.unlink(missing_ok=True)


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.parametrize("recipe", sorted(recipe_names()))
def test_a_planted_error_comes_through_import_and_migrate(recipe: str, tmp_path: Path) -> None:
    role, newer = role_of(recipe), newest(recipe)
    older = next(one for one in reversed(held_versions()) if one != newer)
    script = tmp_path / "run.sh"
    for name, text in PLANTED.items():
        plant(tmp_path, recipe, text)
        words = ("render", "planted.yaml", "--to", "shell", *role, "--force")
        words = (*words, "--engine", newer, "--output", script)
        done = program.run(*words, cwd=tmp_path)
        if done.returncode != 0:  # a script starts one host
            assert "render to" in done.stderr, (name, done.stderr)
            continue
        errors, _ = lint(script, "--engine", newer)
        done = program.run(
            *("import", "run.sh", "--engine", newer, "--to-dir", "out", "--overwrite"),
            cwd=tmp_path,
        )
        if done.returncode == 0:  # else the release rejects an argument, as it is reported
            assert set(_codes(done.stderr, "error")) <= errors, (name, done.stderr)
        before = script.read_text()
        done = program.run(*("migrate", "run.sh", "--from", newer, "--to", older), cwd=tmp_path)
        after, _ = lint(script, "--engine", older)
        if done.returncode == 0:
            assert after <= errors, (name, after, done.stderr)
        else:
            assert done.returncode == 1 and script.read_text() == before, (name, done.stderr)


def _codes(text: str, severity: str) -> list[str]:
    lead = f"{severity}[SPL"
    return [line[len(lead) - 3 :][:6] for line in text.splitlines() if line.startswith(lead)]
