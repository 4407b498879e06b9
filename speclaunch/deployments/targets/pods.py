"""Build the pods of servers and of the router, for every Kubernetes object with pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from speclaunch.core import Problem
from speclaunch.deployments.recipe.sections import EMPTY_DIR
from speclaunch.deployments.targets.interface import (
    ALL_ADDRESSES,
    COMMENT,
    FILL_IN,
    HF_TOKEN,
    POD_INTERFACE,
    ROUTER,
    Dialect,
    PlatformArgs,
    Rendering,
    Role,
    RouterOptions,
    SpeclaunchFrom,
    argument_words,
    crosses_hosts,
    is_secret_env,
    metadata,
    name_of,
    rdma_devices,
    secret_of,
    selector,
    unset_interfaces,
    uses_hub,
)
from speclaunch.deployments.targets.launching import (
    PATH,
    RECIPE_DIR,
    SPECLAUNCH,
    WHEELS,
    Mount,
    Probes,
    ProbeTimes,
    cache_variables,
    launch_words,
    mounts,
    probes_of,
    program_of,
    start_comment,
    start_seconds,
    stored_bytes,
    stored_contents,
    wheels,
)
from speclaunch.engine import ROUTER_IMAGE

CONTAINER = "sglang"
ENGINE = ("python3", "-m", "sglang.launch_server")
"""The engine's entry point in its official image."""
_GPU = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
_GIB = 1 << 30
LEAVES_FIRST = 10
"""Seconds from a pod's removal from its Service to SIGTERM, so that no new requests arrive."""
_ENDS = 30
"""Seconds for a drained engine to exit. 0.5.21 and later give their schedulers 15 s."""


def grace_seconds(deployment: Rendering, role: Role) -> int:
    """Return the seconds from a pod's removal to SIGKILL, including the wait before SIGTERM."""
    drain = max(deployment.options.drain_seconds, role.grace_seconds)
    return LEAVES_FIRST + drain + _ENDS


def gib(size: int) -> str:
    """Return bytes as a Kubernetes quantity, rounded up."""
    return f"{-(-size // _GIB)}Gi"


def pod_spec(
    deployment: Rendering, role: Role, platform_args: PlatformArgs, *, probed: bool = True
) -> dict[str, Any]:
    """Return the `spec` of a pod. `probed`: true if the pod answers requests and has probes."""
    volumes = list(mounts(deployment, role))
    container = _container(deployment, role, platform_args, volumes, probed=probed)
    spec: dict[str, Any] = {
        "terminationGracePeriodSeconds": grace_seconds(deployment, role),
        "automountServiceAccountToken": False,
    }
    first = _first_steps(deployment, role)
    if first:
        spec["initContainers"] = first
    if role.gpu is not None:
        spec[f"{COMMENT}nodes"] = (
            f"{FILL_IN} a nodeSelector if the nodes' GPUs differ: this is planned for {role.gpu}."
        )
    spec["containers"] = [container]
    spec["volumes"] = [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": gib(role.needs.shm_bytes)}},
        *({"name": mount.name, **mount.source} for mount in volumes),
        *_own_volumes(deployment),
    ]
    return spec


def answering_fields(role: Role) -> dict[str, Any]:
    """Return the port, probes and shutdown hook of a container that answers requests."""
    times: Probes = probes_of(role)

    def probe(limits: ProbeTimes) -> dict[str, Any]:
        return _probe(limits, PATH, role.port, tls=role.tls)

    return {
        "ports": [{"name": "http", "containerPort": role.port}],
        f"{COMMENT}startup": f"Worst-case startup: {start_comment(role)}.",
        "startupProbe": probe(times.startup),
        "readinessProbe": probe(times.readiness),
        f"{COMMENT}liveness": (
            "Any scheduler progress counts, even if all slots are taken. "
            f"Restarts after {times.liveness.slack} s without output."
        ),
        "livenessProbe": probe(times.liveness),
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(LEAVES_FIRST)]}}},
    }


def _probe(times: ProbeTimes, path: str, port: int, *, tls: bool = False) -> dict[str, Any]:
    scheme = {"scheme": "HTTPS"} if tls else {}
    return {
        "httpGet": {"path": path, "port": port, **scheme},
        "periodSeconds": times.period,
        "timeoutSeconds": times.timeout,
        "failureThreshold": times.failures,
    }


def _container(
    deployment: Rendering,
    role: Role,
    platform_args: PlatformArgs,
    volumes: list[Mount],
    *,
    probed: bool,
) -> dict[str, Any]:
    dialect = Dialect()
    if deployment.runs_speclaunch:
        command, words = program_of(deployment), launch_words(deployment, role, platform_args)
        argument_words(role, platform_args, dialect)  # the recipe needs the same variables
    else:
        command, words = ENGINE, argument_words(role, platform_args, dialect)
    found: dict[str, Any] = {
        "name": CONTAINER,
        "image": role.image,
        "command": list(command),
        "args": words,
        "env": environment(deployment, role, dialect),
    }
    if probed:
        found |= answering_fields(role)
    found |= _resource_comments(deployment, role)
    found["resources"] = _resources(deployment, role)
    if deployment.options.rdma is not None:
        found["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}
    found["volumeMounts"] = [
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
        *(_mounted(mount) for mount in volumes),
    ]
    if deployment.runs_speclaunch:
        mounted = {"name": "recipe", "mountPath": RECIPE_DIR, "readOnly": True}
        found["volumeMounts"].append(mounted)
    return found


def environment(deployment: Rendering, role: Role, dialect: Dialect) -> list[dict[str, Any]]:
    """Return the container's variables. Secrets come first, because others may refer to them."""
    plain: list[dict[str, Any]] = []
    for name, value in role.rendered_args.env.items():
        if value is None:
            continue
        if is_secret_env(name, value):
            dialect.variables[name] = None
        else:
            plain.append({"name": name, "value": dialect.text(value, name, secret=False)})
    caches = cache_variables(deployment, role)
    caches |= dict.fromkeys(unset_interfaces(role), POD_INTERFACE)
    plain += [{"name": name, "value": path} for name, path in caches.items()]
    secret = secret_of(deployment)
    found = [_from_secret(name, secret) for name in dialect.variables]
    if uses_hub(role) and HF_TOKEN not in dialect.variables:
        found.append(_from_secret(HF_TOKEN, secret, optional=True))
    return found + plain


def _from_secret(name: str, secret: str, *, optional: bool = False) -> dict[str, Any]:
    key: dict[str, Any] = {"name": secret, "key": name}
    if optional:
        key["optional"] = True
    return {"name": name, "valueFrom": {"secretKeyRef": key}}


def _resources(deployment: Rendering, role: Role) -> dict[str, Any]:
    """Return a container's resource requests and limits, from the plan.

    Memory has no limit, because the page cache of the checkpoint's files would count toward it.
    """
    requests: dict[str, Any] = {"cpu": str(role.needs.cpus), "memory": gib(role.needs.memory_bytes)}
    limits: dict[str, Any] = {}
    if deployment.options.models == EMPTY_DIR and uses_hub(role):
        requests["ephemeral-storage"] = gib(stored_bytes(role))
    gpu = _GPU.get(role.vendor)
    if gpu is not None and role.gpus_per_node:
        requests[gpu] = limits[gpu] = str(role.gpus_per_node)
    devices = rdma_devices(deployment)
    if devices is not None:
        requests[devices[0]] = limits[devices[0]] = devices[1]
    return {"requests": requests, **({"limits": limits} if limits else {})}


def _resource_comments(deployment: Rendering, role: Role) -> dict[str, str]:
    found = {f"{COMMENT}memory": f"Memory: {memory_contents(role)}."}
    if deployment.options.models == EMPTY_DIR and uses_hub(role):
        guess = f"{FILL_IN} the size. " if role.needs.weight_bytes is None else ""
        text = stored_contents(role)
        found[f"{COMMENT}disk"] = f"{guess}Ephemeral storage: {text}. Every new pod downloads it."
    if rdma_devices(deployment) is None and crosses_hosts(deployment, role):
        found[f"{COMMENT}rdma"] = (
            f"{FILL_IN} the RDMA devices, if the cluster has them; without them, hosts exchange "
            "data over TCP. `kubectl describe node` shows the resource's name. Render again with "
            "deploy.rdma=NAME (NAME:8 for 8 devices) to add the resource and the capability "
            "IPC_LOCK. RoCE also needs the pod's secondary network."
        )
    return found


def memory_contents(role: Role) -> str:
    """Return text that lists the uses of a host's memory, the same for every target."""
    shm = -(-role.needs.shm_bytes // _GIB)
    return f"processes and {shm} GiB of /dev/shm; the page cache of the checkpoint is not included"


def _mounted(mount: Mount) -> dict[str, Any]:
    found: dict[str, Any] = {"name": mount.name, "mountPath": mount.path}
    if mount.read_only:
        found["readOnly"] = True
    return found


def _first_steps(deployment: Rendering, role: Role) -> list[dict[str, Any]]:
    """Return the init containers that install speclaunch.

    speclaunch gets a separate virtual environment, because the engine's packages must not change.
    """
    if not deployment.runs_speclaunch or deployment.options.speclaunch is not SpeclaunchFrom.WHEEL:
        return []
    found = wheels(deployment)
    source = "" if found is None else f"--no-index --find-links {WHEELS} "
    script = (
        f"python3 -m venv {SPECLAUNCH} && "
        f"{SPECLAUNCH}/bin/python -m pip install --no-cache-dir {source}speclaunch"
    )
    own = [{"name": "speclaunch", "mountPath": SPECLAUNCH}]
    return [
        {
            "name": "install-speclaunch",
            "image": role.image,
            "command": ["sh", "-c", script],
            "volumeMounts": own if found is None else [*own, _mounted(found)],
        }
    ]


def _own_volumes(deployment: Rendering) -> list[Mapping[str, Any]]:
    if not deployment.runs_speclaunch:
        return []
    recipe = {"name": "recipe", "configMap": {"name": recipe_map(deployment)}}
    found: list[Mapping[str, Any]] = [recipe]
    of_wheels = wheels(deployment)
    if deployment.options.speclaunch is SpeclaunchFrom.WHEEL and of_wheels is not None:
        found.append({"name": of_wheels.name, **of_wheels.source})
    return found


def recipe_map(deployment: Rendering) -> str:
    """Return the name of the ConfigMap with the recipe."""
    return f"{name_of(deployment)}-recipe"


def platform_variables(deployment: Rendering, role: Role) -> dict[str, str]:
    """Return the variables that the target adds to the role's, as speclaunch's reader sees them."""
    dialect = Dialect()
    argument_words(role, {}, dialect)
    return {
        variable["name"]: variable.get("value", f"$({variable['name']})")
        for variable in environment(deployment, role, dialect)
        if variable["name"] not in role.rendered_args.env
    }


PROGRAM = ("python3", "-m", "sglang_router.launch_router")
_RESERVED = frozenset(
    {
        "host", "port", "worker_urls", "prefill", "decode", "pd_disaggregation", "selector",
        "prefill_selector", "decode_selector", "service_discovery", "service_discovery_port",
        "service_discovery_namespace", "worker_startup_timeout_secs", "api_key",
    }
)  # fmt: skip
"""Router options that the target sets itself."""
BOOTSTRAP = "sglang.ai/bootstrap-port"
"""Annotation with a prefill pod's bootstrap port, which the router reads."""
_BOOTSTRAP_PORT = "8998"
"""Default `disaggregation_bootstrap_port` of every release."""
_NAMESPACE = "POD_NAMESPACE"
ROUTER_CONTAINER = "router"


Part = Callable[[Role], Mapping[str, str]]
"""Function that returns the additional labels of the pod that answers a role's requests."""


def bootstrap_port(role: Role) -> str:
    """Return the port at which decode servers reach a prefill server."""
    return role.rendered_args.value("disaggregation_bootstrap_port") or _BOOTSTRAP_PORT


def upstream_words(role: Role, url: str) -> list[str]:
    """Return the router's arguments for a server at a URL."""
    if role.mode == "prefill":
        return ["--prefill", url, bootstrap_port(role)]
    return ["--decode", url] if role.mode == "decode" else [url]


def is_disaggregated(deployment: Rendering) -> bool:
    """True if prefill and decode are separate servers."""
    return any(role.mode is not None for role in deployment.roles)


def router_refusals(deployment: Rendering) -> Iterator[Problem]:
    """Yield the reasons why the servers cannot have a router."""
    router = deployment.router
    if router is None:
        return
    for name in router.args:
        if name.replace("-", "_") in _RESERVED:
            yield Problem(
                f"the rendered deployment sets router.args.{name} itself",
                help="remove it: addresses, ports and selectors follow from the roles",
            )
    modes = {role.mode for role in deployment.roles}
    if modes not in ({None}, {"prefill", "decode"}):
        yield Problem(
            "a router needs prefill and decode servers, or only servers that are neither",
            help="set args.disaggregation_mode to prefill or decode in each role, or in none",
        )
    if any(role.tls for role in deployment.roles):
        yield Problem(
            "the router connects to its servers without TLS",
            help="remove ssl_certfile, and use TLS at an ingress",
        )


def discovery_refusals(deployment: Rendering, part: Part) -> Iterator[Problem]:
    """Yield problems with discovery: the router finds pods by label and uses one port for all."""
    same_parts = all(part(role) == part(deployment.roles[0]) for role in deployment.roles)
    if deployment.router is not None and not same_parts and not is_disaggregated(deployment):
        yield Problem(
            "a router finds servers by the same labels, but some span one host and others several",
            help="set nnodes to 1 in all roles, or above 1 in all roles",
        )
    ports = {role.name: role.port for role in deployment.roles}
    if deployment.router is not None and len(set(ports.values())) > 1:
        listed = ", ".join(f"{name}: {port}" for name, port in ports.items())
        yield Problem(
            f"the router finds servers by label at one port, but they use several ({listed})",
            help="set the same port in all roles",
        )


def own_words(router: RouterOptions, dialect: Dialect) -> list[str]:
    """Return the recipe's router options as arguments."""
    words: list[str] = []
    for name, value in router.args.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif isinstance(value, list):
            words += [flag, *(_text(item, name, dialect) for item in value)]
        elif value is not None and value is not False:
            words += [flag, _text(value, name, dialect)]
    return words


def _text(value: Any, name: str, dialect: Dialect) -> str:
    return dialect.text(value if isinstance(value, str) else str(value), name, secret=False)


def start_words(deployment: Rendering, router: RouterOptions) -> list[str]:
    """Return the router's arguments for its address and the servers' startup time."""
    longest = max(start_seconds(role) for role in deployment.roles)
    words = ["--host", ALL_ADDRESSES, "--port", str(router.port)]
    return [*words, "--worker-startup-timeout-secs", str(longest)]


def api_key_of(deployment: Rendering, dialect: Dialect) -> list[str]:
    """Return the arguments that pass the servers' API key to the router."""
    for role in deployment.roles:
        for argument in role.rendered_args.arguments:
            if argument.name == "api_key":
                return ["--api-key", dialect.text(argument.values[0], "api_key", secret=True)]
    return []


def discovery_words(
    deployment: Rendering, router: RouterOptions, part: Part, dialect: Dialect
) -> list[str]:
    """Return the router's arguments to discover pods by label, with its API key and options."""

    def labels(role: Role) -> list[str]:
        pairs = {**selector(deployment, role.name), **part(role)}
        return [f"{key}={value}" for key, value in pairs.items()]

    port = deployment.roles[0].port
    words = ["--service-discovery", "--service-discovery-port", str(port)]
    words += ["--service-discovery-namespace", f"$({_NAMESPACE})"]
    if is_disaggregated(deployment):
        words.append("--pd-disaggregation")
        for role in deployment.roles:
            words += [f"--{role.mode}-selector", *labels(role)]
    else:
        named = {"app.kubernetes.io/name": name_of(deployment), **part(deployment.roles[0])}
        words += ["--selector", *(f"{key}={value}" for key, value in named.items())]
    return words + api_key_of(deployment, dialect) + own_words(router, dialect)


def router_pod(deployment: Rendering, router: RouterOptions, part: Part) -> dict[str, Any]:
    """Return the `spec` of the router's pod."""
    dialect = Dialect()
    words = start_words(deployment, router) + discovery_words(deployment, router, part, dialect)
    env: list[dict[str, Any]] = [
        {"name": _NAMESPACE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}
    ]
    secret = secret_of(deployment)
    env += [_from_secret(name, secret) for name in dialect.variables]
    return {
        "serviceAccountName": account_of(deployment),
        "containers": [
            {
                "name": ROUTER_CONTAINER,
                "image": ROUTER_IMAGE,
                "command": list(PROGRAM),
                "args": words,
                "env": env,
                "ports": [{"name": "http", "containerPort": router.port}],
                "readinessProbe": _probe(ProbeTimes(10, 5, 3), "/readiness", router.port),
                "livenessProbe": _probe(ProbeTimes(10, 5, 6), "/liveness", router.port),
                "resources": {
                    "requests": {"cpu": "2", "memory": "2Gi"},
                    "limits": {"memory": "8Gi"},
                },
            }
        ],
    }


def account_of(deployment: Rendering) -> str:
    """Return the name of the router's ServiceAccount."""
    return f"{name_of(deployment)}-{ROUTER}"


def access(deployment: Rendering) -> Sequence[Mapping[str, Any]]:
    """Return the objects that allow the router to see the pods of its namespace."""
    name = account_of(deployment)
    described = metadata(deployment, name, ROUTER)
    subject: dict[str, Any] = {"kind": "ServiceAccount", "name": name}
    if deployment.options.namespace is not None:
        subject["namespace"] = deployment.options.namespace
    return (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": described},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": described,
            "rules": [
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
            ],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": described,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [subject],
        },
    )
