"""Metrics of running engines, and the sequential test for acceptance drops.

An engine's values come from `/metrics` or, without it, from `/v1/loads` or the engine's log. The
catalogue in the engine library (releases/metrics.py) has the meanings, traps and sources of all
metrics. Two traps matter here:

- Ranks of a data-parallel group may repeat the same values, so only the first rank counts.

- With priority scheduling, `priority=""` is the total; other values are parts of it (0.5.23
observability/metrics_collector.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct, field

from speclaunch.core import LARGEST, number
from speclaunch.serving.launch.client import EngineClient, EngineError, EngineRefusalError

MOST_BYTES = 8 << 20
_MOST_SAMPLES = 10_000
_LABEL = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)', re.ASCII)
_ESCAPED = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n"}
_COMMENT = re.compile(rb"^# (?:TYPE|HELP) \w", re.MULTILINE)


class Sample(Struct, frozen=True):
    """One value of a metric."""

    name: str
    labels: Mapping[str, str]
    value: float


class ExpositionError(Exception):
    """Text that is not in the exposition format. The message states the reason."""


def parse_metrics(content: bytes, names: Iterable[str]) -> list[Sample]:
    """Return the finite samples of the metrics `names`, in order. Raises ExpositionError.

    The format: https://prometheus.io/docs/instrumenting/exposition_formats/. Lines of other metrics
    are not parsed, because histograms are most of the text.
    """
    found: list[Sample] = []
    for name, labels, text in _pattern(tuple(names)).findall(content):
        if len(found) >= _MOST_SAMPLES:
            raise ExpositionError(f"has more than {_MOST_SAMPLES:,} values")
        try:
            value = float(text)
        except ValueError:
            raise ExpositionError(f"has a value that is not a number: {text[:40]!r}") from None
        if math.isfinite(value):
            sample = Sample(name.decode(), _labels(labels.decode(errors="replace")), value)
            found.append(sample)
    if not found and not _COMMENT.search(content):
        raise ExpositionError("is not in the Prometheus text format")
    return found


@lru_cache(8)
def _pattern(names: tuple[str, ...]) -> re.Pattern[bytes]:
    known = "|".join(re.escape(name) for name in names)
    return re.compile(
        rf"^({known})(?:\{{([^\n]*)\}})?[ \t]+([^\s{{]+)(?:[ \t]+-?\d+)?[ \t]*\r?$".encode(),
        re.MULTILINE,
    )


@lru_cache(1_024)
def _labels(text: str) -> Mapping[str, str]:
    found, position = {}, 0
    while text[position:].strip():
        match = _LABEL.match(text, position)
        if match is None:
            raise ExpositionError(f"has labels that cannot be read: {text[:40]!r}")
        value = match[2]
        if "\\" in value:
            value = _ESCAPED.sub(lambda item: _ESCAPES.get(item[1], item[1]), value)
        found[match[1]] = value
        position = match.end()
    return found


_GAUGES = {
    "sglang:num_running_reqs": "running",
    "sglang:num_queue_reqs": "queued",
    "sglang:token_usage": "kv_usage",
    "sglang:gen_throughput": "tokens_per_second",
    "sglang:spec_accept_length": "accept_length",
    "sglang:spec_accept_rate": "accept_rate",
    "sglang:spec_num_steps": "steps",
    "sglang:spec_num_draft_tokens": "draft_tokens",
}
_DECODED, _PASSES = "sglang:realtime_tokens_total", "sglang:cuda_graph_passes_total"
_RETRACTED = ("sglang:num_retracted_requests_total", "sglang:total_retracted_reqs")
"""Names of the metric for retracted requests: from 0.5.7, and from 0.4.9 to 0.5.2."""
_GENERATED = "sglang:generation_tokens_total"
_FINISHED = {
    _GENERATED: "generated",
    "sglang:spec_verify_calls_total": "verifications",
    "sglang:num_requests_total": "requests",
}
_PATH = "/metrics"
_NAMES = (*_GAUGES, _DECODED, _PASSES, *_RETRACTED, *_FINISHED)
_COUNTERS = (_DECODED, _GENERATED, "sglang:prompt_tokens_total")
INTERVAL, USUAL_INTERVAL = "decode_log_interval", 40
"""Argument for the number of decode steps between two log lines or updates of gauges, and its
default (0.4.6 and 0.5.23 server_args.py)."""
_OK, _NOT_FOUND = 200, 404
_SECONDS = 5.0
_MOST_RANKS = 256
_OF_TIME = ("time", "seconds", "throughput")


class NoMetricsError(EngineError):
    """The server has no `/metrics`: it runs without `--enable-metrics`."""


class RankMetrics(Struct, frozen=True, kw_only=True):
    """Metrics of one data-parallel rank. A missing value is None."""

    rank: str
    running: float | None = None
    queued: float | None = None
    kv_usage: float | None = None
    tokens_per_second: float | None = None
    accept_length: float | None = None
    accept_rate: float | None = None
    steps: float | None = None
    draft_tokens: float | None = None
    decoded: float | None = None
    """Tokens generated in decode steps so far."""
    prefilled: float | None = None
    """Prompt tokens computed so far. A change shows that the engine works."""
    graph_passes: float | None = None
    other_passes: float | None = None
    """`graph_passes`, `other_passes`: numbers of decode steps with and without CUDA graphs."""
    retracted: float | None = None


class EngineMetrics(Struct, frozen=True, kw_only=True):
    """Metrics of one engine at one time. A missing value is None."""

    ranks: tuple[RankMetrics, ...]
    role: str | None = None
    """`prefill` or `decode`; None for an engine that does both."""
    generated: float | None = None
    verifications: float | None = None
    requests: float | None = None
    """`generated`, `verifications`, `requests`: numbers of output tokens, verification steps and
    finished requests."""
    is_lifetime: bool = False
    """True if acceptance lengths are means since the start of the engine."""


def read_metrics(client: EngineClient, seconds: float = _SECONDS) -> EngineMetrics:
    """Return the metrics in `/metrics`. Raises EngineError, or NoMetricsError if it is missing."""
    answer = client.get(_PATH, seconds, most=MOST_BYTES)
    if answer.status_code == _NOT_FOUND:
        raise NoMetricsError(f"no {_PATH}")
    if answer.status_code != _OK:
        raise EngineRefusalError(_PATH, answer)
    try:
        samples = parse_metrics(answer.content, _NAMES)
    except ExpositionError as error:
        raise EngineError(f"{_PATH} {error}") from None
    if not samples:
        raise EngineError(f"{_PATH} has no SGLang metrics")
    return engine_metrics(samples)


def engine_metrics(samples: Iterable[Sample]) -> EngineMetrics:
    """Return the metrics of an engine from its samples."""
    ranks: dict[str, dict[tuple[int, ...], dict[str, float]]] = {}
    finished: dict[str, float] = {}
    role = None
    for sample in samples:
        labels = sample.labels
        if abs(sample.value) > LARGEST or labels.get("priority"):
            continue
        if sample.name in _FINISHED:
            name = _FINISHED[sample.name]
            finished[name] = finished.get(name, 0.0) + sample.value
            continue
        if labels.get("engine_type") in ("prefill", "decode"):
            role = labels["engine_type"]
        member = tuple(_integer(labels.get(name)) or 0 for name in ("pp_rank", "tp_rank"))
        rank = labels.get("dp_rank", "")
        if rank not in ranks and len(ranks) >= _MOST_RANKS:
            continue
        values = ranks.setdefault(rank, {}).setdefault(member, {})
        field = _field(sample)
        if field is not None:
            values[field] = values.get(field, 0.0) + sample.value
    first = {rank: members[min(members)] for rank, members in ranks.items()}
    return EngineMetrics(
        ranks=tuple(
            RankMetrics(rank=rank[:20], **first[rank])
            for rank in sorted(first, key=lambda rank: (_integer(rank) or 0, rank))
        ),
        role=role,
        generated=finished.get("generated"),
        verifications=finished.get("verifications"),
        requests=finished.get("requests"),
    )


def _field(sample: Sample) -> str | None:
    mode = sample.labels.get("mode")
    if sample.name == _DECODED:
        return {"decode": "decoded", "prefill_compute": "prefilled"}.get(mode or "")
    if sample.name == _PASSES:
        known = {"decode_cuda_graph": "graph_passes", "decode_none": "other_passes"}
        return known.get(mode or "")
    return "retracted" if sample.name in _RETRACTED else _GAUGES.get(sample.name)


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 7 else None


def read_loads(client: EngineClient, info: Mapping[str, Any]) -> EngineMetrics:
    """Return the metrics of an engine without `/metrics`. Raises EngineError.

    Sources: `/v1/loads` (from 0.5.8, entrypoints/v1_loads.py), and the internal states in `info`,
    the engine's `/server_info`. Acceptance lengths are means since the engine's start.
    """
    loads: Any = []
    try:
        answer = client.get("/v1/loads", _SECONDS)
        if answer.status_code == _OK:
            loads = answer.json().get("loads")
    except EngineError:
        pass
    states = info.get("internal_states")
    loads, states = (
        [item for item in found[:_MOST_RANKS] if isinstance(item, dict)]
        if isinstance(found, list)
        else []
        for found in (loads, states)
    )
    ranks = []
    for index in range(max(len(loads), len(states), 1)):
        load, state = (found[index] if index < len(found) else {} for found in (loads, states))
        speculative = load.get("speculative")
        reported = speculative if isinstance(speculative, dict) else {}
        length = state.get("avg_spec_accept_length", reported.get("accept_length"))
        ranks.append(
            RankMetrics(
                rank=str(index) if max(len(loads), len(states)) > 1 else "",
                running=number(load.get("num_running_reqs")),
                queued=number(load.get("num_waiting_reqs")),
                kv_usage=number(load.get("token_usage")),
                tokens_per_second=number(
                    load.get("gen_throughput", state.get("last_gen_throughput"))
                ),
                accept_length=number(length),
            )
        )
    mode = info.get("disaggregation_mode")
    role = mode if mode in ("prefill", "decode") else None
    return EngineMetrics(ranks=tuple(ranks), role=role, is_lifetime=True)


_LONGEST_LINE = 2_000
_RANK = re.compile(r"\[[^\]\n]{0,60}?\bDP(?P<rank>\d{1,4})\b")
"""Data-parallel rank in a line's header, for example 0 in `[2026-11-21 02:16:12 DP0 TP0]`."""


def decode_batch(line: str) -> RankMetrics | None:
    """Return the values in a log line about decode steps; None for any other line.

    Source: managers/scheduler.py 0.4.6 :1202, managers/scheduler_components/metrics_reporter.py
    0.5.23 :963.
    """
    header, found, rest = line[:_LONGEST_LINE].partition("Decode batch")
    if not found:
        return None
    values = dict(
        part.rpartition(": ")[::2] for part in rest.lstrip(" .,").split(", ") if ": " in part
    )
    rank = _RANK.search(header)
    usages = [_parsed(text) for name, text in values.items() if name.endswith("token usage")]
    length = _parsed(values.get("accept len"))
    return RankMetrics(
        rank=rank["rank"] if rank else "",
        running=_parsed(values.get("#running-req")),
        queued=_parsed(values.get("#queue-req")),
        accept_length=length or None,
        accept_rate=_parsed(values.get("accept rate")) if length else None,
        kv_usage=max((usage for usage in usages if usage is not None), default=None),
        tokens_per_second=_parsed(values.get("gen throughput (token/s)")),
    )


def _parsed(text: str | None) -> float | None:
    try:
        return number(float(text or ""))
    except ValueError:
        return None


def progress(client: EngineClient, paths: list[str]) -> object:
    """Return the engine's own token counts from the first of `paths` that has them; None if no path
    does. Missing paths are removed from `paths`."""
    for path in list(paths):
        try:
            answer = client.get(path, _SECONDS, most=MOST_BYTES)
        except EngineError:
            return None
        if answer.status_code == _NOT_FOUND:
            paths.remove(path)  # it will not appear later
        if answer.status_code != _OK:
            continue
        try:
            if path == _PATH:
                found: object = parse_metrics(answer.content, _COUNTERS)
            else:
                found = _numbers(answer.document())
        except (EngineError, ExpositionError):
            continue
        if found:
            return found
    return None


def _numbers(document: object) -> list[object]:
    if isinstance(document, dict):
        document = document.get("loads")
    found: list[object] = []

    def walk(value: object, name: str) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                walk(item, str(key))
        elif isinstance(value, list):
            for item in value:
                walk(item, name)
        elif isinstance(value, int | float) and not any(part in name for part in _OF_TIME):
            found.append((name, value))

    walk(document, "")
    return found


EFFECTS = (0.15, 0.4, 0.75)
"""Losses to detect, as shares of the accepted draft tokens; smaller losses are ignored."""
LEAST_STEPS = 100
"""Minimum number of verification steps below the baseline before a drop is reported."""
LEAST_OBSERVATIONS = 3
LEARNED_STEPS = 1_000
"""Minimum number of verification steps to learn a baseline before the test starts."""
_LEARNED_OBSERVATIONS = 24
_LEARNED_EVERY = 8
_MOST_LEARNED = 512
"""Number of observations after which the baseline no longer changes, so that it cannot follow a
decay."""
_EVIDENCE = math.log(1e8 * len(EFFECTS))
_LONGEST_BATCH = 16
"""Maximum number of consecutive observations that are averaged to estimate the variance."""
_FEWEST_BATCHES = 6
_SPREAD = 0.03
"""Smallest standard deviation of an observation, as a share of the accepted draft tokens."""


class AcceptanceSample(Struct, frozen=True):
    """Mean acceptance length of some verification steps."""

    length: float
    steps: float


class AcceptanceBaseline(Struct, frozen=True):
    """Usual acceptance length, and the number of observations that it is based on."""

    length: float
    steps: float
    variance: float
    """Variance per verification step, including the correlation of consecutive observations."""
    observations: int

    @property
    def lowest(self) -> float:
        """Acceptance length below which a drop is reported."""
        return 1 + (self.length - 1) * (1 - EFFECTS[0])

    def ratios(self, sample: AcceptanceSample) -> list[float]:
        """Return a log-likelihood ratio for each loss in `EFFECTS`; > 0 suggests a drop."""
        accepted = self.length - 1
        uncertain = 2 * math.sqrt(self.variance / self.steps)
        usual = max(1 + accepted * (1 - EFFECTS[0] / 2), self.length - uncertain)
        few = 1 + 2 * math.sqrt(2 / self.observations)  # the variance itself is an estimate
        spread = max(self.variance * few / sample.steps, (_SPREAD * accepted) ** 2)
        losses = [(usual - 1) * effect for effect in EFFECTS]
        return [loss * (usual - loss / 2 - sample.length) / spread for loss in losses]


def learned(samples: Sequence[AcceptanceSample]) -> AcceptanceBaseline | None:
    """Return the baseline; None if observations are too few or no draft token was accepted."""
    steps = sum(sample.steps for sample in samples)
    if len(samples) < _LEARNED_OBSERVATIONS or steps < LEARNED_STEPS:
        return None
    length = sum(sample.length * sample.steps for sample in samples) / steps
    if length <= 1:
        return None
    variance, size = 0.0, 1
    while size <= _LONGEST_BATCH and len(samples) >= _FEWEST_BATCHES * size:
        squares = 0.0
        covered = len(samples) // size * size
        for start in range(0, covered, size):
            batch = samples[start : start + size]
            deviation = sum(sample.steps * (sample.length - length) for sample in batch)
            squares += deviation**2 / sum(sample.steps for sample in batch)
        variance = max(variance, squares / (covered // size))
        size *= 2
    return AcceptanceBaseline(length, steps, variance, len(samples))


class AcceptanceChange(Struct, frozen=True):
    """A drop in the acceptance length below its baseline, or its recovery."""

    is_drop: bool
    baseline: float
    length: float
    """Mean acceptance length of the steps that show the change."""
    steps: int
    """Number of verification steps that show the change."""

    def __str__(self) -> str:
        what = "acceptance length dropped" if self.is_drop else "acceptance length recovered"
        return (
            f"{what}: {self.length:.2f} over {self.steps:,} verification steps, "
            f"usually {self.baseline:.2f}"
        )


class AcceptanceTest(Struct):
    """Test for acceptance drops of one rank. Call `add` with each observation, in order."""

    baseline: AcceptanceBaseline | None = None
    is_low: bool = False
    """True from a drop until the acceptance length has recovered."""
    _samples: list[AcceptanceSample] = field(default_factory=list)
    _evidence: list[float] = field(default_factory=lambda: [0.0] * len(EFFECTS))
    _shown: AcceptanceSample | None = None
    """Mean of the observations since the evidence was last zero; None if it is zero."""
    _count: int = 0

    def add(self, sample: AcceptanceSample) -> AcceptanceChange | None:
        """Add an observation; return the drop or recovery that is now proven, or None."""
        if not (math.isfinite(sample.length) and sample.length >= 1 and sample.steps > 0):
            return None
        if self.baseline is None:
            self._learn(sample)
            return None
        change = self._tested(self.baseline, sample)
        if not self.is_low and max(self._evidence) < _EVIDENCE / 4:
            self._learn(sample)
        return change

    def restart(self) -> None:
        """Discard the evidence but not the baseline, because the engine has restarted."""
        self._evidence, self._count, self._shown = [0.0] * len(EFFECTS), 0, None

    def _learn(self, sample: AcceptanceSample) -> None:
        if len(self._samples) < _MOST_LEARNED:
            self._samples.append(sample)
            if self.baseline is None or len(self._samples) % _LEARNED_EVERY == 0:
                self.baseline = learned(self._samples) or self.baseline

    def _tested(
        self, baseline: AcceptanceBaseline, sample: AcceptanceSample
    ) -> AcceptanceChange | None:
        sign, most = (-1 if self.is_low else 1), _EVIDENCE / LEAST_OBSERVATIONS
        ratios = [min(most, sign * ratio) for ratio in baseline.ratios(sample)]
        self._evidence = [max(0.0, sum(pair)) for pair in zip(self._evidence, ratios, strict=True)]
        if not any(self._evidence):
            self.restart()
            return None
        self._count += 1
        shown = self._shown = _merged([self._shown, sample] if self._shown else [sample])
        enough = self._count >= LEAST_OBSERVATIONS and shown.steps >= LEAST_STEPS
        is_low = shown.length <= baseline.lowest
        if max(self._evidence) < _EVIDENCE or not enough or is_low == self.is_low:
            return None
        self.is_low = is_low
        self.restart()
        return AcceptanceChange(is_low, baseline.length, shown.length, round(shown.steps))


def _merged(samples: Sequence[AcceptanceSample]) -> AcceptanceSample:
    steps = sum(sample.steps for sample in samples)
    return AcceptanceSample(sum(item.length * item.steps for item in samples) / steps, steps)
