"""What a breakable copy of the CPU shim runs in the engine's processes: see proof_faults.py.

It becomes `planted_faults/__init__.py` there, and is not imported here.
"""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent


def active() -> int:
    """The number of the fault that is active; -1: none."""
    return int((_HERE / "active").read_text())


def _known() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((_HERE / "faults.json").read_text())
    return found


def switch(kernels: dict[str, Any]) -> None:
    """Have each kernel of an edited module ask which fault is active."""
    for module, numbers in _known()["edited"].items():
        edited = {
            number: importlib.import_module(f"{__name__}.fault_{number}_{module}")
            for number in numbers
        }
        for name in kernels["__all__"]:
            if kernels[name].__module__ == f"sgl_kernel.{module}":
                kernels[name] = _switched(kernels[name], edited)


def _switched(kernel: Callable[..., Any], edited: dict[int, Any]) -> Callable[..., Any]:
    @functools.wraps(kernel)
    def chosen(*words: Any, **more: Any) -> Any:
        module = edited.get(active())
        return (getattr(module, kernel.__name__) if module else kernel)(*words, **more)

    return chosen


def watch(hook: Any) -> None:
    """Replace functions of SGLang as soon as their modules are imported."""
    import sys

    for module, faults in _known()["replaced"].items():
        after = functools.partial(_replace, module, faults)
        sys.meta_path.insert(0, hook(module, lambda _: None, after))


def _replace(module: str, faults: list[tuple[int, str]]) -> None:
    worker = importlib.import_module(module)
    for number, target in faults:
        broken = importlib.import_module(f"{__name__}.fault_{number}").broken
        owner, _, name = target.rpartition(".")
        place = getattr(worker, owner) if owner else worker
        setattr(place, name, _replaced(getattr(place, name), broken, worker, number))


def _replaced(
    original: Callable[..., Any], broken: Callable[..., Any], worker: Any, number: int
) -> Callable[..., Any]:
    @functools.wraps(original)
    def chosen(*words: Any, **more: Any) -> Any:
        if active() == number:
            return broken(worker, original, *words, **more)
        return original(*words, **more)

    return chosen
