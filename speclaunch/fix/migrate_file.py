"""A file of any kind carried to another engine version: script, manifest, `--config` or recipe."""

from __future__ import annotations

from pathlib import Path

from speclaunch.errors import InputError, Problem
from speclaunch.fix.config_file import migrate_config
from speclaunch.fix.followed import following
from speclaunch.fix.migrate import Migration, migrate_commands
from speclaunch.fix.recipe import is_recipe, migrate_recipe
from speclaunch.fix.round_trip import secrets_of
from speclaunch.importer.files import read_text
from speclaunch.importer.interface import InvocationKind
from speclaunch.reads.bounded import read_regular, reason
from speclaunch.recipe.find_recipe import similar_file


def file_bytes(file: str) -> bytes:
    """What a file holds. Raises InputError where it is too large or cannot be read."""
    try:
        return read_regular(file)
    except OSError as error:
        problem = Problem(f"cannot read {file}: {reason(error)}", help=similar_file(file))
        raise InputError(problem) from error


def migrate_data(
    data: bytes,
    file: str,
    to: str,
    source: str | None,
    *,
    shown: str | None = None,
    keep_images: bool = False,
) -> tuple[str, Migration]:
    """The text before, and what becomes of it; nothing is written.

    `keep_images`: an image without a known counterpart stays as it is.

    `shown` is the name of what has no place of its own (`<stdin>`): files that it names are then
    carried by nobody. Raises InputError, and NothingFoundError where there is no server command.
    """
    path = Path(file)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InputError(Problem(f"{file} is not UTF-8 text (byte {error.start})")) from error
    name = shown or file
    if path.suffix in (".yaml", ".yml") and is_recipe(text):
        return text, migrate_recipe(path, name, to, keep_images=keep_images)
    reading = read_text(text, name, path.suffix or None)
    commands = reading.commands(name)
    if any(found.kind is InvocationKind.CONFIG for found in commands):
        migration = migrate_config(text, name, to, source)
    else:
        base = path.parent if shown is None else Path()
        follow = following(base, to, source, alone=shown is None)
        migration = migrate_commands(
            text, reading, to, source, follow=follow, keep_images=keep_images
        )
    migration.hidden = tuple(secrets_of(commands, to))
    return text, migration
