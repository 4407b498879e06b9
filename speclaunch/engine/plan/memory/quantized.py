"""Storage sizes of quantized weights, and the modules that a quantization method skips.

Follows srt/layers/quantization of 0.5.23.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import translate
from functools import lru_cache
from typing import Any

from msgspec import Struct, field

from speclaunch.core import lazy, mapping, size, sizes
from speclaunch.engine.facts.facts import Checkpoint
from speclaunch.engine.plan.memory.matrices import Matrix
from speclaunch.engine.plan.plan import UnknownValueError

_WRAPPERS = lazy(
    r"^(?:model\.)?(?:language_model|text_model|llm)\.(?:model\.)?(?=layers\.|embed_tokens)"
)
_MOST_PATTERNS = 200
_MOST_REPEATS = 3
_REPEATED_GROUP = lazy(r"\)[*+{]")
"""Matches a repeated group. A pattern with such a group is rejected, because testing a name could
take forever."""


class ExcludedModules(Struct, frozen=True):
    """Modules that are not quantized: names, parts of names, and patterns (`re:…`, `*`).

    Excluding a module also excludes the modules within it.
    """

    names: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()

    @classmethod
    def of(cls, names: Iterable[str]) -> ExcludedModules:
        """Return the exclusions of module names and patterns. Raises UnknownValueError."""
        plain, patterns = set(), []
        for name in names:
            if name.startswith("re:"):
                patterns.append(_harmless(name[3:]))
            elif "*" in name:
                patterns.append(translate(cls.plain(name)).removesuffix(r"\Z") + r"(?:\..*)?\Z")
            else:
                plain.add(cls.plain(name))
        unique = tuple(dict.fromkeys(patterns))
        if len(unique) > _MOST_PATTERNS:
            raise UnknownValueError(f"more than {_MOST_PATTERNS} module patterns are not supported")
        return cls(frozenset(plain), unique)

    @staticmethod
    def plain(name: str) -> str:
        """Return a module's name without the prefixes of multimodal checkpoints."""
        return _WRAPPERS.sub("model.", name).removeprefix("language_model.")

    def and_these(self, names: Iterable[str]) -> ExcludedModules:
        return ExcludedModules(self.names | frozenset(names), self.patterns)

    def __contains__(self, name: object) -> bool:
        return _is_within(self.names, self.patterns, str(name))


def _harmless(pattern: str) -> str:
    repeats = len(re.findall(r"(?<!\\)[*+{]", pattern))
    if repeats > _MOST_REPEATS or _REPEATED_GROUP.search(pattern):
        raise UnknownValueError(f"the module pattern {pattern[:60]!r} is not supported")
    return pattern


_FEW = 16
"""Maximum number of names for which testing each name is faster than looking up all dotted parts of
a module's name."""


@lru_cache(maxsize=1 << 14)
def _is_within(names: frozenset[str], patterns: tuple[str, ...], name: str) -> bool:
    dotted = f".{name}."
    if (
        any(f".{module}." in dotted for module in names)
        if len(names) <= _FEW
        else _named(names, name)
    ):
        return True
    return any(pattern.match(name) for pattern in _compiled(patterns))


def _named(names: frozenset[str], name: str) -> bool:
    parts = name.split(".")
    count = len(parts)
    return any(
        ".".join(parts[start:end]) in names
        for start in range(count)
        for end in range(start + 1, count + 1)
    )


@lru_cache(maxsize=64)
def _compiled(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    found = []
    for pattern in patterns:
        try:
            found.append(re.compile(pattern))
        except (re.error, RecursionError, OverflowError):
            continue  # the engine would also reject it
    return tuple(found)


_FLOAT32 = 4
_POINTS = "W4A16"


class Scheme(Struct, frozen=True):
    """Storage format of a weight's elements.

    - `bits`: bits per element. `group`: elements of a row that share a scale of `scale` bytes.
    - `zeros`: True if each group also has a zero point of `bits` bits. `order`: True if each column
      has a 4-byte index (GPTQ).
    - `block`: rows and columns of the blocks that have a 4-byte scale.
    - `row`: additional bytes per row. `once`: additional bytes per matrix.
    """

    bits: float
    group: int = 0
    scale: int = 0
    zeros: bool = False
    order: bool = False
    block: tuple[int, int] | None = None
    row: int = 0
    once: int = 0

    def bytes(self, rows: int, columns: int) -> float:
        found = rows * columns * self.bits / 8 + rows * self.row + self.once
        if self.group:
            groups = rows * -(-columns // self.group)
            found += groups * (self.scale + (self.bits / 8 if self.zeros else 0))
        if self.order:
            found += columns * _FLOAT32
        if self.block is not None:
            down, across = self.block
            found += -(-rows // down) * -(-columns // across) * _FLOAT32
        return found


FP8 = Scheme(8, once=8)
"""8-bit storage with one scale for the weight and one for its inputs."""
FP8_ROWS = Scheme(8, row=_FLOAT32)
NVFP4 = Scheme(4, group=16, scale=1, once=8)
NVFP4_WEIGHTS = Scheme(4, group=16, scale=1, once=4)
MXFP4 = Scheme(4, group=32, scale=1)
MXFP8 = Scheme(8, group=32, scale=1)


class Quantised(Struct, frozen=True):
    """The quantization of a checkpoint's weights.

    `scheme` applies to all linear weights that are not in `excluded`. If `layers` is set, it alone
    determines the scheme of each weight (mixed precision).
    """

    scheme: Scheme | None = None
    excluded: ExcludedModules = field(default_factory=ExcludedModules)
    layers: Mapping[str, Scheme] | None = None
    experts_only: bool = False

    def scheme_of(self, matrix: Matrix) -> Scheme | None:
        """Return the storage scheme of a weight; None if it is stored in the model's dtype."""
        if self.layers is not None:
            return self._listed(matrix.name)
        if not matrix.linear or self.scheme is None:
            return None
        if self.experts_only and ".experts." not in matrix.name:
            return None
        return None if matrix.name in self.excluded else self.scheme

    def _listed(self, name: str) -> Scheme | None:
        layers = self.layers or {}
        while name:
            if name in layers:
                return layers[name]
            name = name.rpartition(".")[0]
        return None


NOT_QUANTISED = Quantised()
_HEAD = ("lm_head",)


def quantised(checkpoint: Checkpoint) -> Quantised:
    """Return the quantization that the checkpoint's config states. Raises UnknownValueError for an
    unknown method."""
    method = checkpoint.quantization
    config = checkpoint.quantization_config
    if method is None:
        return NOT_QUANTISED
    method = method.replace("_", "-")
    if method in ("modelopt-mixed", "w4afp8") and config.get("quantized_layers"):
        return Quantised(layers=_by_layer(mapping(config.get("quantized_layers"))))
    excluded = ExcludedModules.of(_exclusions(config))
    known = {
        "fp8": lambda: _fp8(config),
        "modelopt-fp8": lambda: FP8,
        "modelopt-fp4": lambda: NVFP4,
        "nvfp4": lambda: NVFP4,
        "mxfp8": lambda: MXFP8,
        "awq": lambda: _groups(config, zeros=True),
        "awq-marlin": lambda: _groups(config, zeros=True),
        "gptq": lambda: _groups(config, zeros=True, order=True),
        "gptq-marlin": lambda: _groups(config, zeros=True, order=True),
        "compressed-tensors": lambda: _compressed(config),
        "mxfp4": lambda: MXFP4,
    }.get(method)
    if known is None:
        raise UnknownValueError(f"the weight storage of {checkpoint.quantization} is unknown")
    if method not in ("modelopt-fp4", "modelopt-fp8", "compressed-tensors"):
        excluded = excluded.and_these(_HEAD)
    return Quantised(known(), excluded, experts_only=method == "mxfp4")


def online(method: object) -> Quantised:
    """Return the quantization that `--quantization METHOD` applies to unquantized weights. Raises
    UnknownValueError."""
    schemes = {"fp8": FP8_ROWS, "mxfp8": MXFP8}
    found = schemes.get(str(method))
    if found is None:
        raise UnknownValueError(f"the weight storage of `quantization` {method} is unknown")
    return Quantised(found, ExcludedModules().and_these(_HEAD))


def _exclusions(config: Mapping[str, Any]) -> list[str]:
    keys = ("ignore", "modules_to_not_convert", "ignored_layers", "exclude_modules")
    found: list[str] = []
    for key in keys:
        value = config.get(key)
        if isinstance(value, list):
            found += [name for name in value if isinstance(name, str)]
    return found


def _fp8(config: Mapping[str, Any]) -> Scheme:
    block = sizes(config.get("weight_block_size"))
    if len(block) == 2 and min(block) > 0:
        return Scheme(8, block=(block[0], block[1]))
    return FP8


def _groups(config: Mapping[str, Any], *, zeros: bool, order: bool = False) -> Scheme:
    bits = size(config.get("bits")) or size(config.get("w_bit")) or 4
    group = size(config.get("group_size")) or size(config.get("q_group_size"))
    if group is None:  # -1: one scale a row
        return Scheme(bits, row=2, order=order)
    return Scheme(bits, group=group, scale=2, zeros=zeros, order=order)


def _compressed(config: Mapping[str, Any]) -> Scheme:
    """Return the scheme of the first group in `config_groups`; published checkpoints have only
    one."""
    groups = mapping(config.get("config_groups")).values()
    weights = next((mapping(mapping(group).get("weights")) for group in groups), {})
    bits = size(weights.get("num_bits"))
    if bits is None:
        raise UnknownValueError("the bit width of the compressed weights is unknown")
    group, kind = size(weights.get("group_size")), weights.get("type")
    name = str(config.get("format") or "")
    if kind == "float" and bits == 4:
        return MXFP4 if "mxfp4" in name else NVFP4
    if bits == 8 and weights.get("strategy") == "block":
        block = sizes(weights.get("block_structure"))
        is_valid = len(block) == 2 and min(block) > 0
        return Scheme(8, block=(block[0], block[1])) if is_valid else Scheme(8)
    if group is not None:
        return Scheme(bits, group=group, scale=2, once=16)
    return Scheme(bits, row=2) if weights.get("strategy") == "channel" else Scheme(bits, once=4)


def _by_layer(layers: Mapping[str, Any]) -> dict[str, Scheme]:
    """Return the scheme of each layer in `quantized_layers` (ModelOpt's mixed precision)."""
    found: dict[str, Scheme] = {}
    for name, entry in layers.items():
        algorithm = str(mapping(entry).get("quant_algo") or "").upper()
        group = size(mapping(entry).get("group_size"))
        if "FP4" in algorithm:
            scheme = NVFP4_WEIGHTS if _POINTS in algorithm else NVFP4
        elif algorithm == "FP8_PB_WO" or (algorithm == "FP8" and group):
            scheme = Scheme(8, block=(group or 128, group or 128))
        elif algorithm == "FP8":
            scheme = FP8
        else:
            raise UnknownValueError(f"the weight storage of {algorithm} is unknown")
        found[ExcludedModules.plain(name)] = scheme
    return found
