"""Render a Grafana dashboard as JSON, schema version 39 (Grafana 10.4 and later)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from speclaunch.deployments.monitoring.alerts import WINDOW, acceptance
from speclaunch.deployments.monitoring.prometheus import MonitoringRenderer
from speclaunch.deployments.monitoring.promql import unknown_names
from speclaunch.deployments.targets.interface import Rendering
from speclaunch.deployments.targets.words import name_of
from speclaunch.engine import series_of

_WIDTH, _HEIGHT = 12, 8
"""Size of a panel; a row is 24 wide."""
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_SHARE: Any = {"unit": "percentunit", "most": 1}


class GrafanaRenderer(MonitoringRenderer):
    """Dashboard to import, with panels for the metrics of the release."""

    target = "grafana"
    suffix = ".json"

    def render(self, deployment: Rendering) -> str:
        """Return the dashboard."""
        return json.dumps(_dashboard(deployment), indent=2) + "\n"

    def errors(self, deployment: Rendering, text: str) -> Iterator[str]:
        """Yield query names that the release lacks, and differences between text and dashboard."""
        written = json.loads(text)
        if written != _dashboard(deployment):
            yield "its panels differ"
        series = series_of(deployment.version)
        for panel in written["panels"]:
            for target in panel["targets"]:
                query = target["expr"].replace("$__rate_interval", "5m")
                yield from unknown_names(query, series, frozenset())


def _panels(deployment: Rendering) -> Iterator[dict[str, Any]]:
    """Yield the panels of a deployment, the most important first."""
    series = series_of(deployment.version)
    own = f'job="{name_of(deployment)}",instance=~"$instance"'
    by = "role, instance" if deployment.has_roles else "instance"
    legend = "{{role}} {{instance}}" if deployment.has_roles else "{{instance}}"

    def has(name: str) -> bool:
        return f"sglang:{name}" in series

    def gauge(name: str, shown: str = legend, function: str = "max") -> tuple[str, str]:
        return f"{function} by ({by}) (sglang:{name}{{{own}}})", shown

    def rate(name: str, more: str = "", function: str = "sum") -> str:
        return f"{function} by ({by}) (rate(sglang:{name}{{{own}{more}}}[$__rate_interval]))"

    roles = [role.observed for role in deployment.roles if role.observed.verifies]
    most = max((role.draft_tokens or 0 for role in roles), default=0) or None
    baseline = deployment.baseline
    if roles:
        yield _panel(
            "Acceptance length",
            f"Tokens per verification over {WINDOW}"
            + ("." if baseline is None else f"; line: {baseline.source}."),
            (acceptance(own, series, by), legend),
            most=most,
            line=None if baseline is None else baseline.length,
        )
        has_ranks = "tp_rank" in series["sglang:spec_accept_length"].labels
        yield _panel(
            "Acceptance length by rank",
            f"The engine's own mean over {deployment.roles[0].observed.interval} decode steps. An "
            "idle rank repeats its last value.",
            (
                f"sglang:spec_accept_length{{{own}}}",
                f"{legend} dp {{{{dp_rank}}}} tp {{{{tp_rank}}}}" if has_ranks else legend,
            ),
            most=most,
        )
        if has("spec_accept_rate"):
            note = series["sglang:spec_accept_rate"].note
            query = gauge("spec_accept_rate", function="avg")
            yield _panel("Acceptance rate", note.meaning if note else "", query, **_SHARE)
        if has("spec_verify_calls_total"):
            query = (rate("spec_verify_calls_total"), f"verifications {legend}")
            yield _panel("Verifications per second", "Of finished requests.", query, unit="ops")
        if has("spec_num_steps"):
            yield _panel(
                "Active draft settings",
                "Change with adaptive speculation.",
                gauge("spec_num_steps", f"steps {legend}"),
                gauge("spec_num_draft_tokens", f"draft tokens {legend}"),
            )
    tokens, text = rate("generation_tokens_total"), "Of finished requests."
    if has("realtime_tokens_total"):
        tokens, text = rate("realtime_tokens_total", ',mode="decode"'), "As generated."
    yield _panel("Generated tokens per second", text, (tokens, legend))
    yield _panel(
        "Requests",
        "Running and waiting.",
        gauge("num_running_reqs", f"running {legend}"),
        gauge("num_queue_reqs", f"waiting {legend}"),
    )
    yield _panel("KV cache", "Used share.", gauge("token_usage"), **_SHARE)
    if has("num_retracted_requests_total"):
        yield _panel(
            "Retracted requests per second",
            "Requests that lose their KV cache and are computed again.",
            (rate("num_retracted_requests_total", function="max"), legend),
        )
    title = "Decode passes in CUDA graphs"
    if has("cuda_graph_passes_total"):
        graph = rate("cuda_graph_passes_total", ',mode="decode_cuda_graph"')
        every = rate("cuda_graph_passes_total", ',mode=~"decode_.*"')
        query = (f"({graph} or 0 * {every}) / {every}", legend)
        yield _panel(title, "Share of all decode passes.", query, **_SHARE)
    elif has("is_cuda_graph"):
        query = gauge("is_cuda_graph", function="avg")
        yield _panel(title, "The last reported pass.", query, **_SHARE)
    for name, title in (
        ("time_to_first_token_seconds", "Time to first token"),
        ("e2e_request_latency_seconds", "Request latency"),
    ):
        buckets = f"sum by (le) (rate(sglang:{name}_bucket{{{own}}}[$__rate_interval]))"
        queries = [(f"histogram_quantile({n / 100}, {buckets})", f"p{n}") for n in (50, 99)]
        yield _panel(title, "Median and 99th percentile.", *queries, unit="s")


def _dashboard(deployment: Rendering) -> dict[str, Any]:
    name = name_of(deployment)
    return {
        "title": f"speclaunch: {deployment.name}",
        "description": deployment.title,
        "uid": f"sl-{name}"[:40],
        "tags": ["speclaunch", "sglang"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": _variables(name)},
        "annotations": {"list": []},
        "panels": [
            {"id": number + 1, "gridPos": _place(number), **panel}
            for number, panel in enumerate(_panels(deployment))
        ],
    }


def _variables(job: str) -> list[dict[str, Any]]:
    query = f'label_values(up{{job="{job}"}}, instance)'
    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        {
            "name": "instance",
            "label": "Server",
            "type": "query",
            "datasource": _SOURCE,
            "query": {"query": query, "refId": "instance"},
            "refresh": 2,
            "includeAll": True,
            "multi": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        },
    ]


def _place(number: int) -> dict[str, int]:
    return {"x": number % 2 * _WIDTH, "y": number // 2 * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}


def _panel(
    title: str,
    text: str,
    *queries: tuple[str, str],
    unit: str = "short",
    most: float | None = None,
    line: float | None = None,
) -> dict[str, Any]:
    """Return a panel.

    `queries` holds pairs of query and legend. `most` is the axis's maximum. `line` is a value to
    mark.
    """
    defaults: dict[str, Any] = {
        "unit": unit,
        "min": 0,
        "color": {"mode": "palette-classic"},
        "custom": {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 5, "showPoints": "never"},
    }
    if most is not None:
        defaults["max"] = most
    if line is not None:
        steps = [{"color": "red", "value": None}, {"color": "green", "value": line}]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
        defaults["custom"]["thresholdsStyle"] = {"mode": "line"}
    return {
        "type": "timeseries",
        "title": title,
        "description": text,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": _SOURCE,
                "expr": query,
                "legendFormat": legend,
                "range": True,
            }
            for place, (query, legend) in enumerate(queries)
        ],
    }
