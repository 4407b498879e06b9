"""Writes speclaunch/cli/option_table.py, the options of every verb, from the verbs themselves.

So that a shell's completion needs no framework, which takes longer than a key may.

python tools/option_table.py            writes
python tools/option_table.py --check    exits 1 when it is old
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

from typer.main import get_command

from speclaunch.cli import commands
from speclaunch.cli.verbs import VERBS

TABLE = Path(__file__).resolve().parent.parent / "speclaunch" / "cli" / "option_table.py"
HEAD = '''\
"""The options of every verb: made by `tools/option_table.py` from the verbs.

So that a shell's completion needs no framework. By verb (`recipes cp`; "" is the program), a row an
option: its spellings, whether a value follows, its choices, the first sentence of its help.
"""

from __future__ import annotations

Row = tuple[tuple[str, ...], bool, tuple[str, ...], str]

# ruff: noqa: E501
# fmt: off
'''


def text() -> str:
    """The module as it has to be."""
    for verb in VERBS:
        commands.register([verb.name])
    lines = ["OPTIONS: dict[str, tuple[Row, ...]] = {"]
    below = ["VERBS_BELOW: dict[str, tuple[tuple[str, str], ...]] = {"]
    for verb, command in _commands("", get_command(commands.app)):
        lines += [f"    {verb!r}: (", *(f"        {row!r}," for row in _rows(command)), "    ),"]
        some = getattr(command, "commands", {})
        if some and verb:
            told = tuple(
                (name, _sentence(one.get_short_help_str(200))) for name, one in some.items()
            )
            below.append(f"    {verb!r}: {told!r},")
    return "\n".join([HEAD.rstrip("\n"), *lines, "}", "", *below, "}", ""])


def _commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield name, command
    for below, one in getattr(command, "commands", {}).items():
        yield from _commands(f"{name} {below}".strip(), one)


def _rows(command: Any) -> Iterator[tuple[tuple[str, ...], bool, tuple[str, ...], str]]:
    for parameter in command.params:
        if parameter.param_type_name == "option" and not parameter.hidden:
            ways = (*parameter.opts, *parameter.secondary_opts)
            kind = parameter.type_descriptor.annotation
            choices = tuple(kind) if isinstance(kind, type) and issubclass(kind, StrEnum) else ()
            told = _sentence(parameter.help or "")
            yield ways, not parameter.is_flag, tuple(map(str, choices)), told
    yield ("--help", "-h"), False, (), "Show this message and exit."


def _sentence(help_: str) -> str:
    return " ".join(help_.partition(". ")[0].rstrip(".").split())


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        if TABLE.read_text() != text():
            sys.exit(f"{TABLE.name} is old: run `python tools/option_table.py`")
    else:
        TABLE.write_text(text())
