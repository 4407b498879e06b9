"""Kinds of objects with several roles: their parts, hosts, replicas, templates, routers."""

from __future__ import annotations

from textwrap import dedent

import pytest

from speclaunch.deployments.sources.files import read_yaml
from speclaunch.deployments.sources.interface import Invocation
from tests.deployments.sources.test_server_context import of, value
from tests.support.deployments.sources.helpers import texts

ADDRESS = "--dist-init-addr, $(LWS_LEADER_ADDRESS):5000"
RANKS = "--nnodes, $(LWS_GROUP_SIZE), --node-rank, $(LWS_WORKER_INDEX)"


def servers(text: str) -> list[Invocation]:
    reading = read_yaml(dedent(text), "x.yaml")
    assert not reading.problems
    assert not reading.unread
    return list(reading.invocations)


def roles(text: str) -> list[tuple[str, str | None, object, object]]:
    """Role, part, hosts and replicas of each server."""
    found = [of(one) for one in servers(text)]
    assert len({id(one.group) for one in found}) == 1
    return [
        (one.role, one.part, one.nodes and value(one.nodes), one.replicas and value(one.replicas))
        for one in found
    ]


def option(found: Invocation, flag: str) -> str:
    words = found.words
    at = texts(found).index(flag) + 1
    return words[at].text if words[at].evaluated else f"?{words[at].text}"


LEADER_WORKER_SET = f"""\
    apiVersion: leaderworkerset.x-k8s.io/v1
    kind: LeaderWorkerSet
    metadata: {{name: glm-prefill-main}}
    spec:
      replicas: 3
      leaderWorkerTemplate:
        size: 4
        leaderTemplate:
          metadata: {{labels: {{role: leader}}}}
          spec:
            containers:
            - name: s
              command: [python3, -m, sglang.launch_server, {ADDRESS}, {RANKS}]
              readinessProbe: {{httpGet: {{path: /health, port: 30000}}}}
        workerTemplate:
          spec:
            containers:
            - name: s
              command: [sh, -c, "python3 -m sglang.launch_server --nnodes $LWS_GROUP_SIZE
                --node-rank $LWS_WORKER_INDEX --dist-init-addr $LWS_LEADER_ADDRESS:5000"]
    ---
    apiVersion: v1
    kind: Service
    metadata: {{name: front}}
    spec:
      selector: {{leaderworkerset.sigs.k8s.io/name: glm-prefill-main, role: leader}}
      ports: [{{port: 30000}}]
"""


def test_leader_and_workers() -> None:
    """Both templates, what the controller tells them, and the Service before the leader."""
    assert roles(LEADER_WORKER_SET) == [("prefill", "leader", 4, 3), ("prefill", "worker", 4, 3)]
    leader, worker = servers(LEADER_WORKER_SET)
    assert (option(leader, "--nnodes"), option(leader, "--node-rank")) == ("4", "0")
    assert option(leader, "--dist-init-addr") == "?$(LWS_LEADER_ADDRESS):5000"
    assert option(worker, "--nnodes") == "4"
    assert option(worker, "--node-rank").startswith("?")
    assert not worker.env, "what the controller gives is not in the file"
    assert [one.name for one in of(leader).group.services] == ["front"]
    assert [one.kind.value for one in of(leader).pod.probes] == ["readinessProbe"]
    assert not of(worker).pod.probes


def test_the_place_of_what_a_controller_gives() -> None:
    """The number of nodes stands where the size of the group does."""
    leader, _ = servers(LEADER_WORKER_SET)
    word = leader.words[texts(leader).index("--nnodes") + 1]
    assert dedent(LEADER_WORKER_SET).split("\n")[word.place.line - 1].strip() == "size: 4"
    assert word.why is not None
    assert "LeaderWorkerSet" in word.why


def test_the_rank_of_the_only_worker_is_known() -> None:
    """Two hosts: the leader is 0, the other one 1."""
    _, worker = servers(LEADER_WORKER_SET.replace("size: 4", "size: 2"))
    assert option(worker, "--node-rank") == "1"


def test_one_template_for_all_hosts() -> None:
    """Without a leaderTemplate the leader runs the workers' too: no rank is known."""
    text = LEADER_WORKER_SET.replace("leaderTemplate:", "other:")
    (found,) = [one for one in servers(text) if of(one).pod.labels.get("role") is None]
    assert of(found).part is None
    assert option(found, "--node-rank").startswith("?")


def test_a_deployment_has_no_group_size() -> None:
    """What no controller gives stays unknown."""
    text = f"""\
    apiVersion: apps/v1
    kind: Deployment
    metadata: {{name: x}}
    spec:
      template:
        spec:
          containers:
          - {{name: s, command: [python3, -m, sglang.launch_server, {RANKS}]}}
    """
    (found,) = servers(text)
    assert option(found, "--nnodes") == "?$(LWS_GROUP_SIZE)"


ROLES_ALPHA1 = f"""\
    apiVersion: workloads.x-k8s.io/v1alpha1
    kind: RoleBasedGroup
    metadata: {{name: ds}}
    spec:
      roles:
      - name: prefill
        replicas: 2
        leaderWorkerSet:
          size: 2
          patchLeaderTemplate:
            spec:
              containers:
              - name: s
                command: [python3, -m, sglang.launch_server, --tp, "16", {RANKS}]
                env: [{{name: MORE, value: leader}}]
          patchWorkerTemplate:
            spec:
              containers:
              - name: s
                command: [python3, -m, sglang.launch_server, --tp, "8", {RANKS}]
        template:
          spec:
            volumes: [{{name: shm, emptyDir: {{medium: Memory}}}}]
            containers:
            - name: s
              image: lmsysorg/sglang:v0.5.23
              env: [{{name: BOTH, value: x}}]
              volumeMounts: [{{name: shm, mountPath: /dev/shm}}]
      - name: decode
        replicas: 1
        template:
          spec:
            containers:
            - {{name: s, command: [python3, -m, sglang.launch_server, --tp, "8"]}}
      - name: router
        replicas: 1
        template:
          spec:
            containers:
            - name: r
              command: [sh, -c, "python3 -m sglang_router.launch_router --pd-disaggregation
                --prefill http://ds-prefill-0.s-ds-prefill:30000 8998
                --decode http://ds-decode-0.s-ds-decode:30000"]
"""


def test_roles_with_patches() -> None:
    """The template with the leader's patch and with the workers': image, volumes and command."""
    assert roles(ROLES_ALPHA1) == [
        ("prefill", "leader", 2, 2),
        ("prefill", "worker", 2, 2),
        ("decode", None, None, 1),
    ]
    leader, worker, decode = servers(ROLES_ALPHA1)
    assert (option(leader, "--tp"), option(worker, "--tp")) == ("16", "8")
    assert (option(leader, "--node-rank"), option(worker, "--node-rank")) == ("0", "1")
    for one in (leader, worker):
        assert one.image == "lmsysorg/sglang:v0.5.23"
        (volume,) = of(one).pod.volumes
        assert (volume.kind, volume.medium) == ("emptyDir", "Memory")
    assert {name: word.text for name, word in leader.env.items()} == {"MORE": "leader", "BOTH": "x"}
    assert set(worker.env) == {"BOTH"}
    (router,) = of(decode).group.routers
    assert [one.role for one in router.upstreams] == ["prefill", "decode"]


def test_a_group_of_one_has_no_workers() -> None:
    """The patch of the workers of a group of one is never run."""
    text = ROLES_ALPHA1.replace("size: 2", "size: 1")
    assert roles(text)[:2] == [("prefill", None, 1, 2), ("decode", None, None, 1)]
    assert option(servers(text)[0], "--node-rank") == "0"


def test_templates_that_roles_share() -> None:
    """A role's template is a shared one with the role's patch over it."""
    text = """\
    apiVersion: workloads.x-k8s.io/v1alpha2
    kind: RoleBasedGroup
    metadata: {name: q}
    spec:
      roleTemplates:
      - name: base
        template:
          metadata: {labels: {app: q}}
          spec:
            containers: [{name: s, image: "lmsysorg/sglang:v0.5.23", env: [{name: A, value: a}]}]
      roles:
      - name: prefill
        replicas: 2
        leaderWorkerPattern:
          size: 4
          templateRef:
            name: base
            patch:
              spec:
                containers:
                - name: s
                  env: [{name: A, value: b}]
                  command: [python3, -m, sglang.launch_server, --nnodes, $(RBG_LWP_GROUP_SIZE)]
          leaderTemplatePatch: {metadata: {labels: {role: leader}}}
      - name: decode
        replicas: 1
        standalonePattern:
          templateRef:
            name: base
            patch:
              spec: {containers: [{name: s, command: [python3, -m, sglang.launch_server]}]}
      - name: other
        replicas: 1
        customComponentsPattern:
          components:
          - name: leader
            size: 1
            template: {spec: {containers: [{name: s, command: [sglang, serve, x]}]}}
    """
    assert roles(text) == [
        ("prefill", None, 4, 2),
        ("decode", None, None, 1),
        ("other", "leader", None, 1),
    ]
    prefill, decode, _ = servers(text)
    assert option(prefill, "--nnodes") == "4"
    assert (prefill.env["A"].text, decode.env["A"].text) == ("b", "a")
    assert prefill.image == decode.image == "lmsysorg/sglang:v0.5.23"
    assert of(prefill).place.line == dedent(text).split("\n").index("  - name: prefill") + 1


DYNAMO_SERVICES = """\
    apiVersion: nvidia.com/v1alpha1
    kind: DynamoGraphDeployment
    metadata: {name: g}
    spec:
      services:
        Frontend:
          componentType: frontend
          extraPodSpec: {mainContainer: {image: "nvcr.io/nvidia/ai-dynamo/sglang-runtime:1.3.0"}}
        decode:
          multinode: {nodeCount: 2}
          replicas: 3
          sharedMemory: {size: 80Gi}
          resources: {limits: {gpu: "4"}}
          livenessProbe: {httpGet: {path: /live, port: 9090}}
          extraPodSpec:
            mainContainer:
              command: [python3, -m, dynamo.sglang]
              args: [--tp-size, "8", --disaggregation-mode, decode]
        prefill:
          extraPodSpec:
            mainContainer:
              command: [python3, -m, dynamo.sglang]
              args: [--tp-size, "4", --disaggregation-mode, prefill]
"""
DYNAMO_COMPONENTS = """\
    apiVersion: nvidia.com/v1beta1
    kind: DynamoGraphDeployment
    metadata: {name: g}
    spec:
      components:
      - {name: Frontend, type: frontend, podTemplate: {spec: {containers: [{name: main}]}}}
      - name: TheWorker
        type: decode
        replicas: 3
        sharedMemorySize: 80Gi
        multinode: {nodeCount: 2}
        podTemplate:
          spec:
            containers:
            - name: main
              command: [python3, -m, dynamo.sglang]
              args: [--tp-size, "8", --disaggregation-mode, decode]
              resources: {limits: {nvidia.com/gpu: "4"}}
              livenessProbe: {httpGet: {path: /live, port: 9090}}
      - name: Other
        type: prefill
        podTemplate:
          spec:
            containers:
            - {name: main, command: [python3, -m, dynamo.sglang], args: [--tp-size, "4"]}
"""


@pytest.mark.parametrize("text", [DYNAMO_SERVICES, DYNAMO_COMPONENTS])
def test_graphs_of_dynamo(text: str) -> None:
    """Both versions: roles, hosts, the frontend without a command, what the operator adds."""
    assert roles(text) == [("decode", None, 2, 3), ("prefill", None, None, None)]
    decode, prefill = servers(text)
    pod = of(decode).pod
    assert value(pod.limits["nvidia.com/gpu"]) == 4
    assert value(pod.shm_size) == 80 << 30
    assert [value(one.path) for one in pod.probes] == ["/live"]
    (router,) = of(decode).group.routers
    assert (router.name, router.program) == ("g/Frontend", "dynamo.frontend")
    added = [(word.text, word.evaluated) for word in decode.added]
    assert ("--nnodes", True) in added
    assert ("2", True) in added
    assert [word.evaluated for word in decode.added][1::2] == [False, True, False]
    assert not prefill.added


OME = f"""\
    apiVersion: ome.io/v1beta1
    kind: ClusterServingRuntime
    metadata: {{name: rt}}
    spec:
      engineConfig:
        leader:
          hostIPC: true
          runner:
            command: [python3, -m, sglang.launch_server, --tp, $(PARALLELISM_SIZE), {RANKS}]
            resources: {{limits: {{nvidia.com/gpu: 8}}}}
        worker:
          size: 3
          runner:
            command: [python3, -m, sglang.launch_server, --tp, $(PARALLELISM_SIZE), {RANKS}]
            resources: {{limits: {{nvidia.com/gpu: 8}}}}
      decoderConfig:
        minReplicas: 2
        runner:
          command: [python3, -m, sglang.launch_server, --tp, $(PARALLELISM_SIZE)]
          resources: {{limits: {{nvidia.com/gpu: 4}}}}
      routerConfig:
        runner: {{command: [python3, -m, sglang_router.launch_router, --service-discovery]}}
"""


def test_runtimes_of_ome() -> None:
    """The engine is the prefill where there is a decoder; a worker group has a leader besides."""
    assert roles(OME) == [
        ("prefill", "leader", 4, None),
        ("prefill", "worker", 4, None),
        ("decode", None, None, 2),
    ]
    leader, _, decode = servers(OME)
    assert (option(leader, "--tp"), option(leader, "--nnodes")) == ("32", "4")
    assert option(decode, "--tp") == "4"
    assert value(of(leader).pod.ipc_host) is True
    assert [one.program for one in of(leader).group.routers] == ["sglang_router.launch_router"]


def test_services_of_aibrix() -> None:
    """Roles of a StormService, and how many pods one of them takes."""
    text = """\
    apiVersion: orchestration.aibrix.ai/v1alpha1
    kind: StormService
    metadata: {name: q}
    spec:
      template:
        spec:
          roles:
          - name: prefill
            replicas: 2
            podGroupSize: 2
            template:
              spec:
                containers:
                - name: s
                  command: [sh, -c]
                  args: ["sglang serve x --nnodes 2 --node-rank $POD_GROUP_INDEX"]
          - name: decode
            replicas: 1
            template: {spec: {containers: [{name: s, command: [sglang, serve, x]}]}}
    """
    assert roles(text) == [("prefill", None, 2, 2), ("decode", None, None, 1)]
    assert option(servers(text)[0], "--node-rank").startswith("?")


def test_kserve() -> None:
    """Prefill and workers of an LLMInferenceService, a predictor's workers of the other kind."""
    text = """\
    apiVersion: serving.kserve.io/v1alpha1
    kind: LLMInferenceService
    metadata: {name: q}
    spec:
      replicas: 2
      template: {containers: [{name: main, command: [sglang, serve, x]}]}
      worker: {containers: [{name: main, command: [sglang, serve, x, --nnodes, "2"]}]}
      prefill:
        replicas: 3
        template: {containers: [{name: main, command: [sglang, serve, y]}]}
    """
    assert roles(text) == [
        ("decode", "leader", None, 2),
        ("decode", "worker", None, 2),
        ("prefill", None, None, 3),
    ]
    text = """\
    apiVersion: serving.kserve.io/v1beta1
    kind: InferenceService
    metadata: {name: q}
    spec:
      predictor:
        minReplicas: 2
        model: {args: [--model-path, x], command: [python3, -m, sglang.launch_server]}
        workerSpec: {containers: [{name: w, command: [sglang, serve, x]}]}
    """
    assert roles(text) == [("q", "leader", None, 2), ("q", "worker", None, 2)]


def test_a_kind_that_is_not_known() -> None:
    """The nearest item with a name is a role."""
    text = """\
    apiVersion: jobset.x-k8s.io/v1alpha2
    kind: JobSet
    metadata: {name: q}
    spec:
      replicatedJobs:
      - name: decode
        replicas: 2
        template: {spec: {template: {spec: {containers: [
          {name: s, command: [sglang, serve, x]}]}}}}
    """
    assert roles(text) == [("decode", None, None, 2)]


@pytest.mark.parametrize(
    "second", ["template: *shared", "standalonePattern: {templateRef: {name: base}}"]
)
def test_roles_that_share_a_template(second: str) -> None:
    """By an anchor, or by its name: each is a role of its own."""
    first = second if "Ref" in second else "template: &shared {spec: *pod}"
    text = f"""\
    apiVersion: workloads.x-k8s.io/v1alpha2
    kind: RoleBasedGroup
    metadata: {{name: q}}
    spec:
      roleTemplates:
      - name: base
        template: {{spec: &pod {{containers: [{{name: s, command: [sglang, serve, x]}}]}}}}
      roles:
      - {{name: prefill, replicas: 2, {first}}}
      - {{name: decode, replicas: 3, {second}}}
    """
    assert roles(text) == [("prefill", None, None, 2), ("decode", None, None, 3)]


def test_a_rendered_chart_on_standard_input() -> None:
    """The objects of one release belong together, whatever template they come from."""
    objects = "".join(
        f"""\
---
# Source: chart/templates/{role}.yaml
apiVersion: apps/v1
kind: Deployment
metadata: {{name: my-{role}, namespace: llm}}
spec:
  template:
    metadata: {{labels: {{app.kubernetes.io/instance: my, app.kubernetes.io/component: {role}}}}}
    spec: {{containers: [{{name: s, command: [sglang, serve, x]}}]}}
"""
        for role in ("prefill", "decode")
    )
    service = """\
---
# Source: chart/templates/service.yaml
apiVersion: v1
kind: Service
metadata: {name: my, namespace: llm}
spec: {selector: {app.kubernetes.io/component: prefill}, ports: [{port: 80}]}
"""
    assert roles(objects + service) == [("prefill", None, None, None), ("decode", None, None, None)]
    assert [one.name for one in of(servers(objects + service)[0]).group.services] == ["my"]
