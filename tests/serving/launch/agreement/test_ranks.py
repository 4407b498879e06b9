"""Ranks of one deployment through the command line, with the scripted engine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from campaigns import agreement as campaign
from speclaunch.serving.launch.runs import free_port
from tests.support.serving.launch import fake_sglang

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(500)]
ROOT = Path(__file__).parents[4]


class Hosts:
    """Two hosts with a directory in common."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.shared = directory, directory / "shared"
        self.shared.mkdir()
        (directory / "locks").mkdir()
        self.recipe = fake_sglang.recipe(directory)
        self.meeting, *self.ports = (free_port() for _ in range(3))
        self.running: list[subprocess.Popen[str]] = []

    def launch(
        self, rank: int, *words: str, band: str = "0:1", job: str = "j", nodes: bool = True
    ) -> subprocess.Popen[str]:
        home = self.directory / f"host{rank}"
        home.mkdir(exist_ok=True)
        several = ["+args.nnodes=2", f"+args.node_rank={rank}", "+args.tp_size=2"]
        several += [f"+args.dist_init_addr=127.0.0.1:{self.meeting}"]
        agreement = [f"launch.agreement.directory={self.shared}", f"launch.agreement.job={job}"]
        said = [
            *[f"args.port={self.ports[rank]}", *(several if nodes else [])],
            *["recovery=default", "recovery.policy=order"],
            *["launch.agreement.lease_seconds=8", "launch.agreement.timeout_seconds=90"],
            *[*agreement, *words],
        ]
        last = {word.partition("=")[0]: word for word in said}  # no key may be given twice
        process = subprocess.Popen(
            [
                *[sys.executable, "-m", "speclaunch", "launch", f"recipe={self.recipe}", "--force"],
                *last.values(),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env={
                **os.environ,
                "SPECLAUNCH_HOME": str(home),
                "FAKE_LOCKS": str(self.directory / "locks"),
                "FAKE_FRACTIONS": band,
            },
        )
        self.running.append(process)
        return process

    def journal(self, rank: int) -> dict[str, Any]:
        """Of the last launch there."""
        runs = sorted((self.directory / f"host{rank}" / "runs").iterdir())
        found: dict[str, Any] = json.loads((runs[-1] / "journal.json").read_text())
        return found

    def changes(self, rank: int) -> list[dict[str, Any]]:
        return [one["changes"] for one in self.journal(rank)["attempts"]]

    def kinds(self, generation: int = 1, job: str = "j") -> list[str]:
        found = sorted((self.shared / job / f"g{generation:04d}").glob("epoch-*.json"))
        return [json.loads(path.read_bytes())["kind"] for path in found]

    def wait_for(self, pattern: str) -> None:
        until = time.monotonic() + 150  # of a machine that does much else
        while not list(self.shared.glob(pattern)):
            assert time.monotonic() < until, pattern
            time.sleep(0.05)

    def serves(self, rank: int) -> bool:
        with contextlib.suppress(OSError, IndexError):
            return bool(self.journal(rank)["state"] == "serving")
        return False

    def wait_for_port(self, rank: int) -> None:
        until = time.monotonic() + 60
        while True:
            with (
                contextlib.suppress(OSError),
                socket.create_server(("127.0.0.1", self.ports[rank])),
            ):
                return
            assert time.monotonic() < until
            time.sleep(0.05)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    found = Hosts(tmp_path)
    yield found
    for process in found.running:
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=20)
            process.kill()
    assert not (tmp_path / "locks" / "split").exists()


def ended(*processes: subprocess.Popen[str]) -> list[str]:
    return [process.communicate(timeout=240)[0] for process in processes]


def test_when_one_rank_runs_out_of_memory_all_step_to_the_same_rung(hosts: Hosts) -> None:
    ranks = hosts.launch(0, "--smoke"), hosts.launch(1, "--smoke", band="0:0.4")
    first, second = ended(*ranks)
    assert [one.returncode for one in ranks] == [0, 0], (first, second)
    less = {"mem_fraction_static": 0.4}
    assert hosts.changes(1) == [{}, less]
    assert hosts.kinds() == ["begin", "memory", "end"]
    if hosts.changes(0) != [less]:  # it may come when the other one has failed already
        assert hosts.changes(0) == [{}, less]
        assert "server.1: memory ran out" in first, "the rank that did not fail says who did"
    assert "is serving at" in first and "acceptance length" in first
    assert "is ready as a worker of the first rank" in second and "generated" not in second
    assert not list(hosts.shared.rglob(".tmp-*"))

    # requeued: another job begins with what served
    again = hosts.launch(0, "--smoke", job="k"), hosts.launch(1, "--smoke", band="0:0.4", job="k")
    ended(*again)
    assert [one.returncode for one in again] == [0, 0]
    assert hosts.changes(0) == hosts.changes(1) == [{"mem_fraction_static": 0.4}]
    fresh = [hosts.launch(rank, "--smoke", "--fresh", job="l") for rank in (0, 1)]
    ended(*fresh)
    assert hosts.changes(0) == [{}]


def test_what_only_decode_needs_leaves_prefill_running(hosts: Hosts) -> None:
    parts = ["+launch.agreement.parts.prefill=1", "+launch.agreement.parts.decode=1", "--smoke"]
    modes = ("prefill", "decode")
    ranks = [
        hosts.launch(
            *(rank, *parts, f"+args.disaggregation_mode={mode}"),
            band="0:0.4" if mode == "decode" else "0:1",
            nodes=False,
        )
        for rank, mode in enumerate(modes)
    ]
    told = ended(*ranks)
    assert [one.returncode for one in ranks] == [0, 0], told
    assert hosts.changes(0) == [{}], "its engine was started once"
    assert hosts.changes(1) == [{}, {"mem_fraction_static": 0.4}]
    (hosts.directory / "locks" / "split").unlink()  # here two settings are meant


def test_a_failure_that_memory_does_not_explain_ends_all_and_all_say_why(hosts: Hosts) -> None:
    ranks = hosts.launch(0), hosts.launch(1)
    hosts.wait_for("j/g0001/served-*")
    (pid,) = _engines(hosts, 1)
    os.kill(pid, signal.SIGKILL)
    told = ended(*ranks)
    assert [one.returncode for one in ranks] == [1, 1]
    assert hosts.kinds()[-1] == "end"
    for text in told:
        assert "error: fake" in text, text
        assert "server.1" in text or "lost another rank" in text, text

    # the platform starts the group again: a new generation of the same job
    again = hosts.launch(0, "--smoke"), hosts.launch(1, "--smoke")
    ended(*again)
    assert [one.returncode for one in again] == [0, 0]
    assert hosts.kinds(2) == ["begin", "end"]


def test_a_rank_that_was_killed_comes_back_and_all_start_together(hosts: Hosts) -> None:
    first, second = hosts.launch(0), hosts.launch(1)
    hosts.wait_for("j/g0001/served-00000.json")
    second.send_signal(signal.SIGKILL)
    second.wait()
    hosts.wait_for_port(1)  # its guard ends its engine
    third = hosts.launch(1)
    hosts.wait_for("j/g0001/served-00001.json")
    assert hosts.kinds() == ["begin", "return"]
    first.terminate()
    told = ended(first, third)
    assert first.returncode == 0
    assert third.returncode == 1 and "server.0 was stopped (SIGTERM)" in told[1]


def test_rank_0_finishes_its_requests_when_the_platform_stops_all_ranks_in_turn(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_DRAIN_SECONDS", "4")
    first, second = (hosts.launch(rank, "launch.grace_seconds=90") for rank in (0, 1))
    hosts.wait_for("j/g0001/served-*")
    second.terminate()
    until = time.monotonic() + 60
    while hosts.journal(0)["state"] != "stopping":  # the worker's stop reaches it at once
        assert time.monotonic() < until
        time.sleep(0.05)
    first.terminate()
    told = ended(first, second)
    assert [first.returncode, second.returncode] == [0, 0], told
    for rank in (0, 1):  # neither engine was killed
        assert hosts.journal(rank)["attempts"][-1]["exit_code"] == 0, told
    (log,) = (hosts.directory / "host0" / "runs").glob("*/engine-*.log")
    assert "Gracefully exiting" in log.read_text()


def test_a_second_process_of_a_rank_takes_its_place_and_the_first_stops(hosts: Hosts) -> None:
    """As after a network split, when the platform has started a rank a second time."""
    first = hosts.launch(0, nodes=False)
    hosts.wait_for("j/g0001/served-00000.json")
    second = hosts.launch(0, f"args.port={hosts.ports[1]}", nodes=False)
    (text,) = ended(first)
    assert first.returncode == 1
    assert "another process has replaced server.0" in text
    hosts.wait_for("j/g0001/served-00001.json")
    second.terminate()
    ended(second)
    assert second.returncode == 0


def test_a_directory_that_cannot_be_used_is_named_before_anything_starts(hosts: Hosts) -> None:
    (hosts.directory / "file").touch()
    rank = hosts.launch(0, f"launch.agreement.directory={hosts.directory}/file/x")
    (text,) = ended(rank)
    assert rank.returncode == 1
    assert "cannot create" in text and "Not a directory" in text and "help: " in text
    assert "engine started" not in text


def test_a_rank_that_never_comes_is_named(hosts: Hosts) -> None:
    rank = hosts.launch(0, "launch.agreement.timeout_seconds=1")
    (text,) = ended(rank)
    assert rank.returncode == 1 and "server.1 did not join" in text


def test_ranks_of_different_recipes_refuse_each_other(hosts: Hosts) -> None:
    ranks = hosts.launch(0), hosts.launch(1, "args.speculative_num_draft_tokens=4")
    for text in ended(*ranks):
        assert "differ in recipe, engine version or hardware" in text
    assert [one.returncode for one in ranks] == [1, 1]


def test_no_secret_is_shared(hosts: Hosts) -> None:
    secret = "sk-3f9a7c1b5d"
    words = ["--smoke", f"+args.api_key={secret}", f"+engine.env.MY_TOKEN={secret}"]
    ranks = hosts.launch(0, *words), hosts.launch(1, *words, band="0:0.4")
    ended(*ranks)
    assert [one.returncode for one in ranks] == [0, 0]
    for path in hosts.shared.rglob("*.json"):
        assert secret.encode() not in path.read_bytes(), path


def test_a_worker_without_an_agreement_is_ready_without_being_asked(hosts: Hosts) -> None:
    alone = "launch.agreement.directory=null"
    ranks = hosts.launch(0, alone), hosts.launch(1, alone)
    until = time.monotonic() + 60
    while not all(hosts.serves(rank) for rank in (0, 1)):
        assert time.monotonic() < until
        time.sleep(0.1)
    for rank in ranks:
        rank.terminate()
    told = ended(*ranks)
    assert ranks[0].returncode == 0, told
    assert "is ready as a worker of the first rank" in told[1]


def _engines(hosts: Hosts, rank: int) -> Iterator[int]:
    mark = f"SPECLAUNCH_HOME={hosts.directory / f'host{rank}'}".encode()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            worker = b"--worker" in words or b"sglang.launch_server" not in words
            if not worker and mark in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", ["ci/1", "ci/4"])
def test_a_sample_of_the_campaign(seed: str) -> None:
    (result,) = campaign.rounds([seed])
    assert result["problems"] == [], result


def test_the_campaign_that_is_stored_was_good() -> None:
    results = campaign.stored()
    scripted = [one for one in results if not one["real"]]
    assert len(scripted) >= 100 and len(results) > len(scripted)
    assert [one for one in results if one["problems"]] == []
    faults = {fault.rpartition(" ")[0] for one in scripted for fault in one["faults"]}
    assert faults >= {*campaign.FAULTS, campaign.FULL_DISK}
    assert {one["outcome"] for one in scripted} == {"served", "ended"}
