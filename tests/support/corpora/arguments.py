"""Server arguments for the texts: drawn from the catalogue, valid at a version."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from speclaunch.engine.releases.argument import Argument, ArgumentKind
from speclaunch.engine.releases.catalogue import held_versions, load

LEFT_OUT = frozenset(
    {"--help", "--config", "--model-path", "--version", "--api-key", "--admin-api-key"}
)
"""Options that end the process or that the texts write themselves; and secrets."""

_SPEAKING = ("speculative", "cuda-graph", "attention", "moe", "tp", "ep", "dp", "mem", "quant")

_TEXTS = ("a", "some/path", "default", "x-1", "v2", "Org/Model-7B")
_ODD_TEXTS = ("a b", "it's", 'say "x"', "1.0", "007", "true", "null", "a=b", "$HOME", "é", "a#b")
_BY_TYPE: Mapping[str, tuple[str, ...]] = {
    "int": ("1", "2", "8", "64", "30000"),
    "float": ("0.5", "0.85", "1", "1e-05"),
    "human_readable_int": ("4096", "32k", "1M"),
    "json": ('{"a": 1}', '{"a": "b c"}'),
    "json_list_type": ("[1, 2]", "[]"),
    "nullable_str": ("a", "None"),
    "parse_cuda_graph_backend_arg": ("disabled", "full"),
    "parse_cuda_graph_config_arg": ('{"decode": {"max_bs": 4}}',),
    "bool": ("true",),
}
_UNKNOWN = ("parse", "check", "validate", "Action")


@dataclass(frozen=True, slots=True)
class Use:
    """One argument as a text has it: the flag as written, its values, and its destination."""

    flag: str
    values: tuple[str, ...]
    argument: Argument

    @property
    def one(self) -> bool:
        """Whether `--flag=value` can say it."""
        return len(self.values) == 1


@cache
def usable(version: str) -> tuple[Argument, ...]:
    """The arguments of a version that a text may use."""
    kinds = (ArgumentKind.HELP, ArgumentKind.REFUSED)
    known = load(version).arguments.values()
    return tuple(
        a
        for a in sorted(known, key=lambda a: a.flag)
        if a.kind not in kinds and a.flag not in LEFT_OUT and _values_known(a)
    )


def _values_known(argument: Argument) -> bool:
    simple = argument.choices or argument.type == "str" or argument.type in _BY_TYPE
    return bool(simple) or not argument.kind.takes_value


@cache
def changing(version: str) -> tuple[Argument, ...]:
    """Those that some other version does not have under the same flag."""
    others = [frozenset(f for a in load(v).arguments.values() for f in a.flags) for v in _some()]
    return tuple(a for a in usable(version) if any(a.flag not in known for known in others))


def _some() -> tuple[str, ...]:
    held = held_versions()
    return (held[0], held[len(held) // 2], held[-1])


@cache
def _shorter(flag: str, version: str) -> tuple[str, ...]:
    """The beginnings of a flag that this version takes for it."""
    every = [f for a in load(version).arguments.values() for f in a.flags]
    return tuple(
        flag[:length]
        for length in range(5, len(flag))
        if not flag[:length].endswith("-") and flag[:length] not in every
        if [f for f in every if f.startswith(flag[:length])] == [flag]
    )


def abbreviation(flag: str, version: str, dice: random.Random) -> str:
    """A shorter spelling that this version takes for the same argument, or the flag itself."""
    found = _shorter(flag, version)
    return dice.choice(found) if found else flag


def draw(version: str, dice: random.Random, *, count: int | None = None) -> list[Use]:
    """Some arguments, each at most once by destination."""
    every, turning = usable(version), changing(version)
    spoken = tuple(a for a in every if any(part in a.flag for part in _SPEAKING))
    uses: list[Use] = []
    seen: set[str] = set()
    for _ in range(count or dice.randint(2, 9)):
        pool = dice.choices((every, turning or every, spoken), (2, 4, 4))[0]
        argument = dice.choice(pool)
        if argument.dest in seen:
            continue
        seen.add(argument.dest)
        uses.append(use(argument, version, dice))
    return uses


def use(argument: Argument, version: str, dice: random.Random) -> Use:
    """One argument with a value."""
    flag = dice.choice(argument.flags)
    if not flag.startswith("--"):
        flag = argument.flag
    if dice.random() < 0.25:
        flag = abbreviation(flag, version, dice)
    return Use(flag, _values(argument, dice), argument)


def _values(argument: Argument, dice: random.Random) -> tuple[str, ...]:
    kind = argument.kind
    if not kind.takes_value:
        return ()
    if kind is ArgumentKind.OPTIONAL_VALUE and dice.random() < 0.4:
        return ()
    if kind is ArgumentKind.LIST:
        count = argument.nargs if isinstance(argument.nargs, int) else dice.randint(1, 4)
        count = 1 if argument.nargs is None else count
        return tuple(_value(argument, dice) for _ in range(count))
    return (_value(argument, dice),)


def _value(argument: Argument, dice: random.Random) -> str:
    if argument.choices:
        choices = [c for c in argument.choices if c is not None]
        return str(dice.choice(choices))
    if argument.type == "str":
        return dice.choice(_ODD_TEXTS if dice.random() < 0.25 else _TEXTS)
    return dice.choice(_BY_TYPE[argument.type])


def as_yaml(use: Use) -> Any:
    """The value as a YAML file for `--config` says it."""
    argument = use.argument
    if not use.values:
        return True
    natural = [_natural(argument, text) for text in use.values]
    return natural if argument.kind is ArgumentKind.LIST else natural[0]


def _natural(argument: Argument, text: str) -> Any:
    if argument.type == "int":
        return int(text)
    if argument.type == "float":
        return float(text)
    if argument.type == "json":
        return json.loads(text)
    return text
