"""Interface of render targets, their input (a deployment), and helpers for rendered files."""

from __future__ import annotations

import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar

import yaml
from msgspec import Struct, field

from speclaunch.core import Problem, is_secret_variable
from speclaunch.engine import FromEnvironment, RenderedArgs, is_secret_text, is_written_secret


class SpeclaunchFrom(StrEnum):
    """Source of speclaunch on the engine's machine (`deploy.speclaunch`)."""

    IMAGE = "image"
    """The image contains speclaunch."""
    WHEEL = "wheel"
    """A step before the start installs speclaunch from a wheel."""
    MOUNTED = "mounted"
    """A mounted directory is a virtual environment with speclaunch."""


class Monitoring(StrEnum):
    """Method by which Prometheus finds pods (`deploy.monitoring`)."""

    OPERATOR = "operator"
    """Objects of the Prometheus Operator: a PodMonitor for each role, and alerts."""
    ANNOTATIONS = "annotations"


class DeployOptions(Struct, frozen=True):
    """The `deploy` section of a recipe: settings for render targets."""

    image: str | None = None
    """Container image; None for the version's official image."""
    speclaunch: SpeclaunchFrom | None = None
    """Source of speclaunch; None if the rendered command starts only the engine."""
    speclaunch_source: str | None = None
    """Directory or volume claim (`pvc:NAME`) with speclaunch's wheels or environment, or None."""
    namespace: str | None = None
    rdma: str | None = None
    """Resource of the cluster's RDMA plugin (`rdma/ib`; `rdma/ib:8` for 8 devices), or None."""
    models: str | None = None
    """Storage of checkpoints: a directory of each host, `pvc:NAME`, or `emptyDir`. None: a volume
    of the platform, empty at first."""
    jit_cache: str | None = None
    """Storage of compiled kernels: a directory of each host, or `pvc:NAME`. None: a volume
    of the platform."""
    shared_dir: str | None = None
    """Directory (or `pvc:NAME`) that all hosts share for journals, last known good settings and
    the agreement of ranks, or None."""
    drain_seconds: int = 120
    """Seconds for running requests to finish when a server is stopped."""
    monitoring: Monitoring | None = None
    slurm: Mapping[str, Any] = {}
    """Options that a Slurm cluster requires, by sbatch's names (`partition`, `account`)."""


class Needs(Struct, frozen=True):
    """Needs of one node of a role, from its plan, in bytes and seconds.

    A need is None if a fact is missing; `unknown` states the fact.
    """

    start_seconds: int | None = None
    """Worst-case duration of a start, computed by plan/startup.py."""
    start_why: str = ""
    """Text that lists the parts of `start_seconds`."""
    memory_bytes: int = 1 << 35
    """Host memory, including `/dev/shm` but not the page cache."""
    shm_bytes: int = 1 << 33
    cpus: int = 4
    weight_bytes: int | None = None
    """Size of the weight files of target and draft; None if unknown."""
    unknown: str | None = None


class Observed(Struct, frozen=True):
    """Settings from a server's plan that determine how it can be monitored."""

    metrics: bool = False
    """True if the server exports metrics (`enable_metrics`)."""
    algorithm: str | None = None
    """Effective speculation algorithm; None without speculation."""
    verifies: bool = False
    """True if the server verifies drafts. A prefill server does not."""
    draft_tokens: int | None = None
    """Maximum tokens per verification; None if unknown."""
    ranks: int = 1
    """Number of data-parallel ranks of one server."""
    graphs: bool = True
    """True unless decode is known to run without CUDA graphs."""
    interval: int = 40
    """Decode steps between updates of gauges (`decode_log_interval`)."""
    watchdog: float | None = None
    """Seconds without progress after which the engine stops itself; None if never."""


class Baseline(Struct, frozen=True):
    """Expected acceptance length, in tokens per verification, and its source."""

    length: float
    source: str


class Role(Struct, frozen=True):
    """Identical servers of a deployment, for one engine version."""

    name: str
    """Name of the role; `server` if the recipe has no roles."""
    program: tuple[str, ...]
    """The engine's entry point, e.g. `python3 -m sglang.launch_server`."""
    rendered_args: RenderedArgs
    env: Mapping[str, str | None]
    """Environment of the engine; None removes a variable."""
    replicas: int = 1
    nodes: int = 1
    """Hosts of one server: the engine's `nnodes`."""
    gpus_per_node: int = 1
    """GPUs per host; 0 for a server without GPUs."""
    vendor: str = "nvidia"
    """Hardware vendor: `nvidia`, `amd` or `cpu`."""
    gpu: str | None = None
    """Common name of the GPU (`h100-80gb`); None without a known GPU."""
    gpus_of_host: int | None = None
    """GPUs per host in the named hardware (`h100:8`); None if it names no count."""
    image: str | None = None
    """Container image; None if no published image contains this engine."""
    port: int = 30000
    tls: bool = False
    grace_seconds: int = 8
    """Seconds for the engine to exit after SIGTERM (`launch.grace_seconds`)."""
    ready_seconds: int = 3600
    """Seconds that speclaunch waits for one start (`launch.ready_timeout_seconds`)."""
    starts: int = 1
    """Maximum number of consecutive start attempts; more than one if speclaunch recovers."""
    own_engine: bool = False
    """True if the role runs on the CPU engine, which speclaunch installs on each machine."""
    needs: Needs = field(default_factory=Needs)
    observed: Observed = field(default_factory=Observed)

    @property
    def words(self) -> tuple[str, ...]:
        """Arguments after the program, including secrets."""
        return tuple(
            token for argument in self.rendered_args.arguments for token in argument.tokens
        )

    @property
    def mode(self) -> str | None:
        """`prefill` or `decode` for a disaggregated server, else None."""
        found = self.rendered_args.value("disaggregation_mode")
        return found if found in ("prefill", "decode") else None


class RouterOptions(Struct, frozen=True):
    """The `router` section of a recipe: sglang_router in front of the servers."""

    args: Mapping[str, Any] = {}
    port: int = 8000
    replicas: int = 1


class Rendering(Struct, frozen=True):
    """Deployment to render for one engine version."""

    name: str
    description: str
    roles: tuple[Role, ...]
    """At least one role."""
    router: RouterOptions | None = None
    options: DeployOptions = field(default_factory=DeployOptions)
    has_roles: bool = False
    """True if the recipe has `roles:`, so that a launch must name one."""
    baseline: Baseline | None = None
    """Acceptance length that alerts compare with; None for the deployment's own mean."""
    recipe: str | None = None
    """Complete recipe as text, without secrets, if the command starts speclaunch; None if it starts
    only the engine."""

    @property
    def title(self) -> str:
        text = f"{self.name} for SGLang {self.version}"
        return f"{text}: {self.description}" if self.description else text

    @property
    def version(self) -> str:
        """Engine version, the same for all roles."""
        return self.roles[0].rendered_args.version

    @property
    def runs_speclaunch(self) -> bool:
        return self.recipe is not None

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes about adjustments for the version, without duplicates."""
        return tuple(
            dict.fromkeys(note for role in self.roles for note in role.rendered_args.notes)
        )


class RenderedCommand(Struct, frozen=True):
    """Server command in a rendered text: the role's arguments and the platform's.

    `platform_args` maps the newest engine's argument names to rendered values
    (`$(LWS_WORKER_INDEX)`), or to None if the platform omits the argument. `env` contains variables
    that the text sets in addition to the role's.
    """

    role: Role
    platform_args: Mapping[str, tuple[str, ...] | None] = {}
    env: Mapping[str, str] = {}
    part: str | None = None
    """`leader` or `worker` if the hosts of one server have several commands, else None."""

    def agrees(self, name: str, texts: tuple[str, ...] | None) -> bool:
        """True if `texts`, read back as argument `name`, agrees with `platform_args`.

        The reader knows only the ranks of a leader and of a single worker.
        """
        expected = self.platform_args[name]
        if texts == expected:
            return True
        if name != "node_rank" or expected is None or not expected[0].startswith("$"):
            return False
        only = self.part == "worker" and self.role.nodes == 2
        return texts == (("0",) if self.part == "leader" else ("1",) if only else None)


class Renderer(ABC):
    """Renderer of a deployment in the format of one tool."""

    target: ClassVar[str]
    """Name of the target, as in `--to NAME`."""
    suffix: ClassVar[str] = ".sh"
    """File suffix of this format, which selects the reader: `.sh`, `.yaml`, `.py`."""
    single_server: ClassVar[bool] = False
    """True if the format describes a single server, so that one of several roles must be named."""
    carries_speclaunch: ClassVar[bool] = True
    """True if the text can start speclaunch, so that `deploy.speclaunch` applies."""

    def refuses(self, deployment: Rendering) -> Sequence[Problem]:  # noqa: ARG002
        """Return the reasons why the target does not support the deployment; empty if it does."""
        return ()

    @abstractmethod
    def render(self, deployment: Rendering) -> str:
        """Return the text, ready to use. It refers to secrets but never contains them."""

    def commands(self, deployment: Rendering) -> tuple[RenderedCommand, ...]:
        """Return the server commands expected in the text, in order, to verify the text."""
        return tuple(RenderedCommand(role) for role in deployment.roles)

    def companions(self, deployment: Rendering, name: str) -> Mapping[str, str]:  # noqa: ARG002
        """Return other files to write, by name; `name` is the text's own file."""
        return {}

    def notes(self, deployment: Rendering) -> Iterable[str]:  # noqa: ARG002
        """Return notes for the user about omitted parts, with reasons."""
        return ()

    def errors(self, deployment: Rendering, text: str) -> Iterable[str]:  # noqa: ARG002
        """Return errors in the text, apart from errors in its server commands."""
        return ()

    def launches(self, text: str) -> tuple[tuple[str, ...], ...]:
        """Return the arguments of each `speclaunch launch` in a text, from `launch` on."""
        raise NotImplementedError(f"{self.target} does not start speclaunch")

    def recipe_in(self, text: str) -> str | None:
        """Return the recipe embedded in a text for its `speclaunch launch`, or None."""
        raise NotImplementedError(f"{self.target} embeds no recipe")


_MOST = 40
"""Maximum length of a name, so that it fits into 63 characters with the platforms' suffixes."""
_NAME = "app.kubernetes.io/name"
_COMPONENT = "app.kubernetes.io/component"
ROUTER = "router"


def name_of(deployment: Rendering) -> str:
    """Return the deployment's name as a DNS label."""
    label = re.sub(r"[^a-z0-9]+", "-", deployment.name.lower()).strip("-")[:_MOST].strip("-")
    return label if label[:1].isalpha() else f"d-{label}".rstrip("-")


def object_of(deployment: Rendering, role: Role) -> str:
    """Return the name of the object that runs a role."""
    name = name_of(deployment)
    return name if len(deployment.roles) == 1 else f"{name}-{role.name}"


def secret_of(deployment: Rendering) -> str:
    """Return the name of the Secret that contains the secret values by variable."""
    return f"{name_of(deployment)}-secrets"


def selector(deployment: Rendering, component: str) -> dict[str, str]:
    """Return the labels that select the pods of a role or the router."""
    return {_NAME: name_of(deployment), _COMPONENT: component}


def labels(deployment: Rendering, component: str) -> dict[str, str]:
    """Return the labels of objects of a role or the router."""
    version = re.sub(r"[^A-Za-z0-9._-]", "-", deployment.version)[:63].strip("._-")
    return {**selector(deployment, component), "app.kubernetes.io/version": version}


def metadata(deployment: Rendering, name: str, component: str | None = None) -> dict[str, object]:
    """Return the `metadata` of an object."""
    found: dict[str, object] = {"name": name}
    if deployment.options.namespace is not None:
        found["namespace"] = deployment.options.namespace
    own = {_NAME: name_of(deployment)}
    found["labels"] = own if component is None else labels(deployment, component)
    return found


def instances(deployment: Rendering) -> int:
    """Return the number of hosts of all servers."""
    return sum(role.replicas * role.nodes for role in deployment.roles)


PlatformArgs = Mapping[str, tuple[str, ...] | None]
"""Argument values set by the platform, by the newest engine's names; None omits an argument."""

FLAGS = {"host": "--host", "node_rank": "--node-rank", "dist_init_addr": "--dist-init-addr"}
"""Flags with the same name in every release."""
ALL_ADDRESSES = "0.0.0.0"  # noqa: S104  address of a container
HF_TOKEN = "HF_TOKEN"  # noqa: S105  a variable's name
CHECKPOINTS = ("model_path", "speculative_draft_model_path", "tokenizer_path")


class Dialect:
    """Syntax of a file's strings and variables. `variables` collects the required variables."""

    escaped = "$$"
    """Escaped form of a dollar sign."""

    def __init__(self) -> None:
        self.variables: dict[str, None] = {}

    def variable(self, name: str) -> str:
        """Return a reference to an environment variable."""
        return f"$({name})"

    def literal(self, text: str) -> str:
        return text.replace("$", self.escaped)

    def text(self, value: str, name: str, *, secret: bool) -> str:
        """Return an escaped value; references if it is secret or unset.

        `name` is the variable to use for a secret that is a literal in the recipe.
        """
        if isinstance(value, FromEnvironment) and not is_written_secret(value):
            if secret or value.unset or is_secret_text(value):
                return "".join(
                    self.literal(part) if isinstance(part, str) else self._reference(part.name)
                    for part in value.template
                )
        elif secret or is_written_secret(value):
            return self._reference(name.upper())
        return self.literal(value)

    def _reference(self, name: str) -> str:
        self.variables[name] = None
        return self.variable(name)


class ComposeDialect(Dialect):
    """Compose's syntax. Compose reads the user's environment and fails if a variable is unset."""

    def variable(self, name: str) -> str:
        return f"${{{name}:?}}"


class ShellDialect(Dialect):
    """Shell syntax. Variables must be set, and every text is quoted."""

    def variable(self, name: str) -> str:
        return f'"${{{name}:?}}"'

    def literal(self, text: str) -> str:
        return shlex.quote(text)


def argument_words(role: Role, platform_args: PlatformArgs, dialect: Dialect) -> list[str]:
    """Return the arguments after the program: the role's, then the platform's.

    The values of `platform_args` are in the platform's syntax, including references.
    """
    words: list[str] = []
    for argument in role.rendered_args.arguments:
        if argument.name in platform_args:
            continue
        values = [dialect.text(v, argument.name, secret=argument.secret) for v in argument.values]
        if len(values) == 1 and argument.values[0].startswith("-"):
            words.append(f"{argument.flag}={values[0]}")
        else:
            words += [argument.flag, *values]
    for name, texts in platform_args.items():
        words += [] if texts is None else [FLAGS[name], *texts]
    return words


def is_secret_env(name: str, value: str) -> bool:
    """True if an engine variable contains a secret."""
    return is_secret_variable(name) or is_secret_text(value)


def uses_hub(role: Role) -> bool:
    """True if a checkpoint comes from the hub and may require a token."""
    named = [role.rendered_args.value(name) for name in CHECKPOINTS]
    return any(name is not None and not name.startswith(("/", ".", "~")) for name in named)


def host_paths(role: Role) -> tuple[str, ...]:
    """Return the host directories of checkpoints that are set by path."""
    named = [role.rendered_args.value(name) for name in CHECKPOINTS]
    return tuple(dict.fromkeys(path for path in named if path is not None and path.startswith("/")))


DIST_PORT = 20000
"""Port on which the first host waits for the other hosts (`dist_init_addr`)."""
FILL_IN = "FILL IN"
"""Beginning of a comment about a value that depends on the cluster."""
INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
"""Variables that select the network interface of multi-host ranks."""
POD_INTERFACE = "eth0"
"""Interface of a pod's own network. containerd, CRI-O and cri-dockerd all use this name."""


def platform_args_of(role: Role, first: str = "", rank: str = "") -> PlatformArgs:
    """Return the platform's arguments for a host, which listens on all addresses.

    For several hosts: `first` is the first host's address, and `rank` is this host's rank.
    """
    if role.nodes > 1:
        return {"host": (ALL_ADDRESSES,), "dist_init_addr": (first,), "node_rank": (rank,)}
    return {"host": (ALL_ADDRESSES,), "dist_init_addr": None, "node_rank": None}


def crosses_hosts(deployment: Rendering, role: Role) -> bool:
    """True if the role's GPUs exchange tensors or KV cache with GPUs of other hosts."""
    is_pair = role.mode is not None and instances(deployment) > 1
    return role.gpus_per_node > 0 and (role.nodes > 1 or is_pair)


def unset_interfaces(role: Role) -> tuple[str, ...]:
    """Return the `INTERFACES` variables that a multi-host server needs and the recipe lacks."""
    return tuple(name for name in INTERFACES if role.nodes > 1 and name not in role.env)


def rdma_devices(deployment: Rendering) -> tuple[str, str] | None:
    """Return the RDMA resource and its device count per pod; None if the recipe sets no RDMA."""
    if deployment.options.rdma is None:
        return None
    name, _, count = deployment.options.rdma.partition(":")
    return name, count or "1"


COMMENT = "#"
"""Prefix of keys that are comments. The value becomes a comment line above the next key."""
_LINE = re.compile(r"^(\s*)(- )?'#[^']*': \d+\n", re.MULTILINE)
_WIDTH = 96
"""Maximum characters of a comment line."""


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def yaml_text(data: Any) -> str:
    """Return the data as one YAML document without the line `---`."""
    comments: list[str] = []
    marked = _marked(data, comments)
    text: str = yaml.dump(
        marked,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=1 << 30,
    )
    found = iter(comments)
    return _LINE.sub(lambda match: _comment(next(found), len(match[1])), text)


def documents(header: Iterable[str], data: Iterable[Mapping[str, Any]]) -> str:
    """Return the YAML documents below a header of comment lines."""
    head = "".join(_comment(line, 0) for line in header)
    return head + "---\n".join(yaml_text(document) for document in data)


def _comment(text: str, indent: int) -> str:
    """Return a text as wrapped `# ` lines. Its line breaks cannot end the comment."""
    words = " ".join(text.split()).split(" ")
    room = max(40, _WIDTH - indent - 2)
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + 1 + len(word) > room:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    printable = ("".join(char for char in line if char.isprintable()) for line in lines)
    return "".join(f"{' ' * indent}# {line}\n" for line in printable)


def _marked(data: Any, comments: list[str]) -> Any:
    """Return the data with comments replaced by numbers. Append the comments to `comments`."""
    if isinstance(data, Mapping):
        found: dict[Any, Any] = {}
        for key, value in data.items():
            if isinstance(key, str) and key.startswith(COMMENT):
                comments.append(str(value))
                found[key] = len(comments)
            else:
                found[key] = _marked(value, comments)
        return found
    if isinstance(data, list | tuple):
        return [_marked(item, comments) for item in data]
    return str(data) if isinstance(data, str) else data
