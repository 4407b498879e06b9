"""Build the router's command and its Kubernetes objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from speclaunch.core import Problem
from speclaunch.deployments.targets.interface import Rendering, Role, RouterOptions
from speclaunch.deployments.targets.launching import start_seconds
from speclaunch.deployments.targets.words import (
    ALL_ADDRESSES,
    ROUTER,
    Dialect,
    metadata,
    name_of,
    secret_of,
    selector,
)
from speclaunch.engine import ROUTER_IMAGE

PROGRAM = ("python3", "-m", "sglang_router.launch_router")
_RESERVED = frozenset(
    {
        "host", "port", "worker_urls", "prefill", "decode", "pd_disaggregation", "selector",
        "prefill_selector", "decode_selector", "service_discovery", "service_discovery_port",
        "service_discovery_namespace", "worker_startup_timeout_secs", "api_key",
    }
)  # fmt: skip
"""Options that the target sets itself."""
BOOTSTRAP = "sglang.ai/bootstrap-port"
"""Annotation of a prefill pod with its bootstrap port, for the router."""
_BOOTSTRAP_PORT = "8998"
"""Default `disaggregation_bootstrap_port` of every release."""
_NAMESPACE = "POD_NAMESPACE"
CONTAINER = "router"


Part = Callable[[Role], Mapping[str, str]]
"""Function from a role to the additional labels of its server's answering pod."""


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
            "a router needs prefill and decode servers, or servers that are neither",
            help="give each role its disaggregation_mode",
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
            help="give all roles one host, or all of them several hosts",
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
    """Return the arguments for the router's address and its startup timeout for servers."""
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
    """Return the router's Kubernetes arguments, which select each role's pods by label."""

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
    env += [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": name}}}
        for name in dialect.variables
    ]
    return {
        "serviceAccountName": account_of(deployment),
        "containers": [
            {
                "name": CONTAINER,
                "image": ROUTER_IMAGE,
                "command": list(PROGRAM),
                "args": words,
                "env": env,
                "ports": [{"name": "http", "containerPort": router.port}],
                "readinessProbe": _probe("/readiness", router.port, 3),
                "livenessProbe": _probe("/liveness", router.port, 6),
                "resources": {
                    "requests": {"cpu": "2", "memory": "2Gi"},
                    "limits": {"memory": "8Gi"},
                },
            }
        ],
    }


def _probe(path: str, port: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": port},
        "periodSeconds": 10,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
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
