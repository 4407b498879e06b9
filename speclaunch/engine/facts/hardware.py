"""Accelerators of a machine, probed or declared by name (`h100:8`)."""

from __future__ import annotations

import re
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import COMMAND_LINE, InputError, Place, Problem, lazy
from speclaunch.engine.releases.nearest import nearest


class Vendor(StrEnum):
    """Vendor of the accelerator. It determines the engine's device."""

    NVIDIA = "nvidia"
    AMD = "amd"
    CPU = "cpu"


class OtherProcess(Struct, frozen=True):
    """A process that uses GPU memory; `memory_bytes` is None if the driver does not report it."""

    pid: int
    name: str
    memory_bytes: int | None


class Gpu(Struct, frozen=True):
    """A probed GPU, or a NUMA node of a CPU. `free_bytes` is None if unknown."""

    index: int
    name: str
    memory_bytes: int
    free_bytes: int | None = None
    processes: tuple[OtherProcess, ...] = ()


MOST_ON_A_MACHINE = 64
"""Maximum number of GPUs on one machine. A larger count covers several machines (`--nnodes`)."""


class Hardware(Struct, frozen=True):
    """The accelerators of a machine, all of one kind.

    `memory_mib` is the GPU memory that the engine reads (`nvidia-smi` memory.total, MiB).
    `capability` is the CUDA compute capability as SGLang states it: 90 for Hopper, 100 for B200.
    """

    name: str
    """Common name (`h100-80gb`, `rtx4090`, `cpu`), or a probed GPU's own name."""
    vendor: Vendor
    count: int = 1
    memory_mib: int | None = None
    capability: int | None = None
    driver: str | None = None
    gpus: tuple[Gpu, ...] = ()
    """Probed GPUs; empty if declared. For a CPU, its NUMA nodes."""
    declared: bool = True
    counted: bool = False
    """True if `count` is explicit (`h200:8`) or probed. A bare name gives only the kind, and any
    number of GPUs is assumed to be available."""

    @property
    def known_count(self) -> int | None:
        """Number of GPUs; None if only the kind of GPU is known."""
        return self.count if self.counted or self.gpus else None

    @property
    def is_of_all_machines(self) -> bool:
        """True if the number of GPUs requires several machines."""
        return self.count > MOST_ON_A_MACHINE

    @property
    def device(self) -> str:
        """The engine's `device`: cuda (also for AMD), or cpu."""
        return "cpu" if self.vendor is Vendor.CPU else "cuda"


AUTO = "auto"
"""Recipe value for the hardware of the launching machine."""
_MAX_COUNT = 9999


def _nvidia(name: str, memory_mib: int, capability: int) -> Hardware:
    return Hardware(name, Vendor.NVIDIA, 1, memory_mib, capability)


def _amd(name: str, memory_mib: int) -> Hardware:
    return Hardware(name, Vendor.AMD, 1, memory_mib)


# `memory.total` of nvidia-smi in MiB, as the engine reads it (get_nvgpu_memory_capacity in
# srt/utils/common.py), and the compute capability. The numbers are from public nvidia-smi logs,
# with error correction on if that is the board's default; for AMD, the pool that rocminfo shows
# (get_amdgpu_memory_capacity). None is near a threshold of the engine (20, 35, 60, 90, 160 GB).
_KNOWN = (
    _nvidia("t4", 15360, 75),
    _nvidia("v100-16gb", 16384, 70),
    _nvidia("v100-32gb", 32768, 70),
    _nvidia("l4", 23034, 89),
    _nvidia("l20", 46068, 89),
    _nvidia("l40", 46068, 89),
    _nvidia("l40s", 46068, 89),
    _nvidia("a10", 23028, 86),
    _nvidia("a10g", 23028, 86),
    _nvidia("a30", 24576, 80),
    _nvidia("a40", 46068, 86),
    _nvidia("a100-40gb", 40960, 80),
    _nvidia("a100-80gb", 81920, 80),
    _nvidia("a800-80gb", 81920, 80),
    _nvidia("h100-80gb", 81559, 90),
    _nvidia("h100-94gb", 95830, 90),
    _nvidia("h800-80gb", 81559, 90),
    _nvidia("h20-96gb", 97871, 90),
    _nvidia("h20-141gb", 143771, 90),
    _nvidia("h200", 143771, 90),
    _nvidia("gh200-96gb", 97871, 90),
    _nvidia("gh200-144gb", 147456, 90),  # nominal: no log was found
    _nvidia("b200", 183359, 100),
    _nvidia("gb200", 189471, 100),
    _nvidia("b300", 275040, 103),
    _nvidia("gb300", 284208, 103),
    _nvidia("rtx3090", 24576, 86),
    _nvidia("rtx4090", 24564, 89),
    _nvidia("rtx5090", 32607, 120),
    _nvidia("rtxa6000", 49140, 86),
    _nvidia("rtx6000ada", 49140, 89),
    _nvidia("rtxpro6000", 97887, 120),
    _nvidia("dgxspark", 122880, 121),  # nominal: nvidia-smi shows no memory; it uses the host's
    _amd("mi210", 65520),
    _amd("mi250x", 65520),  # of each of its two dies, which are two devices
    _amd("mi300x", 196592),
    _amd("mi325x", 262128),
    _amd("mi350x", 294896),
    _amd("mi355x", 294896),
    Hardware("cpu", Vendor.CPU),
)
_ALIASES = {
    "3090": "rtx3090",
    "4090": "rtx4090",
    "5090": "rtx5090",
    "a100": "a100-80gb",
    "a800": "a800-80gb",
    "gb10": "dgxspark",
    "gh200": "gh200-96gb",
    "gh200-480gb": "gh200-96gb",  # NVIDIA's own name includes the processor's memory
    "h100": "h100-80gb",
    "h100nvl": "h100-94gb",
    "h200nvl": "h200",
    "h20": "h20-96gb",
    "h20-3e": "h20-141gb",
    "h800": "h800-80gb",
    "a6000": "rtxa6000",
    "rtx6000pro": "rtxpro6000",
    "v100": "v100-32gb",
}
_NOISE = lazy(
    r"nvidia|amd|geforce|tesla|quadro|instinct|graphics|sxm\d?|pcie|oam|ac|hbm\d?e?|generation"
    r"|blackwell|edition|server|workstation|max|q"
)
"""Parts of product names (`NVIDIA A100-SXM4-80GB`) that the lookup ignores."""
_ROUNDING = 0.1
"""Allowed relative difference between the size in a name (`t4-16gb`, `t4-16`) and the memory."""


def _words(name: str) -> list[str]:
    words = re.findall(r"[a-z0-9]+", name.lower())
    return [word for word in words if not _NOISE.fullmatch(word)]


def _key(name: str) -> str:
    return "".join(_words(name))


_BY_KEY = {_key(machine.name): machine for machine in _KNOWN}
_BY_KEY |= {_key(alias): _BY_KEY[_key(name)] for alias, name in _ALIASES.items()}


def declare(declaration: str) -> Hardware:
    """Return the hardware for a declaration such as `h100`, `h100-80gb:8`, `mi300x` or `cpu`.

    A declaration is a name and an optional GPU count, on one machine or on several (`h100:256`).
    Without a count, only the kind is known (`Hardware.counted`). Case, dashes and the extra words
    of a vendor's product name are ignored. Raises InputError for an unknown name or an invalid
    count.
    """
    name, colon, number = declaration.strip().lower().partition(":")
    count = int(number) if number.isascii() and number.isdigit() and len(number) < 5 else 0
    if colon and not 1 <= count <= _MAX_COUNT:
        raise _wrong(
            declaration,
            f"{number[:40]!r} is not a number of GPUs (1 to {_MAX_COUNT})",
            "h100-80gb:8",
        )
    found = _find(name)
    if found is None:
        raise _wrong(declaration, f"unknown hardware {name[:80]!r}", _hint(name))
    return replace(found, count=count or 1, counted=bool(count))


def _find(name: str) -> Hardware | None:
    """Return the hardware for a name, which may state a rounded memory size; None if unknown."""
    words = _words(name)
    sizes = [match for word in words if (match := re.fullmatch(r"(\d{2,3})(gb?)?", word))]
    if len(sizes) != 1 or "".join(words) in _BY_KEY:
        return _BY_KEY.get("".join(words))
    rest = "".join(word for word in words if word != sizes[0][0])
    size = int(sizes[0][1])
    for found in (_BY_KEY.get(f"{rest}{size}gb"), _BY_KEY.get(rest)):
        memory = found.memory_mib if found is not None else None
        if memory is not None and abs(size * 1024 - memory) <= _ROUNDING * memory:
            return found
    return None


def _hint(name: str) -> str:
    """Return a hint: `h100:8` for `8xh100`, else similar names, else all known names."""
    counted = re.fullmatch(
        r"(?P<n>\d{1,2}) ?[x*] ?(?P<a>.+)|(?P<b>.+?) ?[x*] ?(?P<m>\d{1,2})", name
    )
    if counted is not None:
        found = _find(counted["a"] or counted["b"])
        if found is not None:
            return f"did you mean {found.name}:{counted['n'] or counted['m']}?"
    near = nearest(_key(name)[:40], _BY_KEY, 3)
    known = dict.fromkeys(_BY_KEY[key].name for key in near)
    if known:
        return f"did you mean {' or '.join(known)}?"
    return "known names: " + ", ".join(machine.name for machine in _KNOWN)


def hardware_names() -> tuple[str, ...]:
    """Return the known names, without aliases."""
    return tuple(machine.name for machine in _KNOWN)


def _wrong(declaration: str, message: str, hint: str) -> InputError:
    return InputError(Problem(message, Place(COMMAND_LINE, text=f"hardware {declaration}"), hint))
