"""A file of any kind carried to another engine version: script, manifest, `--config` or recipe."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

from speclaunch import reads
from speclaunch.engine.canonical import canonical
from speclaunch.errors import InputError, Place, Problem
from speclaunch.fix.config_file import migrate_config
from speclaunch.fix.migrate import Carried, Followed, Migration, MigrationStep, migrate_commands
from speclaunch.fix.planned_migration import PlannedMigration
from speclaunch.fix.recipe import is_recipe, migrate_recipe
from speclaunch.fix.round_trip import secrets_of
from speclaunch.importer.files import read_text
from speclaunch.importer.interface import Invocation, InvocationKind
from speclaunch.reads.bounded import read_regular, reason
from speclaunch.recipe.find_recipe import similar_file


def config_files(invocation: Invocation, planned: PlannedMigration) -> Iterator[tuple[str, Place]]:
    """The names of the files and where they are written; what is in a variable is left out."""
    for said in planned.said:
        if canonical(said.item.dest) != "config":
            continue
        for index in said.item.value_indices[:1]:  # `--config=FILE` is ignored by the engine
            word = invocation.words[index]
            if word.evaluated:
                yield word.text, word.place


def carried_config(
    name: str, place: Place, base: Path, to: str, source: str | None = None, *, alone: bool = True
) -> Followed:
    """A file that a command names, carried to another version along with it.

    `base` is where a relative name begins: the directory of the script. What lies elsewhere is not
    ours to change, and nothing is unless `alone` (the script itself is written to its place).
    """
    path, done = base / name, Followed()
    try:
        text = _text(path)
        found = migrate_config(text, str(path), to, source)
    except _UnseenError as error:
        done.steps.append(MigrationStep(place, f"{name} was not read: {error}"))
        return done
    except InputError as error:
        done.problems += error.problems
        return done
    done.problems += found.problems
    if found.problems or found.text == text:
        return done
    if alone and path.resolve().is_relative_to(base.resolve()):
        done.steps += [*found.origins, *found.steps]
        done.also.append(Carried(path, text, found.text))
        return done
    first = next((step.text for step in found.steps), "it is for another version")
    options = ["--from", source] if source else []
    command = shlex.join(["speclaunch", "migrate", str(path), "--to", to, *options])
    done.problems.append(
        Problem(f"{name} has to be migrated, too: {first}", place, f"first run `{command}`")
    )
    return done


class _UnseenError(Exception):
    """A file that cannot be looked into, and why."""


def _text(path: Path) -> str:
    try:
        return reads.read_text(path)
    except FileNotFoundError:
        raise _UnseenError("no such file beside the script") from None
    except OSError as error:
        raise _UnseenError(reason(error)) from error
    except UnicodeDecodeError as error:
        raise _UnseenError(str(error)) from error


def following(
    base: Path, to: str, source: str | None = None, *, alone: bool = True
) -> Callable[[Invocation, PlannedMigration], Followed]:
    """What `migrate_commands` asks of each command's files; see `carried_config`."""

    def follow(invocation: Invocation, planned: PlannedMigration) -> Followed:
        done = Followed()
        for name, place in config_files(invocation, planned):
            if invocation.image is not None:
                note = f"{name} was not read: it is in the container"
                done.steps.append(MigrationStep(place, note))
                continue
            one = carried_config(name, place, base, to, source, alone=alone)
            done.problems += one.problems
            done.steps += one.steps
            done.also += one.also
        return done

    return follow


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
