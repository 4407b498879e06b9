"""Dashboard of Grafana: its JSON model, schema version 39 (Grafana 10.4 and later)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from speclaunch.deployments.monitoring.alerts import WINDOW, acceptance
from speclaunch.deployments.monitoring.prometheus import MonitoringRenderer
from speclaunch.deployments.monitoring.promql import unknown_names
from speclaunch.deployments.targets.interface import Rendering
from speclaunch.deployments.targets.words import name_of
from speclaunch.engine import series_of

_WIDTH, _HEIGHT = 12, 8
"""Size of a panel; a row is 24 wide."""
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


class Panel(Struct, frozen=True):
    """A panel with its queries, each with the text of its legend."""

    title: str
    text: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    most: float | None = None
    """Upper end of the axis."""
    marks: tuple[tuple[float, str], ...] = ()
    """Thresholds and their colors."""


class GrafanaRenderer(MonitoringRenderer):
    """Dashboard to import, with the panels that the release has metrics for."""

    target = "grafana"
    suffix = ".json"

    def render(self, deployment: Rendering) -> str:
        """Return the dashboard."""
        return json.dumps(_dashboard(deployment), indent=2) + "\n"

    def errors(self, deployment: Rendering, text: str) -> Iterator[str]:
        """Yield names in queries that the release lacks, and differences of the text."""
        written = json.loads(text)
        if written != _dashboard(deployment):
            yield "its panels differ"
        series = series_of(deployment.version)
        for panel in written["panels"]:
            for target in panel["targets"]:
                yield from unknown_names(_filled(target["expr"]), series, frozenset())


def _filled(query: str) -> str:
    """Return a query with values for Grafana's variables."""
    return query.replace("$__rate_interval", "5m")


def panels(deployment: Rendering) -> Iterator[Panel]:
    """Yield the panels of a deployment, the most important first."""
    series = series_of(deployment.version)
    own = f'job="{name_of(deployment)}",instance=~"$instance"'
    by = "role, instance" if deployment.has_roles else "instance"
    legend = "{{role}} {{instance}}" if deployment.has_roles else "{{instance}}"

    def has(name: str) -> bool:
        return f"sglang:{name}" in series

    def gauge(name: str, function: str = "max") -> tuple[str, str]:
        return f"{function} by ({by}) (sglang:{name}{{{own}}})", legend

    def rate(name: str, more: str = "") -> str:
        return f"sum by ({by}) (rate(sglang:{name}{{{own}{more}}}[$__rate_interval]))"

    roles = [role.observed for role in deployment.roles if role.observed.verifies]
    most = max((role.draft_tokens or 0 for role in roles), default=0) or None
    baseline = deployment.baseline
    marks = () if baseline is None else ((baseline.length, "green"),)
    interval = deployment.roles[0].observed.interval
    if roles:
        yield Panel(
            "Acceptance length",
            f"Tokens per verification over {WINDOW}"
            + ("." if baseline is None else f"; line: {baseline.source}."),
            ((acceptance(own, series, by), legend),),
            most=most,
            marks=marks,
        )
        yield Panel(
            "Acceptance length by rank",
            f"The engine's own mean over {interval} decode steps. An idle rank repeats its last "
            "value.",
            (
                (
                    f"sglang:spec_accept_length{{{own}}}",
                    f"{legend} dp {{{{dp_rank}}}} tp {{{{tp_rank}}}}"
                    if "tp_rank" in series["sglang:spec_accept_length"].labels
                    else legend,
                ),
            ),
            most=most,
        )
        if has("spec_accept_rate"):
            note = series["sglang:spec_accept_rate"].note
            yield Panel(
                "Acceptance rate",
                note.meaning if note is not None else "",
                (gauge("spec_accept_rate", "avg"),),
                "percentunit",
                1,
            )
        if has("spec_verify_calls_total"):
            steps = [(rate("spec_verify_calls_total"), f"verifications {legend}")]
            yield Panel("Verifications per second", "Of finished requests.", tuple(steps), "ops")
        if has("spec_num_steps"):
            yield Panel(
                "Active draft settings",
                "Change with adaptive speculation.",
                (
                    (gauge("spec_num_steps")[0], f"steps {legend}"),
                    (gauge("spec_num_draft_tokens")[0], f"draft tokens {legend}"),
                ),
            )
    tokens = (rate("generation_tokens_total"), legend)
    text = "Of finished requests."
    if has("realtime_tokens_total"):
        tokens, text = (rate("realtime_tokens_total", ',mode="decode"'), legend), "As generated."
    yield Panel("Generated tokens per second", text, (tokens,))
    yield Panel(
        "Requests",
        "Running and waiting.",
        (
            (gauge("num_running_reqs")[0], f"running {legend}"),
            (gauge("num_queue_reqs")[0], f"waiting {legend}"),
        ),
    )
    yield Panel("KV cache", "Used share.", (gauge("token_usage"),), "percentunit", 1)
    if has("num_retracted_requests_total"):
        retracted = f"sglang:num_retracted_requests_total{{{own}}}[$__rate_interval]"
        yield Panel(
            "Retracted requests per second",
            "Requests that lose their KV cache and are computed again.",
            ((f"max by ({by}) (rate({retracted}))", legend),),
        )
    if has("cuda_graph_passes_total"):
        graph = rate("cuda_graph_passes_total", ',mode="decode_cuda_graph"')
        every = rate("cuda_graph_passes_total", ',mode=~"decode_.*"')
        yield Panel(
            "Decode passes in CUDA graphs",
            "Share of all decode passes.",
            ((f"({graph} or 0 * {every}) / {every}", legend),),
            "percentunit",
            1,
        )
    elif has("is_cuda_graph"):
        yield Panel(
            "Decode passes in CUDA graphs",
            "The last reported pass.",
            (gauge("is_cuda_graph", "avg"),),
            "percentunit",
            1,
        )
    for name, title in (
        ("time_to_first_token_seconds", "Time to first token"),
        ("e2e_request_latency_seconds", "Request latency"),
    ):
        bucket = f"sglang:{name}_bucket{{{own}}}[$__rate_interval]"
        yield Panel(
            title,
            "Median and 99th percentile.",
            tuple(
                (f"histogram_quantile({share}, sum by (le) (rate({bucket})))", f"p{share * 100:g}")
                for share in (0.5, 0.99)
            ),
            "s",
        )


def _dashboard(deployment: Rendering) -> dict[str, Any]:
    name = name_of(deployment)
    made = [_panel(number, panel) for number, panel in enumerate(panels(deployment))]
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
        "panels": made,
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


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {
        "unit": panel.unit,
        "min": 0,
        "color": {"mode": "palette-classic"},
        "custom": {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 5, "showPoints": "never"},
    }
    if panel.most is not None:
        defaults["max"] = panel.most
    if panel.marks:
        steps: list[dict[str, Any]] = [{"color": "red", "value": None}]
        steps += [{"color": color, "value": value} for value, color in panel.marks]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
        defaults["custom"]["thresholdsStyle"] = {"mode": "line"}
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "gridPos": {
            "x": number % 2 * _WIDTH,
            "y": number // 2 * _HEIGHT,
            "w": _WIDTH,
            "h": _HEIGHT,
        },
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
            for place, (query, legend) in enumerate(panel.queries)
        ],
    }
