"""Prometheus metrics of all known SGLang releases: names, kinds, labels, meanings and pitfalls.

``tools/metrics.py`` reads names, kinds and labels from released wheels. :data:`NOTES` states what
each value means and when the engine updates it, from the same sources.

prometheus_client 0.23 and later replaces the colon in a name with an underscore in OpenMetrics,
unless the client accepts `escaping=allow-utf-8`. The plain text format retains the colon.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from speclaunch.engine.releases import argument
from speclaunch.engine.releases.catalogue import resolve_version
from speclaunch.engine.releases.versions import within

#: The file made by ``tools/metrics.py``.
DATA = Path(__file__).resolve().parent / "data" / "metrics.json"
METRICS_PATH = "/metrics"
"""Path prefix of the metrics endpoint in every release (0.4.6.post5 utils.py and 0.5.23
utils/common.py:2843, add_prometheus_middleware). An API key does not protect it (0.5.23
utils/auth.py)."""


class MetricKind(StrEnum):
    """The kind of a metric, as Prometheus names it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"


class MetricNote(Struct, frozen=True):
    """The meaning of a metric's value in some releases."""

    meaning: str
    """Meaning of the value, when the engine updates it, and pitfalls."""
    source: str
    """Release and file that the note is based on."""
    versions: str = ""
    """Releases that the note applies to; empty for all that have the metric."""


class Metric(Struct, frozen=True):
    """One metric of one release."""

    name: str
    """Name in the engine's source, such as `sglang:spec_accept_length`."""
    kind: MetricKind
    labels: tuple[str, ...]
    """Labels of every series, sorted."""
    optional: tuple[str, ...]
    """Labels that only some deployments have: `dp_rank` with data parallelism, `priority`."""
    note: MetricNote | None

    @property
    def series(self) -> tuple[str, ...]:
        """Names in the output of `/metrics`, with the suffixes that prometheus_client adds."""
        match self.kind:
            case MetricKind.GAUGE:
                return (self.name,)
            case MetricKind.COUNTER:
                return (self.name.removesuffix("_total") + "_total",)
            case MetricKind.HISTOGRAM:
                return tuple(f"{self.name}_{end}" for end in ("bucket", "count", "sum"))
            case MetricKind.SUMMARY:
                return tuple(f"{self.name}_{end}" for end in ("count", "sum"))

    def labels_of(self, series: str) -> frozenset[str]:
        bucket = {"le"} if self.kind is MetricKind.HISTOGRAM and series.endswith("_bucket") else ()
        return frozenset((*self.labels, *self.optional, *bucket))


def series_of(release: str) -> Mapping[str, Metric]:
    """Return the metrics of a release, or of the nearest known release, by series name in
    `/metrics`."""
    return _series(_shipped_nearest(release))


@lru_cache(maxsize=1)
def _data() -> Any:
    return json.loads(DATA.read_bytes())


def _shipped_nearest(release: str) -> str:
    """Return the nearest shipped release, ignoring catalogues that the user added."""
    versions = _data()["versions"]
    if release in versions:
        return release
    held = resolve_version(release).held
    if held in versions:
        return held
    earlier = [version for version in versions if within(version, f"<={held.partition('+')[0]}")]
    return str(earlier[-1] if earlier else versions[0])


@lru_cache(maxsize=8)
def _series(release: str) -> Mapping[str, Metric]:
    records = argument.select(_data(), release)
    found: dict[str, Metric] = {}
    for name, record in records.items():
        if "kind" not in record:
            continue
        owner = records[record["of"]]
        base = record.get("base")
        always = {*(owner["labels"] if base else ()), *record.get("labels", ())}
        metric = Metric(
            name,
            MetricKind(record["kind"]),
            tuple(sorted(always)),
            tuple(owner.get("optional", ())) if base else (),
            _note(name, release),
        )
        found |= dict.fromkeys(metric.series, metric)
    return MappingProxyType(found)


def _note(name: str, release: str) -> MetricNote | None:
    for note in NOTES.get(name.removeprefix("sglang:"), ()):
        if within(release, note.versions):
            return note
    return None


_REPORTER = "0.5.23 managers/scheduler_components/metrics_reporter.py"
_SCHEDULER = f"0.4.6.post5 managers/scheduler.py log_decode_stats; {_REPORTER}"
_TOKENIZER = "0.5.23 managers/tokenizer_manager.py"
_COLLECTOR = "metrics/collector.py observe_one_finished_request"
_EVERY = (
    "Updated every `decode_log_interval` decode steps, at each prefill, and every 30 s if idle."
)
_IDLE = f"{_EVERY} An idle engine repeats the last value."
_FINISHED = "Requests are counted when they finish."
_MEAN = "Mean over the steps since the last update, over all requests of the rank"
_RANKS = (
    f"{_EVERY} Only rank 0 of each attention TP group writes gauges, unless "
    "`enable_metrics_for_all_schedulers` is set; then each TP rank repeats the value."
)
_SETTING = (
    f"Changes with adaptive speculation. {_EVERY} 0 until the first update, and for algorithms "
    "without a snapshot."
)
NOTES: Mapping[str, tuple[MetricNote, ...]] = {
    "spec_accept_length": (
        MetricNote(
            f"{_MEAN}: tokens per verification (accepted drafts and the bonus token). 0 until "
            f"the first update, and without speculation. {_IDLE} {_RANKS} `avg_spec_accept_length` "
            "of `/get_server_info` is a mean since the start.",
            _SCHEDULER,
        ),
    ),
    "spec_accept_rate": (
        MetricNote(
            f"{_MEAN}: accepted drafts divided by proposed drafts.",
            f"0.5.11 observability/scheduler_metrics_mixin.py; {_REPORTER}",
            ">=0.5.11",
        ),
        MetricNote(
            f"{_MEAN}: acceptance length divided by `speculative_num_draft_tokens`. The bonus "
            "token counts as accepted, so the rate is at least 1 / `speculative_num_draft_tokens`.",
            "0.5.5.post3 managers/scheduler_metrics_mixin.py log_decode_stats",
            ">=0.5.5,<0.5.11",
        ),
        MetricNote(
            f"{_MEAN}: acceptance length divided by `speculative_num_steps` + 1. The bonus token "
            "counts as accepted. Too high for trees, whose drafts outnumber steps.",
            "0.5.3.post3 managers/scheduler_metrics_mixin.py log_decode_stats",
        ),
    ),
    "spec_verify_calls_total": (
        MetricNote(
            "Verifications of finished requests; a batch counts once for each request. "
            f"{_FINISHED} No series until the first speculating request finishes.",
            f"{_TOKENIZER}; 0.5.23 observability/metrics_collector.py observe_one_finished_request",
        ),
    ),
    "spec_num_steps": (
        MetricNote(
            f"Active `speculative_num_steps`. {_SETTING}",
            f"{_REPORTER} _active_spec_config_snapshot",
        ),
    ),
    "spec_num_draft_tokens": (
        MetricNote(
            f"Active `speculative_num_draft_tokens`. {_SETTING}",
            f"{_REPORTER} _active_spec_config_snapshot",
        ),
    ),
    "generation_tokens_total": (
        MetricNote(
            f"Generated tokens of finished requests. {_FINISHED} Not a measure of progress.",
            f"0.4.6.post5 {_COLLECTOR}; {_TOKENIZER}",
        ),
    ),
    "realtime_tokens_total": (
        MetricNote(
            "Processed tokens, at each step; `mode`: prefill_compute, prefill_cache, decode. With "
            "`enable_metrics_for_all_schedulers`, the TP ranks of a group count the same tokens.",
            "0.5.7 managers/scheduler_metrics_mixin.py log_decode_stats_every_iteration; "
            + _REPORTER,
        ),
    ),
    "gen_throughput": (
        MetricNote(
            f"Generated tokens per second since the last update. {_EVERY} A stopped scheduler "
            "repeats the last value.",
            _SCHEDULER,
        ),
    ),
    "num_running_reqs": (MetricNote(f"Running requests. {_RANKS}", _REPORTER),),
    "num_queue_reqs": (MetricNote(f"Waiting requests. {_RANKS}", _REPORTER),),
    "token_usage": (
        MetricNote(
            "Used share of the KV cache, or of the fullest pool, without evictable tokens. "
            + _RANKS,
            "0.5.23 managers/scheduler_components/pool_stats_observer.py; "
            "0.4.6.post5 managers/scheduler.py log_decode_stats",
        ),
    ),
    "num_retracted_requests_total": (
        MetricNote(
            "Retracted requests. Each TP rank counts the same requests. No series before the first"
            " retraction.",
            "0.5.7 managers/scheduler.py; 0.5.23 managers/scheduler.py",
        ),
    ),
    "total_retracted_reqs": (
        MetricNote(
            f"Retracted requests since the start. {_EVERY} A gauge that counts: use `delta`, or "
            "`increase` across restarts.",
            "0.4.9.post6 managers/scheduler.py; 0.5.2 managers/scheduler_metrics_mixin.py",
        ),
    ),
    "is_cuda_graph": (
        MetricNote(
            "1 if the last reported decode batch ran in a graph. Each interval reports one step. "
            + _IDLE,
            f"0.5.4.post3 managers/scheduler_metrics_mixin.py log_decode_stats; {_REPORTER}",
        ),
    ),
    "cuda_graph_passes_total": (
        MetricNote(
            "Forward passes; `mode`: decode_cuda_graph, decode_none, prefill_cuda_graph, "
            "prefill_none. Each TP rank counts the same passes.",
            "0.5.10.post1 observability/metrics_collector.py; 0.5.23 "
            "managers/scheduler_components/batch_result_processor.py",
            ">=0.5.10",
        ),
        MetricNote(
            "Decode passes; `mode`: decode_cuda_graph, decode_none. Each TP rank counts the same "
            "passes.",
            "0.5.7 metrics/collector.py increment_cuda_graph_pass",
        ),
    ),
}
"""Notes by metric name without the prefix `sglang:`. The first note whose releases match
applies."""
