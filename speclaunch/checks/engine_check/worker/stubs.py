"""Stand-ins for packages that validation imports but never calls: triton, kernels.

A release's modules subclass triton's classes, use its decorators, and name its types in signatures.
Validation only needs the names. A name with an initial capital is a class that accepts anything.
Any other name is an object that can be called and used as a decorator. The result of a stand-in is
also a stand-in, and is false.
"""

from __future__ import annotations

import abc
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any


class StandInMeta(abc.ABCMeta):
    """Metaclass of stand-in classes, which have every attribute and are valid in annotations."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return thing(name)

    def __or__(cls, other: Any) -> Any:
        return typing.Union[cls, other]  # noqa: UP007

    def __ror__(cls, other: Any) -> Any:
        return typing.Union[other, cls]  # noqa: UP007

    def __getitem__(cls, _: Any) -> Any:
        return cls

    def __iter__(cls) -> Iterator[Any]:
        return iter(())

    def __bool__(cls) -> bool:
        return True


def _same(self: Any, *_: Any, **__: Any) -> Any:
    return self


class Thing(metaclass=StandInMeta):
    """Object that has every attribute and can be called, subclassed, and used as a number."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __init_subclass__(cls, **_: Any) -> None:
        super().__init_subclass__()

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: Any) -> Any:
        return importlib.import_module("pydantic_core").core_schema.any_schema()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return thing(name)

    def __call__(self, *args: Any, **named: Any) -> Any:
        if len(args) == 1 and not named and isinstance(args[0], (types.FunctionType, type)):
            return args[0]
        return Thing()

    def __mro_entries__(self, _: Any) -> tuple[type, ...]:
        return (Thing,)

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __bool__(self) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def __int__(self) -> int:
        return 0

    def __float__(self) -> float:
        return 0.0

    def __index__(self) -> int:
        return 0

    def __contains__(self, _: Any) -> bool:
        return False

    def __or__(self, other: Any) -> Any:
        return typing.Any

    __ror__ = __or__

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __lt__(self, _: Any) -> bool:
        return False

    __le__ = __gt__ = __ge__ = __lt__
    __getitem__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _same
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _same
    __pow__ = __rpow__ = __neg__ = __pos__ = __abs__ = __invert__ = __and__ = __rand__ = _same
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __xor__ = __rxor__ = _same

    def __setitem__(self, *_: Any) -> None:
        pass

    def __delitem__(self, *_: Any) -> None:
        pass


CLASSES = frozenset(
    {
        *("ndarray", "generic", "dtype", "integer", "floating", "number", "bool_", "ufunc"),
        *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
        *("float16", "float32", "float64", "complex64", "complex128", "datetime64", "str_"),
    }
)
"""Names of numpy classes with a lowercase initial."""


def thing(name: str) -> Any:
    """Return the value of an attribute in a stand-in: a class for a class name, else a `Thing`."""
    if name in CLASSES or (name.lstrip("_")[:1].isupper() and not name.isupper()):
        return StandInMeta(name, (Thing,), {"__module__": "stand_in"})
    return Thing()


class StandIn(types.ModuleType):
    """Module of a package replaced by a stand-in."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in FINDER.absent.get(self.__name__, ()):
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")
        if f"{self.__name__}.{name}" in FINDER.parts:
            return importlib.import_module(f"{self.__name__}.{name}")
        found = thing(name)
        setattr(self, name, found)
        return found

    def __reduce__(self) -> Any:
        return importlib.import_module, (self.__name__,)


class NoDriver:
    """`triton.runtime.driver` without a GPU: queries raise the usual error."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError("0 active drivers ([]). There should only be one.")


def plain(name: str) -> str:
    """Return a distribution's name, normalized for comparison."""
    return name.replace("_", "-").replace(".", "-").lower()


class StandInDistribution(importlib.metadata.Distribution):
    """Metadata of a package replaced by a stand-in."""

    def __init__(self, name: str, version: str) -> None:
        self._text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"

    def read_text(self, filename: str) -> str | None:
        return self._text if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:
        return path


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import finder and loader of stand-ins for packages, selected by top-level name."""

    def __init__(self, packages: Sequence[str]) -> None:
        self.packages = set(packages)
        self.versions: dict[str, tuple[str, str]] = {}
        """Distribution name and version to report for each package, as if it were installed."""
        self.parts: set[str] = set()
        """Modules that exist as soon as their parent does."""
        self.absent: Mapping[str, frozenset[str]] = {}
        """Names that each module lacks."""
        self.fill: list[Callable[[types.ModuleType], None]] = []
        """Functions that set real values in a new module."""

    def find_distributions(self, context: Any = None) -> Iterator[StandInDistribution]:
        """Yield the metadata of packages with a version (`importlib.metadata`)."""
        requested = getattr(context, "name", None)
        for name, version in self.versions.values():
            if requested is None or plain(name) == plain(requested):
                yield StandInDistribution(name, version)

    def find_spec(self, fullname: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in self.packages:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = StandIn(spec.name)
        _, version = self.versions.get(spec.name, ("", "3.5.1"))
        module.__version__ = version  # type: ignore[attr-defined]
        module.__file__ = f"<stand-in for {spec.name}>"
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        if module.__name__ == "triton.runtime":
            module.driver = NoDriver()  # type: ignore[attr-defined]
        elif module.__name__ == "triton":
            module.runtime = importlib.import_module("triton.runtime")  # type: ignore[attr-defined]
        for fill in self.fill:
            fill(module)


def install(packages: Sequence[str]) -> None:
    """Install stand-ins for those of `packages` that are not installed."""
    FINDER.packages |= {name for name in packages if importlib.util.find_spec(name) is None}
    if FINDER not in sys.meta_path:
        sys.meta_path.append(FINDER)


def import_standing_in(module: str, most: int = 20) -> None:
    """Import a module, with stand-ins for up to `most` required packages that are not installed.

    Only packages whose absence ends the import are replaced. Raises other import errors.
    """
    own = module.partition(".")[0]
    for _ in range(most):
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            name = (error.name or "").partition(".")[0]
            if not name or name == own or name in FINDER.packages:
                raise
            if importlib.util.find_spec(name) is not None:  # a missing part of an installed package
                raise
            install([name])
            for known in [loaded for loaded in sys.modules if loaded.partition(".")[0] == own]:
                del sys.modules[known]  # remove the partial import
        else:
            return
    importlib.import_module(module)


FINDER = Finder(())
