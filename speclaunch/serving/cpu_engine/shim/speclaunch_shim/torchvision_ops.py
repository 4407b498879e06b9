# ruff: noqa: PLC0415 (torch is imported before torchvision)
"""Declare the two operators that torchvision's Python code requires.

PyPI's torchvision is the CUDA build. On a CPU torch its compiled library cannot be loaded, so
``nms`` and ``qnms`` are never defined, and ``torchvision/_meta_registrations.py`` fails on import.
Declared here, they have no kernel: importing torchvision works; calling them raises.
"""

import types
from pathlib import Path

OPERATORS = ("nms", "qnms")
SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"

_declared: list[object] = []  # a Library withdraws its declarations when it is collected


def declare(package: types.ModuleType) -> None:
    """Declare the operators unless the compiled library of ``package`` (torchvision) loads."""
    import torch

    for library in Path(package.__path__[0]).glob("_C*.so"):
        try:
            torch.ops.load_library(library)
        except OSError:
            continue
        return  # a CPU build, which defines them itself
    declarations = torch.library.Library("torchvision", "DEF")
    for name in OPERATORS:
        declarations.define(name + SIGNATURE)
    _declared.append(declarations)
