"""NVIDIA Dynamo: `python -m dynamo.sglang` in scripts and graph deployments."""

from __future__ import annotations

from pathlib import Path

import pytest

from speclaunch.checks.edit.migrate_file import migrate_data
from speclaunch.deployments.sources.deployment import to_deployment
from speclaunch.deployments.sources.effective_words import followed
from speclaunch.deployments.sources.files import read_shell, read_text, read_words, read_yaml
from speclaunch.deployments.sources.interface import InvocationKind
from speclaunch.deployments.sources.wrappers import tagged_version
from tests.support.deployments.sources.helpers import at, dropped, env, lint_text, only, texts
from tests.support.lint_report import collect
from tests.support.loops import rows

GRAPH = """\
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: {name: g}
spec:
  envs: [{name: SHARED, value: "1"}]
  services:
    Frontend:
      componentType: frontend
      extraPodSpec:
        mainContainer: {image: nvcr.io/nvidia/ai-dynamo/sglang-runtime:1.1.0}
    decode:
      envs:
      - {name: SGLANG_X, value: a}
      extraPodSpec:
        mainContainer:
          image: nvcr.io/nvidia/ai-dynamo/sglang-runtime:1.1.0
          command: [python3, -m, dynamo.sglang]
          args:
          - --model-path
          - m
          - --dyn-tool-call-parser
          - hermes
          - --tp
          - "8"
    prefill:
      extraPodSpec:
        mainContainer:
          image: nvcr.io/nvidia/ai-dynamo/sglang-runtime:0.8.1-cuda13
          command: [/bin/sh, -c]
          args:
          - >-
            ulimit -l unlimited &&
            exec python3 -m dynamo.sglang
            --model-path m
            --disaggregation-mode prefill
"""


def test_the_services_of_a_graph() -> None:
    reading = read_yaml(GRAPH, "g.yaml")
    decode, prefill = reading.invocations
    assert decode.kind is prefill.kind is InvocationKind.DYNAMO
    assert (decode.name, prefill.name) == ("g/decode", "g/prefill")
    contexts = [server.server_context for server in (decode, prefill)]
    assert [context and context.place.line for context in contexts] == [13, 27]
    assert texts(decode) == ["--model-path", "m", "--tp", "8"]
    assert [at(word) for word in decode.words] == [(19, 13), (20, 13), (23, 13), (24, 14)]
    assert "--dyn-tool-call-parser hermes" in dropped(decode)
    assert env(decode) == {"SHARED": "1", "SGLANG_X": "a"}
    assert texts(prefill) == ["--model-path", "m", "--disaggregation-mode", "prefill"]
    assert at(prefill.words[2]) == (35, 13)
    assert tagged_version(decode.image) == "0.5.10.post1"
    assert tagged_version(prefill.image) == "0.5.6.post2"


def test_components_of_the_newer_form() -> None:
    text = (
        "apiVersion: nvidia.com/v1beta1\nkind: DynamoGraphDeployment\nmetadata: {name: g}\nspec:\n"
        "  components:\n  - name: decode\n    podTemplate:\n      spec:\n        containers:\n"
        "        - name: main\n          command: [python3, -m, dynamo.sglang, --model, m]\n"
    )
    assert only(read_yaml(text, "g.yaml")).name == "g/decode"


@rows(
    "words, kept",
    [
        ("--endpoint dyn://a.b.c --tp 2", "--tp 2"),
        ("--migration-limit=3 --tp 2", "--tp 2"),
        ("--output-modalities text image --tp 2", "--tp 2"),
        ("--embedding-worker --tp 2", "--tp 2"),
        ("--no-router-kv-events --router-mode kv --tp 2", "--tp 2"),
        ("--use-sglang-tokenizer", ""),
        ("--disaggregation-mode agg --tp 2", "--tp 2"),
        ("--disaggregation-mode=pd --tp 2", "--tp 2"),
        ("--disaggregation-mode prefill", "--disaggregation-mode prefill"),
        ("--load-format gms --tp 2", "--tp 2"),
        ("--load-format auto", "--load-format auto"),
        ("--enable-multimodal", "--enable-multimodal"),
        ("--speculative-algorithm EAGLE", "--speculative-algorithm EAGLE"),
    ],
)
def test_what_sglangs_parser_gets(words: str, kept: str) -> None:
    found = only(read_shell(f"python -m dynamo.sglang {words}\n", "x.sh"))
    assert texts(found) == kept.split()
    said = " ".join(dropped(found)).split()
    assert sorted([*said, *kept.split()]) == sorted(words.split())


@pytest.mark.parametrize(
    "words", ["--disagg-config a.yaml --disagg-config-key p", "--config a.yaml --config-key p"]
)
def test_a_section_of_a_file_is_not_judged(words: str) -> None:
    found = only(read_shell(f"python3 -m dynamo.sglang --tp 2 {words}\n", "x.sh"))
    assert texts(found) == ["--tp", "2", "--config", "a.yaml"]
    assert not found.words[-1].evaluated


def test_older_modules_and_a_command_line() -> None:
    for module in ("dynamo.sglang.worker", "dynamo.sglang.decode_worker", "dynamo.sglang.main"):
        assert read_shell(f"python3 -m {module} --tp 2\n", "x.sh").invocations
    assert not read_shell("python3 -m dynamo.sglang.utils.clear --tp 2\n", "x.sh").invocations
    assert not read_shell("python3 -m dynamo.vllm --tp 2\n", "x.sh").invocations
    found = only(read_words(["python3", "-m", "dynamo.sglang", "--namespace", "x", "--tp", "2"]))
    assert texts(found) == ["--tp", "2"]


def test_a_sidecar_is_no_server() -> None:
    text = (
        "kind: Pod\napiVersion: v1\nspec:\n  containers:\n"
        "  - command: [dynamo-sglang-sidecar, --sglang-endpoint, 'a:1']\n"
    )
    assert not read_yaml(text, "x.yaml").invocations


@rows(
    "image, release",
    [
        ("nvcr.io/nvidia/ai-dynamo/sglang-runtime:0.3.2", None),
        ("nvcr.io/nvidia/ai-dynamo/sglang-runtime:0.4.0", "0.4.9.post6"),
        ("nvcr.io/nvidia/ai-dynamo/sglang-runtime:0.5.1", "0.5.0rc2"),
        ("nvcr.io/nvidia/ai-dynamo/sglang-runtime:0.7.0.post1", "0.5.4.post3"),
        ("my/sglang-runtime:v1.3.1-cuda13", "0.5.14"),
        ("my/sglang-runtime:1.6.1", "0.5.21"),
        ("my/sglang-runtime:1.9.0", None),
        ("my/sglang-runtime:1.3.0-glm-5.2-dev.1", None),
        ("my/sglang-runtime:my-tag", None),
        ("lmsysorg/sglang:v0.5.8", "0.5.8"),
    ],
)
def test_the_release_of_an_image(image: str, release: str | None) -> None:
    assert tagged_version(image) == release


CONFIG_MAP = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
data:
  agg.yaml: |
    model-path: m
    tp-size: two
---
apiVersion: v1
kind: Pod
spec:
  containers:
  - image: x
    command: [python3, -m, dynamo.sglang, --config, /etc/sglang/agg.yaml]
"""


def test_the_file_of_config_in_a_config_map_is_followed(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    found = only(followed(read_yaml(CONFIG_MAP, str(file)), file))
    assert found.config is not None and found.config.text is not None
    (finding,) = [f for f in lint_text(CONFIG_MAP, "x.yaml", tmp_path) if f.code == "SPL003"]
    assert (finding.place.line, finding.place.column) == (7, 5)


def test_dynamos_own_arguments_are_no_findings(tmp_path: Path) -> None:
    command = "python -m dynamo.sglang --model-path m --dyn-reasoning-parser x --tp 2\n"
    codes = {finding.code for finding in lint_text(command, "x.sh", tmp_path)}
    assert not codes & {"SPL001", "SPL002", "SPL003"}
    misspelt = command.replace("--tp 2", "--speculativ-algoritm EAGLE")
    assert "SPL001" in {finding.code for finding in lint_text(misspelt, "x.sh", tmp_path)}


def test_it_is_imported_and_migrated() -> None:
    command = "python -m dynamo.sglang --model-path m --migration-limit 3 --cuda-graph-max-bs 8\n"
    found = only(read_text(command, "x.sh"))
    assert set(to_deployment(found, "x", "0.5.11").args) == {"model_path", "cuda_graph_max_bs"}
    _, migration = migrate_data(command.encode(), "x.sh", "0.5.23", "0.5.11")
    assert migration.text == command.replace("--cuda-graph-max-bs", "--cuda-graph-max-bs-decode")


def test_a_directory_is_searched_for_it(tmp_path: Path) -> None:
    (tmp_path / "x.sh").write_text("python -m dynamo.sglang --model-path m\n")
    (source,) = collect([str(tmp_path)])
    assert source.invocations
