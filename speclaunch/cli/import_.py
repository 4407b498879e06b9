"""`speclaunch import`: somebody's command or file as a recipe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from speclaunch.cli.standard_input import read_stdin
from speclaunch.errors import ExitCode
from speclaunch.facts.engines import named
from speclaunch.fix.import_recipes import chosen, import_all, import_one
from speclaunch.importer.deployment import Imported
from speclaunch.importer.files import read_file, read_text, read_words
from speclaunch.importer.follow import followed
from speclaunch.importer.interface import Reading
from speclaunch.importer.recipe_name import recipe_name
from speclaunch.report.console import err, write_exact
from speclaunch.report.problems import show_problems

STDIN = "-"


def import_(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE | - | -- COMMAND…",
            help="A shell script, docker-compose or Kubernetes file, a document, `-` for standard"
            " input, or a command after `--`.",
        ),
    ],
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            metavar="VERSION",
            help=(
                "The version that the command is written for. Default: the newest that accepts it."
            ),
        ),
    ] = None,
    command: Annotated[
        int | None,
        typer.Option(
            "--command",
            metavar="N",
            help="The command to import, by number, if the file has several.",
        ),
    ] = None,
    to_dir: Annotated[
        Path | None,
        typer.Option(
            "--to-dir",
            help=(
                "Write every command of the file as a recipe into this directory, which is created."
            ),
        ),
    ] = None,
) -> None:
    """Write the recipe of an existing server command to standard output. Nothing is executed."""
    engine = named(engine).held if engine is not None else None
    reading, source, stem = read(words)
    show_problems(err(), reading.problems, "warning")
    commands = reading.commands(source)
    if to_dir is not None:
        written = []
        for imported, path in import_all(reading, source, stem, engine, to_dir):
            typer.echo(str(path))
            written.append(imported)
        _conclude(written, reading)
        return
    number = chosen(reading, source, command)
    imported, text = import_one(commands[number - 1], recipe_name(stem), source, engine)
    write_exact(text)
    _conclude([imported], reading)


def read(words: Sequence[str]) -> tuple[Reading, str, str]:
    """What the words name: a file, standard input or a command; its source and its stem."""
    if len(words) > 1:
        return followed(read_words(words), None), "the command line", "imported"
    if words[0] == STDIN:
        reading = read_text(read_stdin(), "<stdin>")
        return followed(reading, None), "standard input", "imported"
    path = Path(words[0])
    return read_file(path, words[0]), words[0], path.stem


def _conclude(imported: Sequence[Imported], reading: Reading) -> None:
    """Tell what the recipes assume and cannot carry, and what of the file could not be read.

    Exit 1 when a recipe is not the same deployment, 2 when a part of the file was not read.
    """
    show_problems(err(), [said for one in imported for said in one.assumed], "warning")
    problems = [problem for one in imported for problem in one.problems]
    show_problems(err(), [*problems, *reading.misread, *reading.unread])
    if reading.unread:
        raise typer.Exit(ExitCode.USAGE)
    if problems or reading.misread:
        raise typer.Exit(ExitCode.FAILED)
