"""What a container takes from the ConfigMaps of its own file, and what it does not find there."""

from __future__ import annotations

from speclaunch.checks.edit.migrate import migrate_commands
from speclaunch.deployments.sources.deployment import to_deployment
from speclaunch.deployments.sources.files import read_text
from speclaunch.deployments.sources.interface import Invocation

MAPS = """\
apiVersion: v1
kind: {kind}
metadata: {{name: settings{space}}}
data: {{NCCL_X: "1", DRAFT: /models/draft, algo: EAGLE3, "no name": x}}
---
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: here}
spec:
  hostNetwork: true
  nodeSelector: {gpu: h100}
  imagePullSecrets: [{name: s}]
  volumes: [{name: shm, emptyDir: {medium: Memory}}]
  containers:
  - name: e
    command: [python3, -m, sglang.launch_server, --model-path, x, --random-seed, "1"]
    args: [--speculative-draft-model-path, $(DRAFT), --speculative-algorithm, $(ALGO), --host, $(H)]
    envFrom: [{configMapRef: {name: settings}}, {secretRef: {name: s}},
              {prefix: P_, configMapRef: {name: settings}}, {configMapRef: {name: others}}]
    env:
    - {name: NCCL_X, value: "2 $(DRAFT)"}
    - {name: ALGO, valueFrom: {configMapKeyRef: {name: settings, key: algo}}}
    - {name: H, valueFrom: {configMapKeyRef: {name: others, key: h}}}
"""


def read(text: str) -> Invocation:
    (found,) = read_text(text, "pod.yaml", ".yaml").invocations
    return found


def test_a_config_map_of_the_same_file_is_read() -> None:
    found = read(MAPS.format(kind="ConfigMap", space="") + POD)
    imported = to_deployment(found, "p", "0.5.23")
    assert imported.args["speculative_draft_model_path"].value == "/models/draft"
    assert imported.args["speculative_algorithm"].value == "EAGLE3"
    assert imported.args["host"].value == "${oc.env:H}"
    env = {name: line.value for name, line in imported.env.items()}
    assert env["NCCL_X"] == "2 /models/draft" and env["P_NCCL_X"] == "1"  # `env` wins
    assert "no name" not in env and "P_no name" not in env
    (draft,) = [word for word in found.words if word.text == "/models/draft"]
    assert draft.place.line == 4
    said = [f"{one.text}: {one.why}" for one in found.dropped]
    assert said == [
        "envFrom: the variables of Secret s, ConfigMap others are not in this file",
        "hostNetwork, nodeSelector, imagePullSecrets, volumes: the caller sets up the pod",
    ]
    (why,) = [word.why for word in found.words if not word.evaluated]
    assert why is not None and "configMapKeyRef others/h" in why


def test_another_object_is_no_such_config_map() -> None:
    for text in (
        MAPS.format(kind="Secret", space=""),
        MAPS.format(kind="ConfigMap", space=", namespace: there"),
        MAPS.format(kind="ConfigMap", space="").replace("settings", "setting"),
    ):
        found = read(text + POD)
        assert [word.evaluated for word in found.words].count(False) == 3
        assert "ConfigMap settings" in found.dropped[0].why


def test_a_list_and_the_same_namespace() -> None:
    space = ", namespace: here"
    (text,) = [MAPS.format(kind="ConfigMap", space=space).removesuffix("---\n")]
    indented = "".join(f"  {line}\n" for line in text.splitlines())
    listed = f"apiVersion: v1\nkind: List\nitems:\n-{indented[1:]}---\n"
    assert [word.evaluated for word in read(listed + POD).words].count(False) == 1


def test_an_argument_in_a_config_map_is_migrated() -> None:
    text = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n"
        "  FLAGS: --cuda-graph-max-bs 8 --tp 2\n---\n"
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: e\n"
        "    envFrom: [{configMapRef: {name: c}}]\n"
        "    command: [bash, -c, 'python3 -m sglang.launch_server --model-path x $FLAGS']\n"
    )
    for old, new in (
        (text, "  FLAGS: --cuda-graph-max-bs-decode 8 --tp 2\n"),
        (text.replace("--cuda-graph-max-bs 8", "--enable-metrics --enable-double-sparsity"),
         "  FLAGS: --enable-metrics --tp 2\n"),
        (text.replace(" --cuda-graph-max-bs 8 --tp 2", ' "--tp 2 --enable-double-sparsity"'),
         '  FLAGS: "--tp 2 "\n'),
    ):  # fmt: skip
        found = migrate_commands(old, read_text(old, "pod.yaml", ".yaml"), "0.5.23")
        assert not found.problems
        assert new in found.text
