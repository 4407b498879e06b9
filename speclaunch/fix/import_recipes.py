"""Server commands as recipes, each proven before it is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from speclaunch.errors import InputError, Problem
from speclaunch.fix.import_round_trip import require_same_command
from speclaunch.importer.deployment import Imported, to_deployment
from speclaunch.importer.interface import Invocation, Reading
from speclaunch.importer.recipe_name import recipe_name


def import_one(
    invocation: Invocation,
    name: str,
    source: str,
    engine: str | None,
    installed: str | None = None,
) -> tuple[Imported, str]:
    """Return a command of `source` as a recipe, and its text. Raises RoundTripError.

    `engine` is the stated release, `installed` the one to prefer if none is stated.
    """
    imported = to_deployment(invocation, name, engine, installed)
    text = imported.recipe(source)
    require_same_command(imported.command or invocation, imported, text)
    return imported, text


def import_all(
    reading: Reading,
    source: str,
    stem: str,
    engine: str | None,
    directory: Path,
    installed: str | None = None,
) -> Iterator[tuple[Imported, str, Path]]:
    """Yield every command as a recipe: its text, and the file of `directory` to write it to."""
    several = len(reading.invocations) > 1
    for number, invocation in enumerate(reading.invocations, 1):
        name = recipe_name(invocation.name or stem, number if several else None)
        imported, text = import_one(invocation, name, source, engine, installed)
        yield imported, text, directory / f"{name}.yaml"


def chosen(reading: Reading, source: str, command: int | None) -> int:
    """The number of the one command that is meant. Raises InputError where that is not said."""
    count = len(reading.invocations)
    if command is None and count > 1:
        listing = "; ".join(
            f"{number}: {invocation.name or invocation.place}"
            for number, invocation in enumerate(reading.invocations, 1)
        )
        raise InputError(
            Problem(
                f"{source} contains {count} server commands ({listing})",
                help="choose one with --command N, or write all with --to-dir DIR",
            )
        )
    if command is not None and not 1 <= command <= count:
        raise InputError(
            Problem(f"{source} contains {count} server commands: --command 1 to {count}")
        )
    return command or 1
