"""Marks of a chart's templates that its `values.yaml` determines."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from speclaunch.deployments.sources.files import read_text
from speclaunch.deployments.sources.interface import Invocation
from tests.support.loops import over

VALUES = """
image: {repository: lmsysorg/sglang, tag: v0.5.6}
model: org/m
server: {port: 30000, fraction: 0.85, trust: true, big: 1048576, quiet: false, text: a b}
draft: ""
mode: fast
empty: []
extra: [--speculative-eagle-topk, 1, --log-level, info]
nested: [{name: A}]
large: [--context-length, 1048576]
flags: {tp: 2, dtype: half}
"""
POD = """apiVersion: v1
kind: Pod
metadata: {name: s}
spec:
  containers:
    - name: s
      image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
      command: [python3, -m, sglang.launch_server]
      args:
        - --model-path
        - {{ .Values.model | quote }}
%s
      env:
        {{- toYaml .Values.extra | nindent 8 }}
"""


def arguments(lines: str, tmp_path: Path, values: str = VALUES) -> Invocation:
    (tmp_path / "templates").mkdir(exist_ok=True)
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: c\n")
    (tmp_path / "values.yaml").write_text(values)
    indented = "\n".join(f"        {line}" for line in lines.splitlines())
    (found,) = read_text(POD % indented, str(tmp_path / "templates" / "pod.yaml")).invocations
    return found


def said(found: Invocation) -> str:
    shown = (word.text if word.evaluated else "?" for word in found.words[1:])
    return " ".join(shown).removeprefix("--model-path org/m").strip()


@over(
    [
        ("- --port\n- {{ .Values.server.port | quote }}", "--port 30000"),
        ('- "--port={{ $.Values.server.port }}"', "--port=30000"),
        ("- --mem-fraction-static\n- {{ .Values.server.fraction }}", "--mem-fraction-static 0.85"),
        ("- --tp\n- {{ .Values.server.tp | default 2 | quote }}", "--tp 2"),
        ("- --tp\n- {{ default 2 .Values.server.port }}", "--tp 30000"),
        ("- --context-length\n- {{ .Values.server.big }}", "--context-length ?"),
        ("- --port\n- {{ .Values.server.port | int | quote }}", "--port 30000"),
        ("- --x\n- {{ .Values.server.fraction | int }}", "--x ?"),
        ("{{- toYaml .Values.large | nindent 8 }}\n- --tp\n- 2", "--tp 2"),
        ("- --served-model-name\n- {{ .Values.server.text }}", "--served-model-name a b"),
        ("- --tokenizer-path\n- {{ .Values.draft }}", "--tokenizer-path ?"),
        ("- --tp\n- {{ .Values.nowhere.tp }}", "--tp ?"),
        ("- --tp\n- {{ .Values.tp | upper }}", "--tp ?"),
        ("{{- if .Values.server.trust }}\n- --trust-remote-code\n{{- end }}", "--trust-remote-code"),
        ("{{- if .Values.server.quiet }}\n- --trust-remote-code\n{{- end }}", ""),
        ("{{- if not .Values.draft }}\n- --disable-radix-cache\n{{- end }}", "--disable-radix-cache"),
        ("{{- if .Values.draft }}\n- a\n{{- else }}\n- --enable-metrics\n{{- end }}", "--enable-metrics"),
        (
            '{{- if eq .Values.mode "slow" }}\n- a\n{{- else if eq .Values.mode "fast" }}\n'
            "- --enable-metrics\n{{- else }}\n- b\n{{- end }}",
            "--enable-metrics",
        ),
        (
            "{{- if .Values.draft }}\n{{- if .Release.IsInstall }}\n- a\n{{- else }}\n- b\n{{- end }}\n"
            "{{- end }}\n- --tp\n- 2",
            "--tp 2",
        ),
        ("{{- if .Release.IsInstall }}\n- --enable-metrics\n{{- end }}\n- --tp\n- 2", "? --tp 2"),
        (
            "{{- if .Release.IsInstall }}\n- a\n{{- else if .Values.draft }}\n- b\n{{- else }}\n- c\n"
            "{{- end }}",
            "? ?",
        ),
        ("- --tp\n- 2\n{{- toYaml .Values.extra | nindent 8 }}",
         "--tp 2 --speculative-eagle-topk 1 --log-level info"),
        ("{{- if .Values.draft }}\n{{- toYaml .Values.extra | nindent 8 }}\n{{- end }}", ""),
        ("{{- toYaml .Values.empty | nindent 8 }}\n- --tp\n- 2", "--tp 2"),
        ("{{- toYaml .Values.nested | nindent 8 }}\n- --tp\n- 2", "--tp 2"),
    ]
)  # fmt: skip
def test_arguments_that_the_values_determine(case: tuple[str, str]) -> None:
    with TemporaryDirectory() as folder:
        assert said(arguments(case[0], Path(folder))) == case[1]


def test_the_image_states_the_release_and_values_name_their_file(tmp_path: Path) -> None:
    found = arguments("- --tp\n- 2", tmp_path)
    assert found.image == "lmsysorg/sglang:v0.5.6"
    assert found.words[2].why == "the value in the chart's values.yaml"
    assert (found.words[2].place.line, found.words[2].place.column) == (11, 11)


@pytest.mark.parametrize("values", ["", "- 1\n", "a: [\n", "server: text\n"])
def test_values_without_the_reference_leave_it_unknown(values: str, tmp_path: Path) -> None:
    found = arguments("- --port\n- {{ .Values.server.port }}", tmp_path, values)
    assert [word.evaluated for word in found.words[1:]] == [True, False, True, False]


ENDLESS = (
    "broken: '{{ if .x }}'\nendless: '{{ tpl .Values.endless . }}{{ tpl .Values.endless . }}'\n"
)
HELPERS = """
{{- define "c.name" -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- define "c.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag }}
{{- end -}}
{{- define "c.args" -}}
- --port
- {{ .Values.server.port | quote }}
{{- if and .Values.server.trust (gt (int .Values.server.port) 1) }}
- --trust-remote-code
{{- end }}
{{- if .Release.IsInstall }}
- --enable-metrics
{{- end }}
{{- end -}}
{{- define "c.open" -}}
{{- if .Release.IsInstall }}true{{ end -}}
{{- end -}}
{{- define "c.loop" -}}{{ include "c.loop" . }}{{ include "c.loop" . }}{{- end -}}
"""


@over(
    [
        ('{{- include "c.args" . | nindent 8 }}', "--port 30000 --trust-remote-code ?"),
        ('- --served-model-name\n- {{ include "c.name" . }}', "--served-model-name ?"),
        ('- "--dist-init-addr=http://{{ include "c.name" . }}:1"', "?"),
        ('- --served-model-name\n- {{ include "c.image" . }}', "--served-model-name lmsysorg/sglang:v0.5.6"),
        ('{{- include "nowhere" . | nindent 8 }}\n- --tp\n- 2', "--tp 2"),
        ('{{- include "c.loop" . | nindent 8 }}\n- --tp\n- 2', "--model-path ? --tp 2"),
        ("{{- with .Values.server }}\n- --port\n- {{ .port | quote }}\n{{- end }}", "--port 30000"),
        ("{{- with .Values.server }}\n- --served-model-name\n- {{ $.Values.model }}\n{{- end }}", "--served-model-name org/m"),
        ("{{- range .Values.extra }}\n- {{ . | quote }}\n{{- end }}", "--speculative-eagle-topk 1 --log-level info"),
        ("{{- range $k, $v := .Values.flags }}\n- --{{ $k }}\n- {{ $v | quote }}\n{{- else }}\n- x\n{{- end }}", "--dtype half --tp 2"),
        ("{{- range $k, $v := .Values.flags }}\n- --{{ $k }}={{ $v }}\n{{- end }}", "--dtype=half --tp=2"),
        ("{{- range .Values.empty }}\n- x\n{{- else }}\n- --enable-metrics\n{{- end }}", "--enable-metrics"),
        ("{{- range .Release.Names }}\n- {{ . }}\n{{- end }}\n- --tp\n- 2", "? --tp 2"),
        ('{{- $tp := 4 }}\n{{- if .Release.IsInstall }}{{ $tp = 2 }}{{ end }}\n- --tp\n- {{ $tp }}', "--tp ?"),
        ('{{- $tp := 4 }}\n{{- if .Values.model }}{{ $tp = 2 }}{{ end }}\n- --tp\n- {{ $tp }}', "--tp 2"),
        ('{{- $first := true }}{{- range .Values.nested }}{{ if not $first }},{{ end }}{{ $first = false }}{{ end }}\n- --tp\n- 2', "--tp 2"),
        ('- --served-model-name\n- {{ printf "%s-%v" .Values.mode .Values.server.port }}', "--served-model-name fast-30000"),
        ('- --served-model-name\n- {{ printf "%s-%s" .Values.mode .Release.Name }}', "--served-model-name ?"),
        ('- --served-model-name\n- {{ ternary "a" "b" .Values.server.trust }}', "--served-model-name a"),
        ('- --served-model-name\n- {{ (index .Values.nested 0).name | lower }}', "--served-model-name a"),
        ('- --served-model-name\n- {{ .Values.nowhere | default .Chart.Name }}', "--served-model-name c"),
        ('- --served-model-name\n- {{ .Values.mode | replace "f" "l" | trimSuffix "t" }}', "--served-model-name las"),
        ('- --served-model-name\n- {{ printf "%s%s" "a" }}', "--served-model-name ?"),
        (f"- --tp\n- {{{{ {10**400} }}}}", "--tp ?"),
        (f"{{{{ if gt {10**400} 1 }}}}\n- --tp\n- 2\n{{{{ end }}}}", "--tp 2"),
        ('- --served-model-name\n- {{ tpl "{{ .Values.model }}" . }}', "--served-model-name ?"),
        ('{{- if hasPrefix "org/" .Values.model }}\n- --enable-metrics\n{{- end }}', "--enable-metrics"),
        ('{{- if include "c.open" . }}\n- --tp\n- 2\n{{- end }}', "? ?"),
        ('{{- $x := include "c.image" . }}{{- if .Release.Name }}\n- --y\n- {{ $x }}\n{{- end }}', "? ?"),
        ('- --served-model-name\n- {{ printf "%s" .Values.server.port }}', "--served-model-name ?"),
        ("- --tp\n- {{ and }}", "--tp ?"),
        ("{{- $x := list }}{{- range $k, $v := .Values.flags }}\n{{- $x = append $x (printf \"--%s=%v\" $k $v) }}"
         "{{- end }}\n{{- range $x }}\n- {{ . }}\n{{- end }}", "--dtype=half --tp=2"),
        ("{{- range concat .Values.empty (list \"--x\") }}\n- {{ . }}\n{{- end }}", "--x"),
        ("{{- range $k, $v := .Values.server }}\n{{- if eq (typeOf $v) \"bool\" }}\n{{- if $v }}\n- --{{ $k }}\n{{- end }}"
         "\n{{- else if eq (typeOf $v) \"string\" }}\n- --{{ $k }}={{ $v }}\n{{- end }}\n{{- end }}", "--text=a b --trust"),
        ('- --x={{ kindOf .Values.extra }}\n- --y={{ .Values.draft | typeOf }}', "--x=slice --y=string"),
        ('{{- if has "--log-level" .Values.extra }}\n- --x\n{{- end }}\n{{- if has 1 .Values.extra }}\n- --y\n{{- end }}', "--x ?"),
        ('- --json-model-override-args\n- {{ .Values.flags | toJson | quote }}', '--json-model-override-args {"tp": 2, "dtype": "half"}'),
        ("{{- tpl .Values.templated . | nindent 8 }}", "--tp 30000"),
        ('- --x\n- {{ tpl .Values.broken . }}', "--x ?"),
        ("- --x\n- {{ tpl .Values.endless . }}\n", "--model-path ? --x ?"),
        ("{{ $x := .Values.extra }}" + "{{ $x = list $x $x }}" * 40 + "\n- --x\n- {{ toJson $x }}\n- {{ eq $x $x }}", "--x ? ?"),
        ("{{/* - --tp */}}\n- --tp\n- 2", "--tp 2"),
        ("{{- if .Values.draft }}\n- --tp", "--model-path ? ?"),
        ("{{ $x := 1 }}" + '{{ $x = dict "a" $x "b" $x }}' * 40 + "\n- --x\n- {{ toJson $x }}", "--x ?"),
    ]
)  # fmt: skip
def test_arguments_of_blocks_and_named_templates(case: tuple[str, str]) -> None:
    with TemporaryDirectory() as folder:
        (Path(folder) / "templates").mkdir()
        (Path(folder) / "templates" / "_helpers.tpl").write_text(HELPERS)
        values = VALUES + 'templated: "- --tp\\n- {{ .Values.server.port }}"\n' + ENDLESS
        assert said(arguments(case[0], Path(folder), values)) == case[1]


def test_a_parent_chart_replaces_values(tmp_path: Path) -> None:
    chart = tmp_path / "charts" / "llm"
    chart.mkdir(parents=True)
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: parent\n")
    parent = "global: {host: h}\nllm:\n  server: {port: 1, fraction: null}\n  mode: slow\nmode: x\n"
    (tmp_path / "values.yaml").write_text(parent)
    names = ("server.port", "server.trust", "server.fraction", "mode", "global.host")
    lines = "\n".join(f"- {{{{ .Values.{name} | quote }}}}" for name in names)
    assert said(arguments(lines, chart)) == "1 true ? slow h"


def test_places_are_those_of_the_template(tmp_path: Path) -> None:
    lines = "{{- if .Values.draft }}\n- --x\n{{- end }}\n{{- range .Values.extra }}\n- {{ . }}\n{{- end }}\n- --tp\n- 2"
    found = arguments(lines, tmp_path)
    places = {
        word.text: (word.place.line, word.place.column, word.place.length) for word in found.words
    }
    assert places["--speculative-eagle-topk"] == places["info"] == (16, 11, 7)
    assert places["--tp"] == (18, 11, 4)


SCRIPT = """
sglang serve {{ .Values.model }} \\
{{- if .Values.draft }}
  --speculative-draft-model-path {{ .Values.draft }} \\
{{- end }}
  {{ .Release.Options }} \\
  --tp {{ .Values.server.tp | default 2 }} \\
  {{- range .Values.extra }}
  {{ . }} \\
  {{- end }}
  --port 1
"""


def test_a_script_keeps_its_continued_lines(tmp_path: Path) -> None:
    arguments("- --tp\n- 2", tmp_path)
    (found,) = read_text(SCRIPT, str(tmp_path / "templates" / "_start.tpl")).invocations
    words = [word.text if word.evaluated else "?" for word in found.words]
    shown = "? org/m ? --tp 2 --speculative-eagle-topk 1 --log-level info --port 1"
    assert " ".join(words) == shown


def test_output_beyond_the_limits_is_not_rendered(tmp_path: Path) -> None:
    values = f"model: org/m\nextra: [{', '.join(['a' * 9] * 5000)}]\n"
    found = arguments("{{- toYaml .Values.extra | nindent 8 }}\n" * 100, tmp_path, values)
    assert said(found) == ""


PROBED = POD.replace(
    "      env:",
    """      livenessProbe:
        httpGet: {path: /health, port: 30000}
        timeoutSeconds: {{ .Values.server.timeout }}
      env:""",
)


def test_the_settings_of_a_pod_have_places_in_the_template(tmp_path: Path) -> None:
    values = VALUES.replace("port: 30000", "port: 30000, timeout: 1")
    arguments("- --tp\n- 2", tmp_path, values)
    text = PROBED.replace("%s", "        - --tp\n        - 2")
    (found,) = read_text(text, str(tmp_path / "templates" / "pod.yaml")).invocations
    assert found.server_context is not None
    (probe,) = found.server_context.pod.probes
    assert probe.timeout is not None and probe.timeout.value == 1
    assert text.splitlines()[probe.timeout.place.line - 1].strip().startswith("timeoutSeconds: {{")


def test_output_that_a_loop_repeats_counts(tmp_path: Path) -> None:
    values = f"model: org/m\nimage: {{repository: {'a' * 9000}, tag: b}}\nextra: [{', '.join('a' * 200)}]\n"
    lines = '{{- $x := include "c.image" . }}\n{{- range .Values.extra }}\n- {{ $x }}\n{{- end }}'
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "_helpers.tpl").write_text(HELPERS)
    assert said(arguments(lines, tmp_path, values)) == "--model-path ? ?"
