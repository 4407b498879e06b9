"""Render a deployment's monitoring: Prometheus rules, scrape settings, a Grafana dashboard.

Rules and scrape settings are files, or objects of the Prometheus operator. The dashboard is JSON of
schema version 39 (Grafana 10.4 and later).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import yaml

from speclaunch.core import Problem
from speclaunch.deployments.targets.alerts import (
    RECORDED,
    RUNBOOK,
    SERVER,
    WINDOW,
    Alert,
    RoleAlerts,
    Series,
    acceptance,
    alerts_of,
    runbook_url,
    unknown_names,
)
from speclaunch.deployments.targets.interface import (
    ALL_ADDRESSES,
    COMMENT,
    FILL_IN,
    RenderedCommand,
    Renderer,
    Rendering,
    Role,
    documents,
    metadata,
    name_of,
    selector,
    yaml_text,
)
from speclaunch.engine import METRICS_PATH, series_of

_SCRAPED = "15s"
_EVALUATED = "1m"


class MonitoringRenderer(Renderer):
    """Target that monitors the servers and starts none."""

    suffix = ".yaml"
    carries_speclaunch = False

    def refuses(self, deployment: Rendering) -> Sequence[Problem]:
        return tuple(
            Problem(
                f"{role.name} of {deployment.name} exports no metrics",
                help="set args.enable_metrics=true",
            )
            for role in deployment.roles
            if not role.observed.metrics
        )

    def commands(self, deployment: Rendering) -> tuple[RenderedCommand, ...]:  # noqa: ARG002
        return ()


# -- rules


class PrometheusRulesRenderer(MonitoringRenderer):
    """Renderer of recording and alerting rules, with their test for `promtool test rules`."""

    target = "prometheus-rules"

    def render(self, deployment: Rendering) -> str:
        head = [
            f"Alerts of {deployment.title}",
            f"Runbooks: docs/{RUNBOOK} of speclaunch.",
            *deployment.notes,
        ]
        return documents(head, [{"groups": groups(deployment)}])

    def companions(self, deployment: Rendering, name: str) -> Mapping[str, str]:
        path = PurePath(name)
        head = [f"promtool test rules {path.stem}.test{path.suffix}"]
        return {f"{path.stem}.test{path.suffix}": documents(head, [_tests(deployment, name)])}

    def notes(self, deployment: Rendering) -> Iterable[str]:
        return dict.fromkeys(
            f"no alert {name}: {why}"
            for role in alerts_of(deployment)
            for name, why in role.left_out.items()
        )

    def errors(self, deployment: Rendering, text: str) -> Iterator[str]:
        series = series_of(deployment.version)
        for role in alerts_of(deployment):
            expressions = [alert.expression for alert in role.alerts.values()]
            for expression in [*expressions, *filter(None, [role.record])]:
                yield from unknown_names(expression, series, frozenset({RECORDED}))
        written = [
            group
            for document in yaml.safe_load_all(text)
            for group in (document or {}).get("groups")
            or (document or {}).get("spec", {}).get("groups", ())
        ]
        expected = yaml.safe_load(yaml_text({"groups": groups(deployment)}))["groups"]
        if written != expected:
            yield "its rules differ"


def groups(deployment: Rendering) -> list[dict[str, Any]]:
    """Return the groups of rules, one for each role. Keys that begin with `#` become comments."""
    return [_group(deployment, alerts) for alerts in alerts_of(deployment)]


def _group(deployment: Rendering, alerts: RoleAlerts) -> dict[str, Any]:
    own = f"-{alerts.role.name}" if deployment.has_roles else ""
    found: dict[str, Any] = {
        "name": f"speclaunch-{name_of(deployment)}{own}",
        "interval": _EVALUATED,
    }
    for number, (name, why) in enumerate(alerts.left_out.items()):
        found[f"{COMMENT}{number}"] = f"No {name}: {why}."
    rules = [_rule(name, alert) for name, alert in alerts.alerts.items()]
    if alerts.record is not None:
        rules.insert(0, {"record": RECORDED, "expr": alerts.record})
    if deployment.has_roles:
        for rule in rules:
            rule["labels"] = {**rule.get("labels", {}), "role": alerts.role.name}
    return {**found, "rules": rules}


def _rule(name: str, alert: Alert) -> dict[str, Any]:
    return {
        "alert": name,
        "expr": alert.expression,
        "for": f"{alert.minutes}m",
        "labels": {"severity": alert.severity},
        "annotations": _annotations(name, alert, '{{ $value | printf "%.2f" }}'),
    }


def _annotations(name: str, alert: Alert, value: str) -> dict[str, str]:
    description = alert.description.replace("{value}", value)
    found = {"summary": alert.summary, "description": description}
    url = runbook_url(name)
    return found if url is None else {**found, "runbook_url": url}


def _tests(deployment: Rendering, file: str) -> dict[str, Any]:
    tests = [
        _test(deployment, role.role, name, alert, series)
        for role in alerts_of(deployment)
        for name, alert in role.alerts.items()
        for series in (alert.firing, *alert.quiet)
    ]
    return {"rule_files": [file], "evaluation_interval": _EVALUATED, "tests": tests}


def _test(
    deployment: Rendering, role: Role, name: str, alert: Alert, series: Sequence[Series]
) -> dict[str, Any]:
    fires = series is alert.firing
    labels = {"severity": alert.severity, "job": name_of(deployment), "instance": SERVER}
    if deployment.has_roles:
        labels["role"] = role.name
    annotations = _annotations(name, alert, f"{alert.value:.2f}")
    expected = {"exp_labels": labels, "exp_annotations": annotations}
    own = f" of {role.name}" if deployment.has_roles else ""
    return {
        "name": f"{name}{own} {'fires' if fires else 'is quiet'}",
        "interval": _EVALUATED,
        "input_series": list(series),
        "alert_rule_test": [
            {
                "eval_time": f"{alert.at}m",
                "alertname": name,
                "exp_alerts": [expected] if fires else [],
            }
        ],
    }


# -- scrape settings


class PrometheusScrapeRenderer(MonitoringRenderer):
    """Renderer of scrape settings for a Prometheus configured by files."""

    target = "prometheus-scrape"

    def render(self, deployment: Rendering) -> str:
        job = _job(deployment)
        head = [
            f"Scrape settings of {deployment.title}",
            f"{FILL_IN} the address of each server: only the first host of a server has metrics.",
        ]
        return documents(head, [{"scrape_configs": [job]}])

    def errors(self, deployment: Rendering, text: str) -> Iterator[str]:
        expected = yaml.safe_load(yaml_text({"scrape_configs": [_job(deployment)]}))
        if yaml.safe_load(text) != expected:
            yield "its scrape settings differ"


def _job(deployment: Rendering) -> dict[str, Any]:
    return {
        "job_name": name_of(deployment),
        "metrics_path": METRICS_PATH,
        "scheme": "https" if deployment.roles[0].tls else "http",
        "scrape_interval": _SCRAPED,
        "static_configs": [_targets(deployment, role) for role in deployment.roles],
        f"{COMMENT}names": "Prometheus before 3.0 may read sglang_… for sglang:…",
        "metric_relabel_configs": [_renaming("source_labels", "target_label")],
    }


def _renaming(source: str, target: str) -> dict[str, Any]:
    """Return the relabeling rule that renames metrics from `sglang_…` to `sglang:…`.

    prometheus_client 0.23 and later writes `sglang_…` for Prometheus before 3.0, whose requests
    lack `escaping=allow-utf-8`. SGLang accepts prometheus_client 0.20 and later.
    """
    named = {source: ["__name__"], "regex": "sglang_(.+)", target: "__name__"}
    return {**named, "replacement": "sglang:$1"}


def _targets(deployment: Rendering, role: Role) -> dict[str, Any]:
    host = role.rendered_args.value("host") or "localhost"
    shown = "localhost" if host in (ALL_ADDRESSES, "::") else host
    names = [shown] if role.replicas == 1 else [f"{shown}-{n}" for n in range(role.replicas)]
    found: dict[str, Any] = {"targets": [f"{name}:{role.port}" for name in names]}
    if deployment.has_roles:
        found["labels"] = {"role": role.name}
    return found


# -- objects of the operator

_COMPONENT = "__meta_kubernetes_pod_label_app_kubernetes_io_component"


def operator_objects(
    deployment: Rendering, parts: Mapping[str, Mapping[str, str]]
) -> Iterator[dict[str, Any]]:
    """Yield the PodMonitor of each role, and the PrometheusRule.

    `parts` maps each role to the labels of the pods that answer requests; other pods export no
    metrics.
    """
    for role in deployment.roles:
        endpoint: dict[str, Any] = {"port": "http", "path": METRICS_PATH, "interval": _SCRAPED}
        endpoint["metricRelabelings"] = [_renaming("sourceLabels", "targetLabel")]
        if role.tls:
            endpoint["scheme"] = "https"
        if deployment.has_roles:
            endpoint["relabelings"] = [{"sourceLabels": [_COMPONENT], "targetLabel": "role"}]
        yield {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PodMonitor",
            "metadata": metadata(deployment, f"{name_of(deployment)}-{role.name}", role.name),
            "spec": {
                "jobLabel": "app.kubernetes.io/name",
                "selector": {
                    "matchLabels": {**selector(deployment, role.name), **parts[role.name]}
                },
                "podMetricsEndpoints": [endpoint],
            },
        }
    yield {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": metadata(deployment, f"{name_of(deployment)}-alerts"),
        "spec": {"groups": groups(deployment)},
    }


def scrape_annotations(role: Role) -> dict[str, str]:
    """Return the annotations by which Prometheus discovers pods to scrape."""
    found = {"scrape": "true", "path": METRICS_PATH, "port": str(role.port)}
    if role.tls:
        found["scheme"] = "https"
    return {f"prometheus.io/{key}": value for key, value in found.items()}


_WIDTH, _HEIGHT = 12, 8
"""Size of a panel in Grafana's grid units. A row is 24 units wide."""
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_SHARE: Any = {"unit": "percentunit", "most": 1}


class GrafanaRenderer(MonitoringRenderer):
    """Renderer of a dashboard to import, with panels for the release's metrics."""

    target = "grafana"
    suffix = ".json"

    def render(self, deployment: Rendering) -> str:
        return json.dumps(_dashboard(deployment), indent=2) + "\n"

    def errors(self, deployment: Rendering, text: str) -> Iterator[str]:
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
    """Return a Grafana panel of `queries`: pairs of query and legend.

    `most` is the maximum of the axis. `line` is a value to mark.
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
