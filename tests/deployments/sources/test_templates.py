"""Templates: what they show of a command is judged, what they fill in is not known."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from speclaunch.deployments.sources.deployment import to_deployment
from speclaunch.deployments.sources.files import read_text, read_yaml
from speclaunch.deployments.sources.sglang_yaml import looks_like
from speclaunch.deployments.sources.source_text import (
    TEMPLATE_SUFFIXES,
    TemplateError,
    template_of,
)
from tests.app.verbs.test_cli import run
from tests.support.lint_report import collect
from tests.support.loops import rows

DEPLOYMENT = """{{- if .Values.enabled }}
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ include "x.name" . }}}
spec:
  template:
    spec:
      containers:
        - name: sglang
          command: ["sglang", "serve", "--model-path", "{{ .Values.model }}"]
{{- end }}
"""
VALUES = "image: {tag: v0.5.10}\nmodel: m\nhost: 0.0.0.0\nport: 30000\nargs: [--tp=2] # sglang\n"
POD = "kind: Pod\napiVersion: v1\nspec:\n  containers:\n  - name: e\n    command: [{}]\n"


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """A repository with a chart in it, and a script beside it."""
    root = tmp_path / "deploy" / "chart"
    (root / "templates" / "deep").mkdir(parents=True)
    (root / "Chart.yaml").write_text("apiVersion: v2\nname: sglang\n")
    (root / "values.yaml").write_text(VALUES)
    (root / "values-prod.yaml").write_text(VALUES)
    (root / "templates" / "deep" / "deployment.yaml").write_text(DEPLOYMENT)
    (root / "templates" / "_helpers.tpl").write_text('{{- define "x.name" -}}sglang{{- end }}\n')
    (tmp_path / "run.sh").write_text("sglang serve --model-path m --port 31000\n")
    return tmp_path


@pytest.mark.thorough
def test_a_repository_with_a_chart_is_linted(chart: Path) -> None:
    done = run("lint", ".", cwd=chart)
    assert done.returncode == 0, done.stdout
    assert "in 2 deployments" in done.stdout
    told = " ".join(line for line in done.stdout.splitlines() if "helm template . |" in line)
    for name in ("values-prod.yaml", "values.yaml", "templates/_helpers.tpl"):
        assert f"deploy/chart/{name}" in told
    assert "deployment.yaml" not in told


@pytest.mark.thorough
def test_a_template_alone_is_exit_3(chart: Path) -> None:
    named = "deploy/chart/templates/_helpers.tpl"
    for words in (("lint", named), ("import", named), ("lint", "--output-format=json", named)):
        done = run(*words, cwd=chart)
        assert done.returncode == 3, words
        assert "is a Helm template: not checked" in done.stdout + done.stderr
    assert run("lint", named, "run.sh", cwd=chart).returncode == 0


def test_a_file_of_a_chart_without_marks_is_judged(chart: Path) -> None:
    file = chart / "deploy" / "chart" / "templates" / "pod.yaml"
    file.write_text(POD.replace("{}", "sglang, serve, --model-path, m"))
    (source,) = collect([str(file)])
    assert source.template is None and len(source.invocations) == 1


@rows(
    "name, text",
    [
        ("run.sh.j2", "{{ python }} -m {{ module }} --model-path {{ model }} # sglang serve\n"),
        ("pod.yaml", "model: {{ sglang_model }}\n"),
        ("pod.yaml", "{{ if x }}\n" + POD.replace("{}", "sglang, {{ serve }}") + "{{ end }}\n"),
        ("deploy.yaml.tmpl", "command: {{ .Command }} # sglang serve {{ .Args }}\n"),
        ("any.sh", "sglang {{ .Values.verb }} --model-path {{ .Values.model }}\n"),
        ("broken.yaml.j2", POD.replace("{}", "sglang, serve, [[ {{ tp }}")),
    ],
)
def test_a_template_that_shows_no_command(name: str, text: str) -> None:
    path = Path("/nowhere") / name
    assert template_of(text, path, is_yaml=name.endswith("yaml")) is not None
    with pytest.raises(TemplateError):
        read_text(text, name)


@rows(
    "name, text",
    [
        ("run.sh", "docker inspect -f '{{range .Mounts}}{{.Source}}{{end}}' x\n"),
        ("run.sh", "cat > t.jinja <<'E'\n{% for m in messages %}\n{{ m }}\n{% endfor %}\nE\n"),
        ("ci.yaml", "run: sglang serve --model-path ${{ matrix.model }}\n"),
        ("c.yaml", 'args: {chat_template: "{% for m in x %}{{ m }}{% endfor %}"}\n'),
        ("broken.yaml", "a: [sglang\n"),
        ("readme.md", "```yaml\nmodel: {{ model }}\n```\n"),
    ],
)
def test_no_template(name: str, text: str) -> None:
    assert template_of(text, Path("/nowhere") / name, is_yaml=name.endswith("yaml")) is None


def test_a_template_is_read_by_the_suffix_of_its_output() -> None:
    text = "containers:\n- command: [sglang, serve, --model-path, m]\n"
    unread = {end for end in TEMPLATE_SUFFIXES if not read_text(text, f"pod.yaml{end}").invocations}
    assert unread == set()


def test_marks_in_quoted_words_are_unknown_values() -> None:
    text = POD.replace(
        "{}", 'sglang, serve, --model-path, m, --tp-size, "{{ tp }}", "--port=3{{ p }}"'
    )
    (invocation,) = read_yaml(text, "pod.yaml").invocations
    unknown = [word.text for word in invocation.words if not word.evaluated]
    assert unknown == ["{{ tp }}", "--port=3{{ p }}"]
    text = "services:\n  a:\n    command: sglang serve --tp-size {{ tp }} --port 1\n"
    (invocation,) = read_yaml(text, "compose.yaml").invocations
    assert [word.text for word in invocation.words] == ["--tp-size", "{{ tp }}", "--port", "1"]
    assert [word.evaluated for word in invocation.words] == [True, False, True, True]
    assert to_deployment(invocation, "x", "0.5.23").args["tp_size"].value == "???"


@rows(
    "text, is_one",
    [
        ("model-path: m\ntp-size: 2\n", True),
        ("model_path: m\nspeculative_num_steps: 2\nmine: 1\n", True),
        ("enable-ep-moe: true\n", True),  # of an older release
        ("image: x\nreplicas: 1\n", False),  # --image-processor-backend
        ("image: x\nservice: x\nhost: x\nport: 1\n", False),
        ("speculative: x\nattention: y\n", False),
    ],
)
def test_an_engines_config_has_whole_names(text: str, is_one: bool) -> None:
    assert looks_like(yaml.compose(text)) is is_one


def test_a_list_of_arguments_is_no_recipe(tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(VALUES)
    assert not list(collect([str(tmp_path)]))
    (tmp_path / "r.yaml").write_text("name: x\nargs: [--model-path=sglang]\n")
    (source,) = collect([str(tmp_path / "r.yaml")])
    assert source.problems  # a recipe with a mistake
