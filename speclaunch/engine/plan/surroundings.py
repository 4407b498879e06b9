"""What stands around a server in the file that deploys it: its role, its pod, its probes.

Readers of manifests fill it in (`deployments/sources/`), recipes with `roles:` do
(`deployments/recipe/`), and the rules about whole deployments read it. Everything keeps the place
where it was written. What a file does not say is None: no default of a platform is written in here
by a reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from speclaunch.core import Place


class Setting(Struct, frozen=True):
    """A value, and where it was written. `known` False: `value` is the text of what is not known
    (a template, a variable of the cluster)."""

    value: Any
    place: Place
    known: bool = True


class ProbeKind(StrEnum):
    """What a probe is for."""

    STARTUP = "startupProbe"
    READINESS = "readinessProbe"
    LIVENESS = "livenessProbe"
    HEALTHCHECK = "healthcheck"
    """Of Compose: it marks the container and restarts nothing by itself."""


class Probe(Struct, frozen=True):
    """One probe of a container. Times are in seconds; None: not written, the platform's default.

    `path` and `port` are those of the HTTP request; of a command (`exec`, Compose) the first URL
    in it, and `command` holds its words. A TCP probe has a port and no path.
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
    """`HTTPS` where the request is one."""
    host: str | None = None
    """Of the request, where it is not the pod's own address."""
    headers: frozenset[str] = frozenset()
    """The names of the headers that the request has, in small letters."""


class Volume(Struct, frozen=True):
    """A volume as one container mounts it. `kind`: `emptyDir`, `hostPath`, `secret`,
    `persistentVolumeClaim`, `bind`, …; `medium`: `Memory` for one in memory; `size` in bytes."""

    mount: Setting
    kind: str
    place: Place
    source: Setting | None = None
    medium: str | None = None
    size: Setting | None = None


class Pod(Struct, frozen=True):
    """How the container of a server, and the pod or service around it, are set up.

    Resources by their names (`nvidia.com/gpu`, `memory`, `cpu`, `rdma/ib`); amounts as they are
    written, GPUs of Compose's `deploy.resources` under `nvidia.com/gpu`, too.
    """

    image: Setting | None = None
    requests: Mapping[str, Setting] = {}
    limits: Mapping[str, Setting] = {}
    probes: tuple[Probe, ...] = ()
    volumes: tuple[Volume, ...] = ()
    shm_size: Setting | None = None
    """Bytes of `/dev/shm` where that is a key of its own (Compose's `shm_size`)."""
    ipc_host: Setting | None = None
    """`hostIPC: true`, `ipc: host`: the `/dev/shm` of the machine."""
    grace: Setting | None = None
    """Seconds between SIGTERM and SIGKILL."""
    privileged: Setting | None = None
    host_network: Setting | None = None
    ports: tuple[Setting, ...] = ()
    """The ports that the container says it listens on."""
    published: tuple[Setting, ...] = ()
    """Those that Compose gives the machine's other addresses, too: not to its loopback alone."""
    env: Mapping[str, Setting] = {}
    """The variables that are written out in the file (no `valueFrom`)."""
    secrets: frozenset[str] = frozenset()
    """The variables that come from a secret."""
    labels: Mapping[str, str] = {}
    restart: Setting | None = None
    """`restartPolicy`, Compose's `restart`."""
    capabilities: frozenset[str] = frozenset()
    """What the container is given: `IPC_LOCK`."""


class Service(Struct, frozen=True):
    """What gives pods an address: a Kubernetes Service. Ports are (port, target port)."""

    name: str
    place: Place
    selector: Mapping[str, str]
    ports: tuple[tuple[Setting, Setting | None], ...] = ()
    headless: bool = False
    """Its name stands for the pods themselves (`clusterIP: None`): each of their ports."""


class Upstream(Struct, frozen=True):
    """A server that a router was told of: `--prefill http://host:port bootstrap`."""

    role: str
    """`prefill`, `decode`, or `worker` of a router without disaggregation."""
    host: str | None
    port: Setting | None
    place: Place
    bootstrap: Setting | None = None


class Router(Struct, frozen=True):
    """A router of the deployment: sglang_router, sgl-model-gateway, mini_lb, Dynamo's frontend.

    `options` are its own by flag without dashes (`policy`, `pd-disaggregation`)."""

    name: str
    program: str
    place: Place
    upstreams: tuple[Upstream, ...] = ()
    options: Mapping[str, Setting] = {}
    pod: Pod = field(default_factory=Pod)


class Group(Struct, frozen=True):
    """Servers that work together, and what stands between them: one deployment.

    `platform` is the kind of object: `LeaderWorkerSet`, `RoleBasedGroup`, `Deployment`, `compose`,
    `sbatch`, `recipe`, …. Two commands are of one deployment when their groups are equal.
    """

    name: str
    platform: str
    place: Place
    routers: tuple[Router, ...] = ()
    services: tuple[Service, ...] = ()


class Surroundings(Struct, frozen=True):
    """What the file says of one server command: which part of which deployment it is.

    A server of several hosts may have several commands: `part` is then `leader` or `worker` (None:
    one command for all hosts). `nodes`: the hosts of one server; `replicas`: how many such
    servers; `gpus_per_node`: where the platform says it outside of the pod (Slurm).
    """

    group: Group
    role: str
    """As the file calls it; `prefill` and `decode` where the file calls them anything like that."""
    place: Place
    part: str | None = None
    nodes: Setting | None = None
    replicas: Setting | None = None
    gpus_per_node: Setting | None = None
    pod: Pod = field(default_factory=Pod)
