"""Stand-in for torch that computes nothing: the parts that validation queries.

A judge without torch imports its release with this module. Types are classes, data types have names
and sizes, there is no device, and operators exist once registered. Every other name is a stand-in
(stubs.py). Names that torch's CPU build lacks (`torch.npu`, `torch.version.musa`) are absent. Facts
are those of the CPU engine's torch 2.13.0+cpu, as campaigns/judge_equal.py verifies.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable
from typing import Any

from .stubs import StandInMeta, Thing


class Namespace:
    """`torch.ops.NAME`, with only registered operators."""

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
    """`torch.ops`, with every namespace."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = Namespace(name)
        setattr(self, name, found)
        return found

    def load_library(self, path: Any) -> None:
        raise OSError(f"Could not load this library: {path}")


def register(name: str) -> None:
    """Register an operator (`space::name(Tensor x) -> …`) in `torch.ops`."""
    space, _, rest = name.partition("::")
    plain = rest.partition("(")[0].partition(".")[0].strip()
    if plain:
        setattr(getattr(sys.modules["torch"].ops, space), plain, Thing())  # type: ignore[attr-defined]


class Library:
    """`torch.library.Library`, which registers operators."""

    def __init__(self, ns: str, kind: str = "FRAGMENT", *_: Any) -> None:
        self.ns, self.kind, self.m = ns, kind, object()

    def define(self, schema: str, *_: Any, **__: Any) -> str:
        register(f"{self.ns}::{schema}")
        return schema.partition("(")[0]

    def impl(self, *_: Any, **__: Any) -> None:
        """Ignore the implementation."""

    fallback = _register_fake = impl


def custom_op(name: str, fn: Any = None, /, **_: Any) -> Any:
    """Register an operator; return it or, without `fn`, a decorator (`torch.library.custom_op`)."""
    register(name)
    return Operator(fn) if fn is not None else Operator


class Operator:
    """Custom operator made from a function; a call runs the function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__name__ = getattr(function, "__name__", "operator")
        self.__doc__ = function.__doc__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Thing()

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._function(*args, **named)


def infer_schema(*_: Any, **__: Any) -> str:
    """Return a placeholder schema; nothing reads it."""
    return "() -> ()"


def define(name: str, *_: Any, **__: Any) -> Any:
    """Register an operator, as `torch.library.define` does; return a stand-in."""
    register(name)
    return Thing()


VERSION = "2.13.0+cpu"
ABSENT = {
    "torch": frozenset(
        {"npu", "hpu", "musa", "neuron", "tpu", "mlu", "privateuseone", "maca", "gcu", "sdaa"}
    ),
    "torch.version": frozenset({"musa", "cann", "hpu", "npu"}),
    "torch.backends": frozenset({"mudnn"}),
    "torch.mps": frozenset({"clear_graph_cache"}),
}
"""Names that releases look up, but a CPU build of torch lacks."""

SIZES = {
    "bool": 1,
    **dict.fromkeys(("uint8", "int8", "qint8", "quint8"), 1),
    **dict.fromkeys(("int16", "uint16"), 2),
    **dict.fromkeys(("int32", "uint32", "qint32"), 4),
    **dict.fromkeys(("int64", "uint64"), 8),
    **dict.fromkeys(("float16", "bfloat16"), 2),
    "float32": 4,
    "float64": 8,
    "complex32": 4,
    "complex64": 8,
    "complex128": 16,
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"), 1),
    **dict.fromkeys(("float8_e8m0fnu", "float4_e2m1fn_x2", "quint4x2", "quint2x4"), 1),
    **dict.fromkeys((f"{kind}int{bits}" for kind in ("", "u") for bits in range(1, 8)), 1),
    **{"bits8": 1, "bits16": 2, "bits1x8": 1, "bits2x4": 1, "bits4x2": 1},
}
"""Bytes per element, by data type."""
ALIASES = {
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "chalf": "complex32",
    "cfloat": "complex64",
    "cdouble": "complex128",
}
LARGEST = {
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float32": 3.4028234663852886e38,
    "float64": sys.float_info.max,
    "float8_e4m3fn": 448.0,
    "float8_e4m3fnuz": 240.0,
    "float8_e5m2": 57344.0,
    "float8_e5m2fnuz": 57344.0,
    "float8_e8m0fnu": 1.7014118346046923e38,
}
"""`torch.finfo(…).max`, by data type."""
TINY = {"float16": 2.0**-14, "bfloat16": 2.0**-126, "float32": 2.0**-126, "float64": 2.0**-1022}
EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}


class dtype:
    """Data type, with one object per name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.itemsize = SIZES[name]
        self.is_floating_point = name.startswith(("float", "bfloat"))
        self.is_complex = name.startswith("complex")
        self.is_signed = not name.startswith(("uint", "bool", "quint", "bits"))

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str | tuple[Any, ...]:
        return getattr, (sys.modules["torch"], self.name)

    def __copy__(self) -> dtype:
        return self

    def __deepcopy__(self, _: Any) -> dtype:
        return self


DTYPES = {name: dtype(name) for name in SIZES}
DTYPES |= {alias: DTYPES[name] for alias, name in ALIASES.items()}


class finfo:
    """Limits of a floating-point type."""

    def __init__(self, kind: Any = None) -> None:
        name = (kind or DTYPES["float32"]).name
        if name not in LARGEST:
            raise TypeError(f"torch.finfo() requires a floating point input type, not {name}")
        self.dtype, self.bits, self.max = name, 8 * SIZES[name], LARGEST[name]
        self.min = -self.max
        self.tiny = self.smallest_normal = TINY.get(name, 2.0**-6)
        self.eps = self.resolution = EPSILON.get(name, 0.125)


class iinfo:
    """Limits of an integer type."""

    def __init__(self, kind: Any) -> None:
        self.dtype, self.bits = kind.name, 8 * kind.itemsize
        self.max = 2 ** (self.bits - kind.is_signed) - 1
        self.min = -(self.max + 1) if kind.is_signed else 0


class device:
    """Device, as in `torch.device("cuda:1")`."""

    def __init__(self, type: Any = "cpu", index: int | None = None) -> None:  # noqa: A002
        text = f"cuda:{type}" if isinstance(type, int) else str(type)
        self.type, _, number = text.partition(":")
        self.index = int(number) if number else index

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        inner = f"type='{self.type}'" + (f", index={self.index}" if self.index is not None else "")
        return f"device({inner})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __enter__(self) -> device:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class TorchSize(tuple):  # type: ignore[type-arg]
    """Shape of a tensor."""

    def numel(self) -> int:
        total = 1
        for size in self:
            total *= size
        return total


class TorchVersion(str):
    """`torch.__version__`, which compares as a version, even with strings and tuples."""

    def _order(self, other: Any) -> tuple[Any, Any]:
        version = importlib.import_module("packaging.version").Version
        if isinstance(other, (tuple, list)):
            other = ".".join(map(str, other))
        return version(str.__str__(self)), version(str(other))

    def __lt__(self, other: Any) -> bool:
        mine, theirs = self._order(other)
        return bool(mine < theirs)

    def __le__(self, other: Any) -> bool:
        mine, theirs = self._order(other)
        return bool(mine <= theirs)

    def __gt__(self, other: Any) -> bool:
        return not self <= other

    def __ge__(self, other: Any) -> bool:
        return not self < other


class Base:
    """Base of stand-in classes. An object accepts any arguments and has every attribute."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __init_subclass__(cls, **_: Any) -> None:
        super().__init_subclass__()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Thing()


def base(name: str, module: str = "torch", *parents: type) -> type:
    """Return a stand-in for the torch class `name`."""
    return StandInMeta(name, parents or (Base,), {"__module__": module})


def false(*_: Any, **__: Any) -> bool:
    """Return False, as torch does without a device."""
    return False


def true(*_: Any, **__: Any) -> bool:
    """Return True, as torch does for features of its build."""
    return True


def zero(*_: Any, **__: Any) -> int:
    """Return 0, the number of devices."""
    return 0


def return_1(*_: Any, **__: Any) -> int:
    """Return 1, the number of threads."""
    return 1


def no_driver(*_: Any, **__: Any) -> Any:
    """Raise torch's error for access to a device."""
    raise AssertionError("Torch not compiled with CUDA enabled")


def nothing(*_: Any, **__: Any) -> None:
    """Do nothing, for functions of torch that validation does not need."""


Tensor = base("Tensor")
Module = base("Module", "torch.nn")

PARTS: dict[str, dict[str, Any]] = {
    "torch": {
        **DTYPES,
        "dtype": dtype,
        "finfo": finfo,
        "iinfo": iinfo,
        "device": device,
        "Size": TorchSize,
        "Tensor": Tensor,
        "Generator": base("Generator"),
        "__version__": TorchVersion(VERSION),
        "is_tensor": lambda value: isinstance(value, Tensor),
        "is_grad_enabled": true,
        "get_num_threads": return_1,
        "set_num_threads": nothing,
        "manual_seed": nothing,
        "inf": float("inf"),
        "nan": float("nan"),
        "pi": 3.141592653589793,
        "SymInt": base("SymInt"),
        "SymFloat": base("SymFloat"),
        "SymBool": base("SymBool"),
        **{f"{kind}Tensor": base(f"{kind}Tensor", "torch", Tensor) for kind in ("Float", "Long")},
        "OutOfMemoryError": type("OutOfMemoryError", (RuntimeError,), {"__module__": "torch"}),
        "get_default_dtype": lambda: DTYPES["float32"],
    },
    "torch.version": {
        "__version__": VERSION,
        "cuda": None,
        "hip": None,
        "rocm": None,
        "xpu": None,
        "debug": False,
        "git_version": "",
    },
    "torch.nn": {
        "Module": Module,
        "Parameter": base("Parameter", "torch.nn", Tensor),
        "ModuleList": base("ModuleList", "torch.nn", Module),
        "ModuleDict": base("ModuleDict", "torch.nn", Module),
        "Sequential": base("Sequential", "torch.nn", Module),
        "Linear": base("Linear", "torch.nn", Module),
        "Embedding": base("Embedding", "torch.nn", Module),
        "LayerNorm": base("LayerNorm", "torch.nn", Module),
    },
    "torch.cuda": {
        "is_available": false,
        "is_initialized": false,
        "device_count": zero,
        "_is_compiled": false,
        "get_device_capability": no_driver,
        "get_device_name": no_driver,
        "get_device_properties": no_driver,
        "current_device": no_driver,
        "mem_get_info": no_driver,
        "synchronize": nothing,
        "OutOfMemoryError": None,
    },
    "torch.xpu": {"is_available": false, "device_count": zero},
    "torch.mps": {"is_available": false, "device_count": zero},
    "torch.mtia": {"is_available": false, "device_count": zero},
    "torch.accelerator": {"is_available": false, "device_count": zero},
    "torch.cpu": {"is_available": true, "device_count": return_1},
    "torch.backends.mps": {"is_available": false, "is_built": false},
    "torch.backends.cuda": {"is_built": false},
    "torch.backends.cudnn": {"is_available": false, "version": nothing},
    "torch.distributed": {"is_available": true, "is_initialized": false},
    "torch.library": {
        "Library": Library,
        "custom_op": custom_op,
        "define": define,
        "infer_schema": infer_schema,
    },
    "torch.compiler": {"is_compiling": false, "is_dynamo_compiling": false},
    "torch._dynamo": {"is_compiling": false},
    "torch.jit": {"is_scripting": false, "is_tracing": false},
}
"""Attributes that need real values, by torch module."""


def fill(module: types.ModuleType) -> None:
    """Set the attributes in `PARTS` on a stand-in for one of torch's modules."""
    for name, value in PARTS.get(module.__name__, {}).items():
        setattr(module, name, value)
    if module.__name__ == "torch":
        module.ops = Operators("torch.ops")  # type: ignore[attr-defined]
        sys.modules["torch.ops"] = module.ops  # type: ignore[attr-defined]
        for part in ("version", "nn", "cuda", "backends", "distributed", "library", "utils"):
            importlib.import_module(f"torch.{part}")
    elif module.__name__ == "torch.cuda":
        module.OutOfMemoryError = PARTS["torch"]["OutOfMemoryError"]  # type: ignore[attr-defined]
