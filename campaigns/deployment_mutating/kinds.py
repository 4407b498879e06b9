"""The kinds of mistakes between the parts of a deployment, listed before any was looked for.

A kind plants one mistake, and says which places contradict each other: those where somebody wrote
what does not fit together. It answers None where a deployment has nothing that it can spoil.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from campaigns.deployment_mutating.deployed import Deployed, Server, Spot

Planted = tuple[Spot, ...] | None
_PORTS = (1234, 9999)


@dataclass(frozen=True)
class Kind:
    """A kind of mistake: its name, what it is, the rules that may find it, how it is planted."""

    name: str
    says: str
    codes: tuple[str, ...]
    plant: Callable[[Deployed, Random], Planted]


def _server(deployed: Deployed, random: Random) -> Server:
    """One that serves requests."""
    return random.choice([one for one in deployed.servers if one.part != "worker"])


def _probe(server: Server, random: Random, *kinds: str) -> tuple[str, dict[str, Any]] | None:
    held = [kind for kind in kinds if kind in server.container]
    if not held:
        return None
    kind = random.choice(held)
    return kind, server.container[kind]


_ALL = ("startupProbe", "readinessProbe", "livenessProbe")


def probe_port(deployed: Deployed, random: Random) -> Planted:
    server = random.choice(deployed.servers)
    if deployed.is_compose:
        test = server.container["healthcheck"]["test"]
        test[3] = f"http://localhost:{random.choice(_PORTS)}/health"
        return Spot(test, 3), server.spot("--port")
    found = _probe(server, random, *_ALL)
    if found is None:
        return None
    found[1]["httpGet"]["port"] = random.choice(_PORTS)
    return Spot(found[1]["httpGet"], "port"), server.spot("--port")


def server_port(deployed: Deployed, random: Random) -> Planted:
    """The same from the other side: the server moves, its probe does not."""
    server = random.choice(deployed.servers)
    found = _probe(server, random, *_ALL)
    if found is None:
        return None
    return Spot(found[1]["httpGet"], "port"), server.put("--port", random.choice(_PORTS))


def service_port(deployed: Deployed, random: Random) -> Planted:
    server = _server(deployed, random)
    service = deployed.services.get(server.role, deployed.services.get(server.name))
    if service is None:
        return None
    port = service["spec"]["ports"][0]
    port["targetPort"] = random.choice(_PORTS)
    service["spec"]["ports"] = [port]
    return Spot(port, "targetPort"), server.spot("--port")


def container_port(deployed: Deployed, random: Random) -> Planted:
    server = _server(deployed, random)
    ports = server.container.get("ports")
    if not ports:
        return None
    if deployed.is_compose:
        ports[0] = "1234:1234"
        return Spot(ports, 0), server.spot("--port")
    ports[0]["containerPort"] = random.choice(_PORTS)
    return Spot(ports[0], "containerPort"), server.spot("--port")


def _upstream(deployed: Deployed, role: str) -> tuple[Spot, Server] | None:
    """The word of the router that names a server, where that can be followed."""
    target = deployed.role(role)
    if deployed.router is None or target is None or deployed.shape == "rbg":
        return None
    words = deployed.router.words
    flag = f"--{role}" if f"--{role}" in words else "--worker-urls"
    return Spot(words, words.index(flag) + 1), target


def router_port(deployed: Deployed, random: Random) -> Planted:
    found = _upstream(deployed, random.choice(("prefill", "decode"))) or _upstream(
        deployed, "server"
    )
    if found is None:
        return None
    spot, server = found
    url = spot.holder[spot.key].rpartition(":")[0]
    spot.holder[spot.key] = f"{url}:{random.choice(_PORTS)}"
    return spot, server.spot("--port")


def router_bootstrap(deployed: Deployed, random: Random) -> Planted:
    found = _upstream(deployed, "prefill")
    if found is None:
        return None
    spot, server = found
    told = Spot(spot.holder, spot.key + 1)
    spot.holder[told.key] = str(random.choice(_PORTS))
    return told, server.spot("--disaggregation-bootstrap-port")


def server_bootstrap(deployed: Deployed, random: Random) -> Planted:
    found = _upstream(deployed, "prefill")
    if found is None:
        return None
    spot, server = found
    at = server.put("--disaggregation-bootstrap-port", random.choice(_PORTS))
    return Spot(spot.holder, spot.key + 1), at


def service_bootstrap(deployed: Deployed, _: Random) -> Planted:
    server, service = deployed.role("prefill"), deployed.services.get("prefill")
    if server is None or service is None:
        return None
    service["spec"]["ports"] = service["spec"]["ports"][:1]
    return Spot(service["metadata"], "name"), server.spot("--disaggregation-bootstrap-port")


def swapped_roles(deployed: Deployed, _: Random) -> Planted:
    prefill, decode = _upstream(deployed, "prefill"), _upstream(deployed, "decode")
    if prefill is None or decode is None:
        return None
    (one, _), (two, server) = prefill, decode
    words = one.holder
    words[one.key], words[two.key] = words[two.key], words[one.key]
    return one, server.spot("--disaggregation-mode")


def changed_mode(deployed: Deployed, random: Random) -> Planted:
    """Both servers of the router are of one role."""
    role = random.choice(("prefill", "decode"))
    found = _upstream(deployed, role)
    if found is None:
        return None
    spot, server = found
    other = "decode" if role == "prefill" else "prefill"
    return spot, server.put("--disaggregation-mode", other)


def router_mode(deployed: Deployed, _: Random) -> Planted:
    server = deployed.role("prefill")
    if deployed.router is None or server is None:
        return None
    deployed.router.words.remove("--pd-disaggregation")
    return Spot(deployed.router.container, "command"), server.spot("--disaggregation-mode")


def no_router(deployed: Deployed, _: Random) -> Planted:
    prefill, decode = deployed.role("prefill"), deployed.role("decode")
    if deployed.router is None or prefill is None or decode is None:
        return None
    deployed.router.container["command"] = ["sleep", "infinity"]
    return prefill.owner, decode.owner


def _template(deployed: Deployed) -> dict[str, Any] | None:
    for document in deployed.documents:
        found = document.get("spec", {}).get("leaderWorkerTemplate")
        if found is not None:
            return dict(found) and found
    return None


def host_count(deployed: Deployed, random: Random) -> Planted:
    template, server = _template(deployed), deployed.servers[0]
    if deployed.shape == "stateful":
        deployed.documents[0]["spec"]["replicas"] += 1
        return Spot(deployed.documents[0]["spec"], "replicas"), server.spot("--nnodes")
    if template is None:
        return None
    template["size"] += random.choice((1, 2))
    return Spot(template, "size"), server.spot("--nnodes")


def nnodes(deployed: Deployed, random: Random) -> Planted:
    template, server = _template(deployed), deployed.servers[0]
    held: Spot | None = None
    if deployed.shape == "stateful":
        held = Spot(deployed.documents[0]["spec"], "replicas")
    elif template is not None:
        held = Spot(template, "size")
    if held is None:
        return None
    return held, server.put("--nnodes", server.number("--nnodes", 1) * random.choice((2, 4)))


def fixed_rank(deployed: Deployed, random: Random) -> Planted:
    server = deployed.worker() or deployed.servers[0]
    if server.index("--nnodes") is None:
        return None
    if random.random() < 0.5:
        server.drop("--node-rank")
        if server.part == "worker" and deployed.shape == "compose-ranks":
            return server.spot("--node-rank"), deployed.servers[0].spot("--node-rank")
        return server.spot("--node-rank"), server.spot("--nnodes")
    spot = server.put("--node-rank", 0)
    if deployed.shape == "compose-ranks":
        return spot, deployed.servers[0].spot("--node-rank")
    return spot, server.spot("--nnodes")


def leader_rank(deployed: Deployed, _: Random) -> Planted:
    leader = deployed.leader()
    if leader is None:
        return None
    if deployed.shape == "compose-ranks":
        worker = deployed.worker()
        return (
            None if worker is None else (leader.put("--node-rank", 1), worker.spot("--node-rank"))
        )
    return leader.put("--node-rank", 1), leader.spot("--nnodes")


def own_address(deployed: Deployed, random: Random) -> Planted:
    server = random.choice(deployed.servers)
    if server.index("--dist-init-addr") is None:
        return None
    address = random.choice(("127.0.0.1:20000", "localhost:20000", "0.0.0.0:20000"))
    return server.put("--dist-init-addr", address), server.spot("--nnodes")


def no_address(deployed: Deployed, random: Random) -> Planted:
    server = random.choice(deployed.servers)
    if server.index("--dist-init-addr") is None:
        return None
    server.drop("--dist-init-addr")
    return (server.spot("--nnodes"),)


def other_address(deployed: Deployed, _: Random) -> Planted:
    leader, worker = deployed.leader(), deployed.worker()
    if leader is None or worker is None:
        return None
    one = leader.put("--dist-init-addr", "10.0.0.1:20000")
    return one, worker.put("--dist-init-addr", "10.0.0.1:20001")


def image_release(deployed: Deployed, random: Random) -> Planted:
    if len(deployed.servers) < 2:
        return None
    one, other = deployed.servers[0], random.choice(deployed.servers[1:])
    names = ("0.5.10", "0.5.11")
    other.container["image"] = f"lmsysorg/sglang:v{random.choice(names)}"
    return Spot(one.container, "image"), Spot(other.container, "image")


def _gpus(deployed: Deployed, server: Server) -> Spot:
    if deployed.is_compose:
        devices = server.container["deploy"]["resources"]["reservations"]["devices"]
        return Spot(devices[0], "count")
    return Spot(server.container["resources"]["limits"], "nvidia.com/gpu")


def fewer_gpus(deployed: Deployed, random: Random) -> Planted:
    server = random.choice(deployed.servers)
    spot = _gpus(deployed, server)
    spot.holder[spot.key] //= 2
    if not deployed.is_compose:
        server.container["resources"]["requests"]["nvidia.com/gpu"] //= 2
    return spot, server.spot("--tp-size")


def more_ranks(deployed: Deployed, random: Random) -> Planted:
    server = random.choice(deployed.servers)
    spot = _gpus(deployed, server)
    return spot, server.put("--tp-size", server.number("--tp-size", 1) * 2)


def gpu_request(deployed: Deployed, random: Random) -> Planted:
    if deployed.is_compose:
        return None
    server = random.choice(deployed.servers)
    requests = server.container["resources"]["requests"]
    requests["nvidia.com/gpu"] += random.choice((-1, 1))
    return Spot(requests, "nvidia.com/gpu"), _gpus(deployed, server)


def no_shared_memory(deployed: Deployed, random: Random) -> Planted:
    server = random.choice(deployed.servers)
    if deployed.is_compose:
        del server.container["shm_size"]
    else:
        server.container["volumeMounts"] = server.container["volumeMounts"][1:]
    return server.owner, server.spot("--tp-size")


def host_memory(deployed: Deployed, random: Random) -> Planted:
    if deployed.is_compose:
        return None
    server = random.choice(deployed.servers)
    server.put("--enable-hierarchical-cache", True)
    limits = server.container["resources"]["limits"]
    return Spot(limits, "memory"), server.put("--hicache-size", random.choice((100, 200)))


def other_accelerator(deployed: Deployed, random: Random) -> Planted:
    server = random.choice(deployed.servers)
    version = server.container["image"].partition(":")[2].partition("-")[0]
    server.container["image"] = f"lmsysorg/sglang:{version}-rocm700-mi30x"
    return Spot(server.container, "image"), _gpus(deployed, server)


def host_port(deployed: Deployed, _: Random) -> Planted:
    prefill, decode = deployed.role("prefill"), deployed.role("decode")
    if prefill is None or decode is None or deployed.shape == "lws-pair":
        return None
    for server in (prefill, decode):
        server.pod["network_mode" if deployed.is_compose else "hostNetwork"] = (
            "host" if deployed.is_compose else True
        )
        server.container.pop("ports", None)
    spot = decode.put("--port", prefill.number("--port", 30000))
    return prefill.spot("--port"), spot


def lone_restart(deployed: Deployed, _: Random) -> Planted:
    template, server = _template(deployed), deployed.servers[0]
    if template is not None:
        template["restartPolicy"] = "None"
        return Spot(template, "restartPolicy"), server.spot("--nnodes")
    if deployed.shape != "stateful":
        return None
    deployed.documents[0]["kind"] = "Deployment"
    return server.owner, server.spot("--nnodes")


def no_rdma(deployed: Deployed, random: Random) -> Planted:
    if deployed.is_compose:
        return None
    server = deployed.role(random.choice(("prefill", "decode")))
    if server is None:
        return None
    server.pod.pop("hostNetwork", None)
    server.container["resources"]["limits"].pop("rdma/hca", None)
    return server.owner, server.spot("--disaggregation-mode")


def no_model(deployed: Deployed, random: Random) -> Planted:
    if len(deployed.servers) < 2:
        return None
    other = random.choice(deployed.servers)
    one = next(server for server in deployed.servers if server is not other)
    if deployed.is_compose:
        del other.container["volumes"]
        return Spot(one.container["volumes"], 0), other.spot("--model-path")
    mounts = other.container["volumeMounts"]
    other.container["volumeMounts"] = [one for one in mounts if one["name"] != "models"]
    held = next(one for one in one.container["volumeMounts"] if one["name"] == "models")
    return Spot(held, "mountPath"), other.spot("--model-path")


def rank_environment(deployed: Deployed, random: Random) -> Planted:
    leader, worker = deployed.leader(), deployed.worker()
    if leader is None or worker is None:
        return None
    value = random.choice(("mlx5_1", "eth0"))
    if deployed.is_compose:
        worker.container["environment"]["NCCL_IB_HCA"] = value
        spots = [Spot(one.container["environment"], "NCCL_IB_HCA") for one in (leader, worker)]
        return spots[0], spots[1]
    worker.container["env"][1]["value"] = value
    return Spot(leader.container["env"][1], "value"), Spot(worker.container["env"][1], "value")


def probe_timeout(deployed: Deployed, random: Random) -> Planted:
    server = _server(deployed, random)
    if deployed.is_compose:
        server.container["healthcheck"]["timeout"] = "1s"
        return Spot(server.container["healthcheck"], "timeout"), server.spot("--port")
    found = _probe(server, random, *_ALL)
    if found is None:
        return None
    if random.random() < 0.5:
        del found[1]["timeoutSeconds"]
        return Spot(server.container, found[0]), server.spot("--port")
    found[1]["timeoutSeconds"] = 1
    return Spot(found[1], "timeoutSeconds"), server.spot("--port")


def startup_budget(deployed: Deployed, random: Random) -> Planted:
    server = _server(deployed, random)
    found = _probe(server, random, "startupProbe")
    if found is None:
        return None
    found[1]["periodSeconds"], found[1]["failureThreshold"] = 1, 5
    return Spot(server.container, "startupProbe"), server.spot("--model-path")


def loopback(deployed: Deployed, random: Random) -> Planted:
    server = _server(deployed, random)
    if deployed.is_compose:
        if "ports" not in server.container:
            return None
        server.drop("--host")
        return Spot(server.container["ports"], 0), server.spot("--host")
    found = _probe(server, random, *_ALL)
    if found is None:
        return None
    if random.random() < 0.5:
        server.drop("--host")
    else:
        server.put("--host", "127.0.0.1")
    return Spot(server.container, found[0]), server.spot("--host")


def worker_probe(deployed: Deployed, random: Random) -> Planted:
    server = deployed.worker() or deployed.servers[0]
    if server.index("--nnodes") is None or deployed.is_compose:
        return None
    found = _probe(server, random, "livenessProbe", "readinessProbe")
    if found is None:
        return None
    found[1]["httpGet"]["path"] = random.choice(("/v1/models", "/get_model_info"))
    return Spot(found[1]["httpGet"], "path"), server.spot("--nnodes")


def key_probe(deployed: Deployed, random: Random) -> Planted:
    server = _server(deployed, random)
    if server.index("--nnodes") is not None and server.part is None:
        return None  # there it is the workers that refuse it
    found = _probe(server, random, *_ALL)
    if found is None:
        return None
    found[1]["httpGet"]["path"] = random.choice(("/v1/models", "/get_server_info"))
    return Spot(found[1]["httpGet"], "path"), server.spot("--api-key")


def no_readiness(deployed: Deployed, random: Random) -> Planted:
    server = _server(deployed, random)
    service = deployed.services.get(server.role, deployed.services.get(server.name))
    if service is None:
        return None
    for kind in ("startupProbe", "readinessProbe"):
        server.container.pop(kind, None)
    return Spot(service["metadata"], "name"), server.owner


def blind_liveness(deployed: Deployed, random: Random) -> Planted:
    server = _server(deployed, random)
    if "livenessProbe" not in server.container or (
        server.part is None and server.index("--nnodes") is not None
    ):
        return None
    probe = server.container["livenessProbe"]
    probe["tcpSocket"] = {"port": probe.pop("httpGet")["port"]}
    return (Spot(server.container, "livenessProbe"),)


def short_grace(deployed: Deployed, random: Random) -> Planted:
    server = random.choice(deployed.servers)
    if deployed.is_compose:
        server.container["stop_grace_period"] = "2s"
        return (Spot(server.container, "stop_grace_period"),)
    server.pod["terminationGracePeriodSeconds"] = random.choice((0, 2, 4))
    return (Spot(server.pod, "terminationGracePeriodSeconds"),)


def _sides(deployed: Deployed) -> tuple[Server, Server] | None:
    prefill, decode = deployed.role("prefill"), deployed.role("decode")
    return None if prefill is None or decode is None else (prefill, decode)


def _of_roles(flag: str, one: object, other: object) -> Callable[[Deployed, Random], Planted]:
    """Prefill and decode say an argument differently: each rank of a side alike."""

    def plant(deployed: Deployed, _: Random) -> Planted:
        found = _sides(deployed)
        if found is None:
            return None
        for server in deployed.servers:
            server.put(flag, one if server.role == "prefill" else other)
        return found[0].spot(flag), found[1].spot(flag)

    return plant


def role_speculation(deployed: Deployed, _: Random) -> Planted:
    found = _sides(deployed)
    if found is None:
        return None
    for server in deployed.servers:
        if server.role == "decode":
            server.put("--speculative-algorithm", "EAGLE")
            server.put("--speculative-draft-model-path", "/models/draft")
    return found[0].spot("--disaggregation-mode"), found[1].spot("--speculative-algorithm")


def rank_argument(deployed: Deployed, random: Random) -> Planted:
    leader, worker = deployed.leader(), deployed.worker()
    if leader is None or worker is None:
        return None
    flag, value = random.choice((("--context-length", 4096), ("--kv-cache-dtype", "fp8_e4m3")))
    return leader.spot(flag), worker.put(flag, value)


KINDS: tuple[Kind, ...] = (
    Kind("probe-port", "a probe asks another port", ("SPL857",), probe_port),
    Kind("server-port", "the server moves, its probe does not", ("SPL857",), server_port),
    Kind("service-port", "a Service leads to another port", ("SPL870", "SPL872"), service_port),
    Kind("container-port", "a container names another port", ("SPL869",), container_port),
    Kind("router-port", "a router asks another port", ("SPL872", "SPL828"), router_port),
    Kind("router-bootstrap", "a router tells another bootstrap", ("SPL828",), router_bootstrap),
    Kind("server-bootstrap", "prefill moves its bootstrap", ("SPL828",), server_bootstrap),
    Kind("service-bootstrap", "a Service lacks the bootstrap", ("SPL873",), service_bootstrap),
    Kind("swapped-roles", "a router takes decode for prefill", ("SPL874",), swapped_roles),
    Kind("changed-mode", "two servers of one role", ("SPL874",), changed_mode),
    Kind("router-mode", "no --pd-disaggregation", ("SPL827",), router_mode),
    Kind("no-router", "prefill and decode alone", ("SPL876",), no_router),
    Kind("host-count", "the platform has more hosts", ("SPL832",), host_count),
    Kind("nnodes", "the engine waits for more hosts", ("SPL832", "SPL830"), nnodes),
    Kind("fixed-rank", "two hosts have one rank", ("SPL878", "SPL830"), fixed_rank),
    Kind("leader-rank", "the leader has a worker's rank", ("SPL878", "SPL830"), leader_rank),
    Kind("own-address", "hosts meet at their own address", ("SPL879",), own_address),
    Kind("no-address", "hosts have no address to meet", ("SPL831",), no_address),
    Kind("other-address", "leader and worker meet elsewhere", ("SPL830",), other_address),
    Kind("image-release", "parts run different releases", ("SPL860",), image_release),
    Kind("fewer-gpus", "a container has fewer GPUs than ranks", ("SPL832",), fewer_gpus),
    Kind("more-ranks", "more ranks than GPUs", ("SPL832", "SPL830"), more_ranks),
    Kind("gpu-request", "request and limit differ", ("SPL864",), gpu_request),
    Kind("no-shared-memory", "ranks without /dev/shm", ("SPL863",), no_shared_memory),
    Kind("host-memory", "a cache beyond the memory limit", ("SPL865",), host_memory),
    Kind("other-accelerator", "an image for other GPUs", ("SPL862",), other_accelerator),
    Kind("host-port", "two servers on one port of the host", ("SPL871",), host_port),
    Kind("lone-restart", "ranks are restarted one by one", ("SPL880",), lone_restart),
    Kind("no-rdma", "a role without RDMA", ("SPL881",), no_rdma),
    Kind("no-model", "a part without the model's volume", ("SPL882",), no_model),
    Kind("rank-environment", "ranks with other variables", ("SPL883",), rank_environment),
    Kind("probe-timeout", "a probe that cannot wait", ("SPL850",), probe_timeout),
    Kind("startup-budget", "no time to load", ("SPL851",), startup_budget),
    Kind("loopback", "a server that nobody reaches", ("SPL856",), loopback),
    Kind("worker-probe", "a probe that ranks refuse", ("SPL855",), worker_probe),
    Kind("key-probe", "a probe without the key", ("SPL855",), key_probe),
    Kind("no-readiness", "a Service before an empty server", ("SPL854",), no_readiness),
    Kind("blind-liveness", "a liveness that sees no hang", ("SPL852",), blind_liveness),
    Kind("role-page-size", "pages differ", ("SPL820",), _of_roles("--page-size", 64, 32)),
    Kind(
        "role-kv-dtype",
        "types of the KV cache differ",
        ("SPL821",),
        _of_roles("--kv-cache-dtype", "fp8_e4m3", "bf16"),
    ),
    Kind(
        "role-model",
        "models differ",
        ("SPL822",),
        _of_roles("--model-path", "zai-org/GLM-4.6", "zai-org/GLM-4.5"),
    ),
    Kind(
        "role-backend",
        "transfer backends differ",
        ("SPL823",),
        _of_roles("--disaggregation-transfer-backend", "mooncake", "nixl"),
    ),
    Kind(
        "role-context",
        "context lengths differ",
        ("SPL826",),
        _of_roles("--context-length", 65536, 8192),
    ),
    Kind("role-speculation", "one side speculates", ("SPL806",), role_speculation),
    Kind("rank-argument", "ranks with other arguments", ("SPL830",), rank_argument),
    Kind("short-grace", "no time to end", ("SPL866",), short_grace),
)
