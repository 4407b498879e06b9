"""Render Kubernetes objects (built-in, LeaderWorkerSet, RoleBasedGroup), and read them back.

Kubernetes itself runs single-host servers as a Deployment, and multi-host servers as StatefulSets.

A LeaderWorkerSet creates and restarts the pods of a server together. Its controller sets
LWS_LEADER_ADDRESS and LWS_WORKER_INDEX in every container (kubernetes-sigs/lws v0.9.0, API
leaderworkerset.x-k8s.io/v1).

A RoleBasedGroup contains all roles and the router. Single-host servers use a `standalonePattern`,
multi-host servers a `leaderWorkerPattern`, whose pods get RBG_LWP_LEADER_ADDRESS and
RBG_LWP_WORKER_INDEX (sgl-project/rbg v0.8.0-alpha.5, API workloads.x-k8s.io/v1alpha2,
api/workloads/constants/env.go:60).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import yaml

from speclaunch.core import Problem
from speclaunch.deployments.targets.interface import (
    CHECKPOINTS,
    COMMENT,
    DIST_PORT,
    FILL_IN,
    ROUTER,
    Monitoring,
    PlatformArgs,
    RenderedCommand,
    Renderer,
    Rendering,
    Role,
    RouterOptions,
    SpeclaunchFrom,
    documents,
    labels,
    metadata,
    name_of,
    object_of,
    platform_args_of,
    selector,
)
from speclaunch.deployments.targets.launching import (
    ALONE,
    RECIPE_FILE,
    WITHIN,
    VolumeClaim,
    launches_in,
    launches_of,
    own_claim,
    start_seconds,
)
from speclaunch.deployments.targets.monitoring import (
    PrometheusRulesRenderer,
    operator_objects,
    scrape_annotations,
)
from speclaunch.deployments.targets.pods import (
    BOOTSTRAP,
    CONTAINER,
    Part,
    access,
    answering_fields,
    bootstrap_port,
    discovery_refusals,
    gib,
    platform_variables,
    pod_spec,
    recipe_map,
    router_pod,
    router_refusals,
)

_FILES = ("config", "ssl_certfile", "ssl_keyfile", "ssl_ca_certs")
"""Arguments that name a file on this machine. No target copies such files into a container."""

_TEMPLATE = "{{"


def container_refusals(deployment: Rendering, target: str) -> Iterator[Problem]:
    """Yield the reasons why a deployment's servers cannot run in containers."""
    for role in deployment.roles:
        yield from _role_refusals(deployment, role, target)
    options = deployment.options
    mounted = options.speclaunch is SpeclaunchFrom.MOUNTED
    if deployment.runs_speclaunch and mounted and options.speclaunch_source is None:
        yield Problem(
            "deploy.speclaunch is `mounted`, but deploy.speclaunch_source is not set",
            help="set deploy.speclaunch_source to a directory on each host, or to pvc:NAME, with a "
            "virtual environment that contains speclaunch",
        )


def _role_refusals(deployment: Rendering, role: Role, target: str) -> Iterator[Problem]:
    if role.own_engine and not deployment.runs_speclaunch:
        yield Problem(
            f"{deployment.name} runs on the CPU engine, which is installed on this machine but in "
            f"no image: {target} cannot start the engine without speclaunch",
            help="set deploy.image to an image with this engine, and deploy.speclaunch to `image`",
        )
    elif role.image is None:
        yield Problem(
            f"no official image contains the engine of {deployment.name} (SGLang "
            f"{role.rendered_args.version} for {role.vendor})",
            help="set deploy.image to an image with this engine",
        )
    for name in CHECKPOINTS:
        value = role.rendered_args.value(name)
        if value is not None and value.startswith((".", "~")):
            yield Problem(
                f"{name} {value} is a relative path, which exists in no container",
                help="use an absolute path: it is then mounted from each host",
            )
    texts = {
        argument.recipe_name or argument.name: " ".join(argument.values)
        for argument in role.rendered_args.arguments
    }
    for name, text in {**texts, **role.rendered_args.env}.items():
        if text is not None and _TEMPLATE in text:
            yield Problem(
                f"{name} contains `{_TEMPLATE}`, which Helm and similar tools read as a template",
                help="insert a space between the two braces if the value is JSON",
            )
    for name in _FILES:
        value = role.rendered_args.value(name)
        if value is not None:
            yield Problem(
                f"{name} is the file {value}, which {target} does not copy into the container",
                help=f"render without {name}, and mount the file yourself",
            )


def header(deployment: Rendering) -> Iterator[str]:
    """Yield the leading comment lines: a summary and notes."""
    yield deployment.title
    yield WITHIN if deployment.runs_speclaunch else ALONE
    yield from deployment.notes


Object = Mapping[str, Any]
SERVES = {"speclaunch.io/serves": "requests"}
"""Label of every pod that answers requests."""


def before(deployment: Rendering) -> Iterator[Object]:
    """Yield the objects that the pods need: the checkpoint claim and the recipe."""
    claim = own_claim(deployment)
    if claim is not None:
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": metadata(deployment, claim.name),
            "spec": _claim_spec(claim),
        }
    if deployment.recipe is not None:
        yield {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata(deployment, recipe_map(deployment)),
            "data": {RECIPE_FILE: deployment.recipe},
        }


def _claim_spec(claim: VolumeClaim) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if claim.shared:
        spec[f"{COMMENT}class"] = (
            f"{FILL_IN} storageClassName unless the default class offers ReadWriteMany volumes "
            "(NFS, CephFS, Lustre). Or set deploy.models to pvc:NAME (an existing claim) or "
            "to a directory of every host."
        )
    spec["accessModes"] = ["ReadWriteMany" if claim.shared else "ReadWriteOnce"]
    guess = f"{FILL_IN} the size. " if claim.is_guess else ""
    spec[f"{COMMENT}size"] = f"{guess}{claim.contents[:1].upper()}{claim.contents[1:]}."
    spec["resources"] = {"requests": {"storage": gib(claim.bytes)}}
    return spec


def template(
    deployment: Rendering, role: Role, spec: Mapping[str, Any], more: Mapping[str, str]
) -> dict[str, Any]:
    """Return a pod template; `more` contains additional labels."""
    described: dict[str, Any] = {"labels": {**labels(deployment, role.name), **more}}
    annotations = {}
    if role.mode == "prefill":
        annotations[BOOTSTRAP] = bootstrap_port(role)
    if deployment.options.monitoring is Monitoring.ANNOTATIONS:
        annotations |= scrape_annotations(role)
    if annotations:
        described["annotations"] = annotations
    return {"metadata": described, "spec": spec}


def _service(
    metadata_: Mapping[str, Any], chosen: Mapping[str, str], port: int, **more: object
) -> Object:
    ports = [{"name": "http", "port": port, "targetPort": port}]
    spec = {**more, "selector": chosen, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata_, "spec": spec}


def service(
    deployment: Rendering, role: Role, more: Mapping[str, str], name: str | None = None
) -> Object:
    """Return the Service of a role's pods that answer requests, those with the labels `more`."""
    described = metadata(deployment, name or object_of(deployment, role), role.name)
    return _service(described, {**selector(deployment, role.name), **more}, role.port)


def headless(deployment: Rendering, role: Role, name: str) -> Object:
    """Return the Service by which a server's hosts find each other before they are ready."""
    described, chosen = metadata(deployment, name, role.name), selector(deployment, role.name)
    more = {"clusterIP": "None", "publishNotReadyAddresses": True}
    return _service(described, chosen, role.port, **more)


def router(deployment: Rendering, part: Part) -> Iterator[Object]:
    """Yield the router with its permissions and its Service; nothing without a router."""
    if deployment.router is None:
        return
    yield from access(deployment)
    name = f"{name_of(deployment)}-{ROUTER}"
    yield {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(deployment, name, ROUTER),
        "spec": {
            "replicas": deployment.router.replicas,
            "selector": {"matchLabels": selector(deployment, ROUTER)},
            "template": _router_template(deployment, deployment.router, part),
        },
    }
    yield router_service(deployment, deployment.router)


def _router_template(deployment: Rendering, options: RouterOptions, part: Part) -> Object:
    described = {"labels": labels(deployment, ROUTER)}
    return {"metadata": described, "spec": router_pod(deployment, options, part)}


def router_service(deployment: Rendering, options: RouterOptions) -> Object:
    """Return the router's Service, the address of the deployment."""
    described = metadata(deployment, name_of(deployment), ROUTER)
    return _service(described, selector(deployment, ROUTER), options.port)


class PodRenderer(Renderer):
    """Target that renders Kubernetes objects."""

    suffix = ".yaml"
    controller: ClassVar[str | None] = None
    """Controller that the cluster needs in addition to Kubernetes, or None."""

    def part(self, role: Role) -> dict[str, str]:  # noqa: ARG002  of one role's hosts
        """Return the labels of the pod that answers requests."""
        return SERVES

    def refuses(self, deployment: Rendering) -> Sequence[Problem]:
        is_monitored = deployment.options.monitoring is not None
        return (
            *container_refusals(deployment, self.target),
            *router_refusals(deployment),
            *discovery_refusals(deployment, self.part),
            *(PrometheusRulesRenderer().refuses(deployment) if is_monitored else ()),
        )

    @abstractmethod
    def objects(self, deployment: Rendering) -> Iterator[Object]:
        """Yield the objects in the order in which the manifest lists them."""

    def header(self, deployment: Rendering) -> Iterator[str]:
        yield from header(deployment)
        if self.controller is not None:
            yield f"The cluster needs {self.controller}."

    def render(self, deployment: Rendering) -> str:
        objects = list(self.objects(deployment))
        if deployment.options.monitoring is Monitoring.OPERATOR:
            parts = {role.name: self.part(role) for role in deployment.roles}
            objects += operator_objects(deployment, parts)
        head, text = list(self.header(deployment)), documents((), objects)
        namespace = deployment.options.namespace
        where = "" if namespace is None else f"-n {namespace} "
        for secret, keys in _secrets(objects).items():
            literals = " ".join(f"--from-literal={key}=VALUE" for key in keys)
            head.append(
                f"{FILL_IN} the Secret: kubectl {where}create secret generic {secret} {literals}"
            )
        if FILL_IN in text:
            head.append(f"Resolve each comment that begins with {FILL_IN} before you apply this.")
        return documents(head, ()) + text

    def notes(self, deployment: Rendering) -> Iterable[str]:
        if deployment.options.monitoring is Monitoring.OPERATOR:
            yield from PrometheusRulesRenderer().notes(deployment)

    def errors(self, deployment: Rendering, text: str) -> Iterator[str]:
        if deployment.options.monitoring is Monitoring.OPERATOR:
            yield from PrometheusRulesRenderer().errors(deployment, text)

    def launches(self, text: str) -> tuple[tuple[str, ...], ...]:
        return launches_in(text)

    def recipe_in(self, text: str) -> str | None:
        for document in yaml.safe_load_all(text):
            found = (document.get("data") or {}).get(RECIPE_FILE)
            if found is not None:
                return str(found)
        return None


def _secrets(objects: Iterable[Object]) -> dict[str, list[str]]:
    """Return the keys of each Secret that the containers require."""
    found: dict[str, list[str]] = {}
    for reference in _references(objects):
        keys = found.setdefault(reference["name"], [])
        if reference["key"] not in keys:
            keys.append(reference["key"])
    return found


def _references(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        if "secretKeyRef" in value and not value["secretKeyRef"].get("optional"):
            yield value["secretKeyRef"]
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


_INDEX = "apps.kubernetes.io/pod-index"
"""Label with a pod's number in its StatefulSet (Kubernetes 1.28 and later)."""
_RANK = "NODE_RANK"


class KubernetesRenderer(PodRenderer):
    """Renderer of Kubernetes's built-in objects."""

    target = "kubernetes"

    def part(self, role: Role) -> dict[str, str]:
        return SERVES if role.nodes == 1 else {_INDEX: "0"}

    def header(self, deployment: Rendering) -> Iterator[str]:
        yield from super().header(deployment)
        if any(role.nodes > 1 for role in deployment.roles):
            yield (
                "A StatefulSet restarts the hosts of a server one by one, but the engine needs all "
                "of them to restart together: leaderworkerset and rolebasedgroup do that. Ranks "
                "come from the label pod-index (Kubernetes 1.28 and later)."
            )

    def objects(self, deployment: Rendering) -> Iterator[Object]:
        yield from before(deployment)
        for role in deployment.roles:
            if role.nodes == 1:
                yield _deployment(deployment, role)
            else:
                yield headless(deployment, role, _hosts(deployment, role))
                for number in range(role.replicas):
                    yield _stateful_set(deployment, role, number)
            if deployment.router is None:
                yield service(deployment, role, self.part(role))
        yield from router(deployment, self.part)

    def commands(self, deployment: Rendering) -> tuple[RenderedCommand, ...]:
        found = []
        for role in deployment.roles:
            env = platform_variables(deployment, role)
            if role.nodes > 1:
                env[_RANK] = f"$({_RANK})"
            for number in range(role.replicas if role.nodes > 1 else 1):
                found.append(RenderedCommand(role, _platform_args(deployment, role, number), env))
        return tuple(found)


def _hosts(deployment: Rendering, role: Role) -> str:
    return f"{object_of(deployment, role)}-hosts"


def _set_name(deployment: Rendering, role: Role, number: int) -> str:
    name = object_of(deployment, role)
    return name if role.replicas == 1 else f"{name}-{number}"


def _platform_args(deployment: Rendering, role: Role, number: int) -> PlatformArgs:
    first = f"{_set_name(deployment, role, number)}-0.{_hosts(deployment, role)}"
    return platform_args_of(role, f"{first}:{DIST_PORT}", f"$({_RANK})")


def _deployment(deployment: Rendering, role: Role) -> Object:
    spec = pod_spec(deployment, role, _platform_args(deployment, role, 0))
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(deployment, object_of(deployment, role), role.name),
        "spec": {
            "replicas": role.replicas,
            "progressDeadlineSeconds": start_seconds(role) + 1800,  # 1800 s for the image pull
            f"{COMMENT}strategy": "No extra pod: it would need more GPUs.",
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
            },
            "selector": {"matchLabels": selector(deployment, role.name)},
            "template": template(deployment, role, spec, SERVES),
        },
    }


def _stateful_set(deployment: Rendering, role: Role, number: int) -> Object:
    name = _set_name(deployment, role, number)
    own = {"speclaunch.io/server": str(number)}
    spec = pod_spec(deployment, role, _platform_args(deployment, role, number))
    (container,) = (container for container in spec["containers"] if container["name"] == CONTAINER)
    label = {"fieldPath": f"metadata.labels['{_INDEX}']"}
    rank = {"name": _RANK, "valueFrom": {"fieldRef": label}}
    container["env"] = [rank, *container["env"]]
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata(deployment, name, role.name),
        "spec": {
            "replicas": role.nodes,
            "serviceName": _hosts(deployment, role),
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {**selector(deployment, role.name), **own}},
            "template": template(deployment, role, spec, own),
        },
    }


# -- LeaderWorkerSet

_WORKER = {"speclaunch.io/serves": "a-leader"}


class _LeaderRenderer(PodRenderer):
    """Target whose controller starts a leader and workers, with variables that distinguish them."""

    variables: ClassVar[str]
    """Prefix of the variables that the controller sets."""

    def args_of(self, role: Role) -> PlatformArgs:
        """Return the platform's arguments, the same for leader and workers."""
        address = f"$({self.variables}_LEADER_ADDRESS):{DIST_PORT}"
        return platform_args_of(role, address, f"$({self.variables}_WORKER_INDEX)")

    def commands(self, deployment: Rendering) -> tuple[RenderedCommand, ...]:
        return tuple(
            RenderedCommand(role, self.args_of(role), platform_variables(deployment, role), part)
            for role in deployment.roles
            for part in (("leader", "worker") if role.nodes > 1 else (None,))
        )


class LeaderWorkerSetRenderer(_LeaderRenderer):
    """Renderer of a LeaderWorkerSet for each role."""

    target = "leaderworkerset"
    controller = "LeaderWorkerSet with leaderworkerset.x-k8s.io/v1 (kubernetes-sigs/lws)"
    variables = "LWS"

    def objects(self, deployment: Rendering) -> Iterator[Object]:
        yield from before(deployment)
        for role in deployment.roles:
            yield _set(deployment, role, self.args_of(role))
            if deployment.router is None:
                yield service(deployment, role, SERVES, f"{object_of(deployment, role)}-http")
        yield from router(deployment, self.part)


def _set(deployment: Rendering, role: Role, platform_args: PlatformArgs) -> Object:
    leader = template(deployment, role, pod_spec(deployment, role, platform_args), SERVES)
    group: dict[str, Any] = {
        "size": role.nodes,
        f"{COMMENT}restart": "The ranks of a server only start together.",
        "restartPolicy": "RecreateGroupOnPodRestart",
    }
    if role.nodes > 1:
        spec = pod_spec(deployment, role, platform_args, probed=False)
        group["leaderTemplate"] = leader
        group["workerTemplate"] = template(deployment, role, spec, _WORKER)
    else:
        group["workerTemplate"] = leader
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": metadata(deployment, object_of(deployment, role), role.name),
        "spec": {
            "replicas": role.replicas,
            f"{COMMENT}rollout": "No extra group: it would need more GPUs.",
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": {"maxUnavailable": 1, "maxSurge": 0},
            },
            "startupPolicy": "LeaderCreated",
            "leaderWorkerTemplate": group,
        },
    }


# -- RoleBasedGroup


class RoleBasedGroupRenderer(_LeaderRenderer):
    """Renderer of a single RoleBasedGroup."""

    target = "rolebasedgroup"
    controller = "RoleBasedGroup with workloads.x-k8s.io/v1alpha2 (sgl-project/rbg v0.8)"
    variables = "RBG_LWP"

    def objects(self, deployment: Rendering) -> Iterator[Object]:
        yield from before(deployment)
        if deployment.router is not None:
            yield from access(deployment)
        roles = [_role(deployment, role, self.args_of(role)) for role in deployment.roles]
        if deployment.router is not None:
            template_ = _router_template(deployment, deployment.router, lambda _: SERVES)
            pattern = {"template": template_}
            replicas = deployment.router.replicas
            roles.insert(0, {"name": ROUTER, "replicas": replicas, "standalonePattern": pattern})
        yield {
            "apiVersion": "workloads.x-k8s.io/v1alpha2",
            "kind": "RoleBasedGroup",
            "metadata": metadata(deployment, name_of(deployment)),
            "spec": {"roles": roles},
        }
        if deployment.router is not None:
            yield router_service(deployment, deployment.router)
            return
        for role in deployment.roles:
            yield service(deployment, role, SERVES, f"{object_of(deployment, role)}-http")

    def launches(self, text: str) -> tuple[tuple[str, ...], ...]:
        """Return those of a `leaderWorkerPattern` twice: for leader and workers."""
        return tuple(
            launch
            for root in yaml.safe_load_all(text)
            for role in (root.get("spec") or {}).get("roles", ())
            for launch in [*launches_of(role)] * (2 if "leaderWorkerPattern" in role else 1)
        )


def _role(deployment: Rendering, role: Role, platform_args: PlatformArgs) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": role.name,
        "replicas": role.replicas,
        f"{COMMENT}rollout": "No extra server: it would need more GPUs.",
        "rolloutStrategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
        },
    }
    spec = pod_spec(deployment, role, platform_args, probed=role.nodes == 1)
    if role.nodes == 1:
        found["standalonePattern"] = {"template": template(deployment, role, spec, SERVES)}
        return found
    answering = {"name": CONTAINER, **answering_fields(role)}
    found["leaderWorkerPattern"] = {
        "size": role.nodes,
        f"{COMMENT}restart": "The ranks of a server only start together.",
        "restartPolicyConfig": {"type": "RecreateRoleInstanceOnPodRestart"},
        "template": template(deployment, role, spec, _WORKER),
        f"{COMMENT}leader": "Only the leader answers requests and has a liveness probe.",
        "leaderTemplatePatch": {
            "metadata": {"labels": SERVES},
            "spec": {"containers": [answering]},
        },
    }
    return found
