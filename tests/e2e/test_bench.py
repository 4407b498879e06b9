"""Measuring and proving with the real engine on the CPU: what pays there, and what is lossless."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from speclaunch.measure.bench.stored import FILE
from speclaunch.serving.launch.runs import free_port
from tests.e2e.conftest import Marked, command

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


BENCH = (
    *("bench", "recipe=cpu_ngram", "--workload", "code", "--concurrency", "1", "--rounds", "3"),
    *("--requests", "4", "--output-tokens", "48", "--output-format", "json"),
)


def test_ngram_is_measured_interrupted_and_measured_on(first_home: Path, marked: Marked) -> None:
    begun = marked.begin(*BENCH)
    assert begun.stderr is not None
    for line in begun.stderr:
        if line.startswith("2/6"):
            break
    begun.send_signal(signal.SIGINT)
    begun.communicate(timeout=120)
    assert begun.returncode == 130
    assert marked.left() == []
    (folder,) = first_home.glob("benches/*")
    kept = json.loads((folder / FILE).read_text())
    assert len(kept["rounds"]) >= 2

    done = marked.run(*BENCH)
    assert f"resuming {folder.name}" in done.stderr
    said = json.loads(done.stdout)
    kinds = {one["kind"] for one in said["objections"]}
    assert kinds <= {"drift"}, said  # of a machine that does much else
    assert done.returncode == bool(kinds), done.stderr
    kept = json.loads((folder / FILE).read_text())
    assert len(kept["rounds"]) == 6
    own = [one for one in kept["rounds"] if one["side"] == "cpu_ngram"]
    plain = [one for one in kept["rounds"] if one["side"] != "cpu_ngram"]
    assert len(own) == len(plain) == 3
    assert all(r["verify_steps"] and r["tokens"] == 48 for one in own for r in one["requests"])
    assert not any(r["verify_steps"] for one in plain for r in one["requests"])
    if not kinds:
        (cell,) = said["cells"]
        assert cell["candidate"]["accept_length"] > 2
        assert cell["speed_up"]["ratio"] > 1
    assert marked.left() == []


def test_forced_acceptance_of_one_does_not_pay(marked: Marked) -> None:
    marked.env["SGLANG_SIMULATE_ACC_LEN"] = "1.0"
    done = marked.run(
        *("bench", "recipe=cpu_standalone", "--workload", "chat", "--concurrency", "1"),
        *("--rounds", "3", "--requests", "3", "--output-tokens", "32", "--fail-under", "0.01"),
        *("--output-format", "json"),
    )
    said = json.loads(done.stdout)
    (caveat,) = said["caveats"]
    assert "SGLANG_SIMULATE_ACC_LEN simulates acceptance" in caveat
    assert {one["kind"] for one in said["objections"]} <= {"drift"}, said
    assert said["claim"] != "pays"
    assert done.returncode == 1  # made up: no ratio is shown to be reached
    tokens = {one["side"]: one["max_total_num_tokens"] for one in said["memory"]}
    assert tokens.keys() == {"cpu_standalone", "cpu_standalone without speculation"}
    assert all(isinstance(one, int) and one > 0 for one in tokens.values())
    for cell in said["cells"]:
        assert cell["speed_up"]["ratio"] < 1
        assert cell["candidate"]["accept_length"] < 1.2
    assert marked.left() == []


def test_a_server_that_runs_is_measured_and_left_as_it_is(marked: Marked) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    key = {**marked.env, "API_KEY": "sk-e2e"}
    words = ("launch", "recipe=cpu_ngram", f"args.port={port}", "+args.api_key=${oc.env:API_KEY}")
    launched = subprocess.Popen(command(*words), stdout=subprocess.DEVNULL, env=key)
    bench = ("bench", "--url", url, "--workload", "code", "--concurrency", "2", "--rounds", "3")
    more = ("--requests", "4", "--output-tokens", "24", "--context", "0,300")
    try:
        deadline = time.monotonic() + 500
        refused = marked.run(*bench)
        while "requires a key" not in refused.stderr and time.monotonic() < deadline:
            time.sleep(1)
            refused = marked.run(*bench)
        assert (refused.returncode, refused.stdout) == (1, ""), refused.stderr
        marked.env["SPECLAUNCH_API_KEY"] = "sk-e2e"
        done = marked.run(*bench, *more, "--goodput", "e2el=60000", "--output-format", "json")
        said = json.loads(done.stdout)
        assert {one["kind"] for one in said["objections"]} <= {"drift"}, said
        assert "sk-e2e" not in done.stdout + done.stderr
        assert said["claim"] is None
        assert said["memory"][0]["max_total_num_tokens"] > 0
        assert launched.poll() is None
        for cell, length in zip(said["cells"], (0, 300), strict=bool(said["cells"])):
            assert cell["context"] == length
            assert not length or cell["candidate"]["prompt_tokens"] == length
            assert cell["candidate"]["accept_length"] > 2
            assert cell["candidate"]["goodput"] > 0
    finally:
        launched.terminate()
        launched.wait(120)
    assert marked.left() == []


def test_ngram_is_lossless(marked: Marked) -> None:
    done = marked.run(
        *("prove", "recipe=cpu_ngram", "--workload", "chat", "--workload", "repetition"),
        *("--context", "0", "--output-tokens", "24", "--output-format", "json"),
    )
    said = json.loads(done.stdout)
    assert (done.returncode, said["lossless"], said["unspeculated"]) == (0, True, 0), done.stderr
    assert said["answers"]["same"] + said["answers"]["tie"] == 80
    assert marked.left() == []


def test_a_bench_that_is_killed_leaves_no_engine(marked: Marked) -> None:
    begun = marked.begin(*BENCH)
    assert begun.stderr is not None
    for line in begun.stderr:
        if "starting" in line:
            break
    time.sleep(5)
    os.kill(begun.pid, signal.SIGKILL)
    begun.wait()
    deadline = time.monotonic() + 60
    while marked.left() and time.monotonic() < deadline:
        time.sleep(0.5)
    assert marked.left() == []
