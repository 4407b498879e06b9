"""The machine that serves: its GPUs, probed or declared."""

from __future__ import annotations

from enum import StrEnum

from speclaunch.record import record


class Vendor(StrEnum):
    """Who made the accelerator; the engine's devices follow from it."""

    NVIDIA = "nvidia"
    AMD = "amd"
    CPU = "cpu"


@record
class OtherProcess:
    """A process that holds memory of a GPU."""

    pid: int
    name: str
    memory_bytes: int | None


@record
class Gpu:
    """One GPU as it was found. `free_bytes` and the processes are None/empty where declared."""

    index: int
    name: str
    memory_bytes: int
    free_bytes: int | None = None
    processes: tuple[OtherProcess, ...] = ()


MOST_ON_A_MACHINE = 64
"""No machine has more GPUs: a larger number is that of all machines together (`--nnodes`)."""


@record
class Hardware:
    """The accelerators of a machine, all of one kind.

    `memory_mib` is what the engine reads as the memory of a GPU (`nvidia-smi` memory.total, MiB).
    `capability` is the CUDA compute capability as SGLang writes it: 90 for Hopper, 100 for B200.
    """

    name: str
    """As people say it: `h100-80gb`, `rtx4090`, `cpu`; a probed GPU's own name."""
    vendor: Vendor
    count: int = 1
    memory_mib: int | None = None
    capability: int | None = None
    driver: str | None = None
    gpus: tuple[Gpu, ...] = ()
    """What was probed; empty where the hardware was declared. Of a CPU: its NUMA nodes."""
    declared: bool = True
    counted: bool = False
    """Whether `count` was said (`h200:8`) or counted; a bare name says the kind alone, and as many
    GPUs as are needed are taken to be there."""

    @property
    def known_count(self) -> int | None:
        """The number of GPUs; None where only their kind is known."""
        return self.count if self.counted or self.gpus else None

    @property
    def is_of_all_machines(self) -> bool:
        """Whether the number of GPUs can only be that of several machines."""
        return self.count > MOST_ON_A_MACHINE

    @property
    def device(self) -> str:
        """`device` of the engine: cuda (AMD too), or cpu."""
        return "cpu" if self.vendor is Vendor.CPU else "cuda"
