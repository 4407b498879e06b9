"""Marks of a chart's templates that its `values.yaml` determines."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml

from speclaunch.core import InputError
from speclaunch.deployments.sources.files import read_text
from speclaunch.deployments.sources.helm_values import ChartValues
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
        ("- --served-model-name\n- {{ .Values.server.text }}", "--served-model-name ?"),
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


def test_a_script_keeps_its_continued_lines_without_an_excluded_branch() -> None:
    masked_script = (
        "sglang serve \\\n{{- if .Values.draft }}\n  --speculative-draft-model-path {{ .Values.draft }} \\\n"
        "{{- end }}\n  --tp {{ .Values.tp }} \\\n  --port 1\n"
    )
    from speclaunch.deployments.sources import templates

    masked = templates._Masked(masked_script, ChartValues(yaml.safe_load("draft: ''\ntp: 2")))
    assert "--speculative" not in masked.text
    assert all(line.endswith("\\") for line in masked.text.splitlines()[:-1])


def test_lists_that_expand_to_too_many_arguments_are_refused(tmp_path: Path) -> None:
    values = f"model: org/m\nextra: [{', '.join(['a'] * 5000)}]\n"
    with pytest.raises(InputError, match="too large to read"):
        arguments("{{- toYaml .Values.extra | nindent 8 }}\n" * 100, tmp_path, values)
