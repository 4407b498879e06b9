"""Compare an extracted release with what the real parser of that release registered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from speclaunch.engine.releases.argument import Record, encode_argument
from speclaunch.engine.releases.extraction.release import Declared, Release, argument_of


@dataclass(frozen=True, slots=True)
class Difference:
    """One disagreement about one argument, with the line in the wheel that decides it."""

    flag: str
    what: str
    ours: Any
    theirs: Any
    src: str

    def __str__(self) -> str:
        return f"{self.flag} {self.what}: ours {self.ours!r}, theirs {self.theirs!r} ({self.src})"


def compare(
    release: Release, shipped: Mapping[str, Record], expected: Mapping[str, Mapping[str, Any]]
) -> list[Difference]:
    """Every difference in names, destinations, types, defaults, choices, aliases, required.

    The shipped record must also say what the extraction says (apart from `read`).
    """
    found: list[Difference] = []
    for flag in sorted(expected.keys() | release.arguments.keys()):
        declared, theirs = release.arguments.get(flag), expected.get(flag)
        if declared is None or theirs is None:
            src = declared.src if declared else str((theirs or {}).get("src"))
            found.append(Difference(flag, "exists", declared is not None, theirs is not None, src))
            continue
        found.extend(_differences(declared, theirs))
        record = {key: item for key, item in shipped.get(flag, {}).items() if key != "read"}
        made = encode_argument(argument_of(declared))
        if record != made:
            found.append(Difference(flag, "shipped record", made, record, declared.src))
    return found


def _differences(ours: Declared, theirs: Mapping[str, Any]) -> Iterator[Difference]:
    pairs = {
        "dest": (ours.dest, theirs["dest"]),
        "type": (parser_type(ours), theirs["type"]),
        "default": (ours.default, theirs["default"]),
        "choices": (_in_order(ours.choices), _in_order(theirs["choices"])),
        "aliases": (list(ours.aliases), theirs["aliases"]),
        "required": (ours.required, theirs["required"]),
    }
    for what, (mine, given) in pairs.items():
        if mine != given or type(mine) is not type(given):
            yield Difference(ours.flag, what, mine, given, ours.src)


def parser_type(ours: Declared) -> str:
    """The type as the dump words it: `int nargs=+`, `flag(store_true)`, `action:SomeAction`."""
    if ours.action == "store_true":
        return "flag(store_true)"
    if ours.action == "BooleanOptionalAction":
        return "bool(--x/--no-x)"
    if ours.nargs == 0 or ours.action == "DeprecatedStoreConstAction":
        return f"action:{ours.action}"
    name = {"json": "loads"}.get(ours.type, ours.type)
    return name if ours.nargs is None else f"{name} nargs={ours.nargs}"


def _in_order(choices: Any) -> list[str] | None:
    """Choices without their order: some are sets."""
    return None if choices is None else sorted(map(str, choices))
