"""Deployments as people write them, without a mistake: one function a shape, varied by chance.

Modelled on what SGLang's documentation, LeaderWorkerSet, RoleBasedGroup and Compose files have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from campaigns.deployment_mutating.deployed import Deployed, Server, Spot

VERSIONS = ("0.5.12.post1", "0.5.14", "0.5.16", "0.5.18", "0.5.20", "0.5.22", "0.5.23")
MODELS = ("glm", "qwen3", "deepseek", "llama")
PROBE = 25


class Values:
    """What one deployment is made of."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.name = f"{random.choice(MODELS)}-{random.randrange(100)}"
        self.image = f"lmsysorg/sglang:v{random.choice(VERSIONS)}"
        if random.random() < 0.3:
            self.image += "-cu129"
        self.model = f"/models/{self.name}"
        self.port = random.choice((8000, 30000, 31000))
        self.tp = random.choice((2, 4, 8))
        self.bootstrap = random.choice((8998, 9100))
        self.host_network = random.random() < 0.3
        self.bootstrap_written = self.bootstrap != 8998 or random.random() < 0.5
        self.startup = random.random() < 0.6


def _command(values: Values, port: int, more: Mapping[str, object]) -> list[str]:
    words = ["python3", "-m", "sglang.launch_server", f"--model-path={values.model}"]
    words += ["--host=0.0.0.0", f"--port={port}", "--api-key=$(API_KEY)"]
    return words + [f"{flag}={value}" for flag, value in more.items()]


def _probe(path: str, port: int, **more: int) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": port}, "timeoutSeconds": PROBE, **more}


def _container(
    values: Values, name: str, port: int, gpus: int, more: Mapping[str, object]
) -> dict[str, Any]:
    """A container of Kubernetes."""
    limits: dict[str, Any] = {"nvidia.com/gpu": gpus, "memory": f"{gpus * 64}Gi"}
    found: dict[str, Any] = {
        "name": name,
        "image": values.image,
        "command": _command(values, port, more),
        "env": [
            {
                "name": "API_KEY",
                "valueFrom": {"secretKeyRef": {"name": "keys", "key": "api"}},
            },
            {"name": "NCCL_IB_HCA", "value": "mlx5_0"},
        ],
        "ports": [{"name": "http", "containerPort": port}],
        "resources": {"limits": limits, "requests": {"nvidia.com/gpu": gpus}},
        "readinessProbe": _probe("/health_generate", port, periodSeconds=15),
        "livenessProbe": _probe("/health", port, initialDelaySeconds=1800, periodSeconds=30),
        "volumeMounts": [
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
            {"name": "models", "mountPath": "/models"},
        ],
    }
    if values.startup:
        found["livenessProbe"] = _probe("/health", port, periodSeconds=30)
        found["startupProbe"] = _probe("/health", port, periodSeconds=10, failureThreshold=360)
    return found


def _pod(values: Values, container: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "terminationGracePeriodSeconds": 300,
        "containers": [container],
        "volumes": [
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "32Gi"}},
            {"name": "models", "persistentVolumeClaim": {"claimName": "models"}},
        ],
    }
    if values.host_network:
        found = {"hostNetwork": True, **found}
    return found


def _object(kind: str, name: str, labels: dict[str, str], pod: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": dict(labels)},
            "template": {"metadata": {"labels": dict(labels)}, "spec": pod},
        },
    }


def _service(name: str, labels: dict[str, str], *ports: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": dict(labels), "ports": list(ports)},
    }


def _router(values: Values, words: list[str], labels: dict[str, str]) -> Server:
    container = {
        "name": "router",
        "image": "lmsysorg/sglang-router:v0.3.2",
        "command": ["python3", "-m", "sglang_router.launch_router", *words, "--port=8080"],
    }
    pod = {"containers": [container]}
    document = _object("Deployment", f"{values.name}-router", labels, pod)
    return Server("router", container, pod, Spot(document["metadata"], "name"), "router")


def single(random: Random) -> Deployed:
    """One server behind a Service."""
    values = Values(random)
    labels = {"app": values.name}
    container = _container(values, "server", values.port, values.tp, {"--tp-size": values.tp})
    pod = _pod(values, container)
    document = _object("Deployment", values.name, labels, pod)
    service = _service(values.name, labels, {"port": 80, "targetPort": values.port})
    server = Server("server", container, pod, Spot(document["metadata"], "name"))
    return Deployed("single", [document, service], [server], services={"server": service})


def pair(random: Random) -> Deployed:
    """Prefill and decode in Deployments, their Services, a router."""
    values = Values(random)
    decode_port = values.port + 1
    servers, documents, services = [], [], {}
    for role, port in (("prefill", values.port), ("decode", decode_port)):
        labels = {"app": values.name, "role": role}
        more: dict[str, object] = {"--tp-size": values.tp, "--disaggregation-mode": role}
        if role == "prefill" and values.bootstrap_written:
            more["--disaggregation-bootstrap-port"] = values.bootstrap
        container = _container(values, role, port, values.tp, more)
        if not values.host_network:
            container["resources"]["limits"]["rdma/hca"] = 1
        pod = _pod(values, container)
        name = f"{values.name}-{role}"
        document = _object("Deployment", name, labels, pod)
        ports = [{"name": "http", "port": port, "targetPort": port}]
        if role == "prefill":
            ports.append({"name": "bootstrap", "port": values.bootstrap})
        services[role] = _service(name, labels, *ports)
        servers.append(Server(role, container, pod, Spot(document["metadata"], "name"), role))
        documents.append(document)
    router = _router(values, _told(values, decode_port), {"app": values.name, "role": "router"})
    lb = _object("Deployment", f"{values.name}-router", {"app": values.name}, router.pod)
    router.owner = Spot(lb["metadata"], "name")
    return Deployed("pair", [*documents, *services.values(), lb], servers, router, services)


def _told(values: Values, decode_port: int) -> list[str]:
    return [
        "--pd-disaggregation",
        "--prefill",
        f"http://{values.name}-prefill:{values.port}",
        str(values.bootstrap),
        "--decode",
        f"http://{values.name}-decode:{decode_port}",
    ]


def _ranks(values: Values, nodes: int, rank: object, address: str) -> dict[str, object]:
    return {
        "--tp-size": values.tp * nodes,
        "--nnodes": nodes,
        "--node-rank": rank,
        "--dist-init-addr": address,
    }


def _lws(
    values: Values, name: str, more: Mapping[str, object], port: int, *, apart: bool
) -> tuple[dict[str, Any], list[Server]]:
    """A LeaderWorkerSet, with a command of the leader's own or one for all."""
    nodes = values.random.choice((2, 4)) if not apart else 2
    address = "$(LWS_LEADER_ADDRESS):20000"
    template: dict[str, Any] = {"size": nodes, "restartPolicy": "RecreateGroupOnPodRestart"}
    servers = []
    labels = {"app": values.name, "set": name}
    document = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name},
        "spec": {"replicas": 1, "leaderWorkerTemplate": template},
    }
    role = str(more.get("--disaggregation-mode", "server"))
    for part in ("leader", "worker") if apart else (None,):
        rank: object = 0 if part == "leader" else "$(LWS_WORKER_INDEX)"
        said = {**_ranks(values, nodes, rank, address), **more}
        container = _container(values, part or "server", port, values.tp, said)
        if part == "worker":
            for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
                container.pop(probe, None)
            container["livenessProbe"] = _probe("/health", port, initialDelaySeconds=3600)
        if "--disaggregation-mode" in more and not values.host_network:
            container["resources"]["limits"]["rdma/hca"] = 1
        pod = _pod(values, container)
        template["leaderTemplate" if part == "leader" else "workerTemplate"] = {
            "metadata": {"labels": {**labels, "part": part or "server"}},
            "spec": pod,
        }
        owner = Spot(document["metadata"], "name")
        servers.append(Server(part or "server", container, pod, owner, role, part))
    return document, servers


def lws(random: Random) -> Deployed:
    """A server of several hosts in a LeaderWorkerSet: one command for all of them."""
    values = Values(random)
    document, servers = _lws(values, values.name, {}, values.port, apart=False)
    return Deployed("lws", [document], servers)


def lws_leader(random: Random) -> Deployed:
    """The same with a command of the leader's own, and a Service before it."""
    values = Values(random)
    document, servers = _lws(values, values.name, {}, values.port, apart=True)
    service = _service(values.name, {"part": "leader"}, {"port": 80, "targetPort": values.port})
    return Deployed("lws-leader", [document, service], servers, services={"leader": service})


def lws_pair(random: Random) -> Deployed:
    """Prefill and decode, each a LeaderWorkerSet with a leader of its own, and a router."""
    values = Values(random)
    decode_port = values.port + 1
    documents, found, services = [], [], {}
    for role, port in (("prefill", values.port), ("decode", decode_port)):
        name = f"{values.name}-{role}"
        more: dict[str, object] = {"--disaggregation-mode": role}
        if role == "prefill" and values.bootstrap_written:
            more["--disaggregation-bootstrap-port"] = values.bootstrap
        document, servers = _lws(values, name, more, port, apart=True)
        ports = [{"name": "http", "port": port, "targetPort": port}]
        if role == "prefill":
            ports.append({"name": "bootstrap", "port": values.bootstrap})
        services[role] = _service(name, {"set": name, "part": "leader"}, *ports)
        documents.append(document)
        found += servers
    router = _router(values, _told(values, decode_port), {"app": values.name})
    lb = _object("Deployment", f"{values.name}-router", {"app": values.name}, router.pod)
    router.owner = Spot(lb["metadata"], "name")
    return Deployed("lws-pair", [*documents, *services.values(), lb], found, router, services)


def stateful(random: Random) -> Deployed:
    """A server of several hosts in a StatefulSet with its headless Service."""
    values = Values(random)
    labels = {"app": values.name}
    nodes = random.choice((2, 4))
    address = f"{values.name}-0.{values.name}-ranks:20000"
    said = _ranks(values, nodes, "$(POD_INDEX)", address)
    container = _container(values, "server", values.port, values.tp, said)
    index = {"fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']"}
    container["env"].append({"name": "POD_INDEX", "valueFrom": {"fieldRef": index}})
    pod = _pod(values, container)
    document = _object("StatefulSet", values.name, labels, pod)
    document["spec"]["replicas"] = nodes
    document["spec"]["serviceName"] = f"{values.name}-ranks"
    document["spec"]["podManagementPolicy"] = "Parallel"
    headless = _service(f"{values.name}-ranks", labels, {"port": 20000})
    headless["spec"] = {"clusterIP": "None", **headless["spec"]}
    server = Server("server", container, pod, Spot(document["metadata"], "name"))
    return Deployed("stateful", [document, headless], [server])


def rbg(random: Random) -> Deployed:
    """Prefill, decode and a router as roles of one RoleBasedGroup."""
    values = Values(random)
    decode_port = values.port + 1
    roles, servers = [], []
    for role, port in (("prefill", values.port), ("decode", decode_port)):
        more: dict[str, object] = {"--tp-size": values.tp, "--disaggregation-mode": role}
        if role == "prefill" and values.bootstrap_written:
            more["--disaggregation-bootstrap-port"] = values.bootstrap
        container = _container(values, role, port, values.tp, more)
        if not values.host_network:
            container["resources"]["limits"]["rdma/hca"] = 1
        pod = _pod(values, container)
        held = {
            "name": role,
            "replicas": 1,
            "template": {"metadata": {"labels": {"role": role}}, "spec": pod},
        }
        roles.append(held)
        servers.append(Server(role, container, pod, Spot(held, "name"), role))
    router = _router(values, _told(values, decode_port), {})
    held = {"name": "router", "replicas": 1, "template": {"spec": router.pod}}
    router.owner = Spot(held, "name")
    document = {
        "apiVersion": "workloads.x-k8s.io/v1alpha1",
        "kind": "RoleBasedGroup",
        "metadata": {"name": values.name},
        "spec": {"roles": [*roles, held]},
    }
    return Deployed("rbg", [document], servers, router)


def _compose_service(
    values: Values, port: int, gpus: int, more: Mapping[str, object]
) -> dict[str, Any]:
    device = {"driver": "nvidia", "count": gpus, "capabilities": ["gpu"]}
    words = _command(values, port, more)
    words[words.index("--api-key=$(API_KEY)")] = "--api-key=${API_KEY}"
    return {
        "image": values.image,
        "command": words,
        "shm_size": "32g",
        "stop_grace_period": "5m",
        "volumes": ["/data/models:/models"],
        "environment": {"NCCL_IB_HCA": "mlx5_0"},
        "healthcheck": {
            "test": ["CMD", "curl", "-f", f"http://localhost:{port}/health"],
            "timeout": "25s",
            "start_period": "30m",
        },
        "deploy": {"resources": {"reservations": {"devices": [device]}}},
    }


def compose_pair(random: Random) -> Deployed:
    """Prefill, decode and a router in Compose."""
    values = Values(random)
    decode_port = values.port + 1
    services: dict[str, Any] = {}
    servers = []
    for role, port in (("prefill", values.port), ("decode", decode_port)):
        more: dict[str, object] = {"--tp-size": values.tp, "--disaggregation-mode": role}
        if role == "prefill" and values.bootstrap_written:
            more["--disaggregation-bootstrap-port"] = values.bootstrap
        service = _compose_service(values, port, values.tp, more)
        if values.host_network:
            service["network_mode"] = "host"
        else:
            service["ports"] = [f"{port}:{port}"]
        name = f"{values.name}-{role}"
        services[name] = service
        servers.append(Server(name, service, service, Spot(services, name), role))
    words = ["python3", "-m", "sglang_router.launch_router", *_told(values, decode_port)]
    router = {"image": "lmsysorg/sglang-router:v0.3.2", "command": [*words, "--port=8080"]}
    services["router"] = router
    lb = Server("router", router, router, Spot(services, "router"), "router")
    return Deployed("compose-pair", [{"services": services}], servers, lb)


def compose_ranks(random: Random) -> Deployed:
    """Two ranks in Compose, as of two hosts that share a network."""
    values = Values(random)
    services: dict[str, Any] = {}
    servers = []
    for rank, part in enumerate(("leader", "worker")):
        said = _ranks(values, 2, rank, "rank0:20000")
        service = _compose_service(values, values.port, values.tp, said)
        services[f"rank{rank}"] = service
        owner = Spot(services, f"rank{rank}")
        servers.append(Server(f"rank{rank}", service, service, owner, "server", part))
    return Deployed("compose-ranks", [{"services": services}], servers)


def compose_workers(random: Random) -> Deployed:
    """Two equal servers behind a router in Compose."""
    values = Values(random)
    services: dict[str, Any] = {}
    servers = []
    for number in (1, 2):
        port = values.port + number
        service = _compose_service(values, port, values.tp, {"--tp-size": values.tp})
        services[f"server{number}"] = service
        owner = Spot(services, f"server{number}")
        servers.append(Server(f"server{number}", service, service, owner))
    urls = [f"http://server{number}:{values.port + number}" for number in (1, 2)]
    words = ["python3", "-m", "sglang_router.launch_router", "--worker-urls", *urls]
    router = {"image": "lmsysorg/sglang-router:v0.3.2", "command": [*words, "--port=8080"]}
    services["router"] = router
    lb = Server("router", router, router, Spot(services, "router"), "router")
    return Deployed("compose-workers", [{"services": services}], servers, lb)


SHAPES: tuple[Callable[[Random], Deployed], ...] = (
    single,
    pair,
    lws,
    lws_leader,
    lws_pair,
    stateful,
    rbg,
    compose_pair,
    compose_ranks,
    compose_workers,
)


def deployment(number: int) -> Deployed:
    """The deployment with a number: shapes take turns."""
    return SHAPES[number % len(SHAPES)](Random(number))  # noqa: S311
