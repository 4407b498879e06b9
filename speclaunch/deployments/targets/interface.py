"""Interface of render targets, and their input, a deployment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar

from msgspec import Struct, field

from speclaunch.core import Problem
from speclaunch.engine import RenderedArgs


class SpeclaunchFrom(StrEnum):
    """Source of speclaunch on the engine's machine (`deploy.speclaunch`)."""

    IMAGE = "image"
    """The image contains it."""
    WHEEL = "wheel"
    """A step before the start installs its wheel."""
    MOUNTED = "mounted"
    """A mounted directory contains it, installed with `pip install --target`."""


class Monitoring(StrEnum):
    """Discovery of pods by Prometheus (`deploy.monitoring`)."""

    OPERATOR = "operator"
    """Objects of the Prometheus Operator: a PodMonitor for each role, and alerts."""
    ANNOTATIONS = "annotations"
    """Annotations of the pods."""


class DeployOptions(Struct, frozen=True):
    """The `deploy` section of a recipe: settings for render targets."""

    image: str | None = None
    """Container image; None for the version's official image."""
    speclaunch: SpeclaunchFrom | None = None
    """Source of speclaunch; None if the rendered command starts only the engine."""
    speclaunch_source: str | None = None
    """Directory (or volume claim, `pvc:NAME`) with the wheel or the installed package."""
    namespace: str | None = None
    rdma: str | None = None
    """Resource of the cluster's plugin for RDMA devices: `rdma/ib`, or `rdma/ib:8` for 8."""
    models: str | None = None
    """Storage of checkpoints: a directory of each host, `pvc:NAME`, or `emptyDir`. None: a volume
    of the platform, empty at first."""
    jit_cache: str | None = None
    """Storage of kernels compiled at the start, in the same format."""
    shared_dir: str | None = None
    """Directory that all hosts share (or `pvc:NAME`): journals, the last known good settings, the
    agreement of ranks."""
    drain_seconds: int = 120
    """Seconds for running requests to finish when a server is stopped."""
    monitoring: Monitoring | None = None
    slurm: Mapping[str, Any] = {}
    """Options that a Slurm cluster requires, by sbatch's names (`partition`, `account`)."""


class Needs(Struct, frozen=True):
    """Needs of one node of a role, from its plan, in bytes and seconds.

    None if a fact is missing, which `unknown` names.
    """

    start_seconds: int | None = None
    """Worst-case duration of a start: plan/start_time.py."""
    start_why: str = ""
    """Text that lists the parts of `start_seconds`."""
    memory_bytes: int = 1 << 35
    """Host memory, including `/dev/shm` but not the page cache."""
    shm_bytes: int = 1 << 33
    cpus: int = 4
    weight_bytes: int | None = None
    """Files of target and draft; None if unknown."""
    unknown: str | None = None


class Observed(Struct, frozen=True):
    """Settings from a server's plan that determine how it can be monitored."""

    metrics: bool = False
    """True if it exports metrics (`enable_metrics`)."""
    algorithm: str | None = None
    """Effective speculation algorithm; None without speculation."""
    verifies: bool = False
    """True if it verifies drafts: not on a prefill server."""
    draft_tokens: int | None = None
    """Maximum tokens per verification; None if unknown."""
    ranks: int = 1
    """Data-parallel ranks of one server."""
    graphs: bool = True
    """True unless decode is known to have no CUDA graphs."""
    interval: int = 40
    """Decode steps between updates of gauges (`decode_log_interval`)."""
    watchdog: float | None = None
    """Seconds without progress after which the engine stops itself."""


class Baseline(Struct, frozen=True):
    """Expected acceptance length, in tokens per verification, and its source."""

    length: float
    source: str


class Role(Struct, frozen=True):
    """Identical servers of a deployment, for one engine version."""

    name: str
    """`server` if the recipe has no roles."""
    program: tuple[str, ...]
    """The engine's entry point, e.g. `python3 -m sglang.launch_server`."""
    rendered_args: RenderedArgs
    env: Mapping[str, str | None]
    """Environment of the engine; None removes a variable."""
    replicas: int = 1
    """Number of servers."""
    nodes: int = 1
    """Hosts of one server: the engine's `nnodes`."""
    gpus_per_node: int = 1
    """GPUs per host; 0 for a server without GPUs."""
    vendor: str = "nvidia"
    """`nvidia`, `amd` or `cpu`."""
    gpu: str | None = None
    """Common name of the GPU (`h100-80gb`); None if it has none."""
    gpus_of_host: int | None = None
    """GPUs per host in the named hardware (`h100:8`); None without a number."""
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
    """True if it runs on the CPU engine, which speclaunch installs on each machine."""
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
    """Router options by name (`policy`)."""
    port: int = 8000
    replicas: int = 1


class Rendering(Struct, frozen=True):
    """Deployment to render for one engine version."""

    name: str
    description: str
    roles: tuple[Role, ...]
    """At least one."""
    router: RouterOptions | None = None
    options: DeployOptions = field(default_factory=DeployOptions)
    has_roles: bool = False
    """True if the recipe has `roles:`, so that a launch must name one."""
    baseline: Baseline | None = None
    """Acceptance length that alerts compare with; None for the deployment's own mean."""
    recipe: str | None = None
    """Complete recipe as one text without secrets, if the command is speclaunch itself; None: the
    command is the engine alone."""

    @property
    def title(self) -> str:
        """One-line summary."""
        text = f"{self.name} for SGLang {self.version}"
        return f"{text}: {self.description}" if self.description else text

    @property
    def version(self) -> str:
        """Engine version, the same for all roles."""
        return self.roles[0].rendered_args.version

    @property
    def runs_speclaunch(self) -> bool:
        """True if the rendered command starts speclaunch, not only the engine."""
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
    (`$(LWS_WORKER_INDEX)`), or to None if the platform omits the argument. `env` holds variables
    that the text sets in addition to the role's.
    """

    role: Role
    platform_args: Mapping[str, tuple[str, ...] | None] = {}
    env: Mapping[str, str] = {}
    part: str | None = None
    """`leader` or `worker`, if the hosts of one server have several commands."""

    def agrees(self, name: str, texts: tuple[str, ...] | None) -> bool:
        """True if a value read back from the text agrees with `platform_args`.

        The reader only knows the rank of a leader, and of a single worker.
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
    """Name after `--to`."""
    suffix: ClassVar[str] = ".sh"
    """File suffix of this form, which selects its reader: `.sh`, `.yaml`, `.py`."""
    single_server: ClassVar[bool] = False
    """True if it describes a single server, so that one of several roles must be named."""
    carries_speclaunch: ClassVar[bool] = True
    """True if the text can start speclaunch, so that `deploy.speclaunch` applies."""

    def refuses(self, deployment: Rendering) -> Sequence[Problem]:  # noqa: ARG002
        """Return the reasons why the target does not support the deployment; empty if it does."""
        return ()

    @abstractmethod
    def render(self, deployment: Rendering) -> str:
        """Return the text, ready to use. It refers to secrets but never contains them."""

    def commands(self, deployment: Rendering) -> tuple[RenderedCommand, ...]:
        """Return the server commands expected in the text, in order, to verify it."""
        return tuple(RenderedCommand(role) for role in deployment.roles)

    def companions(self, deployment: Rendering, name: str) -> Mapping[str, str]:  # noqa: ARG002
        """Return files to write next to the text, by name; `name` is the text's file."""
        return {}

    def notes(self, deployment: Rendering) -> Iterable[str]:  # noqa: ARG002
        """Return notes for the user about omitted parts, with reasons."""
        return ()

    def errors(self, deployment: Rendering, text: str) -> Iterable[str]:  # noqa: ARG002
        """Return errors in the text other than in its server commands, to verify it."""
        return ()

    def launches(self, text: str) -> tuple[tuple[str, ...], ...]:
        """Return the unchanged arguments of each `speclaunch launch`, from `launch` on."""
        raise NotImplementedError(f"{self.target} starts no speclaunch: {text[:0]}")

    def recipe_in(self, text: str) -> str | None:
        """Return the recipe embedded in a text for its `speclaunch launch`, or None."""
        raise NotImplementedError(f"{self.target} brings no recipe: {text[:0]}")
