"""Alerts, scrape settings and dashboards: names of the release, and the clients' own checks."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from speclaunch.checks.edit.render_check import plan_rendering, rendered
from speclaunch.checks.edit.round_trip import RoundTripError
from speclaunch.checks.rules.examine import Lookup, PreflightError
from speclaunch.core.resources import DOCS_URL_VARIABLE
from speclaunch.deployments.recipe.load import load
from speclaunch.deployments.targets.alerts import (
    RECORDED,
    RUNBOOK,
    alerts_of,
    names_in,
    unknown_names,
)
from speclaunch.deployments.targets.assemble import Assembled
from speclaunch.deployments.targets.interface import Baseline, Observed, Rendering
from speclaunch.deployments.targets.monitoring import (
    GrafanaRenderer,
    PrometheusRulesRenderer,
    PrometheusScrapeRenderer,
)
from speclaunch.engine.releases.catalogue import held_versions
from speclaunch.engine.releases.metrics import series_of
from tests.support import TESTS, program
from tests.support.loops import rows

BASELINES = (None, Baseline(3.4, "certificate x"))
promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


@cache
def assembled(version: str | None = None, recipe: str = "eagle3_llama8b", *more: str) -> Assembled:
    loaded = load(recipe, ("args.enable_metrics=true", *more))
    return plan_rendering(loaded, version, Lookup(), carries_speclaunch=False)


def everything(found: Assembled, baseline: Baseline | None = None) -> Rendering:
    """A deployment to which every alert applies: graphs, two DP ranks."""
    (role,) = found.rendering.roles
    observed = replace(role.observed, ranks=2, graphs=True)
    return replace(found.rendering, roles=(replace(role, observed=observed),), baseline=baseline)


def expressions(deployment: Rendering) -> Iterator[str]:
    for role in alerts_of(deployment):
        yield from (alert.expression for alert in role.alerts.values())
        if role.record is not None:
            yield role.record
    for panel in json.loads(GrafanaRenderer().render(deployment))["panels"]:
        yield from (target["expr"] for target in panel["targets"])


@pytest.mark.thorough
def test_every_name_in_alerts_and_panels_exists_in_its_release() -> None:
    for version in held_versions():
        deployment = everything(assembled(version))
        series = series_of(version)
        for expression in expressions(deployment):
            text = expression.replace("$__rate_interval", "5m")
            assert not [*unknown_names(text, series, frozenset({RECORDED}))], (version, expression)
            assert names_in(text)[0]


@pytest.mark.thorough
def test_left_out_is_what_the_release_lacks() -> None:
    lacking: dict[str, list[str]] = {}
    for version in held_versions():
        (role,) = alerts_of(everything(assembled(version)))
        assert len(role.alerts) + len(role.left_out) == 9
        for name in role.left_out:
            lacking.setdefault(name, []).append(version)
    assert lacking.pop("SpeculationLowAfterCacheHits") == [*held_versions()]
    held = list(held_versions())
    assert lacking == {
        "SpeculationRanksApart": held[:3],
        "SpeculationRequestsRetracted": [*held[:3], "0.5.3.post3"],
        "SpeculationGraphsOff": held[: held.index("0.5.4.post3")],
    }


def test_left_out_is_what_cannot_apply_to_the_deployment() -> None:
    found = assembled()
    (role,) = found.rendering.roles

    def left_out(observed: Observed) -> set[str]:
        deployment = replace(found.rendering, roles=(replace(role, observed=observed),))
        (alerts,) = alerts_of(deployment)
        return {*alerts.left_out}

    always = {"SpeculationLowAfterCacheHits"}
    of_speculation = {"SpeculationAcceptanceLow", "SpeculationVerifiesNothing"}
    assert left_out(replace(role.observed, ranks=2)) == always
    assert left_out(replace(role.observed, ranks=1)) == {*always, "SpeculationRanksApart"}
    assert "SpeculationGraphsOff" in left_out(replace(role.observed, graphs=False))
    without = left_out(replace(role.observed, algorithm=None, verifies=False))
    assert of_speculation <= without
    prefill = left_out(replace(role.observed, verifies=False))
    assert of_speculation <= prefill


def test_thresholds_come_from_the_baseline() -> None:
    (role,) = alerts_of(everything(assembled(), Baseline(3.4, "certificate x")))
    low = role.alerts["SpeculationAcceptanceLow"]
    assert low.expression.endswith("< 2.72")
    assert "below 2.72 (80% of 3.4, certificate x)" in low.description
    (role,) = alerts_of(everything(assembled(), Baseline(1.2, "--acceptance")))
    assert role.alerts["SpeculationAcceptanceLow"].expression.endswith("< 1.1")


@promtool
@pytest.mark.campaign
@pytest.mark.thorough
@pytest.mark.parametrize("version", held_versions())
def test_promtool_accepts_the_rules_and_their_test_passes(version: str, tmp_path: Path) -> None:
    renderer = PrometheusRulesRenderer()
    tests = []
    for number, baseline in enumerate(BASELINES):
        deployment, name = everything(assembled(version), baseline), f"rules-{number}.yaml"
        (tmp_path / name).write_text(renderer.render(deployment))
        for test, text in renderer.companions(deployment, name).items():
            (tmp_path / test).write_text(text)
            tests.append(test)
    for words in (("check", "rules", "rules-0.yaml", "rules-1.yaml"), ("test", "rules", *tests)):
        done = subprocess.run(
            ["promtool", *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


UNITS = {"short", "percentunit", "s", "ops", "none"}
"""Those that the panels may use of Grafana's (packages/grafana-data/src/valueFormats/categories.ts): an
unknown id is shown as text behind each number."""


def dashboards() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Each release's dashboard, with a baseline and without: release, text, document."""
    for version in held_versions():
        for baseline in BASELINES:
            text = GrafanaRenderer().render(everything(assembled(version), baseline))
            yield version, text, json.loads(text)


@pytest.mark.thorough
def test_a_dashboard_is_what_grafana_imports() -> None:
    for version, text, board in dashboards():
        assert board["schemaVersion"] >= 36, version  # data sources are objects with a uid
        assert len(board["uid"]) <= 40 and re.fullmatch(r"[A-Za-z0-9_-]+", board["uid"])
        variables = {one["name"]: one for one in board["templating"]["list"]}
        assert variables["datasource"]["type"] == "datasource"
        used = set(re.findall(r"\$\{?([a-z]\w*)", text))
        assert used == set(variables), version
        panels = board["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels) > 5
        taken: set[tuple[int, int]] = set()
        for panel in panels:
            place = panel["gridPos"]
            assert place["x"] + place["w"] <= 24 and min(place["w"], place["h"]) > 0
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert not cells & taken, (version, panel["title"])
            taken |= cells
            assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
            marks = [target["refId"] for target in panel["targets"]]
            assert marks and len(set(marks)) == len(marks)
            for source in (panel, *panel["targets"]):
                assert source["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@promtool
@pytest.mark.thorough
def test_promtool_parses_each_expression_of_the_dashboards(tmp_path: Path) -> None:
    found = {
        target["expr"].replace("$__rate_interval", "5m").replace("$instance", ".*")
        for _version, _text, board in dashboards()
        for panel in board["panels"]
        for target in panel["targets"]
    }
    rules = [{"record": f"panel:{at}", "expr": one} for at, one in enumerate(sorted(found))]
    (tmp_path / "r.yaml").write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": rules}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", "r.yaml"], cwd=tmp_path, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


def test_each_alert_has_series_that_fire_and_series_that_do_not() -> None:
    deployment = everything(assembled())
    tests = yaml.safe_load(
        PrometheusRulesRenderer().companions(deployment, "r.yaml")["r.test.yaml"]
    )["tests"]
    (role,) = alerts_of(deployment)
    for name in role.alerts:
        own = [
            bool(test["alert_rule_test"][0]["exp_alerts"])
            for test in tests
            if test["alert_rule_test"][0]["alertname"] == name
        ]
        assert own[0] is True and len(own) > 1 and not any(own[1:]), name


def test_each_alert_has_a_section_in_its_runbook() -> None:
    page = (TESTS.parent / "docs" / RUNBOOK).read_text()
    headings = {line.removeprefix("### ") for line in page.splitlines() if line.startswith("### ")}
    (role,) = alerts_of(everything(assembled()))
    assert {*role.alerts} == headings


@pytest.mark.parametrize("base", [None, "https://docs.example.com/x"])
def test_a_runbook_is_an_address_of_the_published_documentation(
    base: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(DOCS_URL_VARIABLE, raising=False)
    if base:
        monkeypatch.setenv(DOCS_URL_VARIABLE, base)
    deployment = everything(assembled())
    text = PrometheusRulesRenderer().render(deployment)
    ((_, tests),) = PrometheusRulesRenderer().companions(deployment, "r.yaml").items()
    rules = [rule for rule in yaml.safe_load(text)["groups"][0]["rules"] if "alert" in rule]
    for rule in rules:
        url = rule["annotations"].get("runbook_url")
        assert url == (base and f"{base}/howto/monitor/#{rule['alert'].lower()}")
    assert text.count("runbook_url") == (len(rules) if base else 0)
    assert tests.count("runbook_url") == (len(rules) if base else 0)


@promtool
def test_promtool_accepts_the_scrape_settings(tmp_path: Path) -> None:
    found = assembled(None, "pd_mtp_deepseek_v3")
    file = tmp_path / "prometheus.yml"
    file.write_text(rendered(PrometheusScrapeRenderer(), found))
    done = subprocess.run(["promtool", "check", "config", file], capture_output=True, check=False)
    assert done.returncode == 0, done.stdout
    (job,) = yaml.safe_load(file.read_text())["scrape_configs"]
    assert [one["labels"]["role"] for one in job["static_configs"]] == ["prefill", "decode"]


@promtool
@pytest.mark.thorough
def test_promtool_accepts_the_rules_of_several_roles(tmp_path: Path) -> None:
    renderer, found = PrometheusRulesRenderer(), assembled(None, "pd_mtp_deepseek_v3")
    (tmp_path / "r.yaml").write_text(rendered(renderer, found))
    ((test, text),) = renderer.companions(found.rendering, "r.yaml").items()
    (tmp_path / test).write_text(text)
    for words in (("check", "rules", "r.yaml"), ("test", "rules", test)):
        done = subprocess.run(
            ["promtool", *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.thorough
def test_rules_and_tests_of_roles_are_told_apart() -> None:
    renderer, found = PrometheusRulesRenderer(), assembled(None, "pd_mtp_deepseek_v3")
    for group in yaml.safe_load(rendered(renderer, found))["groups"]:
        role = group["name"].rpartition("-")[2]
        assert {rule["labels"]["role"] for rule in group["rules"]} == {role}
    text = renderer.companions(found.rendering, "r.yaml")["r.test.yaml"]
    for test in yaml.safe_load(text)["tests"]:
        if test["name"].startswith("SpeculationUnmonitored"):
            series = [one["series"] for one in test["input_series"]]
            assert any('role="prefill"' in one for one in series)
            assert any('role="decode"' in one for one in series)


def test_roles_have_their_own_alerts() -> None:
    found = assembled(None, "pd_mtp_deepseek_v3")
    text = rendered(PrometheusRulesRenderer(), found)
    prefill, decode = yaml.safe_load(text)["groups"]
    assert 'role="decode"' in decode["rules"][0]["expr"]
    assert "record" in decode["rules"][0] and "record" not in prefill["rules"][0]
    assert "# No SpeculationAcceptanceLow: a prefill server verifies nothing." in text


def test_without_metrics_nothing_is_written(tmp_path: Path) -> None:
    loaded = load("eagle3_llama8b", ())
    found = plan_rendering(loaded, None, Lookup(), carries_speclaunch=False)
    for renderer in (PrometheusRulesRenderer, PrometheusScrapeRenderer, GrafanaRenderer):
        with pytest.raises(PreflightError, match="exports no metrics"):
            rendered(renderer(), found)


@pytest.mark.parametrize(
    ("renderer", "before", "after"),
    [
        (PrometheusRulesRenderer, "< 0.8", "< 0.9"),
        (PrometheusRulesRenderer, "severity: critical", "severity: info"),
        (PrometheusScrapeRenderer, ":30000", ":30001"),
        (GrafanaRenderer, "sglang:token_usage", "sglang:no_such_metric"),
    ],
)
def test_a_text_with_another_meaning_is_refused(
    renderer: Any, before: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = assembled()
    text = renderer().render(found.rendering)
    assert before in text
    broken = text.replace(before, after)
    monkeypatch.setattr(renderer, "render", lambda _self, _one: broken)
    with pytest.raises(RoundTripError):
        rendered(renderer(), found)


@rows(
    "expression, problem",
    [
        ("sglang:spec_accept_length", None),
        ('rate(sglang:cuda_graph_passes_total{mode=~"decode_.*",job="a{b}"}[5m])', None),
        ("sum by (job, dp_rank) (sglang:spec_accept_length) > 1", None),
        ("sglang:no_such", "the release has no metric sglang:no_such"),
        ('sglang:spec_accept_length{mode="x"}', "sglang:spec_accept_length has no label mode"),
        ("sum by (mode) (sglang:spec_accept_length)", "no metric has the label mode"),
        ("sglang:time_to_first_token_seconds", "no metric sglang:time_to_first_token_seconds"),
    ],
)
def test_unknown_names_are_found(expression: str, problem: str | None) -> None:
    found = [*unknown_names(expression, series_of("0.5.23"), frozenset())]
    assert found == [] if problem is None else problem in found[0]


def _check(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return program.run("render", "recipe=ngram_qwen7b", "args.enable_metrics=true", *words, cwd=cwd)


@pytest.mark.thorough
def test_the_test_is_written_next_to_the_rules(tmp_path: Path) -> None:
    done = _check("--to", "prometheus-rules", "-o", "r.yaml", "--acceptance", "2.5", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "note: no alert SpeculationRanksApart: the server has one" in done.stderr
    assert "note: also wrote r.test.yaml" in done.stderr
    assert "< 2" in (tmp_path / "r.yaml").read_text()
    assert yaml.safe_load((tmp_path / "r.test.yaml").read_text())["rule_files"] == ["r.yaml"]


@pytest.mark.thorough
def test_a_directory_as_output_is_refused_with_a_name_to_write(tmp_path: Path) -> None:
    done = _check("--to", "prometheus-rules", "-o", ".", cwd=tmp_path)
    assert (done.returncode, done.stdout, list(tmp_path.iterdir())) == (2, "", [])
    assert done.stderr.startswith("error: -o . is a directory\n")
    assert "-o prometheus-rules.yaml" in done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("value", ["0.5", "nan", "nowhere.json", "5000"])
def test_a_baseline_that_is_none_is_refused(value: str, tmp_path: Path) -> None:
    done = _check("--to", "prometheus-rules", "--acceptance", value, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert value in done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("target", ["kubernetes", "leaderworkerset", "rolebasedgroup"])
def test_pods_come_with_their_monitors(target: str, tmp_path: Path) -> None:
    done = _check("--to", target, "deploy.monitoring=operator", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    objects = {one["kind"]: one for one in yaml.safe_load_all(done.stdout)}
    labels = objects["PodMonitor"]["spec"]["selector"]["matchLabels"]
    assert labels["app.kubernetes.io/name"] == "ngram-qwen7b"
    assert objects["PrometheusRule"]["spec"]["groups"][0]["rules"]
    done = _check("--to", target, "deploy.monitoring=annotations", cwd=tmp_path)
    assert 'prometheus.io/port: "30000"' in done.stdout.replace("'", '"'), done.stderr
    off = program.run(
        *("render", "recipe=ngram_qwen7b", "--to", target, "deploy.monitoring=annotations")
    )
    assert off.returncode == 1 and "exports no metrics" in off.stderr
