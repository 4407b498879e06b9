"""Which quantisation a checkpoint says of itself, as the newest engine names it.

`_parse_quant_hf_config` and `_parse_modelopt_quant_config` in srt/configs/model_config.py
(0.5.23); the methods of NVIDIA's ModelOpt are all `modelopt` up to 0.5.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speclaunch.reads.safe_json import UnreadableFileError, is_file, mapping, read_object, text

FILE = "hf_quant_config.json"
"""Where ModelOpt writes it, next to a config.json that says nothing."""


def quantization(*configs: Mapping[str, Any]) -> str | None:
    """The method that the first of the configs says: `quant_method`, or by ModelOpt's algorithm."""
    for config in configs:
        for key in ("quantization_config", "compression_config"):
            found = mapping(config.get(key))
            method = (text(found.get("quant_method")) or "").lower()
            if method in ("", "modelopt"):
                method = _modelopt(found) or method
            if method:
                return method
    return None


def quantization_config(*configs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The object that the method stands in; empty where there is none."""
    for config in configs:
        for key in ("quantization_config", "compression_config"):
            found = mapping(config.get(key))
            if found:
                return found
    return {}


def quantization_config_beside(directory: Path) -> Mapping[str, Any]:
    """The object in the file of ModelOpt; empty where there is none."""
    return quantization_config_in(_beside(directory))


def quantization_beside(directory: Path) -> str | None:
    """The method that the file of ModelOpt says."""
    return quantization_in(_beside(directory))


def quantization_config_in(file: Mapping[str, Any]) -> Mapping[str, Any]:
    """The object in what the file of ModelOpt contains; empty where there is none."""
    return mapping(file.get("quantization")) or file


def quantization_in(file: Mapping[str, Any]) -> str | None:
    """The method in what the file of ModelOpt contains."""
    return _modelopt(file)


def _beside(directory: Path) -> Mapping[str, Any]:
    if not is_file(directory / FILE):
        return {}
    try:
        return read_object(directory / FILE)
    except UnreadableFileError:
        return {}


def _modelopt(found: Mapping[str, Any]) -> str | None:
    outer = mapping(found.get("quantization")) or found
    inner = mapping(outer.get("quantization")) or outer
    algorithm = text(inner.get("quant_algo"))
    if algorithm is None:
        return None
    if algorithm == "MIXED_PRECISION":
        layers = mapping(inner.get("quantized_layers")).values()
        said = {(text(mapping(layer).get("quant_algo")) or "").upper() for layer in layers}
        return "modelopt_mixed" if said & {"NVFP4", "W4A16_NVFP4"} else "w4afp8"
    if "FP4" in algorithm:
        return "modelopt_fp4"
    return {"FP8": "modelopt_fp8", "MXFP8": "mxfp8"}.get(algorithm, "modelopt")
