"""The NVIDIA driver against the CUDA that the engine's torch was built for."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.doctor.line import Line, State
from speclaunch.doctor.surroundings import Packages, Surroundings, Tools

_MINIMUM = {11: 450, 12: 525, 13: 580}
"""CUDA's major version to the first driver branch that runs all its minor versions ("minor version
compatibility", docs.nvidia.com/deploy/cuda-compatibility). Later majors are not known here."""


def check(found: Surroundings) -> Iterator[Line]:
    """Nothing where there is no NVIDIA GPU: the family of GPUs says so."""
    hardware, packages = found.nvidia, found.packages
    if hardware is None:
        return
    driver = hardware.driver or "unknown"
    if not isinstance(packages, Packages) or packages.torch is None:
        yield Line("driver", State.OK, f"NVIDIA driver {driver}")
        return
    torch, on_cpu = packages.torch, found.target is not None and found.target.cpu
    if on_cpu:
        yield Line("driver", State.OK, f"NVIDIA driver {driver}")
    elif torch.cuda is None:
        yield Line(
            "driver",
            State.ERROR,
            f"NVIDIA driver {driver}, and torch {torch.version} is a build without CUDA",
            "the engine would not see the GPU",
            "install a CUDA build of torch next to the engine",
        )
    else:
        yield _compared(found, driver, torch.cuda)


def _compared(found: Surroundings, driver: str, cuda: str) -> Line:
    said = f"NVIDIA driver {driver}, torch built for CUDA {cuda}"
    minimum = _MINIMUM.get(_major(cuda) or 0)
    branch = _major(driver)
    if minimum is None or branch is None:
        why = f"which driver CUDA {cuda} needs is not known here"
        return Line("driver", State.NOTE, said, why)
    if branch >= minimum:
        return Line("driver", State.OK, said)
    compat = isinstance(found.tools, Tools) and found.tools.compat
    if compat:
        why = (
            f"CUDA {cuda} needs driver {minimum} or newer; CUDA's forward-compatibility package is"
            " here, which lets data-centre GPUs do with less"
        )
        return Line("driver", State.WARNING, said, why)
    return Line(
        "driver",
        State.ERROR,
        said,
        f"CUDA {cuda} needs driver {minimum} or newer",
        f"update the driver to {minimum} or newer, or install an SGLang whose torch is built for"
        f" {_newest_for(branch)}",
    )


def _newest_for(branch: int) -> str:
    fitting = [cuda for cuda, minimum in _MINIMUM.items() if minimum <= branch]
    return f"CUDA {max(fitting)}.x" if fitting else "an older CUDA"


def _major(version: str) -> int | None:
    head = version.partition(".")[0]
    return int(head) if head.isdigit() else None
