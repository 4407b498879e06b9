"""The conversion functions of the engine's parser, by the name that the catalogue gives each.

Sources: sglang/srt/utils/common.py, model_executor/cuda_graph_config.py and
arg_groups/argparse_actions.py of 0.5.23, compared with the same functions of every release before
it; where they differ, the function here takes the version.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from speclaunch.engine.argument import Argument
from speclaunch.engine.versions import within

Convert = Callable[[str], Any]


def _refusal(message: str) -> Exception:
    """What argparse takes a refused value by: it shows the message."""
    from argparse import ArgumentTypeError  # noqa: PLC0415  most values are good

    return ArgumentTypeError(message)


def _human_readable_int(value: str) -> int:
    """`32k` is 32000, `32Ki` 32768 (utils/common.py)."""
    value = value.strip()
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T)", value)
    if match is None:
        try:
            return int(value)
        except ValueError:
            raise _refusal(
                f"Invalid integer value: '{value}'. Use a plain integer, SI suffixes (1k, 1M), "
                "or IEC suffixes (1Ki, 1Mi). Suffixes are case-sensitive."
            ) from None
    from decimal import Decimal  # noqa: PLC0415  slow to import

    number, suffix = match.groups()
    power = "KMGT".index(suffix[0].upper()) + 1
    if not suffix.endswith("i"):
        return int(Decimal(number) * 1000**power)
    if "." in number:
        raise _refusal(
            f"Decimals are not allowed with IEC suffixes like '{suffix}'. Use an integer IEC"
            f" value such as '{int(Decimal(number))}{suffix}', or an SI value such as"
            f" '{number}{suffix[0]}'."
        )
    return int(number) << (10 * power)


def _nullable_str(value: str) -> str | None:
    return None if not value or value == "None" else value


def _json_list_type(value: str) -> Any:
    """`orjson.loads`, which takes neither NaN nor a number or nesting beyond its bounds; not only
    a list."""
    try:
        value.encode()  # a lone surrogate is no UTF-8
        found = json.loads(
            value, parse_constant=_refuse, parse_float=_finite, parse_int=_int_or_float
        )
        json.dumps(found, ensure_ascii=False).encode()
        return found
    except (ValueError, RecursionError):
        raise _refusal(f"Invalid JSON list: {value}. Please provide a valid JSON list.") from None


def _refuse(text: str) -> Any:
    raise ValueError(text)


def _finite(text: str) -> float:
    number = float(text)
    return _refuse(text) if number in (float("inf"), float("-inf")) else number


def _int_or_float(text: str) -> float:
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 64 else _finite(text)


def _cuda_graph_backend(value: str) -> str:
    if value == "tc_piecewise":
        raise _refusal("tc_piecewise was removed; select breakable, full, or disabled")
    return value


def _graph_keys(version: str) -> Mapping[str, tuple[str, ...]]:
    """ALLOWED_KEYS_PER_PHASE of a release (model_executor/cuda_graph_config.py): 0.5.15 added
    full_prefill_max_req, 0.5.17 its chunk, 0.5.21 two bounds; 0.5.22 took tc_compiler away."""
    decode = ["backend", "max_bs", "bs"]
    if within(version, "<0.5.22"):
        decode.append("tc_compiler")
    prefill = list(decode)
    if within(version, ">=0.5.21"):
        prefill.append("max_context_size")
    if within(version, ">=0.5.15"):
        prefill.append("full_prefill_max_req")
    if within(version, ">=0.5.17"):
        prefill.append("full_prefill_prefix_chunk_tokens")
    if within(version, ">=0.5.21"):
        prefill.append("max_seq_len")
    return {"decode": tuple(decode), "prefill": tuple(prefill)}


def _cuda_graph_config(value: str, version: str) -> Any:
    try:
        found = json.loads(value)
    except ValueError as error:
        raise _refusal(f"--cuda-graph-config must be JSON: {error}") from None
    if not isinstance(found, dict):
        raise _refusal(f"--cuda-graph-config must be a JSON object, got {type(found).__name__}")
    keys = _graph_keys(version)
    for phase, settings in found.items():
        allowed = keys.get(phase)
        if allowed is None:
            raise _refusal(
                f"--cuda-graph-config: unknown phase '{phase}', expected one of {tuple(keys)}"
            )
        if not isinstance(settings, dict):
            raise _refusal(
                f"--cuda-graph-config['{phase}'] must be a JSON object, got"
                f" {type(settings).__name__}"
            )
        if "backend" in settings and within(version, ">=0.5.22"):
            _cuda_graph_backend(settings["backend"])
        for key in settings:
            if key not in allowed:
                raise _refusal(
                    f"--cuda-graph-config['{phase}']: unknown key '{key}', expected one of"
                    f" {allowed}"
                )
    return found


def lora_paths(values: Sequence[str], version: str) -> Any:
    """LoRAPathAction: before 0.5.1 a mapping of names to paths (`name=path`), since then a list of
    paths and of objects with a name and a path. Raises what the engine's action does."""
    if within(version, "<0.5.1"):
        pairs = [value.partition("=") for value in values]
        return {name: path if equals else name for name, equals, path in pairs}
    found: list[Any] = []
    for value in (value.strip() for value in values):
        if not (value.startswith("{") and value.endswith("}")):
            found.append(value)
            continue
        item = json.loads(value)
        if "lora_path" not in item or "lora_name" not in item:
            raise AssertionError(
                f"{value!r} looks like a JSON str, "
                "but it does not contain 'lora_name' and 'lora_path' keys."
            )
        found.append(item)
    return found


def _json(value: str) -> Any:
    return json.loads(value)


def _bool(value: str) -> bool:
    return bool(value)


_json.__name__, _bool.__name__ = "loads", "bool"  # argparse: "invalid loads value: …"

_CONVERSIONS: Mapping[str, Convert] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": _bool,
    "json": _json,
    "human_readable_int": _human_readable_int,
    "nullable_str": _nullable_str,
    "json_list_type": _json_list_type,
    "parse_cuda_graph_backend_arg": _cuda_graph_backend,
}


def converter(argument: Argument, version: str) -> Convert:
    """What turns a word into a value of `argument`; text stays text for a type we don't know."""
    if argument.type == "parse_cuda_graph_config_arg":
        convert = partial(_cuda_graph_config, version=version)
        convert.__name__ = argument.type  # type: ignore[attr-defined]  # in argparse's message
        return convert
    return _CONVERSIONS.get(argument.type, str)
