"""What a render target is, and what it is given: a whole deployment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar

from msgspec import Struct, field

from speclaunch.core import Problem
from speclaunch.engine import RenderedArgs


class SpeclaunchFrom(StrEnum):
    """How speclaunch gets to where the engine runs (`deploy.speclaunch`)."""

    IMAGE = "image"
    """The image holds it."""
    WHEEL = "wheel"
    """Its wheel is installed by a step before the start."""
    MOUNTED = "mounted"
    """A directory that is mounted holds it, installed with `pip install --target`."""


class DeployOptions(Struct, frozen=True):
    """The `deploy` section of a recipe: how the rendered forms run it."""

    image: str | None = None
    """None: the official image of the version."""
    speclaunch: SpeclaunchFrom | None = None
    """None: the rendered command is the engine alone."""
    speclaunch_source: str | None = None
    """The directory (or volume claim, `pvc:NAME`) with the wheel or the installed package."""
    namespace: str | None = None
    rdma: str | None = None
    """The resource of the cluster's plugin for RDMA devices: `rdma/ib`, or `rdma/ib:8` for 8."""
    models: str | None = None
    """Storage of checkpoints: a directory of each host, `pvc:NAME`, or `emptyDir`. None: a
    volume of the platform, empty at first."""
    jit_cache: str | None = None
    """The same for kernels that are compiled at the start."""
    shared_dir: str | None = None
    """A directory that all hosts see (or `pvc:NAME`): journals, the settings that served, the
    ranks' agreement."""
    drain_seconds: int = 120
    """How long requests that run may take when a server is stopped."""
    slurm: Mapping[str, Any] = {}
    """What a Slurm cluster asks for, by sbatch's own names (`partition`, `account`)."""


class Needs(Struct, frozen=True):
    """What one node of a role needs, worked out from its plan. Bytes and seconds.

    None: a fact is missing, and `unknown` says which.
    """

    start_seconds: int | None = None
    """How long a start may take at the slowest: plan/start_time.py."""
    start_why: str = ""
    """Of what that is made."""
    memory_bytes: int = 1 << 35
    """Of the host, `/dev/shm` included, the pages of files not."""
    shm_bytes: int = 1 << 33
    cpus: int = 4
    weight_bytes: int | None = None
    """Files of target and draft; None: not known."""
    unknown: str | None = None


class Role(Struct, frozen=True):
    """The servers of a deployment that are alike, for one engine version."""

    name: str
    """`server` where the recipe has no roles."""
    program: tuple[str, ...]
    """The engine's entry point, e.g. `python3 -m sglang.launch_server`."""
    spelling: RenderedArgs
    env: Mapping[str, str | None]
    """Environment of the engine; None takes a variable away."""
    replicas: int = 1
    """How many such servers."""
    nodes: int = 1
    """Hosts of one server: the engine's `nnodes`."""
    gpus_per_node: int = 1
    """0: it serves without a GPU."""
    vendor: str = "nvidia"
    """`nvidia`, `amd` or `cpu`."""
    gpu: str | None = None
    """The GPU as people say it (`h100-80gb`); None: nobody named one."""
    gpus_of_host: int | None = None
    """GPUs of a host of the named hardware (`h100:8`); None if it names no number."""
    image: str | None = None
    """The container image; None: no published one holds this engine."""
    port: int = 30000
    tls: bool = False
    grace_seconds: int = 8
    """How long the engine may take to end after SIGTERM (`launch.grace_seconds`)."""
    ready_seconds: int = 3600
    """How long speclaunch waits for one start (`launch.ready_timeout_seconds`)."""
    starts: int = 1
    """How many starts in a row there may be until it serves: those of a recovery, where speclaunch
    runs it."""
    own_engine: bool = False
    """Whether it runs on the CPU engine, which speclaunch installs on each machine."""
    needs: Needs = field(default_factory=Needs)

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the command line after the program. Secrets stand in them."""
        return tuple(token for one in self.spelling.arguments for token in one.tokens)

    @property
    def mode(self) -> str | None:
        """`prefill` or `decode` of a disaggregated server; None of any other."""
        found = self.spelling.value("disaggregation_mode")
        return found if found in ("prefill", "decode") else None


class RouterOptions(Struct, frozen=True):
    """The `router` section of a recipe: sglang_router before the servers."""

    args: Mapping[str, Any] = {}
    """Its own options by name (`policy`)."""
    port: int = 8000
    replicas: int = 1


class Rendering(Struct, frozen=True):
    """A deployment to be written down for one engine version."""

    name: str
    description: str
    roles: tuple[Role, ...]
    """At least one."""
    router: RouterOptions | None = None
    options: DeployOptions = field(default_factory=DeployOptions)
    has_roles: bool = False
    """Whether the recipe has `roles:`, so that a launch names the one that it means."""
    recipe: str | None = None
    """The whole recipe as one text without secrets, for a command that is speclaunch itself; None:
    the command is the engine alone."""

    @property
    def title(self) -> str:
        """One line that says what this is."""
        text = f"{self.name} for SGLang {self.version}"
        return f"{text}: {self.description}" if self.description else text

    @property
    def version(self) -> str:
        """The engine version: the same for all roles."""
        return self.roles[0].spelling.version

    @property
    def runs_speclaunch(self) -> bool:
        """Whether the rendered command is speclaunch, not the engine alone."""
        return self.recipe is not None

    @property
    def notes(self) -> tuple[str, ...]:
        """What was put differently for the version: each note once."""
        return tuple(dict.fromkeys(note for role in self.roles for note in role.spelling.notes))


class RenderedCommand(Struct, frozen=True):
    """A server command that a text holds: a role's own words, and what the platform says.

    `given` goes by the newest engine's names of arguments, with the texts of their values as they
    stand in the text (`$(LWS_WORKER_INDEX)`); None: the platform leaves the argument out.
    `env` are variables that the text sets besides the role's.
    """

    role: Role
    given: Mapping[str, tuple[str, ...] | None] = {}
    env: Mapping[str, str] = {}
    part: str | None = None
    """`leader` or `worker`, where the hosts of one server have several commands."""

    def stands_for(self, name: str, texts: tuple[str, ...] | None) -> bool:
        """Whether what our reader sees of a `given` argument is what the text says: the reader
        knows the rank of a leader, and of the only worker."""
        wanted = self.given[name]
        if texts == wanted:
            return True
        if name != "node_rank" or wanted is None or not wanted[0].startswith("$"):
            return False
        only = self.part == "worker" and self.role.nodes == 2
        return texts == (("0",) if self.part == "leader" else ("1",) if only else None)


class Renderer(ABC):
    """Writes a deployment in the language of one tool."""

    target: ClassVar[str]
    """The name after `--to`."""
    suffix: ClassVar[str] = ".sh"
    """How files of this form are called, and so read back: `.sh`, `.yaml`, `.py`."""
    one_server: ClassVar[bool] = False
    """Whether it describes a single server: of several roles one has to be named."""
    carries_speclaunch: ClassVar[bool] = True
    """Whether `deploy.speclaunch` counts: whether the text can start speclaunch itself."""

    def refuses(self, deployment: Rendering) -> Sequence[Problem]:  # noqa: ARG002
        """Why this target cannot carry the deployment; nothing where it can."""
        return ()

    @abstractmethod
    def render(self, deployment: Rendering) -> str:
        """The text, ready to be used as it is. Secrets are asked for, never written."""

    def commands(self, deployment: Rendering) -> tuple[RenderedCommand, ...]:
        """The server commands of the text, in its order: what the proof looks for."""
        return tuple(RenderedCommand(role) for role in deployment.roles)

    def launches(self, text: str) -> tuple[tuple[str, ...], ...]:
        """The words of each `speclaunch launch` in a text, from `launch` on, as they stand."""
        raise NotImplementedError(f"{self.target} starts no speclaunch: {text[:0]}")

    def recipe_in(self, text: str) -> str | None:
        """The recipe that a text brings with it for its `speclaunch launch`, or None."""
        raise NotImplementedError(f"{self.target} brings no recipe: {text[:0]}")
