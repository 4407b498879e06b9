"""The action and the examples of docs/howto/ci.md: valid for their services, and run as far as possible."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from speclaunch.app.verbs.completing import options_of
from tests.integrations.checkout import ROOT, clone

PAGE = (ROOT / "docs" / "howto" / "ci.md").read_text()
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
BROKEN = "python3 -m sglang.launch_server \\\n  --model-path m --speculative-nun-steps 3\n"
SOUND = (
    "python3 -m sglang.launch_server --model-path Qwen/Qwen2.5-7B-Instruct"
    " --speculative-algorithm NGRAM --speculative-num-draft-tokens 12\n"
)


def example(name: str) -> str:
    """The block of the page that is this file."""
    (found,) = re.findall(rf"^```\w+\n(?:#|//) {re.escape(name)}\n(.*?)^```", PAGE, re.M | re.S)
    return found


def is_valid(tmp_path: Path, text: str, schema: str) -> None:
    file = tmp_path / "file.yml"
    file.write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(file)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("action.yml", "vendor.github-actions"),
        (".github/workflows/speclaunch.yml", "vendor.github-workflows"),
        (".github/workflows/code-scanning.yml", "vendor.github-workflows"),
        (".gitlab-ci.yml", "vendor.gitlab-ci"),
    ],
)
def test_it_is_what_the_service_takes(tmp_path: Path, name: str, schema: str) -> None:
    text = (ROOT / name).read_text() if name == "action.yml" else example(name)
    is_valid(tmp_path, text, schema)


def test_the_example_for_pre_commit_names_a_hook_that_there_is() -> None:
    hooks = {one["id"] for one in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    (repository,) = yaml.safe_load(example(".pre-commit-config.yaml"))["repos"]
    assert {one["id"] for one in repository["hooks"]} <= hooks and "speclaunch-fix" in hooks


def test_the_examples_use_inputs_and_outputs_that_there_are() -> None:
    for name in (".github/workflows/speclaunch.yml", ".github/workflows/code-scanning.yml"):
        job = yaml.safe_load(example(name))["jobs"]["lint"]
        (step,) = [one for one in job["steps"] if "/speclaunch@" in one.get("uses", "")]
        assert set(step["with"]) <= set(ACTION["inputs"])
        assert set(re.findall(r"outputs\.([\w-]+)", example(name))) <= set(ACTION["outputs"])


def test_the_options_of_the_action_are_those_of_lint() -> None:
    script = "".join(step.get("run", "") for step in STEPS if step.get("id") == "lint")
    used = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", script))
    assert len(used) >= 4 and used <= options_of("lint").keys()


def test_nothing_of_an_input_is_a_part_of_a_script() -> None:
    for step in STEPS:
        assert "${{" not in step.get("run", "")
    read = " ".join(
        str(value)
        for step in STEPS
        for value in {**step.get("env", {}), **step.get("with", {})}.values()
    )
    assert {name for name in ACTION["inputs"] if f"inputs.{name} " in read} == set(ACTION["inputs"])


class Runner:
    """Runs the steps of the action as a composite action's are: bash, and variables of its own."""

    def __init__(self, folder: Path, program: Path) -> None:
        self.folder, self.temp = folder, folder / "temp"
        (self.temp / "speclaunch" / "bin").mkdir(parents=True)
        (self.temp / "speclaunch" / "bin" / "speclaunch").symlink_to(program)
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        (self.workspace / ".git").mkdir()
        self.summary, self.output = folder / "summary", folder / "output"

    def step(
        self, name: str, inputs: dict[str, str] | None = None, **context: str
    ) -> subprocess.CompletedProcess[str]:
        (step,) = [one for one in STEPS if one.get("name") == name]
        given = {key: one["default"] for key, one in ACTION["inputs"].items()} | (inputs or {})
        values = {f"inputs.{key}": value for key, value in given.items()} | context

        def filled(text: str) -> str:
            return re.sub(r"\$\{\{ ([^}]+) \}\}", lambda found: values[found[1]], text)

        self.output.write_text("")
        environment = {
            **os.environ, "GITHUB_ACTIONS": "true", "RUNNER_TEMP": str(self.temp),
            "GITHUB_OUTPUT": str(self.output), "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_WORKSPACE": str(self.workspace), **{key: filled(value) for key, value in step["env"].items()},
        }  # fmt: skip
        script = self.folder / "step.sh"
        script.write_text(step["run"])
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)],
            cwd=self.workspace, env=environment, capture_output=True, text=True,
        )  # fmt: skip


@pytest.fixture
def program(tmp_path: Path) -> Path:
    found = tmp_path / "program"
    found.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m speclaunch "$@"\n')
    found.chmod(0o755)
    return found


@pytest.fixture
def runner(tmp_path: Path, program: Path) -> Runner:
    return Runner(tmp_path, program)


@pytest.mark.thorough
def test_the_action_annotates_and_fails_for_what_is_broken(runner: Runner) -> None:
    (runner.workspace / "serve.sh").write_text(SOUND)
    clean = runner.step("Check deployments", {"args": "--ignore SPL9 --ignore SPL7"})
    assert clean.returncode == 0, clean.stdout + clean.stderr
    (runner.workspace / "broken.sh").write_text(BROKEN)
    done = runner.step("Check deployments")
    assert done.returncode == 1, done.stdout + done.stderr
    (error,) = re.findall(r"^::error (.*?)::(.*)$", done.stdout, re.M)
    told = dict(one.split("=", 1) for one in error[0].split(","))
    assert (told["file"], told["line"], told["col"]) == ("broken.sh", "2", "18")
    assert "SPL001" in told["title"] and "nun" in error[1]
    assert runner.summary.read_text()


@pytest.mark.thorough
def test_the_action_executes_no_module_of_the_workspace(runner: Runner) -> None:
    executed = runner.folder / "executed"
    for name in (*sys.stdlib_module_names, "pip", "setuptools", "sitecustomize"):
        (runner.workspace / f"{name}.py").write_text(
            f"open({str(executed)!r}, 'a').write('{name} ')"
        )
    context = {
        "steps.python.outputs.python-path": sys.executable,
        "github.action_path": str(runner.folder / "missing"),
    }
    shutil.rmtree(runner.temp / "speclaunch")
    done = runner.step("Install speclaunch", **context)
    assert not executed.exists(), executed.read_text()
    assert "missing" in done.stderr, done.stderr  # pip itself ran


@pytest.mark.thorough
def test_the_inputs_of_the_action_are_options(runner: Runner) -> None:
    folder = runner.workspace / "two words"
    folder.mkdir()
    (folder / "a.sh").write_text(BROKEN)
    (runner.workspace / "-b.sh").write_text(SOUND)
    done = runner.step(
        "Check deployments",
        {"paths": "two words\n-b.sh\n", "engine": "0.5.9,0.5.23", "hardware": "h100:1", "strict": "true",
         "sarif-file": "out.sarif", "args": "--select SPL001\n--exit-zero"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((runner.workspace / "out.sarif").read_text())
    (place,) = {
        one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        for one in found["runs"][0]["results"]
    }
    assert place == "two%20words/a.sh"
    assert re.fullmatch(r"sarif-file<<(\S+)\nout\.sarif\n\1\n", runner.output.read_text())
    strict = runner.step(
        "Check deployments", {"strict": "true", "paths": "-b.sh", "hardware": "h100:1"}
    )
    assert strict.returncode in (0, 1) and "SPL001" not in strict.stdout


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["paths", "engine", "hardware", "strict", "args", "sarif-file"])
def test_nothing_in_an_input_is_run(runner: Runner, name: str) -> None:
    (runner.workspace / "a.sh").write_text(SOUND)
    hostile = 'x; touch pwned $(touch pwned) `touch pwned` "$(touch pwned)" \' && touch pwned #'
    runner.step("Check deployments", {name: hostile})
    assert not list(runner.folder.rglob("pwned"))


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_the_action_installs_itself(tmp_path: Path, runner: Runner) -> None:
    source = clone(tmp_path / "action")
    shutil.rmtree(runner.temp / "speclaunch")
    context = {
        "steps.python.outputs.python-path": sys.executable,
        "github.action_path": str(source),
    }
    done = runner.step("Install speclaunch", **context)
    if "No matching distribution" in done.stderr:
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    (runner.workspace / "broken.sh").write_text(BROKEN)
    assert "::error file=broken.sh,line=2" in runner.step("Check deployments").stdout


def lines_of(name: str) -> list[str]:
    """What an example runs, but for the installation."""
    text = example(name)
    found = (
        yaml.safe_load(text)["speclaunch"]["script"]
        if name.endswith("yml")
        else re.findall(r"sh '(.*)'", text)
    )
    return [line for line in found if not line.startswith("pip install")]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "written"),
    [
        (".gitlab-ci.yml", ("gl-code-quality.json", "speclaunch.xml")),
        ("Jenkinsfile", ("speclaunch.xml", "speclaunch.sarif")),
    ],
)
def test_the_lines_of_an_example_run(
    tmp_path: Path, program: Path, name: str, written: tuple[str, ...]
) -> None:
    folder = tmp_path / "repository"
    folder.mkdir()
    (tmp_path / "speclaunch").symlink_to(program)
    (folder / "broken.sh").write_text(BROKEN)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment.pop("GITHUB_ACTIONS", None)
    (line,) = lines_of(name)
    done = subprocess.run(
        ["sh", "-ec", line], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1 and "broken.sh:2:18" in done.stdout, done.stdout + done.stderr
    for file in written:
        assert file in example(name) and "SPL001" in (folder / file).read_text()
