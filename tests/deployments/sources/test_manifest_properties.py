"""Manifests, tasks and templates of any content: no crash, no hang, places inside of the file."""

from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speclaunch.core.errors import SpeclaunchError
from speclaunch.deployments.sources.files import read_text

KEYS = st.sampled_from(
    [
        *("kind: Pod", "apiVersion: v1", "spec:", "containers:", "command:", "args:", "env:"),
        *("commands:", "run: |", "script:", "envs:", "resources:", "gpu: H100:8", "image: x:1"),
        *("backend:", "sglang_config:", "prefill:", "decode: &d", "base:", "override_a:"),
        *("zip_override_b:", "tp-size: [1, 2]", "model: {path: m}", "<<: *d", "data:", "name: {{ n }}"),
        *("- sglang serve --tp 2", "- -m", "- dynamo.sglang", "- python3 -m sglang.launch_server \\"),
        *("{{- if .Values.x }}", "{{- end }}", "{% for x in y %}", "{% endfor %}", "- {{ . | quote }}"),
        *("- --tp={{ tp }}", '- "{{ a }} --tp 2"', "{# sglang", "#}", "--port {{ p }} \\", "- >-"),
        *("mainContainer:", "extraPodSpec:", "- {name: A, value: $(B)}", "- A=1", "- A", "? {a: b}"),
    ]
)  # fmt: skip
LINES = st.lists(st.tuples(st.integers(0, 5), KEYS), max_size=25)


@pytest.mark.thorough
@settings(max_examples=400, deadline=None)
@given(LINES, st.sampled_from(["x.yaml", "x.yaml.j2", "x.sh.j2", "templates/x.tpl", "x.yml"]))
def test_nothing_breaks_the_readers(lines: list[tuple[int, str]], name: str) -> None:
    text = "# sglang serve\n" + "\n".join("  " * depth + line for depth, line in lines)
    try:
        found = read_text(text, name).invocations
    except SpeclaunchError:
        return
    for one in found:
        for word in (*one.words, *one.program, *one.env.values()):
            assert 1 <= word.place.line <= text.count("\n") + 2
            assert "\ue000" not in word.text


BOMB = "a: &a [sglang serve --tp 2]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(20)
)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.yaml", BOMB),
        ("x.yaml", "commands: " + "[" * 400 + "sglang serve" + "]" * 400),
        ("x.yaml", "commands:\n" + "- sglang serve --tp 2\n" * 30_000),
        (
            "x.yaml",
            "env: {" + ", ".join(f"A{n}: b" for n in range(20_000)) + "}\n" + "x: {y: 1}\n" * 9,
        ),
        ("x.yaml", "- env: {A: b}\n  run: sglang serve\n" * 20_000),
        ("x.yaml", "kind: Pod\nspec:\n" + "- command: [sglang, serve]\n" * 20_000),
        (
            "x.yaml",
            "a: &a {env: [A=1]}\nb:\n" + "- {<<: *a, command: [sglang, serve, m]}\n" * 20_000,
        ),
        (
            "x.yaml",
            "base: {backend: {sglang_config: {prefill: {a: 1}}}}\n"
            + "".join(f"zip_override_{n}: {{x: [{'1, ' * 900}1]}}\n" for n in range(50)),
        ),
        ("x.yaml.j2", "{{ sglang }}" * 200_000),
        ("x.yaml.j2", "{% if x %}\n" * 50_000 + "- sglang serve\n"),
        ("x.sh.j2", "sglang serve --a {{ b }} \\\n" * 20_000),
        ("x.yaml.j2", "{{" * 400_000 + " sglang serve"),
        ("x.yaml.j2", "{# sglang serve " * 60_000),
    ],
    ids=range(13),
)
def test_hostile_manifests_are_bounded(name: str, text: str) -> None:
    start = time.monotonic()
    with contextlib.suppress(SpeclaunchError):
        read_text(text, name)
    assert time.monotonic() - start < 20
