"""docker-compose, Kubernetes and other YAML that holds commands."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from speclaunch.deployments.sources.files import read_text, read_yaml
from speclaunch.deployments.sources.interface import InvocationKind
from speclaunch.deployments.sources.source_text import TemplateError
from tests.support.deployments.sources.helpers import at, dropped, env, lint_text, only, texts
from tests.support.loops import rows

COMPOSE = """\
x-env: &env
  NCCL_DEBUG: INFO
  NUM: 3
x-base: &base
  image: lmsysorg/sglang:latest
  environment: {A: from-base}
services:
  list:
    <<: *base
    environment:
      <<: *env
      NUM: 4
      HF_TOKEN: ${HF_TOKEN}
      PASSED:
    command: ["python3", "-m", "sglang.launch_server", "--model-path", "${MODEL:-meta/x}", '{"a": "it''s"}']
  text:
    environment: [SGLANG_ENABLE_SPEC_V2=1, HF_TOKEN]
    command: >
      python3 -m sglang.launch_server
      --model-path ${MODEL} --tp 8
      --name "a b" --cost $$5
  split:
    <<: *base
    entrypoint: python3 -m sglang.launch_server
    env_file: .env
    command:
      # the model
      - --model-path
      - meta/x   # note
  script:
    environment: [TP=4]
    command: |
      bash -c "
        python3 -m sglang.launch_server --tp $$TP \\
          --model ${MODEL}
      "
  redis:
    image: redis
    command: redis-server --save 60 1
"""


FILES = {
    ".env": "# x\nMODEL=org/m\nexport TP=\"4\"\nMORE='--dp 2'\nODD=a$B\nAPI_KEY=secret\nEMPTY=\nTAG=v0.5.6\r\n"
    + f"WIDE=x{' ' * 200_000}y\n",  # the work must not be quadratic
    "one.env": "MODEL=org/one\nDP=3\n",
    "two.env": "MODEL=org/two\n",
}
SERVICE = """\
services:
  base:
    image: lmsysorg/sglang:${TAG:-latest}
    environment: {PORT: 1, X: 2}
    entrypoint: sglang serve
  server:
    %s
"""


@rows(
    "service, words",
    [
        ("command: sglang serve --model-path $MODEL --tp ${TP:-1} ${MORE-}", "--model-path org/m --tp 4 --dp 2"),
        ("command: [sglang, serve, --model-path, '${MODEL}', '$MORE']", "--model-path org/m --dp 2"),
        ("command: sglang serve --model-path ${ODD} --port ${EMPTY:-3} --api-key ${API_KEY}", "--model-path ? --port 3 --api-key ?"),
        ("command: sh -c 'sglang serve --model-path $$MODEL --dp $${DP:-1}'\n    env_file: [one.env, {path: two.env}]", "--model-path org/two --dp 3"),
        ("command: sh -c 'sglang serve --model-path $$MODEL'\n    env_file: one.env\n    environment: [MODEL=m]", "--model-path m"),
        ("command: sh -c 'sglang serve --model-path $$MODEL'\n    env_file: one.env\n    environment: [MODEL]", "--model-path ?"),
        ("command: sh -c 'sglang serve --model-path $$MODEL'\n    env_file: ../none.env", "--model-path ?"),
        ("command: --model-path m\n    extends: base", "--model-path m"),
        ("command: --model-path m\n    extends: {service: base}", "--model-path m"),
        ("extends: {service: base}\n    entrypoint: sh -c 'sglang serve --port $$PORT --tp $$X'\n    environment: {X: 3}", "--port 1 --tp 3"),
    ],
)  # fmt: skip
def test_variables_and_services_next_to_a_service(service: str, words: str) -> None:
    with TemporaryDirectory() as folder:
        for name, text in FILES.items():
            (Path(folder) / name).write_text(text)
        found = read_yaml(SERVICE % service, f"{folder}/compose.yaml").invocations[-1]
    shown = (word.text if word.evaluated else "?" for word in found.words)
    assert " ".join(shown) == words
    assert found.image == ("lmsysorg/sglang:v0.5.6" if "extends" in service else None)
    assert not any("env" in (word.why or "") for word in found.words if word.text == "m")


def test_a_default_in_a_script_is_an_assumption() -> None:
    command = "command: bash -c 'sglang serve --model-path org/m --tp ${WIDTH:-2}'"
    (*_, width) = read_yaml(SERVICE % command, "none/compose.yaml").invocations[-1].words
    assert width.why == "the default of `WIDTH`, which comes from the environment of Compose"


def test_compose() -> None:
    reading = read_yaml(COMPOSE, "compose.yaml")
    assert not reading.problems
    found = {one.name: one for one in reading.invocations}
    assert list(found) == ["list", "text", "split", "script"]

    listed = found["list"]
    assert texts(listed) == ["--model-path", "meta/x", '{"a": "it\'s"}']
    assert [at(word) for word in listed.words] == [(15, 57), (15, 82), (15, 93)]
    assert env(listed) == {
        "NCCL_DEBUG": "INFO", "NUM": "4", "HF_TOKEN": "${HF_TOKEN}", "PASSED": "PASSED",
    }  # fmt: skip
    assert at(listed.env["NCCL_DEBUG"]) == (2, 15)
    assert [name for name, word in listed.env.items() if not word.evaluated] == [
        "HF_TOKEN",
        "PASSED",
    ]

    folded = found["text"]
    assert texts(folded) == [
        "--model-path",
        "${MODEL}",
        "--tp",
        "8",
        "--name",
        "a b",
        "--cost",
        "$5",
    ]
    assert [word.evaluated for word in folded.words].count(False) == 1
    assert [at(word) for word in folded.words][:4] == [(20, 7), (20, 20), (20, 29), (20, 34)]
    assert at(folded.words[5]) == (21, 15)
    assert env(folded) == {"SGLANG_ENABLE_SPEC_V2": "1", "HF_TOKEN": "HF_TOKEN"}

    split = found["split"]
    assert texts(split) == ["--model-path", "meta/x"]
    assert env(split) == {"A": "from-base"}
    assert dropped(split) == ["env_file"]
    assert [(comment.text, comment.place.line) for comment in split.comments] == [
        ("the model", 27), ("note", 29),
    ]  # fmt: skip

    script = found["script"]
    assert texts(script) == ["--tp", "4", "--model", "${MODEL}"]
    assert script.words[1].used_at is not None
    assert (script.words[1].used_at.line, script.words[1].used_at.column) == (34, 46)
    assert at(script.words[2]) == (35, 11)


KUBERNETES = """\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata:
  name: lws
spec:
  leaderWorkerTemplate:
    leaderTemplate:
      spec:
        initContainers:
          - {name: fetch, image: x, command: [sh, -c, "wget model"]}
        containers:
          - name: leader
            envFrom: [{secretRef: {name: s}}]
            env:
              - name: TP
                value: "16"
              - name: HF
                valueFrom:
                  secretKeyRef: {name: hf, key: token}
              - {name: BOTH, value: "x-$(TP)-$$(TP)"}
              - name: EMPTY
            command:
              - python3
              - -m
              - sglang.launch_server
            args:
              - --tp
              - $(TP)   # sixteen
              - --dist-init-addr
              - $(LWS_LEADER_ADDRESS):20000
              - --api-key=$(HF)
              - "$(BOTH)"
    workerTemplate:
      spec:
        containers:
          - name: worker
            command: [sh, -c]
            args:
              - >-
                exec sglang serve --tp 16
                --node-rank $LWS_WORKER_INDEX --graph $(seq 1 2)
---
# nothing
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
  - name: a
    command: ["/bin/bash", "-c"]
    args: ["python3 -m sglang.launch_server --model 'a b' --y \\"$X\\""]
    env:
    - name: X
      value: v
---
apiVersion: v1
kind: ConfigMap
metadata: {name: cm}
data:
  launch.sh: |
    #!/bin/bash
    python3 -m sglang.launch_server \\
      --tp 1
"""


def test_kubernetes() -> None:
    reading = read_yaml(KUBERNETES, "k8s.yaml")
    assert not reading.problems
    leader, worker, pod, script = reading.invocations
    assert [one.name for one in reading.invocations] == [
        "lws/leader", "lws/worker", "p/a", "cm/launch.sh",
    ]  # fmt: skip

    assert texts(leader) == [
        "--tp", "16", "--dist-init-addr", "$(LWS_LEADER_ADDRESS):20000", "--api-key=$(HF)", "x-16-$(TP)",
    ]  # fmt: skip
    assert [word.evaluated for word in leader.words] == [True, True, True, False, False, True]
    assert "secretKeyRef hf/token" in (leader.words[4].why or "")
    assert at(leader.words[0]) == (27, 17)
    assert at(leader.words[3]) == (30, 17)
    assert env(leader) == {"TP": "16", "HF": "$(HF)", "BOTH": "x-16-$(TP)", "EMPTY": ""}
    assert dropped(leader) == ["envFrom"]
    assert [comment.text for comment in leader.comments] == ["sixteen"]

    assert worker.kind is InvocationKind.SERVE
    assert texts(worker) == ["--tp", "16", "--node-rank", "$LWS_WORKER_INDEX", "--graph", "1", "2"]
    assert at(worker.words[0]) == (40, 35)
    assert at(worker.words[2]) == (41, 17)

    assert texts(pod) == ["--model", "a b", "--y", "v"]
    assert at(pod.words[0]) == (52, 45)
    assert texts(script) == ["--tp", "1"]
    assert at(script.words[1]) == (64, 12)


@rows("kind", ["Deployment", "StatefulSet", "DaemonSet", "Job", "ReplicaSet", "InferenceService"])
def test_any_kind_of_object(kind: str) -> None:
    text = (
        f"apiVersion: x/v1\nkind: {kind}\nmetadata:\n  name: n\nspec:\n  template:\n    spec:\n"
        "      containers:\n      - command: [sglang, serve]\n        args: [--tp, 2]\n"
    )
    found = only(read_yaml(text, "x.yaml"))
    assert found.name == "n"
    assert texts(found) == ["--tp", "2"]
    assert at(found.words[1]) == (10, 22)


def test_other_yaml_with_commands() -> None:
    text = (
        "jobs:\n  serve:\n    steps:\n      - run: |\n          export A=1\n"
        "          python3 -m sglang.launch_server --tp 2\n"
        "      - run: [python3, -m, sglang.launch_server, --tp, '4']\n"
        "      - uses: docker://x\n        with: {entrypoint: 'sglang serve --tp 8'}\n"
    )
    reading = read_yaml(text, "workflow.yml")
    assert [texts(one) for one in reading.invocations] == [
        ["--tp", "2"],
        ["--tp", "4"],
        ["--tp", "8"],
    ]
    assert at(reading.invocations[0].words[0]) == (6, 43)
    assert at(reading.invocations[2].words[1]) == (9, 47)


@rows(
    "scalar, places",
    [
        ("sglang serve --a b", [(2, 17), (2, 21)]),
        ("'sglang serve --a b'", [(2, 18), (2, 22)]),
        ('"sglang serve --a b"', [(2, 18), (2, 22)]),
        ("sglang serve\n    --a b", [(3, 5), (3, 9)]),
        ("|\n\n    sglang serve \\\n      --a b", [(5, 7), (5, 11)]),
        ("|2-\n    sglang serve \\\n      --a b\n", [(4, 7), (4, 11)]),
        (">+\n    sglang serve\n    --a b\n\n", [(4, 5), (4, 9)]),
        ('"sglang serve \\\n     --a b"', [(3, 6), (3, 10)]),
        ("'sglang serve ''--a'' b'", [(2, 18), (2, 26)]),
        ('"sglang serve \\"--a\\" b"', [(2, 18), (2, 26)]),
        ('"sglang serve\\t--a b"', [(2, 19), (2, 23)]),
        ('"sglang\\x20serve --a b"', [(2, 4), (2, 4)]),
    ],
)  # fmt: skip
def test_places_in_scalars(scalar: str, places: list[tuple[int, int]]) -> None:
    found = only(read_yaml(f"x: 1\nr: {scalar}\n", "x.yaml"))
    assert texts(found) == ["--a", "b"]
    assert [at(word) for word in found.words] == places


def test_a_template_says_that_it_is_one() -> None:
    with pytest.raises(TemplateError, match=r"t\.yaml is a template: not checked; render it"):
        read_text("kind: Pod\n{{- if .x }}\nspec: {}\n{{- end }}\n", "t.yaml")


def test_a_broken_script_hides_no_other() -> None:
    text = "a: |\n  python3 -m sglang.launch_server 'x\nb: |\n  sglang serve --tp 2\n"
    reading = read_yaml(text, "x.yaml")
    assert len(reading.unread) == 1
    assert texts(reading.invocations[0]) == ["--tp", "2"]


def test_a_runtime_whose_arguments_stand_elsewhere(tmp_path: Path) -> None:
    text = (
        "apiVersion: x/v1\nkind: BackendRuntime\nspec:\n  image: lmsysorg/sglang\n"
        "  command: [python3, -m, sglang.launch_server]\n"
        "  recommendedConfigs:\n  - args: [--model-path, '{{ .ModelPath }}']\n"
    )
    assert not [one for one in lint_text(text, "x.yaml", tmp_path) if one.severity == "error"]
    pod = POD_WITHOUT_ARGUMENTS
    assert [one for one in lint_text(pod, "y.yaml", tmp_path) if one.severity == "error"]


POD_WITHOUT_ARGUMENTS = (
    "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n"
    "  - command: [python3, -m, sglang.launch_server]\n"
)


@rows(
    "kind, path",
    [
        ("ClusterServingRuntime", "engineConfig: {runner: %s}"),
        ("ClusterServingRuntime", "decoderConfig: {leader: {runner: %s}}"),
        ("InferenceService", "predictor: {model: %s}"),
        ("LeaderWorkerSet", "leaderWorkerTemplate: {leaderTemplate: {spec: {containers: [%s]}}}"),
        ("RoleBasedGroup", "roles: [{template: {spec: {containers: [%s]}}}]"),
        ("RayService", "rayClusterConfig: {headGroupSpec: {template: {spec: {containers: [%s]}}}}"),
    ],
)
def test_objects_of_others(kind: str, path: str) -> None:
    container = "{name: e, image: 'i:1', command: [sglang, serve], args: [--tp, '2']}"
    text = f"apiVersion: x/v1\nkind: {kind}\nmetadata: {{name: n}}\nspec: {{{path % container}}}\n"
    found = only(read_yaml(text, "x.yaml"))
    assert (found.name, found.image) == ("n/e", "i:1")
    assert texts(found) == ["--tp", "2"]
    line = text.split("\n")[3]
    assert at(found.words[1]) == (4, line.index("'2'") + 2)


def test_braces_are_filled_in_by_a_platform_unless_the_container_sets_them() -> None:
    """`envsubst` and platforms replace `${NAME}`; a kubelet leaves it, as the user's own mistake."""
    manifest = """\
apiVersion: v1
kind: Pod
spec:
  containers:
  - name: a
    command: [python3, -m, sglang.launch_server, --port, "${WORKER_PORT}", --tp=$TP, --dp, "${DP}"]
    env: [{name: DP, value: "2"}]
"""
    for text in (manifest, manifest.replace("apiVersion: v1\n", "")):
        found = only(read_yaml(text, "x.yaml"))
        unknown = [word.text for word in found.words if not word.evaluated]
        assert unknown == ["${WORKER_PORT}", "--tp=$TP"]


def test_a_variable_of_compose_with_others_inside() -> None:
    found = only(
        read_yaml(
            """\
services:
  server:
    command: >
      python3 -m sglang.launch_server --model-path ${MODEL:-org/${NAME:-m}} --tp ${TP:-${GPUS}}
      ${PARSER:+--reasoning-parser ${PARSER}} ${MORE:-}
""",
            "compose.yaml",
        )
    )
    unset = ["${TP:-${GPUS}}", "${PARSER:+--reasoning-parser ${PARSER}}"]
    assert texts(found) == ["--model-path", "org/m", "--tp", *unset]
    assert [word.text for word in found.words if not word.evaluated] == unset


def test_a_variable_whose_value_a_tool_fills_in_is_unknown() -> None:
    text = """\
apiVersion: v1
kind: Pod
metadata: {name: s}
spec:
  containers:
  - name: s
    env: [{name: TP, value: "${SERVER_TP}"}, {name: PORT, value: "1"}]
    command: [bash, -c, "sglang serve m --tp $TP --port $PORT"]
"""
    (found,) = read_yaml(text, "pod.yaml").invocations
    assert [(word.text, word.evaluated) for word in found.words[2::2]] == [
        ("${SERVER_TP}", False),
        ("1", True),
    ]


def test_the_script_of_a_ray_job() -> None:
    script = "entrypoint: |\n    export TP=2\n    sglang serve m --tp $TP\n"
    text = f"apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {{name: r}}\nspec:\n  {script}"
    found = only(read_yaml(text, "x.yaml"))
    assert (texts(found), found.name) == (["m", "--tp", "2"], "r")
