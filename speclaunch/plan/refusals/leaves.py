"""What the leaves of the engine's conditions stand for in a plan; UNKNOWN where nobody knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from speclaunch.engine.catalogue import FALSE_TEXTS, TRUE_TEXTS
from speclaunch.facts.hardware import Hardware, Vendor
from speclaunch.facts.unknown import UnknownValueError
from speclaunch.plan.plan import Plan
from speclaunch.plan.settings import NoSuchArgumentError
from speclaunch.plan.topics.quantization import method_of
from speclaunch.plan.topics.target import architecture_of, target_of
from speclaunch.reads.safe_json import mapping

_OTHER_MACHINES: Final = ("is_npu", "is_xpu", "is_hpu", "is_musa", "is_mps")
_NUMBERS: Final[Mapping[str, Callable[[int], int]]] = MappingProxyType(
    {
        "device_sm": lambda capability: capability,
        "device_major": lambda capability: capability // 10,
        "device_minor": lambda capability: capability % 10,
    }
)
_MAJORS: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {
        "is_sm90": (9,),
        "is_sm100": (10,),
        "is_sm110": (11,),
        "is_sm120": (12,),
        "is_sm100_or_sm110": (10, 11),
        "is_blackwell": (10, 11, 12),
    }
)


class Unknown:
    """The type of UNKNOWN."""

    __slots__ = ()


UNKNOWN: Final = Unknown()

_ABSENT_IS_NONE = frozenset({"quantization_config", "index_topk"})
"""Keys that no class of configs has a value of its own for (facts.py of the reader)."""


def leaf(plan: Plan, node: Sequence[Any]) -> Any:
    """The value of a leaf."""
    try:
        return _LEAVES[node[0]](plan, *node[1:])
    except (UnknownValueError, NoSuchArgumentError):
        return UNKNOWN


def _argument(plan: Plan, name: str) -> Any:
    value = plan.given(name) if plan.is_given(name) else plan.default(name)
    return list(value) if isinstance(value, tuple) else value


def _variable(plan: Plan, name: str, kind: str, default: Any) -> Any:
    """As `environ.py` of the engine reads one: what it can't parse is its default."""
    text = plan.env(name)
    if text is None or kind == "raw":
        return text if kind == "raw" else default
    if kind == "bool":
        lowered = text.lower()
        return True if lowered in TRUE_TEXTS else False if lowered in FALSE_TEXTS else default
    try:
        return {"int": int, "float": float, "str": str}[kind](text)
    except ValueError:
        return default


def _architectures(plan: Plan, draft: str = "") -> Any:
    """Of a draft that was not found and has no Gemma in its name: none that the engine asks for."""
    if draft:
        if plan.facts.draft is not None:
            return list(plan.facts.draft.architectures) or UNKNOWN
        named = str(plan.given("speculative_draft_model_path") or "").lower()
        return UNKNOWN if "gemma" in named else []
    first = architecture_of(plan)
    target = plan.facts.target
    return [first, *target.architectures[1:]] if target is not None else UNKNOWN


def _config_key(plan: Plan, name: str, part: str = "") -> Any:
    target = plan.facts.target
    if target is None:
        return UNKNOWN
    held: Any = target.raw.get("text_config", target.raw) if part else target.raw
    if isinstance(held, Mapping) and name in held:
        found = held[name]
        return _told_apart(plan, found) if name == "quantization_config" else found
    return None if name in _ABSENT_IS_NONE and target.raw else UNKNOWN


def _told_apart(plan: Plan, said: Any) -> Any:
    """ModelOpt's entry once `ModelConfig` has read it: its method is written into it."""
    since = ">=0.5.9" if "quant_method" not in mapping(said) else ">=0.5.10"
    if mapping(said).get("quant_method") not in (None, "modelopt") or not plan.in_versions(since):
        return said
    return {**mapping(said), "quant_method": method_of(plan).made}


def _worked_out(plan: Plan, name: str) -> Any:
    """What `ModelConfig` makes of the arguments and the checkpoint."""
    if name == "nvfp4_moe_meta":  # 0.5.23 configs/model_config.py:775
        held = mapping(target_of(plan).raw.get("quantization_config"))
        return UNKNOWN if "moe_quant_algo" in held else None
    found = method_of(plan)
    return UNKNOWN if found.contradicted else found.used


def _platform(hardware: Hardware | None, fact: str) -> Any:
    """A fact of the machine, as the engine's functions tell it (sglang/srt/utils/common.py)."""
    if hardware is None:
        return UNKNOWN
    vendor, capability = hardware.vendor, hardware.capability
    plain = {
        "is_cuda": vendor is Vendor.NVIDIA,
        "is_hip": vendor is Vendor.AMD,
        "is_cpu": vendor is Vendor.CPU,
        "is_cuda_alike": vendor is not Vendor.CPU,
        "device": hardware.device,
        "memory_mib": (vendor is not Vendor.CPU and hardware.memory_mib) or UNKNOWN,
        **dict.fromkeys(_OTHER_MACHINES, False),
    }
    if fact in plain:
        return plain[fact]
    if vendor is not Vendor.NVIDIA:
        return UNKNOWN if fact in _NUMBERS else False
    if capability is None:
        return UNKNOWN
    if fact in _NUMBERS:
        return _NUMBERS[fact](capability)
    return capability // 10 in _MAJORS[fact] if fact in _MAJORS else UNKNOWN


_LEAVES: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {
        "k": lambda _plan, value: value,
        "u": lambda _plan, _why="": UNKNOWN,
        "f": _argument,
        "e": _variable,
        "p": lambda plan, fact: _platform(plan.facts.hardware, fact),
        "a": _architectures,
        "h": _config_key,
        "q": _worked_out,
    }
)
