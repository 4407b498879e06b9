"""A command in a container is judged for the release of its image."""

from __future__ import annotations

from pathlib import Path

import pytest

from speclaunch.checks.lint.configuration import Options
from speclaunch.checks.rules.examine import Lookup
from speclaunch.checks.rules.registry import all_rules
from speclaunch.deployments.sources.wrappers import image_version
from speclaunch.engine.releases.catalogue import held_versions
from tests.support.lint_report import collect, lint
from tests.support.loops import rows

COMPOSE = """services:
  old:
    image: {old}
    command: python3 -m sglang.launch_server --model-path m --cuda-graph-max-bs 8
  new:
    image: {new}
    command: [python3, -m, sglang.launch_server, --model-path, m, --cuda-graph-max-bs, "8"]
"""
POD = """apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
    - name: server
      image: registry.example/lmsysorg/sglang:v0.5.9-cu129
      command: [bash, -c, "python3 -m sglang.launch_server --model-path m"]
"""
SCRIPT = """docker run --gpus all lmsysorg/sglang:v0.5.7 \\
  python3 -m sglang.launch_server --model-path m
docker run lmsysorg/sglang:v0.5.3 bash -c "python3 -m sglang.launch_server --model-path m"
"""


def engines(path: Path, *versions: str) -> list[tuple[str, int, int]]:
    report = lint(collect([str(path)]), Options(Lookup(), all_rules(), versions))
    errors = [sum(f.severity == "error" for f in file.findings) for file in report.files]
    return [
        (file.engine, file.deployments, count)
        for file, count in zip(report.files, errors, strict=True)
    ]


@rows(
    "image, version",
    [
        ("lmsysorg/sglang:v0.5.10.post1", "0.5.10.post1"),
        ("lmsysorg/sglang:v0.5.9-cu129-amd64", "0.5.9"),
        ("registry.example:5000/x/sglang-rocm:0.5.3.post3-rocm630", "0.5.3.post3"),
        ("lmsysorg/sglang:latest", None),
        ("lmsysorg/sglang", None),
        ("lmsysorg/sglang:v9.9.9", held_versions()[-1]),
        ("vllm/vllm-openai:v0.5.9", None),
        ("", None),
        (None, None),
    ],
)
def test_the_release_of_a_tag(image: str | None, version: str | None) -> None:
    assert image_version(image) == version


@pytest.mark.thorough
def test_each_service_has_its_own(tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(COMPOSE.format(old="lmsysorg/sglang:v0.5.9", new="lmsysorg/sglang:v0.5.23"))
    assert engines(file) == [("0.5.9", 1, 0), ("0.5.23", 1, 1)]
    assert engines(file, "0.5.9") == [("0.5.9", 2, 0)]
    file.write_text(COMPOSE.format(old="${IMAGE:-lmsysorg/sglang:v0.5.9}", new="$IMAGE"))
    assert engines(file) == [("0.5.9", 1, 0), (held_versions()[-1], 1, 0)]


def test_pods_and_docker_run(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(POD)
    assert [engine for engine, _, _ in engines(tmp_path / "pod.yaml")] == ["0.5.9"]
    (tmp_path / "run.sh").write_text(SCRIPT)
    found = [(engine, number) for engine, number, _ in engines(tmp_path / "run.sh")]
    assert found == [("0.5.7", 1), ("0.5.3.post3", 1)]
