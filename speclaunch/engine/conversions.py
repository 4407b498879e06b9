"""The conversion functions of the engine's parser, by the name that the catalogue gives each.

Sources: sglang/srt/utils/common.py, model_executor/cuda_graph_config.py and
arg_groups/argparse_actions.py of 0.5.23.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any


def _human_readable_int(value: str) -> int:
    """`32k` is 32000, `32Ki` 32768 (utils/common.py)."""
    value = value.strip()
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T)", value)
    if match is None:
        try:
            return int(value)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"Invalid integer value: '{value}'. Use a plain integer, SI suffixes (1k, 1M), "
                "or IEC suffixes (1Ki, 1Mi). Suffixes are case-sensitive."
            ) from None
    number, suffix = match.groups()
    power = "KMGT".index(suffix[0].upper()) + 1
    if not suffix.endswith("i"):
        return int(Decimal(number) * 1000**power)
    if "." in number:
        raise argparse.ArgumentTypeError(
            f"Decimals are not allowed with IEC suffixes like '{suffix}'. Use an integer IEC"
            f" value such as '{int(Decimal(number))}{suffix}', or an SI value such as"
            f" '{number}{suffix[0]}'."
        )
    return int(number) << (10 * power)


def _nullable_str(value: str) -> str | None:
    return None if not value or value == "None" else value


def _json_list_type(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"Invalid JSON list: {value}. Please provide a valid JSON list."
        ) from None


def _cuda_graph_backend(value: str) -> str:
    if value == "tc_piecewise":
        raise argparse.ArgumentTypeError(
            "tc_piecewise was removed; select breakable, full, or disabled"
        )
    return value


_GRAPH_KEYS = {  # ALLOWED_KEYS_PER_PHASE in model_executor/cuda_graph_config.py of 0.5.23
    "decode": ("backend", "max_bs", "bs"),
    "prefill": (
        "backend",
        "max_bs",
        "bs",
        "max_context_size",
        "full_prefill_max_req",
        "full_prefill_prefix_chunk_tokens",
        "max_seq_len",
    ),
}


def _cuda_graph_config(value: str) -> Any:
    try:
        found = json.loads(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"--cuda-graph-config must be JSON: {error}") from None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(
            f"--cuda-graph-config must be a JSON object, got {type(found).__name__}"
        )
    for phase, settings in found.items():
        allowed = _GRAPH_KEYS.get(phase)
        if allowed is None:
            raise argparse.ArgumentTypeError(
                f"--cuda-graph-config: unknown phase '{phase}', expected one of"
                f" {tuple(_GRAPH_KEYS)}"
            )
        if not isinstance(settings, dict):
            raise argparse.ArgumentTypeError(
                f"--cuda-graph-config['{phase}'] must be a JSON object, got"
                f" {type(settings).__name__}"
            )
        if "backend" in settings:
            _cuda_graph_backend(settings["backend"])
        for key in settings:
            if key not in allowed:
                raise argparse.ArgumentTypeError(
                    f"--cuda-graph-config['{phase}']: unknown key '{key}', expected one of"
                    f" {allowed}"
                )
    return found


def lora_path(value: str) -> Any:
    """LoRAPathAction (arg_groups/argparse_actions.py): a path, or an object with a name and one."""
    value = value.strip()
    return json.loads(value) if value.startswith("{") and value.endswith("}") else value


def _json(value: str) -> Any:
    return json.loads(value)


def _bool(value: str) -> bool:
    return bool(value)


_json.__name__, _bool.__name__ = "loads", "bool"  # argparse: "invalid loads value: …"

CONVERSIONS: Mapping[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": _bool,
    "json": _json,
    "human_readable_int": _human_readable_int,
    "nullable_str": _nullable_str,
    "json_list_type": _json_list_type,
    "parse_cuda_graph_backend_arg": _cuda_graph_backend,
    "parse_cuda_graph_config_arg": _cuda_graph_config,
}
"""What turns a word into a value, by the name that the catalogue gives it."""
