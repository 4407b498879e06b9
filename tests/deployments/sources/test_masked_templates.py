"""Templates read without rendering them."""

from __future__ import annotations

from pathlib import Path

import pytest

from speclaunch.checks.edit.migrate_file import migrate_data
from speclaunch.deployments.sources.files import read_text
from speclaunch.deployments.sources.interface import Invocation
from speclaunch.deployments.sources.templates import Masks
from tests.support.deployments.sources.helpers import at, lint_text, only

HELM = """\
{{- $registry := include "x" . | fromYaml }}
{{- range $name, $model := .Values.models }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: srt-{{ $name }}
  labels:
    {{- include "labels" $ | nindent 4 }}
spec:
  template:
    spec:
      containers:
      - name: e
        image: {{ $model.image | default "x" }}
        command:
        - python3
        - -m
        - sglang.launch_server
        - --model-path
        - "{{ $model.path }}"
        - --tp-size
        - {{ $model.gpus }}
        - --mem-fraction-static
        - "0.9"
{{- if $model.pd }}
        - --disaggregation-mode
        - prefill
{{- else }}
        - --disaggregation-mode
        - decode
{{- end }}
        {{- with $model.extraArgs }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        - --trust-remote-code
        env: []
{{- end }}
"""
JINJA = """\
#!/bin/bash
{% set tp = 4 %}
{# a comment about sglang #}
python3 -m sglang.launch_server \\
  --model-path {{ model | default("x y") }} \\
{% if spec %}
  --speculative-algorithm EAGLE \\
{% endif %}
  --port {{ port }} --tp 2
"""


def said(found: Invocation) -> dict[str, bool]:
    return {word.text: word.evaluated for word in found.words}


def test_a_helm_template() -> None:
    found = only(read_text(HELM, "templates/x.yaml"))
    known = [word.text for word in found.words if word.evaluated]
    assert known == [
        *("--model-path", "--tp-size", "--mem-fraction-static", "0.9", "--trust-remote-code"),
    ]
    assert said(found)["{{ $model.path }}"] is said(found)["{{ $model.gpus }}"] is False
    assert said(found)["--disaggregation-mode"] is said(found)["prefill"] is False
    assert found.name == "srt-{{ $name }}/e" and found.read_only is not None
    by_text = {word.text: at(word) for word in found.words}
    assert by_text["--model-path"] == (20, 11)
    assert by_text["{{ $model.gpus }}"] == (23, 11)
    assert by_text["--trust-remote-code"] == (36, 11)


def test_what_a_template_fills_in_is_neither_set_nor_left_out(tmp_path: Path) -> None:
    text = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: s}\nspec:\n  containers:\n"
        "    - name: s\n      image: {{ .Values.image }}\n"
        "      command: [python3, -m, sglang.launch_server, --model-path, m]\n      args:\n"
        "        {{- range .Values.args }}\n        - {{ . | quote }}\n        {{- end }}\n"
        "      livenessProbe:\n        httpGet: {path: {{ .Values.path }}, port: 30000}\n"
    )
    codes = {"SPL852", "SPL856", "SPL861"}
    assert not codes & {finding.code for finding in lint_text(text, "pod.yaml", tmp_path)}
    plain = text.replace("{{ .Values.image }}", "sglang").replace("{{ .Values.path }}", "/v1/models")
    without = "".join(line for line in plain.splitlines(keepends=True) if "{{" not in line)
    assert codes < {finding.code for finding in lint_text(without, "plain.yaml", tmp_path)}


def test_a_jinja_script() -> None:
    found = only(read_text(JINJA, "run.sh.j2"))
    assert said(found) == {
        "*": False, "--model-path": True, '{{ model | default("x y") }}': False,
        "--speculative-algorithm": False, "EAGLE": False,
        "--port": True, "{{ port }}": False, "--tp": True, "2": True,
    }  # fmt: skip
    assert at(found.words[-1]) == (9, 26)


def test_what_stands_in_the_branch_of_the_command_is_known() -> None:
    text = "{% if a %}\nsglang serve --tp 2\n{% else %}\nsglang serve --tp 4\n{% endif %}\n"
    first, second = read_text(text, "x.sh.j2").invocations
    assert said(first)["2"] and said(second)["4"]


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "text"), [("templates/x.yaml", HELM), ("run.sh.j2", JINJA)])
def test_a_template_is_judged_without_false_errors(name: str, text: str, tmp_path: Path) -> None:
    file = name.rpartition("/")[2]
    assert not [one for one in lint_text(text, file, tmp_path) if one.severity == "error"]
    wrong = text.replace("--tp", "--tpp")
    errors = [one for one in lint_text(wrong, file, tmp_path) if one.severity == "error"]
    assert [one.code for one in errors] == ["SPL001"]
    line = next(n for n, one in enumerate(wrong.split("\n"), 1) if "--tpp" in one)
    assert errors[0].place.line == line


def test_a_template_is_not_edited() -> None:
    text = JINJA.replace("--tp 2", "--cuda-graph-max-bs 4")
    _, migration = migrate_data(text.encode(), "run.sh.j2", "0.5.23", "0.5.11")
    assert migration.text == text
    assert any("it is a template" in problem.message for problem in migration.problems)


def test_marks_have_the_length_that_is_asked_for() -> None:
    masks = Masks("x")
    marks = [masks.mark(f"<{n}>", length) for n, length in enumerate([4, 9, 40] * 700)]
    assert [len(mark) for mark in marks[:3]] == [4, 9, 40]
    assert len(set(marks)) == len(marks)
    assert masks.shown(f"a{marks[-1]}b{marks[0]}") == f"a<{len(marks) - 1}>b<0>"


def test_a_template_that_is_no_yaml_until_it_is_rendered() -> None:
    text = """\
kind: Pod
spec:
  {{- toYaml .x | nindent 2 }}
  containers:
 - command:
    - bash
    - -c
    - |
      python3 -m sglang.launch_server \\
        --model-path {{ .m }} \\
        --tp 8 --{{ .k }}{{ if not .v }} false{{ end }}
"""
    found = only(read_text(text, "x.yaml.tpl"))
    assert [word.text for word in found.words if word.evaluated] == ["--model-path", "--tp", "8"]
