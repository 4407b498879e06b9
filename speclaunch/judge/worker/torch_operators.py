"""`torch.ops` and `torch.library` without torch: an operator is there once it was registered."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

from .stubs import Thing


class Namespace:
    """`torch.ops.NAME`: only what was registered is there."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Any:
        if self.name in BUILT_IN and not name.startswith("__"):
            return Thing()
        raise AttributeError(f"'_OpNamespace' '{self.name}' object has no attribute '{name}'")


BUILT_IN = frozenset(
    {"aten", "prim", "prims", "c10d", "_c10d_functional", "quantized", "higher_order"}
)
"""Namespaces that torch itself fills."""


class Operators(types.ModuleType):
    """`torch.ops`: every namespace is there."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = Namespace(name)
        setattr(self, name, found)
        return found

    def load_library(self, path: Any) -> None:
        """Torch's answer for a library that it cannot load."""
        raise OSError(f"Could not load this library: {path}")


def register(name: str) -> None:
    """Put an operator (`space::name(Tensor x) -> …`) where `torch.ops` has it."""
    space, _, rest = name.partition("::")
    plain = rest.partition("(")[0].partition(".")[0].strip()
    if plain:
        setattr(getattr(sys.modules["torch"].ops, space), plain, Thing())  # type: ignore[attr-defined]


class Library:
    """`torch.library.Library`: a place to register operators."""

    def __init__(self, ns: str, kind: str = "FRAGMENT", *_: Any) -> None:
        self.ns, self.kind, self.m = ns, kind, object()

    def define(self, schema: str, *_: Any, **__: Any) -> str:
        """Declare an operator; its name."""
        register(f"{self.ns}::{schema}")
        return schema.partition("(")[0]

    def impl(self, *_: Any, **__: Any) -> None:
        """What it would compute."""

    fallback = _register_fake = impl


def custom_op(name: str, fn: Any = None, /, **_: Any) -> Any:
    """`@torch.library.custom_op("space::name", mutates_args=…)`."""
    register(name)
    return Operator(fn) if fn is not None else Operator


class Operator:
    """What `custom_op` makes of a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__name__ = getattr(function, "__name__", "operator")
        self.__doc__ = function.__doc__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Thing()

    def __call__(self, *args: Any, **named: Any) -> Any:  # noqa: D102
        return self._function(*args, **named)


def infer_schema(*_: Any, **__: Any) -> str:
    """`torch.library.infer_schema`: nothing reads it."""
    return "() -> ()"


def define(name: str, *_: Any, **__: Any) -> Any:
    """`torch.library.define`."""
    register(name)
    return Thing()
