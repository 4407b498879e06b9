"""Source of the CPU build of torch; pip's default is a GPU build.

PyPI's torch for Linux includes gigabytes of CUDA libraries that a CPU engine never loads. The CPU
build has a separate version, ``2.13.0+cpu``. pip's own configuration may offer it (a folder of
wheels, a mirror), and PyTorch's CPU index does. Each source is queried for its versions, with a
deadline, before anything is downloaded from it.
"""

import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from speclaunch.engine import TORCH
from speclaunch.serving.cpu_engine.process import InstallError

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""PyTorch's public index of CPU builds (https://pytorch.org/get-started/locally/)."""

READ_S = 5
"""Read timeout of an index in seconds; a query is retried once."""

PROBE_S = 40.0
"""Seconds after which an index that is still answering counts as unavailable."""

GPU_BUILD_BYTES = 10 * 2**30
"""Free disk space required by the GPU build: 2.7 GB downloaded, 5.3 GB unpacked (torch 2.13.0,
measured).
"""

_VERSION = TORCH.partition("==")[2]
_CPU_VERSION = f"{_VERSION}+cpu"
_AVAILABLE = re.compile(r"^\s*Available versions: (.+)$", re.MULTILINE)


class Offer(Struct, frozen=True):
    """Answer of a source: its torch versions for this interpreter, or why it has none."""

    versions: frozenset[str]
    why_not: str = ""


class TorchSource(Struct, frozen=True):
    """Requirement for pip, and its source."""

    requirement: str
    options: tuple[str, ...]
    where: str
    notice: str = ""
    """Notice for the user before the download starts."""
    disk_bytes: int = 0
    """Disk space that this build needs in addition to the rest of the installation."""


Probe = Callable[[Sequence[str]], Offer]
"""Function that queries the index set by these pip options, or pip's configured indexes."""


def probe_options(options: Sequence[str]) -> list[str]:
    """Return pip's arguments that query an index for torch, with a short timeout."""
    query = ["index", "versions", "torch", "--timeout", str(READ_S), "--retries", "1"]
    return [*query, "--no-input", "--disable-pip-version-check", *options]


def offered(lines: Sequence[str], ended: bool) -> Offer:
    """Parse the answer of ``pip index versions``. ``ended`` is False if the deadline cut it off."""
    found = _AVAILABLE.search("\n".join(lines))
    if found:
        return Offer(frozenset(version.strip() for version in found[1].split(",")))
    if not ended:
        return Offer(frozenset(), f"no answer within {PROBE_S:.0f} seconds")
    for line in lines:
        if "Could not fetch URL" in line or "Connection" in line or "timed out" in line:
            return Offer(frozenset(), "it cannot be reached")
    return Offer(frozenset(), "it has no torch for this Python and machine")


def choose(probe: Probe, torch_index: str | None) -> TorchSource:
    """Return the first source with the CPU build, otherwise the GPU build with a notice of its
    size.

    Order: the user's index, pip's configured indexes, PyTorch's CPU index. Raises InstallError if
    no source has torch at all.
    """
    if torch_index is not None:
        named = ("--index-url", torch_index)
        offer = probe(named)
        version = next((v for v in (_CPU_VERSION, _VERSION) if v in offer.versions), None)
        if version is None:
            why = offer.why_not or f"it has {_newest(offer)}, not {_VERSION}"
            raise InstallError(
                f"{torch_index} does not offer torch {_VERSION}: {why}",
                "set --torch-index to another index, or omit it",
            )
        return TorchSource(f"torch=={version}", ("--no-deps", *named), torch_index)
    own = probe(())
    if _CPU_VERSION in own.versions:
        where = "pip's own configuration"
        return TorchSource(f"torch=={_CPU_VERSION}", ("--no-deps",), where)
    public = ("--index-url", CPU_INDEX)
    theirs = probe(public)
    if _CPU_VERSION in theirs.versions:
        return TorchSource(f"torch=={_CPU_VERSION}", ("--no-deps", *public), CPU_INDEX)
    why = theirs.why_not or f"it has no {_CPU_VERSION} for this Python and machine"
    if _VERSION not in own.versions:
        raise InstallError(
            f"no package index offers torch {_VERSION}"
            f" (pip's configuration: {own.why_not or f'it has {_newest(own)}'};"
            f" {CPU_INDEX}: {why})",
            "check the network and pip's configuration, or set --torch-index URL",
        )
    return TorchSource(
        TORCH,
        (),
        "pip's own configuration",
        f"no CPU build of torch is available ({CPU_INDEX}: {why}): downloading the GPU build, "
        "about 2.7 GB, 5.3 GB on disk; to avoid it, stop and set --torch-index URL to an index of "
        "CPU builds",
        GPU_BUILD_BYTES,
    )


def _newest(offer: Offer) -> str:
    return next(iter(sorted(offer.versions, reverse=True)), "none")
