"""launch --detach, ps, logs, stop, runs: a launch as its user lives with it, on a scripted engine."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.serving.launch import fake_sglang

pytestmark = pytest.mark.thorough

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    home = tmp_path / "home"

    def call(
        *words: str, command: Sequence[str] = (sys.executable, "-m", "speclaunch"), **env: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *words],
            capture_output=True,
            text=True,
            env={**os.environ, "SPECLAUNCH_HOME": str(home), "COLUMNS": "200", **env},
            stdin=subprocess.DEVNULL,
            timeout=60,
        )

    yield call
    assert "has not ended" not in call("stop", "--all").stderr


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    return f"recipe={fake_sglang.recipe(tmp_path)}"


def test_the_life_of_a_detached_launch(run: Run, recipe: str, port: int) -> None:
    begun = run(recipe, f"args.port={port}", "--detach")
    assert begun.returncode == 0, begun.stderr
    assert f"fake is serving at http://127.0.0.1:{port}" in begun.stdout
    name = begun.stdout.split("speclaunch stop ")[1].split()[0]
    (living,) = json.loads(run("ps", "--output-format", "json").stdout)["runs"]
    assert (living["name"], living["state"]) == (name, "serving")
    assert str(living["pid"]) in run("ps").stdout

    second = run(recipe, f"args.port={port}")
    assert second.returncode == 1
    assert (
        f"port {port} is in use by another launch: fake, process {living['pid']}" in second.stderr
    )
    assert len(json.loads(run("runs", "ls", "--output-format", "json").stdout)["runs"]) == 1

    assert "Application startup complete" in run("logs").stdout
    assert len(run("logs", name, "-n", "2").stdout.splitlines()) == 2
    assert "is serving at" in run("logs", "--speclaunch").stdout
    follow = f"'{sys.executable}' -m speclaunch logs -f {name} | head -1"
    first = run(follow, command=("bash", "-c"))  # ends, although the engine writes nothing more
    assert len(first.stdout.splitlines()) == 1 and "Traceback" not in first.stderr

    stopped = run("stop", str(port))
    assert (stopped.returncode, stopped.stdout) == (0, f"{name} has ended\n")
    assert run("ps").stdout == ""
    assert run("stop").returncode == 3
    document = json.loads(run("runs", "show", name, "--output-format", "json").stdout)
    assert document["state"] == "ended"
    assert (document["ending"]["result"], document["ending"]["exit_code"]) == ("stopped", 0)
    assert document["attempts"][0]["command"][-1] == "0.5"
    assert "load target weights" in run("runs", "show").stdout


def test_a_detached_launch_that_fails_says_so_before_it_returns(
    run: Run, recipe: str, port: int
) -> None:
    done = run(recipe, f"args.port={port}", "--detach", FAKE_BEHAVIOUR="bad-flag")
    assert done.returncode == 1
    assert "unrecognized arguments: --no-such-flag" in done.stderr
    assert "Traceback" not in done.stderr
    assert run("ps").stdout == ""


def test_it_recovers_remembers_and_forgets_when_the_recipe_changes(
    run: Run, recipe: str, port: int
) -> None:
    words = [recipe, f"args.port={port}", "--smoke", "recovery=default"]
    short = {"FAKE_FRACTIONS": "0.58:0.8"}
    first = run(*words, **short)
    assert first.returncode == 0, first.stderr
    assert "attempt 2" in first.stderr
    served = json.loads(run("runs", "show", "--output-format", "json").stdout)["served"]
    (override,) = served["overrides"]
    assert override.startswith("++args.mem_fraction_static=0.")
    second = run(*words, **short)
    assert second.returncode == 0
    assert "starting with the last known good settings" in second.stderr
    assert "attempt 2" not in second.stderr
    fresh = run(*words, "--fresh", **short)
    assert "attempt 2" in fresh.stderr and "last known good" not in fresh.stderr
    changed = run(*words, "args.speculative_num_draft_tokens=4", **short)
    assert "attempt 2" in changed.stderr and "last known good" not in changed.stderr
    replayed = run(*words[:3], override, **short)
    assert replayed.returncode == 0, "the recipe diff alone serves"


def test_recovery_that_is_off_and_attempts_that_are_limited(
    run: Run, recipe: str, port: int
) -> None:
    short = {"FAKE_FRACTIONS": "0.9:1"}
    words = [recipe, f"args.port={port}", "--smoke"]
    off = run(*words, "recovery=off", **short)
    assert off.returncode == 1
    assert "Not enough memory. Please try to increase" in off.stderr
    assert "recovery is off" in off.stderr and "attempt 2" not in off.stderr
    listed = run("runs", "ls").stdout
    assert "failed: mem_fraction_static is too low" in listed
    assert "recovery is off" not in listed
    told = run("runs", "show").stdout
    assert "no further attempt: recovery is off" in told
    one = run(*words, "recovery=default", "--max-attempts", "1", **short)
    assert one.returncode == 1
    assert "--max-attempts" in one.stderr and "attempt 2" not in one.stderr


def test_a_dry_run_shows_the_recovery_steps_on_request(run: Run, recipe: str) -> None:
    brief = run(recipe, "--dry-run", "recovery=default")
    done = run(recipe, "--dry-run", "--ladder", "recovery=default")
    steps = len(re.findall(r"^#   \d+\. ", done.stderr, re.M))
    assert steps > 1
    assert f"# if memory runs out: {steps} recovery steps (--ladder shows them)" in brief.stderr
    assert brief.stdout == done.stdout
    assert brief.returncode == done.returncode == 0
    assert "recovery steps if memory runs out" in done.stderr
    alone = run(recipe, "--ladder")
    assert (alone.returncode, "--ladder needs --dry-run" in alone.stderr) == (2, True)
    assert "--mem-fraction-static" in done.stdout
    document = json.loads(
        run(recipe, "--dry-run", "recovery=default", "--output-format", "json").stdout
    )
    assert document["recovery"]["rungs"][0]["changes"]


def test_out_of_memory_while_it_serves_steps_and_a_crash_does_not(
    run: Run, recipe: str, port: int
) -> None:
    quick = ["launch.restart.first_delay_seconds=0", "launch.restart.limit=2"]
    words = [recipe, f"args.port={port}", "recovery=default", *quick]
    env = {"FAKE_SERVE_SECONDS": "2"}  # long enough to be seen serving on a busy machine
    for behaviour, steps in (("dies-serving", True), ("crashes-serving", False)):
        done = run(*words, "--fresh", FAKE_BEHAVIOUR=behaviour, **env)
        assert done.returncode == 1
        attempts = json.loads(run("runs", "show", "--output-format", "json").stdout)["attempts"]
        assert len(attempts) == 3
        assert (attempts[1]["changes"] != {}) == steps
        assert attempts[0]["diagnosis"]["cause"]["memory"] == steps


def test_no_secret_reaches_any_file(run: Run, recipe: str, port: int, tmp_path: Path) -> None:
    secret = "sk-do-not-tell"
    done = run(
        recipe,
        f"args.port={port}",
        f"+args.api_key={secret}",
        f"+engine.env.HF_TOKEN={secret}2",
        "--smoke",
    )
    assert done.returncode == 0, done.stderr
    for path in (tmp_path / "home").rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path
    assert secret not in done.stdout + done.stderr


def test_what_is_not_there_is_said_plainly(run: Run) -> None:
    for words, code, said in (
        (("runs",), 0, "no recorded launch"),
        (("runs", "show"), 2, "no launch is recorded in "),
        (("runs", "show", "x"), 2, "start a launch: speclaunch recipe=NAME"),
        (("ps",), 0, "no engine is running"),
        (("stop",), 3, "no engine is running"),
        (("stop", "x"), 2, "no engine of that name"),
        (("logs",), 2, "no recorded launch"),
        (("runs", "ls", "--dir", "/nonexistent"), 2, "no such directory"),
        (("stop", "x", "--all"), 2, "--all cannot be combined with a name"),
    ):
        done = run(*words)
        assert (done.returncode, said in done.stderr) == (code, True), (words, done.stderr)


def test_a_service_manager_hears_of_ready_and_stopping(
    run: Run, recipe: str, port: int, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(20)
        begun = run(recipe, f"args.port={port}", "-d", NOTIFY_SOCKET=str(tmp_path / "notify"))
        assert begun.returncode == 0
        run("stop")
        said = ""
        while "STOPPING=1" not in said:
            said += manager.recv(4096).decode() + "\n"
    assert f"READY=1\nSTATUS=serving at http://127.0.0.1:{port}" in said
    assert said.index("STATUS=starting") < said.index("READY=1") < said.index("STOPPING=1")


def _may_unshare() -> bool:
    command = ["unshare", "-Urpf", "--mount-proc", "true"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(not _may_unshare(), reason="no new process namespace here")
def test_as_process_1_of_a_container_it_reaps_and_stops(
    recipe: str, port: int, tmp_path: Path
) -> None:
    """An orphan that nobody knows becomes process 1's; SIGTERM means something to it."""
    said, zombies = tmp_path / "said", tmp_path / "zombies"
    # A process whose parent ends at once, beside speclaunch, as `docker exec` would leave it.
    script = (
        f"(while ! grep -q 'is serving' {said}; do sleep 0.1; done; (sleep 0.1 &); sleep 3; "
        f"ps -eo stat= | grep -c Z > {zombies}; kill -TERM 1) & "
        f"exec {sys.executable} -m speclaunch {recipe} args.port={port} > {said} 2>&1"
    )
    done = subprocess.run(
        ["unshare", "-Urpf", "--mount-proc", "sh", "-c", script],
        env={**os.environ, "SPECLAUNCH_HOME": str(tmp_path / "home")},
        timeout=60,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stderr, said.read_text())
    assert zombies.read_text().strip() == "0"


def test_a_launch_is_diagnosed_by_its_name(run: Run, recipe: str, port: int) -> None:
    words = [recipe, f"args.port={port}", "--smoke", "recovery=off"]
    assert run(*words, FAKE_FRACTIONS="0.9:1").returncode == 1
    (one,) = json.loads(run("runs", "ls", "--output-format", "json").stdout)["runs"]
    for name in (one["name"], "fake", "last", one["directory"]):
        done = run("diagnose", name, "--output-format", "json")
        assert done.returncode == 1, done.stderr
        found = json.loads(done.stdout)
        assert found["path"] == one["log"]
        assert found["cause"]["memory"] is True
        assert found["engine"] == "0.5.23", "the journal knows it"
    wrong = run("diagnose", "fak")
    assert wrong.returncode == 2
    assert "fak is neither a file nor a recorded launch" in wrong.stderr


@pytest.mark.timeout(300)  # five launches
def test_a_start_in_between_does_not_lose_what_served(run: Run, recipe: str, port: int) -> None:
    words = [recipe, f"args.port={port}", "--smoke", "recovery=default"]
    short = {"FAKE_FRACTIONS": "0.58:0.8"}
    assert run(*words, **short).returncode == 0
    for other in (
        ["args.mem_fraction_static=0.9", "--max-attempts", "1"],  # something else was asked
        ["recovery=off"],  # the same, and fails without trying anything else
        ["--fresh", "--max-attempts", "1"],
    ):
        changed = [
            word for word in words if not (other[0] == "recovery=off" and "recovery" in word)
        ]
        assert run(*changed, *other, **short).returncode == 1
    again = run(*words, **short)
    assert again.returncode == 0
    assert "starting with the last known good settings" in again.stderr
    assert "attempt 2" not in again.stderr


def test_a_path_that_is_not_there_is_refused_before_the_engine_starts(
    run: Run, recipe: str, port: int
) -> None:
    words = [recipe, f"args.port={port}", "--smoke", "args.model_path=/nope/model"]
    refused = run(*words, "args.chat_template=./nope.jinja")
    assert refused.returncode == 1
    assert "model_path: /nope/model does not exist on this machine" in refused.stderr
    assert "--> command line: args.model_path=/nope/model" in refused.stderr
    assert "chat_template: ./nope.jinja does not exist on this machine" in refused.stderr
    assert "was not started: 2 missing paths" in refused.stderr
    assert "engine started" not in refused.stderr
    assert run("runs", "ls").stdout == "", "nothing was begun"
    forced = run(*words, "--force")
    assert forced.returncode == 0, forced.stderr
    assert "--force: starting despite 1 missing path" in forced.stderr


def test_a_path_that_is_not_there_is_nothing_to_whoever_does_not_start(
    run: Run, recipe: str, port: int
) -> None:
    words = [recipe, f"args.port={port}", "--smoke", "args.model_path=/nope/model"]
    assert run(*words, "--dry-run").returncode == 0, "another machine may have it"
    examined = run("doctor", recipe, "args.chat_template=./nope.jinja")
    assert "chat_template: ./nope.jinja does not exist on this machine" in examined.stdout
