"""The metrics of each release: data from the wheels, and the notes about them."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from speclaunch.engine.releases.catalogue import held_versions
from speclaunch.engine.releases.extraction.source import PackageSource
from speclaunch.engine.releases.metrics import (
    NOTES,
    Metric,
    MetricKind,
    series_of,
)
from tests.support.loops import rows

TOOLS = Path(__file__).resolve().parents[3] / "tools"


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(TOOLS))
    import metrics

    return metrics


def metrics_of(release: str) -> dict[str, Metric]:
    return {metric.name: metric for metric in series_of(release).values()}


@rows(
    "name, since, until",
    [
        ("spec_accept_length", "0.4.6.post5", None),
        ("spec_accept_rate", "0.5.3.post3", None),
        ("spec_verify_calls_total", "0.5.13.post1", None),
        ("spec_num_steps", "0.5.13.post1", None),
        ("spec_num_draft_tokens", "0.5.13.post1", None),
        ("spec_cap_length", "0.5.16", None),
        ("spec_block_accept_length", "0.5.16", None),
        ("total_retracted_reqs", "0.4.9.post6", "0.5.2"),
        ("num_retracted_requests_total", "0.5.7", None),
        ("is_cuda_graph", "0.5.4.post3", None),
        ("cuda_graph_passes_total", "0.5.7", None),
    ],
)
def test_a_metric_exists_from_its_first_to_its_last_release(
    name: str, since: str, until: str | None
) -> None:
    holders = [v for v in held_versions() if f"sglang:{name}" in metrics_of(v)]
    assert (holders[0], holders[-1]) == (since, until or held_versions()[-1])
    held = list(held_versions())
    assert holders == held[held.index(holders[0]) : held.index(holders[-1]) + 1]  # without a gap


def test_labels_of_ranks_came_with_their_releases() -> None:
    labels = {v: metrics_of(v)["sglang:spec_accept_length"] for v in held_versions()}
    assert [v for v in labels if "tp_rank" not in labels[v].labels] == list(held_versions()[:3])
    assert labels["0.5.23"].optional == ("dp_rank", "priority")
    assert "moe_ep_rank" not in labels["0.5.6.post2"].labels
    assert "moe_ep_rank" in labels["0.5.7"].labels
    assert "pid" in metrics_of("0.5.23")["sglang:num_retracted_reqs"].labels


def test_series_are_named_as_prometheus_shows_them() -> None:
    series = series_of("0.4.6.post5")
    assert series["sglang:num_bootstrap_failed_reqs_total"].kind is MetricKind.COUNTER
    latency = series["sglang:e2e_request_latency_seconds_bucket"]
    assert latency.labels_of("sglang:e2e_request_latency_seconds_bucket") == {"le", "model_name"}
    assert latency.labels_of("sglang:e2e_request_latency_seconds_sum") == {"model_name"}


def test_an_unknown_release_is_treated_as_the_nearest() -> None:
    assert metrics_of("0.5.13") == metrics_of("0.5.13.post1")
    assert metrics_of("0.5.99") == metrics_of(held_versions()[-1])


def test_notes_are_about_metrics_that_exist_and_each_note_holds_for_a_release() -> None:
    shown = {
        note.meaning + note.versions
        for version in held_versions()
        for metric in metrics_of(version).values()
        if (note := metric.note) is not None
    }
    written = {note.meaning + note.versions for notes in NOTES.values() for note in notes}
    assert shown == written
    for version in held_versions():
        for name in NOTES:
            metric = metrics_of(version).get(f"sglang:{name}")
            assert metric is None or metric.note is not None, (version, name)


def test_the_bonus_token_counts_as_accepted_in_the_rate_before_0_5_11() -> None:
    notes = {v: metrics_of(v)["sglang:spec_accept_rate"].note for v in ("0.5.3", "0.5.9", "0.5.11")}
    assert "steps" in str(notes["0.5.3"])
    assert "length divided by `speculative_num_draft_tokens`" in str(notes["0.5.9"])
    assert "accepted drafts divided by proposed" in str(notes["0.5.11"])


COLLECTOR = """
class SchedulerMetricsCollector:
    def __init__(self, labels, server_args):
        Gauge = self._gauge_cls or _PromGauge
        self.a = Gauge(name="sglang:a", documentation="First.", labelnames=labels.keys(),
                       multiprocess_mode="mostrecent")
        self.b = Gauge(name="sglang:b", documentation="Each process.", labelnames=labels.keys())
        if server_args.enable_lora:
            self.c = Counter("sglang:c", f"Up to {MOST}.", [*labels.keys(), "mode"])
        self.d = GaugeHistogram(name="sglang:d", documentation="D", labelnames=labels.keys(),
                                bucket_bounds=[1])
        self.other = Counter(name="other:e", documentation="E", labelnames=[])

    @classmethod
    def make(cls, parallel):
        labels = {"model_name": 1, "tp_rank": 2}
        if parallel.dp_rank is not None:
            labels["dp_rank"] = parallel.dp_rank
        made = resolve_collector_class("scheduler", cls)
        return made(labels=labels)
"""


def test_names_labels_conditions_and_texts_are_read_from_the_source(
    tool: ModuleType, tmp_path: Path
) -> None:
    file = tmp_path / "sglang" / "srt" / "metrics" / "collector.py"
    file.parent.mkdir(parents=True)
    file.write_text(COLLECTOR)
    with PackageSource(tmp_path) as source:
        found = tool.read(source)
    owner = "SchedulerMetricsCollector"
    assert found == {
        owner: {
            "file": "metrics/collector.py",
            "labels": ["model_name", "tp_rank"],
            "optional": ["dp_rank"],
        },
        "sglang:a": {"kind": "gauge", "base": 1, "help": "First.", "of": owner},
        "sglang:b": {
            "kind": "gauge",
            "base": 1,
            "labels": ["pid"],
            "help": "Each process.",
            "of": owner,
        },
        "sglang:c": {
            "kind": "counter",
            "base": 1,
            "labels": ["mode"],
            "help": "Up to {MOST}.",
            "of": owner,
            "if": "server_args.enable_lora",
        },
        "sglang:d": {
            "kind": "gauge",
            "base": 1,
            "labels": ["gt", "le"],
            "help": "D",
            "of": owner,
        },
    }


def test_a_collector_whose_labels_are_unknown_stops_the_tool(
    tool: ModuleType, tmp_path: Path
) -> None:
    file = tmp_path / "sglang" / "collector.py"
    file.parent.mkdir(parents=True)
    file.write_text(COLLECTOR.partition("    @classmethod")[0])
    with PackageSource(tmp_path) as source, pytest.raises(SystemExit, match="with labels"):
        tool.read(source)


def test_check_names_a_release_whose_data_differ(
    tool: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(tool, "DATA", tmp_path / "metrics.json")
    monkeypatch.setattr(tool, "held", lambda: ("1.0", "1.1"))
    for version, text in (("1.0", "First."), ("1.1", "First.")):
        file = tmp_path / version / "sglang" / "srt" / "collector.py"
        file.parent.mkdir(parents=True)
        file.write_text(COLLECTOR.replace("First.", text))
    assert tool.main(["build", "--cache", str(tmp_path)]) == 0
    assert tool.main(["check", "--cache", str(tmp_path)]) == 0
    file.write_text(COLLECTOR.replace("First.", "Second."))
    assert tool.main(["check", "--cache", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "1.1: the data differ from the wheel\n"
