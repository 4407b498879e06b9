"""Server contexts of a manifest: pods, groups, routers, Services."""

from __future__ import annotations

from textwrap import dedent

import pytest

from speclaunch.deployments.sources.files import read_yaml
from speclaunch.deployments.sources.interface import Invocation
from speclaunch.engine.plan.request import ProbeKind, ServerContext, Setting

SERVER = "python3 -m sglang.launch_server --model-path meta/x"


def server_contexts(text: str) -> dict[str, ServerContext]:
    """Return the server contexts of a manifest, by the name of their container."""
    reading = read_yaml(dedent(text), "x.yaml")
    assert not reading.problems
    assert not reading.unread
    return {one.name or "": of(one) for one in reading.invocations}


def of(found: Invocation) -> ServerContext:
    assert found.server_context is not None
    return found.server_context


def value(found: Setting | None) -> object:
    assert found is not None
    return found.value if found.known else f"?{found.value}"


def line(text: str, found: Setting | None) -> str:
    """What stands at the place of a setting."""
    assert found is not None
    place = found.place
    row = dedent(text).split("\n")[place.line - 1]
    return row[place.column - 1 : place.column - 1 + place.length]


DEPLOYMENTS = """\
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: glm-prefill}
    spec:
      replicas: 2
      template:
        metadata: {labels: {app: glm, part: p}}
        spec:
          hostNetwork: true
          hostIPC: true
          terminationGracePeriodSeconds: 90
          restartPolicy: Always
          volumes:
          - {name: shm, emptyDir: {medium: Memory, sizeLimit: 32Gi}}
          - {name: models, hostPath: {path: /data/models}}
          - {name: gone, persistentVolumeClaim: {claimName: models}}
          containers:
          - name: prefill
            image: lmsysorg/sglang:v0.5.23
            command: [python3, -m, sglang.launch_server, --model-path, meta/x,
                      --disaggregation-mode, prefill, --port, "30000"]
            ports: [{name: http, containerPort: 30000}, {containerPort: 8998}]
            env:
            - {name: NCCL_DEBUG, value: INFO}
            - {name: HF_TOKEN, valueFrom: {secretKeyRef: {name: hf, key: token}}}
            securityContext: {privileged: true}
            resources:
              requests: {nvidia.com/gpu: "4", memory: 100Gi}
              limits: {nvidia.com/gpu: 8, memory: "1e3M"}
            volumeMounts:
            - {name: shm, mountPath: /dev/shm}
            - {name: models, mountPath: /models}
            startupProbe:
              httpGet: {path: /health_generate, port: http}
              periodSeconds: 10
              failureThreshold: 60
            readinessProbe:
              exec: {command: [sh, -c, "curl -sf http://localhost:30000/health"]}
              initialDelaySeconds: 30
            livenessProbe:
              tcpSocket: {port: 30000}
              timeoutSeconds: 5
    ---
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: glm-decode}
    spec:
      template:
        metadata: {labels: {app: glm, part: d}}
        spec:
          containers:
          - name: main
            image: lmsysorg/sglang:v0.5.22
            command: [python3, -m, sglang.launch_server, --model-path, meta/x,
                      --disaggregation-mode, decode]
    ---
    apiVersion: v1
    kind: Service
    metadata: {name: glm-p}
    spec:
      selector: {part: p}
      ports: [{port: 80, targetPort: http}, {port: 8998}]
    ---
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: lb}
    spec:
      template:
        spec:
          containers:
          - name: router
            command: [sh, -c]
            args:
            - >-
              exec python3 -m sglang_router.launch_router --pd-disaggregation --policy=round_robin
              --prefill http://glm-p:80 8998 --decode http://$(DECODE):30000 --port 8000
"""


def test_a_pod_of_kubernetes() -> None:
    """Everything that the pod and the container say, each at its place."""
    found = server_contexts(DEPLOYMENTS)
    pod = found["glm-prefill/prefill"].pod
    assert value(pod.image) == "lmsysorg/sglang:v0.5.23"
    assert {key: value(one) for key, one in pod.requests.items()} == {
        "nvidia.com/gpu": 4,
        "memory": "100Gi",
    }
    assert value(pod.limits["nvidia.com/gpu"]) == 8
    assert line(DEPLOYMENTS, pod.limits["nvidia.com/gpu"]) == "8"
    assert [(value(pod.grace), value(pod.privileged)), (value(pod.host_network),)] == [
        (90, True),
        (True,),
    ]
    assert value(pod.ipc_host) is True
    assert value(pod.restart) == "Always"
    assert [value(port) for port in pod.ports] == [30000, 8998]
    assert {key: value(one) for key, one in pod.env.items()} == {"NCCL_DEBUG": "INFO"}
    assert pod.secrets == {"HF_TOKEN"}
    assert pod.labels == {"app": "glm", "part": "p"}


def test_volumes_of_kubernetes() -> None:
    """A mount with the volume behind it."""
    pod = server_contexts(DEPLOYMENTS)["glm-prefill/prefill"].pod
    shm, models = pod.volumes
    assert (value(shm.mount), shm.kind, shm.medium, value(shm.size)) == (
        "/dev/shm",
        "emptyDir",
        "Memory",
        32 << 30,
    )
    assert line(DEPLOYMENTS, shm.size) == "32Gi"
    assert (models.kind, value(models.source), models.medium) == ("hostPath", "/data/models", None)


def test_probes_of_kubernetes() -> None:
    """A named port is that of the container; of a command the URL in it counts."""
    startup, ready, live = server_contexts(DEPLOYMENTS)["glm-prefill/prefill"].pod.probes
    assert (startup.kind, value(startup.path), value(startup.port)) == (
        ProbeKind.STARTUP,
        "/health_generate",
        30000,
    )
    assert (value(startup.period), value(startup.failure_threshold)) == (10, 60)
    assert startup.timeout is None
    assert (value(ready.path), value(ready.port), ready.command[:2]) == (
        "/health",
        30000,
        ("sh", "-c"),
    )
    assert line(DEPLOYMENTS, ready.path) == "http://localhost:30000/health"
    assert (live.path, value(live.port), value(live.timeout)) == (None, 30000, 5)


def test_one_deployment_of_several_objects() -> None:
    """Prefill, decode, their router and its Service are one group."""
    found = server_contexts(DEPLOYMENTS)
    prefill, decode = found["glm-prefill/prefill"], found["glm-decode/main"]
    assert (prefill.role, decode.role) == ("prefill", "decode")
    assert prefill.group == decode.group
    assert value(prefill.replicas) == 2
    assert decode.replicas is None
    (service,) = prefill.group.services
    assert (service.name, service.selector) == ("glm-p", {"part": "p"})
    assert [(value(a), b and value(b)) for a, b in service.ports] == [(80, "http"), (8998, None)]
    (router,) = prefill.group.routers
    assert router.program == "sglang_router.launch_router"
    assert {key: value(one) for key, one in router.options.items()} == {
        "pd-disaggregation": True,
        "policy": "round_robin",
        "port": 8000,
    }
    first, second = router.upstreams
    assert (first.role, first.host, value(first.port), value(first.bootstrap)) == (
        "prefill",
        "glm-p",
        80,
        8998,
    )
    assert line(DEPLOYMENTS, first.port) == "80"
    assert line(DEPLOYMENTS, first.bootstrap) == "8998"
    assert (second.role, second.host, value(second.port)) == ("decode", None, 30000)


COMPOSE = f"""\
    services:
      first:
        image: lmsysorg/sglang:${{TAG:-v0.5.23}}
        command: {SERVER} --disaggregation-mode prefill
        container_name: pre
        shm_size: 16gb
        stop_grace_period: 1m30s
        ipc: host
        network_mode: host
        restart: unless-stopped
        privileged: true
        environment: [NCCL_DEBUG=INFO, HF_TOKEN]
        ports: ["127.0.0.1:30001:30000", {{target: 8998}}]
        volumes:
        - ~/.cache:/root/.cache
        - models:/models:ro
        - {{type: tmpfs, target: /dev/shm, tmpfs: {{size: 1g}}}}
        deploy:
          replicas: 2
          resources:
            reservations: {{devices: [{{driver: nvidia, device_ids: ["0", "3"], capabilities: [gpu]}}]}}
            limits: {{memory: 64g}}
        healthcheck:
          test: [CMD-SHELL, "curl -f http://localhost:30000/health || exit 1"]
          interval: 30s
          timeout: 10s
          retries: 3
          start_period: 5m
      second:
        command: {SERVER} --disaggregation-mode decode
        healthcheck: {{disable: true, test: [CMD, "true"]}}
      lb:
        command: python3 -m sglang.srt.disaggregation.launch_lb --prefill http://pre:30000
          --decode http://second:30000 --prefill-bootstrap-ports 8998
      other:
        command: {SERVER}
"""


def test_the_gpus_that_compose_lists() -> None:
    """Docker joins the items of `device_ids`, so one item may list several GPUs."""
    counts = {
        '["0", "3"]': 2,
        '["0,1"]': 2,
        '["GPU-1,GPU-2", 3]': 3,
        '["${GPUS:-0,1}"]': "?${GPUS:-0,1}",
    }
    for ids, count in counts.items():
        pod = server_contexts(COMPOSE.replace('["0", "3"]', ids))["first"].pod
        assert value(pod.requests["nvidia.com/gpu"]) == count, ids


def test_a_service_of_compose() -> None:
    """The container of a service, and its replicas."""
    found = server_contexts(COMPOSE)["first"]
    pod = found.pod
    assert value(found.replicas) == 2
    assert value(pod.image) == "lmsysorg/sglang:v0.5.23"
    assert value(pod.shm_size) == 16 << 30
    assert value(pod.grace) == 90
    assert (value(pod.ipc_host), value(pod.host_network), value(pod.privileged)) == (True,) * 3
    assert value(pod.restart) == "unless-stopped"
    assert [value(port) for port in pod.ports] == [30000, 8998]
    assert [(v.kind, value(v.mount)) for v in pod.volumes] == [
        ("bind", "/root/.cache"),
        ("volume", "/models"),
        ("tmpfs", "/dev/shm"),
    ]
    assert value(pod.volumes[2].size) == 1 << 30
    assert value(pod.requests["nvidia.com/gpu"]) == 2
    assert value(pod.limits["memory"]) == "64g"
    assert {key: value(one) for key, one in pod.env.items()} == {"NCCL_DEBUG": "INFO"}
    (probe,) = pod.probes
    assert (probe.kind, value(probe.path), value(probe.port)) == (
        ProbeKind.HEALTHCHECK,
        "/health",
        30000,
    )
    assert [value(one) for one in (probe.period, probe.timeout, probe.initial_delay)] == [
        30,
        10,
        300,
    ]
    assert value(probe.failure_threshold) == 3


def test_a_compose_file_of_several_deployments() -> None:
    """The router joins what it was told of; another server is on its own."""
    found = server_contexts(COMPOSE)
    assert found["first"].group == found["second"].group
    assert found["other"].group != found["first"].group
    (router,) = found["first"].group.routers
    assert [(one.role, one.host) for one in router.upstreams] == [
        ("prefill", "pre"),
        ("decode", "second"),
    ]
    assert value(router.upstreams[0].bootstrap) == 8998
    assert not found["other"].group.routers
    assert not found["second"].pod.probes
    assert (found["first"].role, found["second"].role) == ("prefill", "decode")


@pytest.mark.parametrize("namespaces", [("a", "b"), ("a", "a")])
def test_other_namespaces_are_other_deployments(namespaces: tuple[str, str]) -> None:
    """The same labels in another namespace are those of another deployment."""
    text = "---\n".join(
        f"""\
apiVersion: v1
kind: Pod
metadata: {{name: server-{number}, namespace: {namespace}, labels: {{app: x}}}}
spec: {{containers: [{{name: s, command: [python3, -m, sglang.launch_server]}}]}}
"""
        for number, namespace in enumerate(namespaces)
    )
    first, second = server_contexts(text).values()
    assert (first.group == second.group) == (namespaces[0] == namespaces[1])


def test_two_models_of_one_file_are_two_deployments() -> None:
    """Nothing says that they work together."""
    text = "---\n".join(
        f"""\
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: model-{name}}}
spec:
  template:
    metadata: {{labels: {{app: model-{name}}}}}
    spec: {{containers: [{{name: s, command: [python3, -m, sglang.launch_server]}}]}}
"""
        for name in "ab"
    )
    first, second = server_contexts(text).values()
    assert first.group != second.group


def test_ranks_of_one_server() -> None:
    """Two pods with one address to meet at are one server; each says which rank it is."""
    text = "---\n".join(
        f"""\
apiVersion: v1
kind: Pod
metadata: {{name: node-{rank}}}
spec:
  containers:
  - name: s
    command: [python3, -m, sglang.launch_server, --nnodes, "2", --node-rank, "{rank}",
              --dist-init-addr, "node-0:5000"]
"""
        for rank in (0, 1)
    )
    first, second = server_contexts(text).values()
    assert first.group == second.group
    assert (first.part, second.part) == ("leader", "worker")


def test_pods_of_a_statefulset_are_hosts() -> None:
    """Where one command is for several hosts; else they are replicas."""
    text = """\
    apiVersion: apps/v1
    kind: StatefulSet
    metadata: {name: x}
    spec:
      replicas: 4
      template:
        spec:
          containers:
          - {name: s, command: [python3, -m, sglang.launch_server, --nnodes, "4"]}
    """
    (found,) = server_contexts(text).values()
    assert (value(found.nodes), found.replicas) == (4, None)
    (found,) = server_contexts(text.replace('"4"', '"$(NODES)"')).values()
    assert (value(found.nodes), found.replicas) == ("?4", None)
    (found,) = server_contexts(text.replace('--nnodes, "4"', "--tp, 4")).values()
    assert (found.nodes, value(found.replicas)) == (None, 4)


@pytest.mark.parametrize("label", ['""', "{{ .Values.name }}"])
def test_labels_that_a_template_fills_in_join_nothing(label: str) -> None:
    """What is not known is not the same."""
    text = "---\n".join(
        f"""\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: "" }}
spec:
  template:
    metadata: {{labels: {{app: '{label.strip('"')}'}}}}
    spec: {{containers: [{{name: s{number}, command: [python3, -m, sglang.launch_server]}}]}}
"""
        for number in range(2)
    )
    first, second = server_contexts(text).values()
    assert first.group != second.group
