"""A deployment's request to one engine version, and the server context from its file.

`deployments/sources/requests.py` builds a request from a recipe or from a command in a file.

Manifest readers (`deployments/sources/`) and recipes with `roles:` (`deployments/recipe/`) fill in
the context. Rules about complete deployments read it. Each value has its place in the file. A value
that the file does not state is None; readers add no platform defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from speclaunch.core import Place, Problem
from speclaunch.engine.releases.catalogue import Catalogue


class Setting(Struct, frozen=True):
    """A value and its place in the file. If `known` is False, `value` is unevaluated text (a
    template or a cluster variable)."""

    value: Any
    place: Place
    known: bool = True


class ProbeKind(StrEnum):
    """The kind of a probe, by its Kubernetes or Compose key."""

    STARTUP = "startupProbe"
    READINESS = "readinessProbe"
    LIVENESS = "livenessProbe"
    HEALTHCHECK = "healthcheck"
    """Compose's health check, which marks a container as unhealthy but restarts nothing."""


class Probe(Struct, frozen=True):
    """One probe of a container. Times are in seconds; None means not set (the platform's default).

    `path` and `port` belong to the HTTP request. For a command (`exec`, Compose) they come from its
    first URL, and `command` holds its args. A TCP probe has a port but no path.
    """

    kind: ProbeKind
    place: Place
    path: Setting | None = None
    port: Setting | None = None
    command: tuple[str, ...] = ()
    initial_delay: Setting | None = None
    period: Setting | None = None
    timeout: Setting | None = None
    failure_threshold: Setting | None = None
    scheme: str | None = None
    """`HTTPS` for a probe over TLS; None otherwise."""
    host: str | None = None
    """Host that the probe requests; None for the pod's own address."""
    headers: frozenset[str] = frozenset()
    """Lowercase names of the headers that the probe sends."""


class Volume(Struct, frozen=True):
    """A volume as mounted in one container.

    `kind`: `emptyDir`, `hostPath`, `secret`, `persistentVolumeClaim`, `bind`, …. `medium`: `Memory`
    for a volume in memory. `size`: in bytes.
    """

    mount: Setting
    kind: str
    place: Place
    source: Setting | None = None
    medium: str | None = None
    size: Setting | None = None


class Scrape(Struct, frozen=True):
    """A scrape of a server's metrics, configured by annotations or by a Prometheus Operator object.

    `name` names its annotation or object. If `path` is None, the path is `/metrics`. If `port` is
    None, the file does not state it as a number.
    """

    name: str
    place: Place
    path: Setting | None = None
    port: Setting | None = None


class Pod(Struct, frozen=True):
    """Setup of a server's container, and of its pod or Compose service.

    Resources are keyed by name (`nvidia.com/gpu`, `memory`, `cpu`, `rdma/ib`), with amounts as in
    the file. GPUs in Compose's `deploy.resources` also appear under `nvidia.com/gpu`.
    """

    image: Setting | None = None
    requests: Mapping[str, Setting] = {}
    limits: Mapping[str, Setting] = {}
    probes: tuple[Probe, ...] = ()
    volumes: tuple[Volume, ...] = ()
    shm_size: Setting | None = None
    """Size of `/dev/shm` in bytes, if a separate key such as Compose's `shm_size` sets it; else
    None."""
    ipc_host: Setting | None = None
    """True for `hostIPC: true` or `ipc: host`, with which the container shares the machine's
    `/dev/shm`."""
    grace: Setting | None = None
    """Seconds between SIGTERM and SIGKILL."""
    privileged: Setting | None = None
    host_network: Setting | None = None
    ports: tuple[Setting, ...] = ()
    published: tuple[Setting, ...] = ()
    """Ports that Compose publishes on addresses other than the machine's loopback address."""
    env: Mapping[str, Setting] = {}
    """Environment variables whose values are in the file (no `valueFrom`), by name."""
    secrets: frozenset[str] = frozenset()
    """Names of environment variables whose values come from a Secret."""
    labels: Mapping[str, str] = {}
    scrapes: tuple[Scrape, ...] = ()
    restart: Setting | None = None
    """`restartPolicy`, or Compose's `restart`."""


class Service(Struct, frozen=True):
    """A Kubernetes Service, which gives pods an address. `ports` are pairs of a port and a target
    port (or None)."""

    name: str
    place: Place
    selector: Mapping[str, str]
    ports: tuple[tuple[Setting, Setting | None], ...] = ()
    headless: bool = False
    """True if the service's name resolves to the pods themselves (`clusterIP: None`), on all their
    ports."""


class Upstream(Struct, frozen=True):
    """A server that a router's configuration names, as in `--prefill http://host:port
    bootstrap`."""

    role: str
    """`prefill` or `decode`; `worker` for a router without disaggregation."""
    host: str | None
    port: Setting | None
    place: Place
    bootstrap: Setting | None = None


class Router(Struct, frozen=True):
    """A router of the deployment: sglang_router, sgl-model-gateway, mini_lb, or Dynamo's frontend.

    `options` are its options, by flag without the leading `--` (`policy`, `pd-disaggregation`).
    """

    name: str
    program: str
    place: Place
    upstreams: tuple[Upstream, ...] = ()
    options: Mapping[str, Setting] = {}
    pod: Pod = field(default_factory=Pod)


class Group(Struct, frozen=True):
    """One deployment: cooperating servers, and the services and routers that connect them.

    `platform` is its kind: `LeaderWorkerSet`, `RoleBasedGroup`, `Deployment`, `compose`, `sbatch`,
    `recipe`, …. Commands with equal groups belong to one deployment.
    """

    name: str
    platform: str
    place: Place
    routers: tuple[Router, ...] = ()
    services: tuple[Service, ...] = ()


class ServerContext(Struct, frozen=True):
    """Context of one server command within its deployment.

    - `part`: `leader` or `worker` if the server has one command per kind of host; None if all hosts
      share one command.
    - `nodes`: number of hosts per server. `replicas`: number of such servers.
    - `gpus_per_node`: set if the platform states it outside the pod (Slurm).
    """

    group: Group
    role: str
    """The role that the file states, with variants such as `decoder` normalized to `decode`."""
    place: Place
    part: str | None = None
    nodes: Setting | None = None
    replicas: Setting | None = None
    gpus_per_node: Setting | None = None
    pod: Pod = field(default_factory=Pod)


ENGINE_VARIABLES = ("SGLANG_", "SGL_")
"""Prefixes of the engine's own environment variables."""


class RequestOrigin(StrEnum):
    """The kind of source that a deployment comes from."""

    RECIPE = "recipe"
    COMMAND = "command"
    """A server command in a script, Compose file, manifest or document."""
    SLIME = "slime"


class RequestedValue(Struct, frozen=True):
    """A requested server argument or environment variable.

    - `name` is the engine's current name (`canonical`); `written` is the user's name for it.
    - `value` is what the engine stores. If `known` is False, it is the text of a shell variable
      that cannot be evaluated.
    - `literal` is the part of `value` in the file, if the rest comes from the environment; else
      None.
    """

    name: str
    value: Any
    written: str
    place: Place
    known: bool = True
    literal: str | None = None


class ArgvToken(Struct, frozen=True):
    """A command-line token. `known` is False if the engine receives something other than `text`."""

    text: str
    place: Place
    known: bool


class Request(Struct, frozen=True):
    """The arguments and variables of one deployment, for one engine version.

    The version's parser rejects the arguments in `problems`; those in `remarks` have no effect.
    `extras` are slime's own options.
    """

    name: str
    origin: RequestOrigin
    catalogue: Catalogue
    place: Place
    values: Mapping[str, RequestedValue] = field(default_factory=dict)
    env: Mapping[str, RequestedValue] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    remarks: tuple[Problem, ...] = ()
    extras: Mapping[str, RequestedValue] = field(default_factory=dict)
    overridden: tuple[RequestedValue, ...] = ()
    """Earlier occurrences of repeated arguments. The last occurrence applies."""
    ignored: tuple[RequestedValue, ...] = ()
    """Arguments that slime does not pass on, because it sets them itself."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Reasons why the values of some arguments are unknown, by the engine's current name. The
    parser did not recognize their text, so they may differ from the defaults."""
    unseen: str | None = None
    """Reason why further arguments may be in a file that was not read; None if there is no such
    file."""
    argv: tuple[ArgvToken, ...] = ()
    server_context: ServerContext | None = None
    """Context of the server in its deployment; None if the file describes none."""
    lock_differences: tuple[Problem, ...] = ()
    serves_http: bool = True
    """False if the engine's own HTTP server does not run, or might not run."""
    read_variables: frozenset[str] = frozenset()
    """Variables of `env` that the file itself reads, so the engine need not know them."""

    @property
    def version(self) -> str:
        return self.catalogue.version
