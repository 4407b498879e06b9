"""Everything that the checks look at, gathered once. Frozen: a check is a pure function of it.

What could not be told is an `UnknownFact` in its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from speclaunch.engine import (
    Checkpoint,
    Hardware,
    MemoryBudget,
    MissingPath,
    Packages,
    Runtime,
    UnknownFact,
)

NOT_LOOKED_AT = UnknownFact("this", "it was not checked")


class OwnInstallation(Struct, frozen=True):
    """speclaunch itself."""

    version: str
    python: str
    """The version of the Python that runs it."""
    executable: Path
    home: Path
    """Where it keeps what it makes."""


class CpuEngineState(Struct, frozen=True):
    """The CPU engine of speclaunch."""

    installed: bool
    version: str
    python: Path
    models: Path
    begun: bool = False
    """There is something of an installation, and it is not complete."""


class Process(Struct, frozen=True):
    """A process as the operating system shows it."""

    pid: int
    parent: int
    name: str
    words: tuple[str, ...] = ()
    """Its command line; empty for a zombie, and for what may not be read."""
    user: str = ""
    zombie: bool = False
    session: int | None = None
    age_seconds: float | None = None
    run: str | None = None
    """The mark of a launch of speclaunch in its environment."""
    ports: tuple[int, ...] = ()
    """TCP ports that it listens on."""


class VolumeUse(StrEnum):
    """What a directory is for; the value is what the user sees."""

    MODELS = "models"
    SPECLAUNCH = "speclaunch"
    TEMPORARY = "temporary files"
    KERNELS = "compiled kernels"
    SHARED_MEMORY = "shared memory"


class DiskVolume(Struct, frozen=True):
    """A directory and the disk that it lies on."""

    use: VolumeUse
    path: Path
    device: int
    """Equal for directories on one disk."""
    free: int
    total: int
    writable: bool


class MachineMemory(Struct, frozen=True):
    """Main memory and processors, as far as this process may use them. Bytes."""

    total: int
    available: int
    limit: int | None = None
    """What a container or a control group allows; None: no limit."""
    used_of_limit: int | None = None
    cpus: float = 1
    """Processors that this process may run on, a quota counted in."""
    machine_cpus: int = 1


class ProcessLimits(Struct, frozen=True):
    """Limits of a process (`ulimit`); None: unlimited."""

    files_soft: int | None
    files_hard: int | None
    locked_memory: int | None
    processes: int | None


class Hub(Struct, frozen=True):
    """Where models are downloaded to, and whether they may be."""

    cache: Path
    token: str | None = None
    """Where an access token was found; never the token."""
    offline: str | None = None
    """The variable that forbids to download anything."""
    modelscope: bool = False
    """Models come from another hub, whose cache is not looked at."""


class LocalModel(Struct, frozen=True):
    """A checkpoint that the recipe names, and what of it is on this machine."""

    role: str
    """target, draft or tokenizer."""
    name: str
    is_url: bool = False
    is_path: bool = False
    """A directory, not a name on the hub."""
    present: bool = False
    """The directory is there, or a downloaded snapshot with a config.json."""
    generated: bool = False
    """A tiny model that the launch makes."""
    unfinished: int = 0
    """Downloads of it that were not finished."""
    unfinished_bytes: int = 0
    weight_files: bool | None = None
    """Whether the directory holds any weights; None: not looked at."""
    checkpoint: Checkpoint | None = None
    unknown: UnknownFact | None = None
    """Why nothing is known of the checkpoint."""
    readable: bool = True


class Port(Struct, frozen=True):
    """Whether the engine could listen."""

    host: str
    number: int
    refused: str | None = None
    """Why not; None: it could."""
    holder: int | None = None
    """The process that listens there, when it may be seen."""
    free: int | None = None
    """A port nearby that is free."""


class Tools(Struct, frozen=True):
    """Programs that the engine compiles kernels with."""

    compiler: Path | None = None
    nvcc: Path | None = None
    compat: bool = False
    """A CUDA forward-compatibility package is there: an older driver may do."""
    devices: tuple[str, ...] = ()
    """Makers whose accelerators have a device file here, whether or not anything answers."""


class RecipeNeeds(Struct, frozen=True):
    """The recipe, as far as the machine has to fit it. None: unknown, or not set."""

    name: str
    version: str
    """The SGLang version that it is judged for."""
    called: str | None = None
    """What stands behind `recipe=` where it is asked for again: a path, unless it is one of ours.
    """
    needs: str | None = None
    """`engine.version` of the recipe."""
    pinned: str | None = None
    fits: bool = True
    """Whether the installed version is one that the recipe can be served by."""
    asked: tuple[str, ...] = ()
    """The versions given with `--engine`."""
    python: str | None = None
    """`engine.python` of the recipe."""
    cpu: bool = False
    """It runs on the CPU engine."""
    hardware: str | None = None
    """The hardware that the rules were asked about, as people say it."""
    elsewhere: bool = False
    """Hardware was given that is not this machine's: nothing here can stop that launch."""
    meant_for: str | None = None
    """The hardware that the recipe names, where this machine has another."""
    device: str | None = None
    gpus: int | None = None
    """GPUs that one machine needs; None: unknown."""
    tensor_parallel: int | None = None
    mem_fraction: float | None = None
    attention_backends: tuple[str, ...] = ()
    algorithm: str | None = None
    dummy_weights: bool = False
    """No weights are read (`load_format: dummy`)."""
    compiled: bool = False
    """What the engine would compile for it is compiled already."""
    budget: MemoryBudget | None = None
    """Where the memory of this machine would go; None: the rules could not be asked."""
    own_variables: frozenset[str] = frozenset()
    """Variables that the recipe (or the CPU engine) sets: the rules judge them."""


class MachineFacts(Struct, frozen=True):
    """The machine as it was found."""

    own: OwnInstallation
    runtime: Runtime | UnknownFact = NOT_LOOKED_AT
    packages: Packages | UnknownFact = NOT_LOOKED_AT
    cpu_engine: CpuEngineState | UnknownFact = NOT_LOOKED_AT
    hardware: Hardware | UnknownFact = NOT_LOOKED_AT
    processes: tuple[Process, ...] | UnknownFact = NOT_LOOKED_AT
    user: str = ""
    volumes: tuple[DiskVolume | UnknownFact, ...] = ()
    memory: MachineMemory | UnknownFact = NOT_LOOKED_AT
    shared_memory: DiskVolume | UnknownFact = NOT_LOOKED_AT
    limits: ProcessLimits | UnknownFact = NOT_LOOKED_AT
    hub: Hub | UnknownFact = NOT_LOOKED_AT
    models: tuple[LocalModel, ...] = ()
    missing: tuple[MissingPath, ...] | UnknownFact = ()
    """Paths of the recipe that are not here."""
    port: Port | UnknownFact = NOT_LOOKED_AT
    tools: Tools | UnknownFact = NOT_LOOKED_AT
    env: Mapping[str, str] = {}
    """The environment that the engine would get."""
    target: RecipeNeeds | None = None

    @property
    def nvidia(self) -> Hardware | None:
        """The NVIDIA GPUs of this machine."""
        found = self.hardware
        if isinstance(found, Hardware) and found.vendor.value == "nvidia":
            return found
        return None
