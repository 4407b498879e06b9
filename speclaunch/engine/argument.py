"""What a catalogue holds: arguments and variables, and how they are written to JSON.

A record is a small JSON object that leaves out everything that is as usual (a string value,
default ``null``, a destination that is the name).  ``decode(encode(x)) == x`` and encoding is
deterministic, so that a regenerated catalogue is the same byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from speclaunch.record import record

#: A default, choice or constant as JSON has it.
Plain = Any


class ArgumentKind(StrEnum):
    """How an argument is written on a command line."""

    VALUE = "value"
    """``--x VALUE``"""
    OPTIONAL_VALUE = "optional_value"
    """``--x`` or ``--x VALUE``; alone it stores ``const``"""
    LIST = "list"
    """``--x A B C``"""
    FLAG = "flag"
    """``--x`` stores True"""
    FLAG_OFF = "flag_off"
    """``--x`` stores False"""
    BOOLEAN = "boolean"
    """``--x`` stores True, ``--no-x`` stores False"""
    CONSTANT = "constant"
    """``--x`` stores ``const``: an old switch that became one value of another argument"""
    IGNORED = "ignored"
    """``--x`` is accepted with a warning and stores nothing"""
    REFUSED = "refused"
    """``--x`` is in the parser only to be refused with a message"""
    HELP = "help"
    """``--help``"""

    @property
    def takes_value(self) -> bool:
        """Whether a value may follow the flag."""
        return self in (ArgumentKind.VALUE, ArgumentKind.OPTIONAL_VALUE, ArgumentKind.LIST)


@record
class Argument:
    """One argument of the engine's command line.

    ``type`` is ``str``, ``int``, ``float``, ``bool``, ``json`` or the name of the engine's own
    parser (``human_readable_int``, ``json_list_type``, ``nullable_str``, …).  ``const`` is what
    the flag stores when it stands alone (``OPTIONAL_VALUE``, ``CONSTANT``).  ``default`` is what
    the parser declares; None also stands for "leaves the destination alone".  ``replacement`` is
    the engine's own words for what to use instead.  ``read`` is False when nothing in the
    release reads the destination: the argument is accepted and has no effect.
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
        """The flag as a recipe writes it: no leading dashes, dashes as underscores."""
        return name_of(self.flag)

    @property
    def flags(self) -> tuple[str, ...]:
        """Every spelling, the primary one first."""
        return (self.flag, *self.aliases)


@record
class EngineVariable:
    """One environment variable of the engine.

    ``default`` is None when there is none or when it depends on the machine (``dynamic``).
    ``read`` is False when nothing in the release reads it.  ``speculative``: it steers
    speculation, by its name or because the code of speculation reads it.
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
    """``--tp-size`` → ``tp_size``; a name stays a name."""
    return flag.lstrip("-").replace("-", "_")


def is_negation(argument: Argument, flag: str) -> bool:
    """Whether a flag is the `--no-` half of a pair (argparse makes it by itself)."""
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
#: The kinds as JSON spells them.
_KINDS = {kind.value: kind for kind in ArgumentKind}


def encode_argument(argument: Argument) -> dict[str, Plain]:
    """The record of an argument, without its flag."""
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
    """The argument of a record."""
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
    """The record of a variable, without its name."""
    usual = EngineVariable(variable.name)
    return {
        key: getattr(variable, key)
        for key in EngineVariable.__dataclass_fields__
        if getattr(variable, key) != getattr(usual, key)
    }


def decode_variable(name: str, record: Mapping[str, Plain]) -> EngineVariable:
    """The variable of a record."""
    return EngineVariable(name, **record)
