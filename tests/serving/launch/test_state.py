"""What one launch knows of others: locks, what served last, lists of runs, the service manager."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from speclaunch.core.errors import InputError, LaunchError
from speclaunch.core.files import write_json
from speclaunch.deployments.recipe.schema import Deployment
from speclaunch.engine.facts.hardware import declare
from speclaunch.serving.launch import journal
from speclaunch.serving.launch.inputs import without_notification
from speclaunch.serving.launch.journal import FILE, LaunchState
from speclaunch.serving.launch.runs import (
    Held,
    Holder,
    acquire,
    find_run,
    list_runs,
    lock_directory,
    prune,
    running_launches,
)
from speclaunch.serving.launch.supervisor import Notifier


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path / "home"))


def holder(run: Path | str = "/runs/20261121-100400-x", since: float = 1e9) -> Holder:
    return Holder(os.getpid(), "x", since, str(run), "http://127.0.0.1:30000")


_HOLD = textwrap.dedent(
    """
    import os, sys, time
    from speclaunch.serving.launch.runs import Held, Holder
    with Held() as held:
        held.take({{name: name for name in {names!r}}},
                  Holder(os.getpid(), "first", time.time(), {run!r}, "http://h:30000"))
        print("held", flush=True)
        time.sleep(60)
    """
)


def hold(*names: str, run: str = "/runs/20261121-100400-first") -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD.format(names=names, run=run)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdout.readline() == b"held\n"
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_the_second_is_told_who_was_first() -> None:
    first = hold("port-30000")
    try:
        with Held() as held, pytest.raises(LaunchError) as caught:
            held.take({"gpu-0": "GPU 0", "port-30000": "port 30000"}, holder())
        text = str(caught.value)
        assert text.startswith(
            f"port 30000 is in use by another launch: first, process {first.pid}"
        )
        assert caught.value.problems[0].help is not None
        assert "speclaunch stop 20261121-100400-first" in caught.value.problems[0].help
        with Held() as held:  # what had been taken was let go
            held.take({"gpu-0": "GPU 0"}, holder())
    finally:
        end(first)


@pytest.mark.thorough
def test_what_a_killed_launch_held_is_free() -> None:
    first = hold("run-a", "gpu-3")
    assert [one.pid for one in running_launches()] == [first.pid]
    end(first)
    assert (lock_directory() / "run-a.json").exists()
    assert list(running_launches()) == []
    assert not (lock_directory() / "run-a.json").exists()
    with Held() as held:
        held.take({"gpu-3": "GPU 3"}, holder())
        assert isinstance(acquire("gpu-3", holder()), Holder)
    assert not (lock_directory() / "gpu-3.json").exists()


def test_a_home_that_cannot_be_written_keeps_nothing_from_starting(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with Held() as held:
        held.take({"port-1": "port 1"}, holder())
    assert list(running_launches()) == []


def deployment(**args: object) -> Deployment:
    return Deployment.model_validate({"name": "r", "args": {"model_path": "m", **args}})


def test_what_served_is_remembered_for_the_same_recipe_engine_and_hardware() -> None:
    h100 = declare("h100")
    key = journal.settings_key(deployment(tp_size=1), "0.5.23", h100)
    journal.remember(key, {"mem_fraction_static": 0.7}, "run", 1000)
    found = journal.recall(key)
    assert found is not None and found.changes == {"mem_fraction_static": 0.7}
    same = deployment(tp_size=1, port=31000, api_key="secret")
    assert journal.settings_key(same, "0.5.23", h100) == key
    for other in (
        journal.settings_key(deployment(tp_size=2), "0.5.23", h100),
        journal.settings_key(deployment(tp_size=1), "0.5.22", h100),
        journal.settings_key(deployment(tp_size=1), "0.5.23", replace(h100, count=2)),
        journal.settings_key(deployment(tp_size=1), "0.5.23", None),
    ):
        assert journal.recall(other) is None
    journal.remember(key, {}, "run", None)  # it served as it is
    assert journal.recall(key) is None


def test_it_is_remembered_for_what_was_asked_not_for_a_name() -> None:
    key = journal.settings_key(deployment(tp_size=1), "0.5.23", None)
    renamed = Deployment.model_validate(
        {"name": "other", "description": "x", "args": {"model_path": "m", "tp_size": 1}}
    )
    assert journal.settings_key(renamed, "0.5.23", None) == key
    assert journal.settings_key(deployment(tensor_parallel_size=1), "0.5.23", None) == key
    assert journal.settings_key(deployment(tp_size=1, dtype=None), "0.5.23", None) == key, (
        "a default"
    )


def test_several_entries_are_kept_and_only_what_failed_is_forgotten() -> None:
    key = journal.settings_key(deployment(), "0.5.23", None)
    for number in range(1, 8):
        journal.remember(key, {"mem_fraction_static": number / 10}, f"run{number}", number)
    journal.forget(key, {"mem_fraction_static": 0.7})
    found = journal.recall(key)
    assert found is not None and (found.run, found.tokens) == ("run6", 6)
    journal.forget(key, {"max_running_requests": 1})
    assert journal.recall(key) == found
    left = 0
    while found is not None:
        left += 1
        journal.forget(key, found.changes)
        found = journal.recall(key)
    assert left == 3, "four entries at most"


@pytest.mark.thorough
def test_other_things_asked_do_not_take_the_place() -> None:
    keys = [journal.settings_key(deployment(tp_size=n), "0.5.23", None) for n in range(1, 400)]
    for n, key in enumerate(keys):
        journal.remember(key, {"mem_fraction_static": 0.5}, f"run{n}", None)
    kept = [key for key in keys if journal.recall(key) is not None]
    assert kept[-1] == keys[-1] and 100 < len(kept) < len(keys), "bounded, the newest are kept"


@pytest.mark.thorough
def test_launches_that_end_at_once_lose_nothing_of_each_other() -> None:
    key = journal.settings_key(deployment(), "0.5.23", None)
    code = textwrap.dedent(
        f"""
        import sys
        from speclaunch.serving.launch import journal
        for _ in range(50):
            journal.remember({key!r}, {{"mem_fraction_static": float(sys.argv[1])}}, "r", None)
        """
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(n / 10)]) for n in range(1, 4)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    seen = []
    while (found := journal.recall(key)) is not None:
        seen.append(found.changes["mem_fraction_static"])
        journal.forget(key, found.changes)
    assert sorted(seen) == [0.1, 0.2, 0.3]


def test_a_file_of_an_older_version_is_read_and_of_a_newer_one_left_aside() -> None:
    key = journal.settings_key(deployment(), "0.5.23", None)
    journal.remember(key, {"a": 1}, "run", None)
    (path,) = (lock_directory().parent / "last-good").iterdir()
    write_json(path, {"version": 1, "changes": {"b": 2}, "since": 1.0, "run": "old", "tokens": 7})
    assert journal.recall(key) == journal.LastGood({"b": 2}, 1.0, "old", 7)
    journal.remember(key, {"a": 1}, "run", None)
    journal.forget(key, {"a": 1})
    found = journal.recall(key)
    assert found is not None and found.run == "old"
    write_json(path, {"version": 3, "entries": [{"changes": {"b": 2}, "since": 1.0}]})
    assert journal.recall(key) is None


@pytest.mark.parametrize("text", ["", "{}", '{"changes": [], "since": 1}', '{"changes": {"a": 1}}'])
def test_a_memory_that_cannot_be_read_is_none(text: str) -> None:
    key = journal.settings_key(deployment(), "0.5.23", None)
    journal.remember(key, {"a": 1}, "run", None)
    (path,) = (lock_directory().parent / "last-good").iterdir()
    path.write_text(text)
    assert journal.recall(key) is None


def run_in(base: Path, name: str, **document: object) -> Path:
    path = base / name
    path.mkdir(parents=True)
    write_json(path / FILE, {"version": 1, "started": name, "recipe": {"name": "x"}, **document})
    return path


def test_runs_are_listed_found_and_pruned(tmp_path: Path) -> None:
    base = tmp_path / "home" / "runs"
    for number in range(4):
        run_in(base, f"20261121-10000{number}-x", state="ended")
    killed = run_in(base, "20261121-110000-x", state="serving")
    (base / "my own things").mkdir()
    (base / "20261121-120000-empty").mkdir()
    assert [run.state for run in list_runs() if run.document][-2:] == [
        LaunchState.ENDED,
        LaunchState.LOST,
    ]
    assert find_run("x").directory == killed
    assert find_run("20261121-100001-x").name == "20261121-100001-x"
    with pytest.raises(InputError, match="no engine of that name is running"):
        find_run("x", alive=True)
    with Held() as held:
        held.take({"run-20261121-100000-x": ""}, holder(base / "20261121-100000-x"))
        assert find_run("30000", alive=True).name == "20261121-100000-x"
        assert find_run(str(os.getpid()), alive=True).name == "20261121-100000-x"
        removed = prune(1)
    assert [run.name for run in removed] == [f"20261121-10000{n}-x" for n in (1, 2, 3)]
    assert {path.name for path in base.iterdir()} == {
        "20261121-100000-x",
        "20261121-110000-x",
        "20261121-120000-empty",
        "my own things",
    }


@pytest.mark.parametrize("abstract", [False, True])
def test_a_service_manager_is_told(tmp_path: Path, abstract: bool) -> None:
    name = f"\0speclaunch-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name)
        manager.settimeout(5)
        env = {"NOTIFY_SOCKET": name.replace("\0", "@"), "WATCHDOG_USEC": "3000000"}
        notifier = Notifier(env)
        notifier.notify(READY=1, STATUS="serving")
        assert manager.recv(1000) == b"READY=1\nSTATUS=serving"
        assert notifier.watchdog_seconds == 3
    without_notification(env)
    assert env == {}


@pytest.mark.parametrize("where", ["", "/nonexistent/socket", "@nobody-listens"])
def test_a_service_manager_that_is_not_there_is_no_error(where: str) -> None:
    started = time.monotonic()
    Notifier({"NOTIFY_SOCKET": where, "WATCHDOG_USEC": "x"}).notify(READY=1)
    assert time.monotonic() - started < 1
