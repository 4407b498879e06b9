"""Metrics of a real engine, of ranks, and of servers that are slow, huge or hostile."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from speclaunch.engine.releases.metrics import MetricKind, series_of
from speclaunch.serving import metrics
from speclaunch.serving.launch.client import EngineClient, EngineError
from speclaunch.serving.metrics import (
    ExpositionError,
    NoMetricsError,
    Sample,
    engine_metrics,
    parse_metrics,
    progress,
    read_loads,
    read_metrics,
)
from tests.support.loops import rows
from tests.support.scripted_server import HOSTILE, body, scripted, sends
from tests.support.serving.metrics_server import FakeMetrics, FakeRank, metrics_server

REAL = Path(__file__).with_name("sglang_0.5.23.txt").read_bytes()
"""Written by the CPU engine (STANDALONE), most histograms removed."""


def test_the_metrics_of_a_real_engine() -> None:
    with scripted(sends(body(REAL))) as url:
        found = read_metrics(EngineClient.of_server(url, None))
    (rank,) = found.ranks
    assert (rank.rank, rank.draft_tokens, rank.steps) == ("", 4, 3)
    assert rank.accept_length is not None and 2 < rank.accept_length < 4
    assert found.generated and found.verifications and rank.decoded and rank.other_passes
    assert not found.is_lifetime and found.role is None


def test_every_name_is_of_that_kind_in_the_releases() -> None:
    newest = series_of("0.5.23")
    for name in metrics._NAMES:
        metric = newest.get(name) or series_of("0.5.2")[name]
        is_gauge = name in metrics._GAUGES or name == metrics._RETRACTED[1]
        assert (metric.kind is MetricKind.GAUGE) is is_gauge, name
        if name not in metrics._FINISHED:
            assert "dp_rank" in metric.optional and "tp_rank" in metric.labels
    for name in (metrics._DECODED, metrics._PASSES):
        assert "mode" in newest[name].labels


def gauge(value: float, **labels: str) -> Sample:
    return Sample("sglang:num_running_reqs", labels, value)


def test_ranks_that_repeat_values_and_parts_of_a_total_count_once() -> None:
    found = engine_metrics(
        [
            gauge(3, dp_rank="1", tp_rank="2"),
            gauge(3, dp_rank="1", tp_rank="3"),
            gauge(5, dp_rank="0", tp_rank="0", priority=""),
            gauge(4, dp_rank="0", tp_rank="0", priority="1"),
            gauge(5, dp_rank="0", tp_rank="1"),
        ]
    )
    assert [(one.rank, one.running) for one in found.ranks] == [("0", 5), ("1", 3)]


def test_counters_of_labels_are_added() -> None:
    name = "sglang:generation_tokens_total"
    found = engine_metrics([Sample(name, {"is_streaming": one}, 2) for one in ("true", "false")])
    assert found.generated == 4


@rows(
    "text, value, labels",
    [
        (b"a 1", 1.0, {}),
        (b"a{} 1.5 1700000000", 1.5, {}),
        (b'a{x="1",y="a,b}"} 2e3', 2000.0, {"x": "1", "y": "a,b}"}),
        (b'a{x="q\\"\\\\\\n",} 3\r', 3.0, {"x": 'q"\\\n'}),
        (b"b 9\na\t4", 4.0, {}),
    ],
)
def test_the_text_format(text: bytes, value: float, labels: dict[str, str]) -> None:
    assert parse_metrics(text, ["a"]) == [Sample("a", labels, value)]


@rows(
    "text",
    [
        b"",
        b"<html>",
        b"a{x=1} 2",
        b'a{x="1" 2',
        b"a one",
        b'{"a": 1}',
        b"\xff\xfe\0",
        b"a 1\n" * 10_001,
    ],
)
def test_other_texts_are_refused(text: bytes) -> None:
    with pytest.raises(ExpositionError):
        parse_metrics(text, ["a"])


def test_numbers_that_are_none_are_left_out() -> None:
    assert parse_metrics(b"a NaN\na +Inf\na 1", ["a"]) == [Sample("a", {}, 1.0)]


def test_without_metrics_the_loads_and_the_states_remain() -> None:
    state = FakeMetrics(has_metrics=False)
    state.info |= {
        "internal_states": [{"avg_spec_accept_length": 2.1}, {"avg_spec_accept_length": 1}]
    }
    state.loads = {"loads": [{"num_running_reqs": 3, "token_usage": 0.5}]}
    with metrics_server(state) as url:
        client = EngineClient.of_server(url, None)
        with pytest.raises(NoMetricsError):
            read_metrics(client)
        found = read_loads(client, client.server_info())
    first, second = found.ranks
    assert (first.running, first.kv_usage, first.accept_length) == (3, 0.5, 2.1)
    assert (second.running, second.accept_length) == (None, 1)
    assert found.is_lifetime


@rows("odd", [None, 7, "x", [], {"loads": 3}, {"loads": [1, {"token_usage": "x"}]}])
def test_states_of_any_form_are_read(odd: object) -> None:
    state = FakeMetrics()
    state.loads = {"loads": odd}
    with metrics_server(state) as url:
        found = read_loads(EngineClient.of_server(url, None), {"internal_states": odd})
    assert all(one.running is None for one in found.ranks)


def test_progress_is_the_token_counters_of_the_first_path_that_has_any() -> None:
    state = FakeMetrics(ranks=[FakeRank()])
    with metrics_server(state) as url:
        client, paths = EngineClient.of_server(url, None), ["/no", "/metrics", "/v1/loads"]
        before = progress(client, paths)
        assert before == progress(client, paths) and paths == ["/metrics", "/v1/loads"]
        state.ranks[0].decode(10)
        assert progress(client, paths) != before
        state.has_metrics, state.loads = False, {"loads": [{"num_tokens": 3, "wait_time": 2}]}
        assert progress(client, paths) == [("num_tokens", 3)]


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"loads": ', b"[" * 90])
def test_progress_is_read_from_the_next_path_after_an_answer_that_is_no_document(
    body: bytes,
) -> None:
    state = FakeMetrics(raw=b"<html>", loads={"loads": [{"num_tokens": 3}]})
    state.others["/x"] = body
    with metrics_server(state) as url:
        paths = ["/metrics", "/x", "/v1/loads"]
        assert progress(EngineClient.of_server(url, None), paths) == [("num_tokens", 3)]
        assert paths == ["/metrics", "/x", "/v1/loads"]


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_a_hostile_server_is_an_error_in_bounded_time(name: str) -> None:
    with scripted(HOSTILE[name]) as url:
        began = time.monotonic()
        with pytest.raises(EngineError):
            read_metrics(EngineClient.of_server(url, None), 0.3)
        assert time.monotonic() - began < 5
