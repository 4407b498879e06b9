"""A launch that is planned apart: what is loaded where, what is handed over, what is left of it."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from speclaunch.app.verbs.verbs import is_foreground_launch
from speclaunch.checks.rules.examine import Lookup
from speclaunch.core.errors import LaunchError
from speclaunch.deployments.recipe.find_recipe import recipe_names
from speclaunch.deployments.recipe.load import load
from speclaunch.deployments.targets.prepare import prepare
from speclaunch.engine.facts.hardware import declare
from speclaunch.engine.releases.catalogue import held_versions
from speclaunch.serving.launch.diagnosis.diagnose import diagnose
from speclaunch.serving.launch.planner import Attempt, LadderEnd, ReopenedPlanner
from speclaunch.serving.launch.session import Session
from tests.support.serving.launch import fake_sglang

HEAVY = ("hydra", "omegaconf", "pydantic", "typer", "rich", "httpx", "yaml", "packaging")
OURS = (
    "speclaunch.checks.rules",
    "speclaunch.engine.plan",
    "speclaunch.deployments.recipe",
    "speclaunch.deployments.sources",
    "speclaunch.engine.facts",
)
SUPERVISOR = """
import sys
import speclaunch.app.verbs.app, speclaunch.app.verbs.launch_process, speclaunch.serving.launch.process, speclaunch.app.output.running
print(*sys.modules)
"""
PLANNER = """
import os, sys
sys.argv = ["speclaunch", *{words!r}]
import speclaunch.app.verbs.app as app
from speclaunch.serving.launch import planner
app.stays = lambda words: False
planner.in_planner_process = lambda: True
import speclaunch.app.verbs.launch as launching
def handed(handed):
    print(*sys.modules)
    sys.stdout.flush()
    os._exit(0)
launching.in_planner_process, launching.hand_over = planner.in_planner_process, handed
app.main()
"""


def session(name: str, *overrides: str, hardware: str = "h100:8") -> Session:
    recipe = load(name, overrides)
    version = list(recipe.deployment.engine.specifier.filter(held_versions()))[-1]
    ready = prepare(recipe, None if name == "cpu_ngram" else version, dry_run=True)
    facts = Lookup(hardware=declare(hardware)).facts(ready.request(os.environ))
    return Session(ready, facts, [f"recipe={name}", *overrides])


def modules(code: str, **environment: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.thorough
def test_the_process_that_stays_loads_little() -> None:
    found = modules(SUPERVISOR)
    assert not [name for name in found if name.split(".")[0] in HEAVY]
    assert not [name for name in found if name.startswith(OURS)]
    assert len(found) < 240


@pytest.mark.thorough
def test_a_planner_of_a_plain_command_line_loads_no_framework(tmp_path: Path) -> None:
    recipe = fake_sglang.recipe(tmp_path)
    words = [f"recipe={recipe}", "args.port=31998", "--ignore", "SPL"]
    found = modules(PLANNER.format(words=words), SPECLAUNCH_HOME=str(tmp_path / "home"))
    used = [
        n for n in found if n.split(".")[0] in ("hydra", "omegaconf", "pydantic", "typer", "httpx")
    ]
    assert not used
    assert "speclaunch.serving.launch.supervisor" not in found
    assert not [name for name in found if name.startswith("speclaunch.serving.launch.diagnosis")]


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(recipe_names()))
def test_a_session_that_was_handed_over_starts_the_same(name: str) -> None:
    if name.startswith("cpu_") and name != "cpu_ngram":
        return  # the same engine
    one = session(name)
    assert pickle.loads(pickle.dumps(one)).start() == one.start()
    assert pickle.loads(pickle.dumps(one.start())) == one.start()


@pytest.mark.thorough
def test_a_reopened_planner_answers_as_the_session_does() -> None:
    one = session("eagle3_llama8b", "recovery=default")
    planner = ReopenedPlanner(pickle.dumps(one))
    changes = {"mem_fraction_static": 0.5}
    assert planner.command(changes) == one.command(changes)
    with pytest.raises(LaunchError, match="cannot start with these arguments") as refused:
        planner.command({"no_such_argument": 1})
    with pytest.raises(LaunchError) as expected:
        one.command({"no_such_argument": 1})
    assert refused.value.problems == expected.value.problems
    log = [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    ]
    found = planner.diagnose(log, version="0.5.23", exit_code=1)
    assert found == diagnose(log, version="0.5.23", exit_code=1)
    attempts = [Attempt(1, {}, diagnosis=found)]
    assert planner.next_step(attempts) == one.next_step(attempts)


def test_a_planner_that_cannot_be_opened_ends_the_ladder() -> None:
    step = ReopenedPlanner(b"no session").next_step([])
    assert isinstance(step, LadderEnd)
    assert "could not be planned" in step.why


def test_a_planner_of_another_version_says_so() -> None:
    gone = b"cspeclaunch.no_such_library\nSession\n."
    step = ReopenedPlanner(gone).next_step([])
    assert isinstance(step, LadderEnd)
    assert step.why.startswith("speclaunch was replaced while it ran: No module named")


def test_which_command_lines_stay() -> None:
    assert is_foreground_launch(["recipe=x"])
    assert is_foreground_launch(["launch", "x", "--detach"])
    assert not is_foreground_launch(["recipe=x", "--dry-run"])
    assert not is_foreground_launch(["launch", "--help"])
    assert not is_foreground_launch(["plan", "recipe=x"])
    assert not is_foreground_launch([])


@pytest.fixture
def launch(tmp_path: Path) -> Any:
    recipe = fake_sglang.recipe(tmp_path)
    started: list[subprocess.Popen[str]] = []

    def make(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "speclaunch.app.verbs.app", f"recipe={recipe}", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "SPECLAUNCH_HOME": str(tmp_path / "home")},
        )
        started.append(process)
        return process

    yield make
    for process in started:
        process.kill()
        process.communicate()


def until(true: Callable[[], object], seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.thorough
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -15)])
def test_a_signal_while_it_is_planned_ends_both(launch: Any, number: int, code: int) -> None:
    process = launch("--ignore", "SPL")
    us = psutil.Process(process.pid)
    assert until(lambda: len(us.children()) >= 2)  # the planner, and the guard
    below = us.children()
    process.send_signal(number)
    assert process.wait(20) == code
    assert until(lambda: not any(one.is_running() and one.status() != "zombie" for one in below))
    assert "Traceback" not in process.stderr.read()


@pytest.mark.thorough
def test_what_a_planner_refuses_is_refused(launch: Any) -> None:
    process = launch("args.no_such_argument=1")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "no_such_argument" in said


@pytest.mark.thorough
def test_the_memory_of_a_serving_launch(launch: Any, port: int) -> None:
    """The supervisor and its guard: below 50 MiB."""
    process = launch(f"args.port={port}", "--ignore", "SPL", "--output-format", "json")
    report = ""
    while not report.rstrip().endswith("\n}"):
        line = process.stdout.readline()
        assert line, process.stderr.read()
        report += line
    us = psutil.Process(process.pid)
    (guard,) = us.children()
    time.sleep(1)
    sizes = [one.memory_info().rss / 2**20 for one in (us, guard)]
    assert sum(sizes) < 50, sizes
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
