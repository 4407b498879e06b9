"""What is shown and what is wrong: engines, ranks, roles, servers that are anything else."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import msgspec
import pytest

from speclaunch.core import InputError, speclaunch_home
from speclaunch.measure import watch
from speclaunch.measure.watch import (
    EngineWatcher,
    WatchTarget,
    journal_lengths,
    watch_targets,
    watched_once,
)
from speclaunch.measure.watch_history import WatchDocument, WatchedEngine
from speclaunch.serving.launch.runs import HeldLock, Holder, Run, acquire
from tests.measure.watch.write_schema import SCHEMA, schema
from tests.support.loops import rows
from tests.support.scripted_server import HOSTILE, body, scripted, sends
from tests.support.serving.metrics_server import FakeMetrics, FakeRank, metrics_server


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def watched(state: FakeMetrics, run: Run | None = None, **steps: float) -> WatchedEngine:
    """The record after two readings two seconds apart, `steps` decode steps between them."""
    with metrics_server(state) as url:
        clock = Clock()
        found = EngineWatcher(WatchTarget("e", url, None, run), clock)
        found.poll()
        for number, rank in enumerate(state.ranks):
            rank.decode(50, steps.get(f"rank{number}"), in_graph=not steps.get("eager"))
        state.generated += 200
        state.requests += round(steps.get("requests", 0))
        clock.now += 2
        found.poll()
        return found.record


def kinds(record: WatchedEngine) -> list[str]:
    return [problem.kind for problem in record.problems]


def test_an_engine_that_is_well() -> None:
    state = FakeMetrics(verifications=1)
    state.ranks[0].decode(10)
    with metrics_server(state) as url:
        found = EngineWatcher(WatchTarget("e", url))
        found.poll()
        state.ranks[0].decode(50)
        state.generated, state.verifications = 250, 101
        found.poll()
    record = found.record
    assert (record.is_reachable, record.source, record.role) == (True, "metrics", "engine")
    assert (record.version, record.model, record.algorithm) == ("0.5.23", "cycle", "EAGLE3")
    assert (record.verifications_5m, record.speculation_share) == (100, 0.6)
    assert record.total is not None
    assert (record.total.accept_length, record.total.steps, record.total.running) == (2.5, 3, 2)
    assert record.problems == [] and record.notes == []


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"retracted": 3}, "retractions"),
        ({"kv": 0.99, "queued": 4}, "kv cache full"),
        ({"length": 1.0}, "nothing accepted"),
    ],
)
def test_what_is_wrong_with_an_engine(change: dict[str, float], kind: str) -> None:
    state = FakeMetrics(verifications=50)
    with metrics_server(state) as url:
        found = EngineWatcher(WatchTarget("e", url))
        found.poll()
        for name, value in change.items():
            setattr(state.ranks[0], name, value)
        state.ranks[0].decode(50)
        found.poll()
    assert kinds(found.record) == [kind]


def test_graphs_that_are_off_are_wrong_unless_they_are_disabled() -> None:
    assert kinds(watched(FakeMetrics(verifications=1), eager=1)) == [
        "nothing verified",
        "graphs off",
    ]
    state = FakeMetrics()
    state.info |= {"disable_cuda_graph": True, "speculative_algorithm": None}
    record = watched(state, eager=1)
    assert kinds(record) == [] and record.notes == ["it does not speculate"]


@pytest.mark.parametrize(("requests", "expected"), [(200, []), (0, ["nothing verified"])])
def test_requests_of_one_token_need_no_verification(requests: int, expected: list[str]) -> None:
    state = FakeMetrics(verifications=1)
    assert kinds(watched(state, requests=requests)) == expected


def test_one_rank_apart_is_named() -> None:
    ranks = [FakeRank() for _ in range(3)]
    record = watched(FakeMetrics(ranks=ranks, verifications=1), rank0=2.6, rank1=2.5, rank2=1.2)
    (problem,) = [one for one in record.problems if one.kind == "ranks apart"]
    assert problem.text == "acceptance length 1.20 on rank 2, 2.60 on rank 0"
    assert [span.rank for span in record.ranks] == ["0", "1", "2"]
    assert record.total is not None and record.total.running == 6


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_roles(role: str) -> None:
    record = watched(FakeMetrics(role=role, verifications=1))
    assert record.role == role
    assert ("nothing verified" in kinds(record)) is (role == "decode")


def test_a_router_shows_its_workers_and_is_not_followed() -> None:
    workers = [{"url": "http://203.0.113.1", "is_healthy": one} for one in (True, False)]
    record = watched(FakeMetrics(has_metrics=False, workers=workers))
    assert (record.role, record.workers, record.workers_healthy) == ("router", 2, 1)
    assert kinds(record) == ["unhealthy workers"]


def test_a_router_that_needs_a_key_says_so() -> None:
    answer = b"HTTP/1.1 %s\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    answers = iter([answer % b"404 Not Found", answer % b"401 Unauthorized"])
    with scripted(lambda connection: connection.sendall(next(answers))) as url:
        found = EngineWatcher(WatchTarget("a", url))
        found.poll()
    (problem,) = found.record.problems
    assert problem.text == "/workers answered 401: set the key in SPECLAUNCH_API_KEY"


def test_without_metrics_it_says_how_to_enable_them() -> None:
    state = FakeMetrics(has_metrics=False)
    state.info |= {"internal_states": [{"avg_spec_accept_length": 2.25}]}
    record = watched(state)
    assert (record.source, record.is_lifetime) == ("server_info", True)
    assert record.total is not None and record.total.accept_length == 2.25
    assert "--enable-metrics" in record.notes[0]


def run_of(folder: Path, **journal: object) -> Run:
    document = {"attempts": [{"log": "engine-1.log"}], "state": "serving", **journal}
    (folder / "journal.json").write_text(json.dumps(document))
    return Run(folder, document, None)


def test_without_metrics_the_log_of_an_own_engine_is_read(tmp_path: Path) -> None:
    (tmp_path / "engine-1.log").write_text(
        "[2026-11-27 02:30:57] Decode batch, #running-req: 3, #token: 7, token usage: 0.09, accept "
        "len: 3.55, accept rate: 0.85, cuda graph: True, gen throughput (token/s): 326.69, "
        "#queue-req: 0\n"
    )
    record = watched(FakeMetrics(has_metrics=False), run_of(tmp_path))
    assert (record.source, record.is_lifetime) == ("log", False)
    assert record.total is not None
    assert (record.total.accept_length, record.total.running) == (3.55, 3)


def test_the_log_of_many_ranks_has_the_last_values_of_each(tmp_path: Path) -> None:
    line = "[2026-11-27 02:30:57 DP{} TP0] Decode batch, #running-req: {}, accept len: 3.55\n"
    lines = [line.format(rank, running) for running in (3, 4) for rank in range(100)]
    (tmp_path / "engine-1.log").write_text("".join(lines))
    record = watched(FakeMetrics(has_metrics=False), run_of(tmp_path))
    assert [span.rank for span in record.ranks] == [str(rank) for rank in range(100)]
    assert {span.running for span in record.ranks} == {4}


def test_the_log_of_the_last_start_is_read(tmp_path: Path) -> None:
    line = "[2026-11-27 02:30:57] Decode batch, #running-req: {}, accept len: 3.55\n"
    for number in (1, 2):
        (tmp_path / f"engine-{number}.log").write_text(line.format(number))
    clock = Clock()
    with metrics_server(FakeMetrics(has_metrics=False)) as url:
        found = EngineWatcher(WatchTarget("e", url, None, run_of(tmp_path)), clock)
        for number in (1, 2):
            run_of(
                tmp_path, attempts=[{"log": f"engine-{one}.log"} for one in range(1, number + 1)]
            )
            clock.now += 20
            found.poll()
            assert found.record.total is not None and found.record.total.running == number


def test_the_journal_has_baselines_events_and_a_drop(tmp_path: Path) -> None:
    course = {"baselines": {"": {"accept_length": 3.5, "steps": 1_000}}}
    drop = {
        "at": "2026-11-27T02:31:40Z",
        "kind": "acceptance dropped",
        "text": "it dropped",
        "rank": "",
    }
    generation = {"acceptance_length": 3.9}
    attempt = {"log": "x", "course": course, "verification": {"generation": generation}}
    record = watched(
        FakeMetrics(verifications=1), run_of(tmp_path, attempts=[attempt], events=[drop])
    )
    assert [(one.source, one.accept_length) for one in record.baselines] == [
        ("journal", 3.5),
        ("start check", 3.9),
    ]
    assert ("acceptance dropped", "it dropped") in [(one.kind, one.text) for one in record.problems]
    assert record.events[0].text == "it dropped"
    back = {**drop, "kind": "acceptance is back", "text": "back"}
    run = run_of(tmp_path, attempts=[attempt], events=[drop, back])
    assert "acceptance dropped" not in kinds(watched(FakeMetrics(verifications=1), run))


@pytest.mark.thorough
def test_baselines_of_the_lock_name_their_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path / "home"))
    locked = {"bench 20261127-1-r": 3.0, "prove p\x1b": 3.2, "smoke": 9.0}
    stored = speclaunch_home() / "benches" / "20261127-1-r" / "bench.json"
    stored.parent.mkdir(parents=True)
    cells = [{"candidate": {"accept_length": length}} for length in (2.5, 3.5)]
    stored.write_text(json.dumps({"result": {"cells": cells}}))
    run = run_of(tmp_path, recipe={"name": "r"}, locked=locked)
    record = watched(FakeMetrics(verifications=1), run, rank0=2.9)
    assert [(one.source, one.accept_length) for one in record.baselines] == [
        ("lock: bench 20261127-1-r", 3.0),
        (r"lock: prove p\u001b", 3.2),
        ("lock: smoke", 9.0),
    ]
    assert kinds(record) == ["nothing verified"]
    record = watched(FakeMetrics(verifications=1), run, rank0=1.9)
    assert [one.text for one in record.problems if one.kind == "acceptance far below"] == [
        "acceptance length 1.90; lock: bench 20261127-1-r: 3.00"
    ]
    run = run_of(tmp_path, recipe={"name": "r"}, locked={"smoke": -1})
    record = watched(FakeMetrics(verifications=1), run)
    assert [(one.source, one.accept_length) for one in record.baselines] == [
        ("bench 20261127-1-r", 3.0)
    ]


def test_an_engine_that_starts_is_not_wrong(tmp_path: Path) -> None:
    milestones = [{"phase": "load weights"}]
    run = run_of(tmp_path, state="starting", attempts=[{"milestones": milestones}])
    held = acquire(f"run-{run.name}", Holder(os.getpid(), "r", 0.0, str(tmp_path)))
    assert isinstance(held, HeldLock)
    found = EngineWatcher(WatchTarget("e", "http://127.0.0.1:1", None, run))
    found.poll()
    record = found.record
    assert (record.is_reachable, record.is_starting, record.problems) == (False, True, [])
    assert record.notes == ["the engine is starting: load weights"]
    run_of(tmp_path, state="serving")
    found.poll()
    assert not found.record.is_starting and kinds(found.record) == ["unreachable"]
    run_of(tmp_path, state="starting")
    held.close()  # its speclaunch was killed
    found.poll()
    assert not found.record.is_starting and kinds(found.record) == ["unreachable"]


def test_far_below_the_lowest_baseline(tmp_path: Path) -> None:
    course = {"baselines": {"": {"accept_length": 3.5}}}
    run = run_of(tmp_path, attempts=[{"log": "x", "course": course}])
    record = watched(FakeMetrics(verifications=1), run, rank0=2.0)
    assert "acceptance far below" in kinds(record)


@pytest.mark.parametrize(
    "odd", [{}, {"attempts": 3}, {"attempts": [{"course": {"baselines": [1]}}]}]
)
def test_journals_of_any_form(odd: dict[str, object]) -> None:
    assert journal_lengths(Run(Path(), odd, None)) == {}


def test_a_restart_is_an_event() -> None:
    state = FakeMetrics(generated=10_000, verifications=5_000)
    with metrics_server(state) as url:
        found = EngineWatcher(WatchTarget("e", url))
        found.poll()
        state.generated = state.verifications = 0
        found.poll()
    assert found.record.restarts == 1
    assert "started again" in found.record.events[0].text and found.record.problems == []


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_a_hostile_server_is_unreachable_in_bounded_time(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_SECONDS", 0.3)
    with scripted(HOSTILE[name]) as url:
        began = time.monotonic()
        found = EngineWatcher(WatchTarget("e", url))
        found.poll()
        assert time.monotonic() - began < 5
    assert not found.record.is_reachable
    (problem,) = found.record.problems
    assert problem.kind == "unreachable" and len(problem.text) <= 120 and problem.text.isprintable()


@pytest.mark.parametrize(
    "text",
    [
        b'sglang:num_running_reqs{dp_rank="\x1b[31mx",engine_type="\x1b[2J"} 1\n',
        b"sglang:num_running_reqs 1e300\nsglang:token_usage -5\nsglang:spec_accept_length 1e14\n",
        b'sglang:num_running_reqs{dp_rank="%d"} 1\n' * 3,
    ],
)
def test_hostile_values_are_shown_harmlessly(text: bytes) -> None:
    record = watched(FakeMetrics(raw=text))
    assert record.is_reachable
    assert b"\x1b" not in msgspec.json.encode(record)


@pytest.mark.thorough
def test_a_slow_server_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_SECONDS", 0.5)
    state = FakeMetrics()
    with scripted(HOSTILE["silent"]) as slow, metrics_server(state) as url:
        first, second = watched_once([WatchTarget("a", slow), WatchTarget("b", url)], 0.1)
    assert (first.is_reachable, second.is_reachable) == (False, True)


@rows("name", ["http://x:0", "ftp://x", "http://user:pw@host", "http://h/?q=1", "no-such-launch"])
def test_names_that_are_no_server(name: str) -> None:
    with pytest.raises(InputError):
        watch_targets([name])


def test_an_address_is_watched_once() -> None:
    found = watch_targets(["http://127.0.0.1:30000", "http://127.0.0.1:30000/"])
    assert [target.name for target in found] == ["127.0.0.1:30000"]


def test_a_refusal_names_its_path_once() -> None:
    with scripted(sends(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n")) as url:
        (record,) = watched_once([WatchTarget("a", url)], 0.1)
    (problem,) = record.problems
    assert problem.text.count("/metrics") == 1 and "SPECLAUNCH_API_KEY" in problem.text


def test_an_address_without_a_scheme_is_explained() -> None:
    with pytest.raises(InputError, match="no-such-host:30000") as error:
        watch_targets(["no-such-host:30000"])
    assert "http://no-such-host:30000" in str(error.value.problems[0].help)


def test_a_server_that_is_no_engine_is_unreachable() -> None:
    with scripted(sends(body(b"hello"))) as url:
        (record,) = watched_once([WatchTarget("a", url)], 0.1)
    assert kinds(record) == ["unreachable"]


@pytest.mark.thorough
def test_the_schema_is_that_of_the_documents() -> None:
    assert json.loads(SCHEMA.read_text()) == schema()
    document = WatchDocument(at="x", engines=[watched(FakeMetrics())])
    import jsonschema

    jsonschema.validate(json.loads(msgspec.json.encode(document)), schema())
