"""Tasks of dstack and SkyPilot, CI jobs, playbooks, values: YAML that holds commands."""

from __future__ import annotations

import json

from speclaunch.deployments.sources.files import read_yaml
from speclaunch.deployments.sources.wrappers import declared
from tests.support.deployments.sources.helpers import at, env, only, texts
from tests.support.loops import rows

DSTACK = """\
type: service
name: r1
image: lmsysorg/sglang:v0.5.8
env:
  - MODEL_ID=org/m
  - HF_TOKEN
  - SGLANG_X=1
commands:
  - pip install x
  - |
    python3 -m sglang.launch_server \\
      --model-path $MODEL_ID \\
      --tp $DSTACK_GPUS_NUM --port 8000
port: 8000
model: org/m
resources:
  gpu: H200:8
"""

SKYPILOT = """\
name: serve
envs:
  MODEL: org/m
  HF_TOKEN: null
resources:
  accelerators: {H100: 8}
  image_id: docker:lmsysorg/sglang:v0.5.8
setup: |
  pip install sglang
run: |
  conda activate x
  python -m sglang.launch_server --model-path $MODEL --tp $SKYPILOT_NUM_GPUS_PER_NODE \\
    --api-key $HF_TOKEN
"""


def test_a_service_of_dstack() -> None:
    found = only(read_yaml(DSTACK, ".dstack.yml"))
    assert texts(found) == ["--model-path", "org/m", "--tp", "8", "--port", "8000"]
    assert [at(word) for word in found.words[:4]] == [(12, 7), (5, 14), (13, 7), (17, 13)]
    assert found.words[3].why and not found.words[2].why
    assert "DSTACK_GPUS_NUM" not in found.env
    assert (found.image, found.hardware) == ("lmsysorg/sglang:v0.5.8", "h200:8")
    assert env(found)["SGLANG_X"] == "1"
    assert not found.env["HF_TOKEN"].evaluated


def test_a_task_of_skypilot() -> None:
    found = only(read_yaml(SKYPILOT, "sky.yaml"))
    assert texts(found)[:4] == ["--model-path", "org/m", "--tp", "8"]
    assert at(found.words[0]) == (12, 34)
    assert (found.image, found.hardware) == ("lmsysorg/sglang:v0.5.8", "h100:8")
    assert not found.words[-1].evaluated


WORKFLOW = """\
env: {TP: "2"}
jobs:
  serve:
    env: {MODEL: "${{ matrix.model }}"}
    steps:
    - name: Start sglang.launch_server --port 1
      env: {PORT: "31000"}
      run: |
        sglang serve --model-path $MODEL --tp $TP --port $PORT
"""
GITLAB = """\
serve:
  image: {name: "lmsysorg/sglang:v0.5.8"}
  variables: {MODEL: org/m, OTHER: $CI_X}
  before_script: [echo x]
  script:
    - export A=1
    - sglang serve --model-path $MODEL --tp $OTHER
"""
ANSIBLE = """\
- hosts: all
  tasks:
  - name: start
    ansible.builtin.shell: |
      nohup sglang serve --model-path org/m &
  - name: again
    ansible.builtin.command:
      argv: [python3, -m, sglang.launch_server, --model-path, org/m]
"""
EXPRESSIONS = """\
env: {TP: "2", OTHER: "${{ matrix.tp }}"}
jobs:
  serve:
    strategy: {matrix: {model: [org/m], tp: [1, 2]}}
    steps:
    - run: sglang serve --model-path ${{ matrix.model }} --tp ${{env.TP}} --dp ${{ matrix.tp }}
    - run: sglang serve --model-path "${{ env.MODEL }}" --tp ${{ env.TP }} --dp ${{ env.OTHER }}
      env: {MODEL: "org/m2 b"}
"""
INCLUDED = """\
jobs:
  serve:
    strategy: {matrix: {model: [org/m], include: [{model: org/n}]}}
    steps:
    - run: sglang serve --model-path ${{ matrix.model }}
"""
ARGO = """\
apiVersion: argoproj.io/v1alpha1
kind: Application
spec:
  source:
    helm:
      values: |
        main:
          image: {repository: lmsysorg/sglang, tag: v0.5.3}
          args:
            - --model-path
            - org/m
"""
ARGO_SCRIPT = """\
apiVersion: argoproj.io/v1alpha1
kind: Application
spec: {source: {helm: {values: "command: sglang serve --model-path org/m --tp 2"}}}
"""
FLUX = """\
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
spec:
  values:
    image: {repository: lmsysorg/sglang, tag: v0.5.3}
    args: [--model-path, org/m]
"""
BROKEN = ARGO.replace("- org/m", "- [")
VALUES = """\
sglang:
  image: {repository: lmsysorg/sglang, tag: v0.5.8}
  command: [python3, -m, sglang.launch_server]
  args: [--model-path, org/m]
  extraArgs: [--tp, "2"]
"""


@rows(
    "text, words",
    [
        (WORKFLOW, ["--model-path $MODEL --tp 2 --port 31000"]),
        (GITLAB, ["--model-path org/m --tp $OTHER"]),
        (ANSIBLE, ["--model-path org/m", "--model-path org/m"]),
        (VALUES, ["--model-path org/m --tp 2"]),
        (
            EXPRESSIONS,
            [
                "--model-path org/m --tp 2 --dp ${{ matrix.tp }}",
                "--model-path org/m2 b --tp 2 --dp ${{ env.OTHER }}",
            ],
        ),
        (
            WORKFLOW.replace("    steps:", '    steps:\n    - run: echo "TP=4" >> $GITHUB_ENV'),
            ["--model-path $MODEL --tp $TP --port 31000"],
        ),
        (INCLUDED, ["--model-path ${{ matrix.model }}"]),
        (ARGO, ["* --model-path org/m"]),
        (ARGO_SCRIPT, ["--model-path org/m --tp 2"]),
        (FLUX, ["* --model-path org/m"]),
        (BROKEN, []),
    ],
)
def test_other_forms(text: str, words: list[str]) -> None:
    found = read_yaml(text, "x.yaml").invocations
    assert [" ".join(texts(one)) for one in found] == words


def test_places_of_values_in_a_string() -> None:
    assert at(only(read_yaml(ARGO, "x.yaml")).words[2]) == (11, 15)


def test_marks_of_go_templates_are_no_values() -> None:
    text = "tasks: {a: {cmds: [\"sglang serve {{.M}} --tp {{ $x }} --port '{{ .P }}'\"]}}\n"
    assert [word.evaluated for word in only(read_yaml(text, "Taskfile.yml")).words] == [
        False, True, False, True, False
    ]  # fmt: skip


def test_the_image_of_values() -> None:
    assert only(read_yaml(VALUES, "values.yaml")).image == "lmsysorg/sglang:v0.5.8"
    assert only(read_yaml(GITLAB, "x.yml")).image == "lmsysorg/sglang:v0.5.8"


@rows(
    "said, known",
    [
        ("H100:8", "h100:8"),
        ("H100", "h100"),
        ("A100-80GB:4", "a100-80gb:4"),
        ("H100:80GB:8", "h100-80gb:8"),
        ("24GB", None),
        ("80GB..:8", None),
        ("H100:0", None),
        ("H100:1..4", None),
        ("nothing:8", None),
        ("", None),
    ],
)
def test_declared_gpus(said: str, known: str | None) -> None:
    assert declared(said) == known


def test_several_machines_have_no_number_of_gpus() -> None:
    found = only(read_yaml(DSTACK + "nodes: 2\n", "x.yml"))
    assert found.hardware is None
    assert not found.words[3].evaluated


@rows(
    "resources, known",
    [
        ("{accelerators: {H100: 8}}\nnum_nodes: 2", ["8", "2"]),
        ("{gpu: 8:H100}\nnodes: 2", ["8", "2"]),
        ("{gpu: {name: H100, count: 4}}", ["4"]),
        ("{gpu: 24GB:1..2}", []),
        ("{accelerators: [H100:8, A100:8]}", []),
        ("{accelerators: {H100: 8, A100: 4}}", []),
        ("{accelerators: H100}", []),
    ],
)
def test_variables_of_the_platform(resources: str, known: list[str]) -> None:
    run = "sglang serve m --tp $SKYPILOT_NUM_GPUS_PER_NODE --nnodes $SKYPILOT_NUM_NODES"
    found = only(read_yaml(f"run: {run}\nresources: {resources}\n", "x.yaml"))
    assert [word.text for word in found.words[2::2] if word.evaluated] == known


AKASH = """\
version: "2.0"
services:
  s:
    image: lmsysorg/sglang:v0.5.8
    env: [TP=8]
    command: [bash, -c]
    args: ["python3 -m sglang.launch_server --model-path org/m --tp $TP"]
profiles: {}
deployment: {}
"""
RUNPOD = """\
{"imageName": "lmsysorg/sglang:v0.5.8", "env": [{"key": "A", "value": "b"}],
 "dockerEntrypoint": ["python3", "-m", "sglang.launch_server"],
 "dockerStartCmd": ["--model-path", "org/m", "--tp", "8"]}
"""
ECS = """\
{"containerDefinitions": [{"image": "lmsysorg/sglang:v0.5.8", "entryPoint": ["python3", "-m"],
  "command": ["sglang.launch_server", "--model-path", "org/m", "--tp", "8"]}]}
"""
CLOUD_FORMATION = """\
ContainerDefinitions:
  - Image: lmsysorg/sglang:v0.5.8
    Command: [python3, -m, sglang.launch_server, --model-path, org/m, --tp, "8",
      --port, !Ref Port, --host, {Ref: Host}]
    Environment: [{Name: A, Value: b}]
"""
SALAD = """\
{"container": {"image": "lmsysorg/sglang:v0.5.8",
  "command": ["sh", "-c", "python3 -m sglang.launch_server --model-path $M --tp ${TP}"],
  "environmentVariables": {"M": "org/m", "TP": "8"}}}
"""
TRUSS = """\
base_image: {image: "lmsysorg/sglang:v0.5.8"}
docker_server:
  start_command: sh -c "python3 -m sglang.launch_server --model-path org/m --tp 8"
"""
LAUNCH = """\
{ // of VS Code
\t"container": "lmsysorg/sglang:v0.5.8", "url": "http://x", /* more
\tlines */
\t"configurations": [{"module": "sglang.launch_server",
\t\t"args": ["--model-path", "org/m", "--tp", "8",]},]
}
"""
LAUNCHED = """\
{"image": "lmsysorg/sglang:v0.5.8", "command": "python3 -m sglang.launch_server",
 "args": ["--model-path", "org/m", "--tp", "8"]}
"""
MODULE = """\
{"image": "lmsysorg/sglang:v0.5.8", "module": "sglang.launch_server",
 "args": "--model-path org/m --tp 8"}
"""


@rows("text", [AKASH, RUNPOD, ECS, CLOUD_FORMATION, SALAD, TRUSS, LAUNCH, LAUNCHED, MODULE])
def test_containers_of_platforms(text: str) -> None:
    found = only(read_yaml(text, "x.json"))
    assert texts(found)[:4] == ["--model-path", "org/m", "--tp", "8"]
    assert found.image == "lmsysorg/sglang:v0.5.8"
    assert all(not word.evaluated for word in found.words[5::2])


def test_prose_is_no_script() -> None:
    assert not read_yaml("description: run `sglang serve --tp 2`\n", "x.yaml").invocations


def test_a_document_in_a_string() -> None:
    text = "pages:\n- body: |\n    Run\n    ```bash\n    sglang serve m \\\n      --tp 2\n    ```\n    Don't.\n"
    found = only(read_yaml(text, "x.yaml"))
    assert texts(found) == ["m", "--tp", "2"]
    assert [at(word) for word in found.words] == [(5, 18), (6, 7), (6, 12)]
    table = "body: |\n  | Pass it to `sglang serve` | now |\n"
    assert not read_yaml(table, "x.yaml").invocations
    assert len(read_yaml(f"kind: Page\nspec: 1\n{text}", "x.yaml").invocations) == 1


def test_json_in_a_string_is_no_script() -> None:
    for value in ('["sglang serve m --tp 2"]', '{"run": "sglang serve m\\n--tp 2"}'):
        assert not read_yaml(json.dumps({"flags": value}), "x.json").invocations


ARGUMENTS = """\
image: {repository: lmsysorg/sglang, tag: v0.5.9}
args:
  - --model-path
  - org/m
  - --tp
  - "8"
"""


def test_values_of_a_chart_whose_template_adds_the_program() -> None:
    found = only(read_yaml(ARGUMENTS, "values.yaml"))
    assert texts(found) == ["*", "--model-path", "org/m", "--tp", "8"]
    assert found.image == "lmsysorg/sglang:v0.5.9"
    for other in ("vllm/vllm-openai", "lmsysorg/other"):
        assert not read_yaml(ARGUMENTS.replace("lmsysorg/sglang", other), "values.yaml").invocations
    assert not read_yaml(ARGUMENTS.replace("--model-path", "--port"), "values.yaml").invocations


def test_a_recipe_of_sparkrun() -> None:
    """Its `defaults` fill the command; an option of `sparkrun run` may replace them."""
    text = """\
model: org/m
container: lmsysorg/sglang:v0.5.9
defaults:
  port: 8000
  tensor_parallel: 2
  served_model_name: "m 1"
command: |
  python3 -m sglang.launch_server --model-path {model} --tp {tensor_parallel} \\
    --served-model-name '{served_model_name}' --port {port} --dtype {dtype} \\
    --json-model-override-args '{"a": {"port": 1}}' --host ${HOST}
"""
    found = only(read_yaml(text, "r.yaml"))
    assert texts(found)[:8] == [
        "--model-path", "org/m", "--tp", "2", "--served-model-name", "m 1", "--port", "8000"
    ]  # fmt: skip
    unknown = {word.text: word.evaluated for word in found.words[8:]}
    assert (unknown["${dtype}"], unknown["${HOST}"]) == (False, False)
    assert unknown['{"a": {"port": 1}}']
    assert found.image == "lmsysorg/sglang:v0.5.9"
    assert at(found.words[3]) == (5, 20)
    other = text.replace("defaults:", "other:").replace("${HOST}", "h")
    assert texts(only(read_yaml(other, "r.yaml")))[1] == "{model}"


def test_a_module_without_arguments_is_no_command() -> None:
    text = '{"module": "sglang.launch_server", "options": {"--tp": 2}}'
    assert not read_yaml(text, "x.json").invocations
