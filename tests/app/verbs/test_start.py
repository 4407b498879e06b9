"""What a start of speclaunch loads: no more than what is asked for needs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from speclaunch.app.verbs.verbs import verb_of

LOADED = """
import sys
sys.argv = ["speclaunch", *{words!r}]
from speclaunch.app.verbs.app import main
try:
    main()
except SystemExit:
    pass
print(*sorted(sys.modules), file=sys.stderr)
"""
HEAVY = (
    "hydra",
    "omegaconf",
    "pydantic",
    "speclaunch.checks.rules",
    "speclaunch.serving.launch",
    "speclaunch.engine.plan",
)


def loaded(*words: str) -> set[str]:
    code = LOADED.format(words=list(words))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.thorough
@pytest.mark.parametrize("words", [["--version"], ["--help"]])
def test_little_is_loaded_for_little(words: list[str]) -> None:
    found = loaded(*words)
    assert not [name for name in found if name.startswith(HEAVY)]
    if words == ["--version"]:
        assert not [name for name in found if name.startswith("rich")]


@pytest.mark.thorough
@pytest.mark.parametrize("line", ["speclaunch ", "speclaunch launch --e", "speclaunch lint --e"])
def test_a_completion_loads_no_rules_and_no_launcher(line: str) -> None:
    environment = {**os.environ, "_SPECLAUNCH_COMPLETE": "bash"}
    code = LOADED.format(words=line.split(" ")[1:])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.split()
    heavy = (
        *(
            "hydra",
            "omegaconf",
            "rich",
            "typer",
            "speclaunch.engine.plan.resolve",
            "speclaunch.measure.advice",
        ),
        *("speclaunch.checks.rules.registry", "speclaunch.checks.rules.interface"),
        *("speclaunch.serving.launch.session", "speclaunch.serving.launch.supervisor"),
    )
    assert not [name for name in done.stderr.split() if name.startswith(heavy)]


@pytest.mark.thorough
def test_a_check_of_a_script_needs_no_hydra() -> None:
    found = loaded("lint", "nowhere.sh")
    assert not [name for name in found if name.startswith(("hydra", "omegaconf"))]


@pytest.mark.thorough
def test_a_plan_of_a_recipe_needs_no_hydra() -> None:
    found = loaded("plan", "recipe=mtp_mimo7b", "--hardware", "h100", "--output-format", "json")
    assert "speclaunch.engine.plan.resolve" in found
    assert not [name for name in found if name.startswith("hydra")]


def test_the_verb_that_a_command_line_is_about() -> None:
    assert verb_of(["lint", "recipe=x"]) == "lint"
    assert verb_of(["recipe=x", "args.port=1"]) == "launch"
    assert verb_of(["--help"]) is verb_of([]) is verb_of(["lnit"]) is None
