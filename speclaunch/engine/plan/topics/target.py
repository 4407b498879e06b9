"""The target: the architecture that the engine dispatches on, data type, quantization and LoRA."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from speclaunch.core import mapping, text
from speclaunch.engine.facts.facts import UNKNOWN_HARDWARE, Checkpoint
from speclaunch.engine.facts.hardware import Vendor
from speclaunch.engine.plan.settings import Settings, UnknownValueError

UNKNOWN_TARGET = "the target checkpoint is unknown"
_FAMILY = 4
"""Length of the prefix that an architecture's name shares with checkpoint names: MiMo, Step."""


def target_of(settings: Settings) -> Checkpoint:
    """Return the target checkpoint. Raises UnknownValueError."""
    target = settings.facts.target
    if target is None:
        raise UnknownValueError(UNKNOWN_TARGET)
    return target


def architecture_of(settings: Settings) -> str:
    """Return the target architecture that the engine dispatches on. Raises UnknownValueError."""
    found = target_of(settings).architecture
    if found is None:
        raise UnknownValueError("the architecture of the target is unknown")
    if found == "DeepseekV32ForCausalLM" and settings.in_versions("<0.5.12"):
        return "DeepseekV3ForCausalLM"  # 0.5.3 hf_transformers_utils.py:146 loads it as this
    if found == "Olmo3ForCausalLM":
        return "Olmo2ForCausalLM"  # one class for both (0.5.4 and 0.5.23 configs/olmo3.py:59)
    return found


def halved(checkpoint: Checkpoint) -> str:
    """Return the dtype in which `dtype: auto` serves float32 weights: bfloat16 for Gemma, else
    float16.

    Also applies to a config without a dtype (`_get_and_verify_dtype`, 0.5.23
    configs/model_config.py:2284, 0.4.6 :455).
    """
    return "bfloat16" if (checkpoint.model_type or "").startswith("gemma") else "float16"


def may_be(settings: Settings, architectures: Iterable[str]) -> bool:
    """True if the target may have one of these `architectures`, which must be rare.

    If only the name or path of the checkpoint is known, it must contain the family's name:
    `MiMoV2ForCausalLM` may be `XiaomiMiMo/MiMo-V2-Flash`. Without this check, an unknown
    config would make almost every fact unknown.
    """
    if settings.facts.target is not None:
        return True
    name = str(settings.user_value("model_path") or "").lower()
    return any(architecture[:_FAMILY].lower() in name for architecture in architectures)


def has_architecture(settings: Settings, architectures: Iterable[str]) -> bool:
    """True if the target has one of these rare architectures.

    Raises UnknownValueError if it may have such an architecture, but its config is unknown.
    """
    rare = tuple(architectures)
    return bool(rare) and may_be(settings, rare) and architecture_of(settings) in rare


NAME = "quantization"
"""Argument of the quantization method, which also depends on the release and the checkpoint.

Sources: `_verify_quantization`, `_parse_quant_hf_config` and `_parse_modelopt_quant_config` (0.5.23
configs/model_config.py:2000, :1727, :1838; 0.5.8 :757, :584, :680), the methods' own
`override_quantization_method` (0.5.23 layers/quantization/base_config.py:223, awq/awq.py:333,
gptq/gptq.py:414, humming.py:503, moe_wna16.py:164, modelopt_quant.py:830), and the registered
methods (0.5.23 layers/quantization/__init__.py:63)."""
NONE = "unquant"
"""The `quantization` value that means no quantization."""

_REGISTERED: Mapping[str, str] = {
    **dict.fromkeys(("blockwise_int8", "compressed-tensors", "fp8", "modelopt_fp4"), ""),
    **dict.fromkeys(("moe_wna16", "w8a8_fp8", "w8a8_int8"), ""),
    **dict.fromkeys(("awq", "awq_marlin", "gptq_marlin"), ""),
    "gptq": "<0.5.20",
    "fbgemm_fp8": "<0.5.16",
    "qoq": "<0.5.16",
    "modelopt": "!=0.5.3.post3",
    "modelopt_fp8": ">=0.5.3",
    **dict.fromkeys(("petit_nvfp4", "w4afp8"), ">=0.4.9"),
    **dict.fromkeys(("quark", "mxfp4"), ">=0.5.1"),
    **dict.fromkeys(("auto-round", "gguf"), ">=0.5.4"),
    **dict.fromkeys(("bitsandbytes", "modelslim", "quark_int4fp8_moe"), ">=0.5.8"),
    "mxfp8": ">=0.5.9",
    "modelopt_mixed": ">=0.5.10",
    "quark_mxfp4": ">=0.5.13",
    "nvfp4_online": ">=0.5.14",
    **dict.fromkeys(("auto-round-int8", "mxfp_w4a8"), ">=0.5.15"),
    "humming": ">=0.5.16",
    "minimax_m3_nvfp4": ">=0.5.23",
}
"""Quantization methods that the engine registers on GPUs, with the releases that do so."""
_NO_LONGER = ("fbgemm_fp8", "qoq", "marlin")
"""Removed quantization methods that no platform registers any more."""
_VLLM_REGISTERS = "<0.5.4"
"""Releases that also register vLLM's quantization methods if vLLM is installed."""
_ON_ROCM: Mapping[str, str] = {
    **dict.fromkeys(("awq", "fp8", "compressed-tensors", "compressed_tensors", "w8a8_fp8"), ""),
    "gptq": "<0.5.20",
    "fbgemm_fp8": "<0.5.16",
    "petit_nvfp4": ">=0.4.9",
    **dict.fromkeys(("quark", "mxfp4"), ">=0.5.1"),
    "auto-round": ">=0.5.4",
    "quark_int4fp8_moe": ">=0.5.8",
    "quark_mxfp4": ">=0.5.13",
    "mxfp8": ">=0.5.14",
    "auto-round-int8": ">=0.5.15",
}
_PACKED = ("compressed-tensors", "compressed_tensors")
_COMPATIBLE: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("w8a8_fp8", _PACKED, ""),
    ("w8a8_int8", _PACKED, ""),
    ("auto-round-int8", _PACKED, ">=0.5.15"),
    ("modelopt_fp4", ("modelopt",), ""),
    ("modelopt_fp4", ("fp8",), ">=0.5.18"),
    ("petit_nvfp4", ("modelopt",), ">=0.4.9"),
    ("modelopt_fp8", ("modelopt",), ">=0.5.4"),
    ("modelopt_mixed", ("modelopt",), ">=0.5.10"),
    ("nvfp4_online", ("fp8",), ">=0.5.14"),
    ("nvfp4_online", ("modelopt_fp8",), ">=0.5.18"),
    ("minimax_m3_nvfp4", ("mxfp8",), ">=0.5.23"),
)
"""For each requested method: the checkpoint methods that it is compatible with, and the releases
that accept the combination."""
_ONLINE = (("quark_mxfp4", ">=0.5.17"),)
"""Methods that can requantize any checkpoint, with the releases that have them."""
_MODELOPT = ("modelopt_fp8", "modelopt_fp4")
_ANY = "modelopt"
"""Generic name for ModelOpt's methods, in a request or (up to 0.5.9) in a checkpoint."""
_PETIT = "petit_nvfp4"
"""The method that replaces `modelopt` on AMD GPUs (layers/quantization/petit.py)."""
_ALGORITHM = "the effect of ModelOpt's algorithm is unknown"
_READS_MODELOPT = ">=0.5.4"
"""Releases that detect ModelOpt checkpoints. In earlier releases ModelOpt's methods have
different names, and no checkpoint selects one."""


class Absence(StrEnum):
    """The reason why GPUs do not support a quantization method."""

    UNKNOWN = "unknown"
    ROCM = "rocm"


class QuantizationMethod(Struct, frozen=True):
    """The quantization method of the checkpoint, and the method that the release uses for it."""

    made: str | None
    """Method in the checkpoint's config; None if the config states none."""
    used: str | None
    """Method that serves the model; None for an unquantized model."""
    contradicted: bool = False
    """True if the release rejects `used` because of the checkpoint's method."""


def method_of(settings: Settings) -> QuantizationMethod:
    """Return the target's quantization method, as stored and as served. Raises
    UnknownValueError."""
    explicit = settings.user_value(NAME)
    requested = None if explicit is None else str(explicit).lower()
    if requested == NONE:
        requested = None
    made = _made(settings, target_of(settings), requested)
    if made == _ANY and requested == _ANY:
        raise UnknownValueError(_ALGORITHM)
    if made == _ANY and is_amd(settings):
        return QuantizationMethod(made, _PETIT)
    if requested is None:
        return QuantizationMethod(made, made)
    used = _used(settings, requested, made)
    return QuantizationMethod(made, used or requested, contradicted=used is None)


def absence(settings: Settings, used: str) -> Absence | None:
    """Return why GPUs do not support quantization method `used`; None if they do. Raises
    UnknownValueError."""
    versions = _REGISTERED.get(used)
    missing = versions is None or not settings.in_versions(versions)
    if missing and settings.in_versions(_VLLM_REGISTERS):
        return None
    if missing and used in _NO_LONGER:
        return Absence.UNKNOWN
    if settings.device != "cuda":
        return None
    if missing:
        return Absence.UNKNOWN
    if used in _ON_ROCM and settings.in_versions(_ON_ROCM[used]):
        return None
    return Absence.ROCM if is_amd(settings) else None


def is_amd(settings: Settings) -> bool:
    """True if the engine runs on ROCm. Raises UnknownValueError."""
    if settings.device != "cuda":
        return False
    if settings.facts.hardware is None:
        raise UnknownValueError(UNKNOWN_HARDWARE)
    return settings.facts.hardware.vendor is Vendor.AMD


def _made(settings: Settings, target: Checkpoint, requested: str | None) -> str | None:
    """Return the checkpoint's quantization method as this release reads it; None if unquantized."""
    config = target.raw.get("quantization_config")
    if config is None:
        config = target.raw.get("compression_config")
    inner = target.raw.get("text_config")
    if config is None and (target.architecture or "").startswith("Kimi"):
        config = mapping(inner).get("quantization_config")
    if config is None and target.quantization is None:
        return None
    if config is None and "quantization_config" in mapping(inner):
        raise UnknownValueError("the engine's use of text_config is unknown")
    if config is None:  # the file next to the config
        return _of_modelopt(settings, target, target.quantization_config)
    named = mapping(config).get("quant_method")
    if named is None and settings.in_versions("<0.5.9"):
        return requested or ""
    if named is None or (named == "modelopt" and settings.in_versions(">=0.5.10")):
        return _of_modelopt(settings, target, mapping(config))
    return (text(named) or "").lower()


def _of_modelopt(settings: Settings, target: Checkpoint, config: Mapping[str, Any]) -> str:
    """Return the quantization method of a ModelOpt checkpoint. Raises UnknownValueError for an
    unknown algorithm."""
    if settings.in_versions(f"<{_READS_MODELOPT.removeprefix('>=')}"):
        raise UnknownValueError("this release's use of ModelOpt's config is unknown")
    inner = mapping(config.get(NAME)) or config
    algorithm = text((mapping(inner.get(NAME)) or inner).get("quant_algo"))
    if algorithm == "MIXED_PRECISION":
        return _of_mixed(settings, target)
    if algorithm is None or "FP" not in algorithm:
        raise UnknownValueError(_ALGORITHM)
    if "FP4" in algorithm:
        return _MODELOPT[1]
    if algorithm == "MXFP8":
        return "mxfp8" if settings.in_versions(">=0.5.18") else _MODELOPT[0]
    if algorithm != "FP8":
        raise UnknownValueError(_ALGORITHM)
    return _MODELOPT[0]


def _of_mixed(settings: Settings, target: Checkpoint) -> str:
    if settings.in_versions(">=0.5.15"):
        return target.quantization or "w4afp8"
    names = target.architectures
    nemotron = target.model_type == "nemotron_h" or any(n.startswith("NemotronH") for n in names)
    return "modelopt_mixed" if nemotron and settings.in_versions(">=0.5.10") else "w4afp8"


def _used(settings: Settings, requested: str, made: str | None) -> str | None:
    """Return the method that the release uses; None if `requested` and `made` conflict."""
    online = any(requested == name and settings.in_versions(since) for name, since in _ONLINE)
    if made is None or requested == made or online:
        return requested
    if made in _MODELOPT and requested != "nvfp4_online":
        return made
    if made == "modelopt_mixed":
        return made
    if requested == _ANY and made in ("mxfp8", "w4afp8"):
        raise UnknownValueError(_ALGORITHM)
    if requested == "humming" and made != "mxfp4" and settings.in_versions(">=0.5.16"):
        return requested
    if _converted(settings, requested, made):
        return f"{made}_marlin" if requested == "marlin" else requested
    fits = (
        requested == method and made in others and settings.in_versions(versions)
        for method, others, versions in _COMPATIBLE
    )
    return requested if any(fits) else None


def _converted(settings: Settings, requested: str, made: str) -> bool:
    """True if the requested method is an alternative kernel for the checkpoint's weights."""
    if made not in ("awq", "gptq") or requested not in ("marlin", f"{made}_marlin", "moe_wna16"):
        return False
    if requested == "marlin" and made == "gptq" and settings.in_versions("<0.5.20"):
        raise UnknownValueError("the format of the weights (Marlin or not) is unknown")
    return not (made == "awq" and requested != "moe_wna16" and is_amd(settings))


LORA_SWITCH = "enable_lora"
LORA_PATHS = "lora_paths"


def serves_adapters(settings: Settings) -> bool:
    """True if adapters are served. Naming an adapter switches LoRA on (0.5.23
    arg_groups/lora_hook.py:41). Raises UnknownValueError."""
    return bool(settings.value(LORA_SWITCH) or settings.value(LORA_PATHS))
