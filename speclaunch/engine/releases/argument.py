"""Catalogue records: arguments and variables, and their JSON format.

A record is a small JSON object that omits usual values (type ``str``, default ``null``, a
destination equal to the name). ``decode(encode(x)) == x``, and encoding is deterministic: a
regenerated catalogue is byte-identical.

A catalogue file has the form ``{"versions": […], "records": {key: [[first, record], [first, last,
record], …]}}``. A span without ``last`` is open: it extends to the newest version. A new release
therefore changes only the lines of the records that differ. Keys are sorted, one per line, so the
diff of a regenerated file shows the changes between two releases.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Any

from msgspec import Struct

from speclaunch.engine.releases.versions import within

#: A default, choice or constant as a JSON value.
Plain = Any


class ArgumentKind(StrEnum):
    """The command-line form of an argument."""

    VALUE = "value"
    """``--x VALUE``"""
    OPTIONAL_VALUE = "optional_value"
    """``--x`` or ``--x VALUE``; without a value it stores ``const``"""
    LIST = "list"
    """``--x A B C``"""
    FLAG = "flag"
    """``--x`` stores True"""
    FLAG_OFF = "flag_off"
    """``--x`` stores False"""
    BOOLEAN = "boolean"
    """``--x`` stores True, ``--no-x`` stores False"""
    CONSTANT = "constant"
    """``--x``, a former switch, stores ``const`` as the value of a different argument"""
    IGNORED = "ignored"
    """``--x`` is accepted with a warning and stores nothing"""
    REFUSED = "refused"
    """``--x`` is in the parser only to be rejected with a message"""
    HELP = "help"

    @property
    def takes_value(self) -> bool:
        return self in (ArgumentKind.VALUE, ArgumentKind.OPTIONAL_VALUE, ArgumentKind.LIST)


class Argument(Struct, frozen=True):
    """One argument of the engine's command line.

    - ``type``: ``str``, ``int``, ``float``, ``bool``, ``json`` or the name of the engine's own
      parser (``human_readable_int``, ``json_list_type``, ``nullable_str``, …).
    - ``const``: the value stored for a flag without a value (``OPTIONAL_VALUE``, ``CONSTANT``).
    - ``default``: the default that the parser declares; None if it declares none.
    - ``replacement``: the flag or variable that replaces the argument.
    - ``read``: False if nothing in the release reads the destination. The argument is then accepted
      and has no effect.
    """

    flag: str
    dest: str
    kind: ArgumentKind
    type: str = "str"
    default: Plain = None
    choices: tuple[Plain, ...] | None = None
    nargs: str | int | None = None
    const: Plain = None
    aliases: tuple[str, ...] = ()
    deprecated: bool = False
    replacement: str | None = None
    required: bool = False
    read: bool = True

    @property
    def name(self) -> str:
        """The flag's name in a recipe: no leading dashes, underscores for other dashes."""
        return name_of(self.flag)

    @property
    def flags(self) -> tuple[str, ...]:
        """All spellings of the flag, the primary flag first."""
        return (self.flag, *self.aliases)


class EngineVariable(Struct, frozen=True):
    """One environment variable of the engine.

    ``default`` is None if there is no default or it depends on the machine (``dynamic``). ``read``
    is False if nothing in the release reads the variable. ``speculative`` is True if the name
    refers to speculation or speculation code reads the variable.
    """

    name: str
    type: str = "str"
    default: Plain = None
    dynamic: bool = False
    read: bool = True
    speculative: bool = False
    deprecated: bool = False
    replacement: str | None = None


def name_of(flag: str) -> str:
    """Convert ``--tp-size`` to ``tp_size``; return a name unchanged."""
    return flag.lstrip("-").replace("-", "_")


def is_negation(argument: Argument, flag: str) -> bool:
    """True if `flag` is the `--no-` form that argparse adds to a switch."""
    return argument.kind is ArgumentKind.BOOLEAN and flag.startswith("--no-")


_SWITCHES = frozenset(
    {
        ArgumentKind.FLAG,
        ArgumentKind.FLAG_OFF,
        ArgumentKind.BOOLEAN,
        ArgumentKind.CONSTANT,
        ArgumentKind.IGNORED,
        ArgumentKind.REFUSED,
    }
)
_KINDS = {kind.value: kind for kind in ArgumentKind}


def encode_argument(argument: Argument) -> dict[str, Plain]:
    """Return the JSON record of an argument, without its flag."""
    record: dict[str, Plain] = {}
    if argument.dest != argument.name:
        record["dest"] = argument.dest
    if argument.kind is not ArgumentKind.VALUE:
        record["kind"] = argument.kind.value
    if argument.type != ("bool" if argument.kind in _SWITCHES else "str"):
        record["type"] = argument.type
    usual = False if argument.kind is ArgumentKind.FLAG else None
    if argument.default is not usual:
        record["default"] = argument.default
    for key in ("choices", "nargs", "const", "replacement"):
        if getattr(argument, key) is not None:
            record[key] = getattr(argument, key)
    for key in ("aliases", "deprecated", "required"):
        if getattr(argument, key):
            record[key] = getattr(argument, key)
    if not argument.read:
        record["read"] = False
    return {
        key: list(value) if isinstance(value, tuple) else value for key, value in record.items()
    }


def decode_argument(flag: str, record: Mapping[str, Plain]) -> Argument:
    """Return the argument that a JSON record describes."""
    get = record.get
    kind = _KINDS[get("kind", "value")]
    choices = get("choices")
    return Argument(
        flag,
        get("dest") or name_of(flag),
        kind,
        get("type") or ("bool" if kind in _SWITCHES else "str"),
        get("default", False if kind is ArgumentKind.FLAG else None),
        None if choices is None else tuple(choices),
        get("nargs"),
        get("const"),
        tuple(get("aliases", ())),
        get("deprecated", False),
        get("replacement"),
        get("required", False),
        get("read", True),
    )


def encode_variable(variable: EngineVariable) -> dict[str, Plain]:
    """Return the JSON record of a variable, without its name."""
    usual = EngineVariable(variable.name)
    return {
        key: getattr(variable, key)
        for key in EngineVariable.__struct_fields__
        if getattr(variable, key) != getattr(usual, key)
    }


def decode_variable(name: str, record: Mapping[str, Plain]) -> EngineVariable:
    """Return the variable that a JSON record describes."""
    return EngineVariable(name, **record)


Convert = Callable[[str], Any]


def _refusal(message: str) -> Exception:
    from argparse import ArgumentTypeError  # noqa: PLC0415  most values are good

    return ArgumentTypeError(message)


def _human_readable_int(value: str) -> int:
    """Parse `32k` as 32000 and `32Ki` as 32768 (utils/common.py)."""
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
    """Parse JSON within the limits of `orjson.loads`: no NaN, and bounded numbers and nesting."""
    try:
        value.encode()  # a lone surrogate is not valid UTF-8
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
    """Return ALLOWED_KEYS_PER_PHASE of a release (model_executor/cuda_graph_config.py).

    0.5.15, 0.5.17 and 0.5.21 added prefill keys. 0.5.22 removed tc_compiler.
    """
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
    """Return the LoRA paths as LoRAPathAction stores them.

    Before 0.5.1 this is a mapping of names to paths (`name=path`). From 0.5.1 it is a list; each
    item is a path, or an object with a name and a path. Raises the errors of the engine's action.
    """
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
"""Conversion functions mirror the engine's own, which an argument's ``type`` names. Sources:
sglang/srt/utils/common.py, model_executor/cuda_graph_config.py and arg_groups/argparse_actions.py
of 0.5.23, compared with the same functions of every earlier release. Functions that differ
between releases accept the version."""


def converter(argument: Argument, version: str) -> Convert:
    """Return the function that parses a value of `argument`; `str` if its type is unknown."""
    if argument.type == "parse_cuda_graph_config_arg":
        convert = partial(_cuda_graph_config, version=version)
        convert.__name__ = argument.type  # type: ignore[attr-defined]  # in argparse's message
        return convert
    return _CONVERSIONS.get(argument.type, str)


#: A record: the state of one key in one version.
Record = dict[str, Any]


def encode(versions: Sequence[str], records: Mapping[str, Mapping[str, Record]]) -> str:
    """Return the text of a catalogue file. ``records`` maps each version to its records by key."""
    lines = []
    for key in sorted({key for version in versions for key in records[version]}):
        spans = [list(span) for span in _spans(versions, records, key)]
        lines.append(f"{_dump(key)}:{_dump(spans)}")
    body = ",\n".join(lines)
    return f'{{"versions":{_dump(list(versions))},\n"records":{{\n{body}\n}}}}\n'


def _spans(
    versions: Sequence[str], records: Mapping[str, Mapping[str, Record]], key: str
) -> list[tuple[Any, ...]]:
    spans: list[tuple[Any, ...]] = []
    first, current, text = "", None, ""
    previous = ""
    for version in versions:
        record = records[version].get(key)
        written = "" if record is None else _dump(record)
        if written != text:
            if current is not None:
                spans.append((first, previous, current))
            first, current, text = version, record, written
        previous = version
    if current is not None:
        spans.append((first, current))
    return spans


def decode(data: Mapping[str, Any]) -> dict[str, dict[str, Record]]:
    """Return all records of a parsed catalogue file, by version, then by key."""
    return {version: select(data, version) for version in data["versions"]}


def select(data: Mapping[str, Any], version: str) -> dict[str, Record]:
    """Return one version's records of a parsed catalogue file, by key."""
    place = {known: index for index, known in enumerate(data["versions"])}
    position = place[version]
    found: dict[str, Record] = {}
    for key, spans in data["records"].items():
        for span in spans:
            if place[span[0]] <= position and (len(span) == 2 or position <= place[span[1]]):
                found[key] = span[-1]
                break
    return found


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
