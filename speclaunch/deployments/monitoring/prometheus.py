"""Render Prometheus rules and scrape settings, as files and as the operator's objects.

PodMonitor and PrometheusRule: monitoring.coreos.com/v1 of the Prometheus Operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import yaml

from speclaunch.core import Problem
from speclaunch.deployments.monitoring.alerts import (
    RECORDED,
    RUNBOOK,
    SERVER,
    Alert,
    RoleAlerts,
    Series,
    alerts_of,
    runbook_url,
)
from speclaunch.deployments.monitoring.promql import unknown_names
from speclaunch.deployments.targets.interface import RenderedCommand, Renderer, Rendering, Role
from speclaunch.deployments.targets.words import ALL_ADDRESSES, FILL_IN, metadata, name_of, selector
from speclaunch.deployments.targets.yaml_text import COMMENT, documents, yaml_text
from speclaunch.engine import METRICS_PATH, series_of

_SCRAPED = "15s"
_EVALUATED = "1m"


class MonitoringRenderer(Renderer):
    """Target that monitors the servers and starts none."""

    suffix = ".yaml"
    carries_speclaunch = False

    def refuses(self, deployment: Rendering) -> Sequence[Problem]:
        """Return a problem for each role that exports no metrics."""
        return tuple(
            Problem(
                f"{role.name} of {deployment.name} exports no metrics",
                help="set args.enable_metrics=true",
            )
            for role in deployment.roles
            if not role.observed.metrics
        )

    def commands(self, deployment: Rendering) -> tuple[RenderedCommand, ...]:  # noqa: ARG002
        """Return no server command."""
        return ()


# -- rules


class PrometheusRulesRenderer(MonitoringRenderer):
    """Recording and alerting rules, with a test for `promtool test rules` next to them."""

    target = "prometheus-rules"

    def render(self, deployment: Rendering) -> str:
        """Return the rule file."""
        head = [
            f"Alerts of {deployment.title}",
            f"Runbooks: docs/{RUNBOOK} of speclaunch.",
            *deployment.notes,
        ]
        return documents(head, [{"groups": groups(deployment)}])

    def companions(self, deployment: Rendering, name: str) -> Mapping[str, str]:
        """Return the unit test of the rules."""
        path = PurePath(name)
        head = [f"promtool test rules {path.stem}.test{path.suffix}"]
        return {f"{path.stem}.test{path.suffix}": documents(head, [_tests(deployment, name)])}

    def notes(self, deployment: Rendering) -> Iterable[str]:
        """Return one note about each omitted alert."""
        return dict.fromkeys(
            f"no alert {name}: {why}"
            for role in alerts_of(deployment)
            for name, why in role.left_out.items()
        )

    def errors(self, deployment: Rendering, text: str) -> Iterator[str]:
        """Yield names that the release lacks, and differences between text and rules."""
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
    """Scrape settings for a Prometheus that is configured by files."""

    target = "prometheus-scrape"

    def render(self, deployment: Rendering) -> str:
        """Return `scrape_configs` to add to the user's file."""
        job = _job(deployment)
        head = [
            f"Scrape settings of {deployment.title}",
            f"{FILL_IN} the address of each server: only the first host of a server has metrics.",
        ]
        return documents(head, [{"scrape_configs": [job]}])

    def errors(self, deployment: Rendering, text: str) -> Iterator[str]:
        """Yield differences between text and settings."""
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
    """Return the relabeling of metric names from `sglang_` to `sglang:`.

    prometheus_client 0.23 and later writes `sglang_` to a Prometheus before 3.0, which accepts
    OpenMetrics without `escaping=allow-utf-8`. SGLang accepts prometheus_client 0.20 and later.
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

    `parts` holds, by role, the labels of the pods that answer requests. Others have no metrics.
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
