"""`speclaunch import`: convert a server command or file to a recipe."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import typer

from speclaunch.app.output.console import err, write_exact
from speclaunch.app.output.findings import show_findings
from speclaunch.app.output.problems import show_problems
from speclaunch.app.verbs.change_options import ImportOptions
from speclaunch.app.verbs.standard_input import read_stdin
from speclaunch.app.verbs.writing import require_free, require_sound
from speclaunch.checks import (
    LintedFile,
    against,
    check_source,
    check_text,
    chosen,
    configured,
    import_all,
    import_command,
    installed_engine,
    write_together,
)
from speclaunch.core import ExitCode, InputError, Problem, read_regular, reads
from speclaunch.deployments import (
    Imported,
    Reading,
    filled_in,
    followed,
    read_file,
    read_text,
    read_words,
    recipe_name,
    vllm,
)
from speclaunch.engine import is_of_its_line, named

STDIN = "-"


def import_(options: ImportOptions) -> ExitCode:
    """Write the recipes of server commands. Raises InputError, OutputRefusedError."""
    stated = _stated(options.engine)
    reading, source, stem = read(options.words)
    installed = None if stated else installed_engine()
    show_problems(err(), reading.problems, "warning")
    commands = reading.commands(source)
    if options.to_dir is not None:
        found = list(import_all(reading, source, stem, stated, options.to_dir, installed))
        for _, _, path in found:
            require_free(path, overwrite=options.overwrite)
        for imported, text, path in found:
            _require_sound(imported, text, str(path), source, force=options.force)
        _make(options.to_dir)
        write_together({path: text for _, text, path in found})
        for _, _, path in found:
            typer.echo(str(path))
        return _conclude([imported for imported, _, _ in found], reading)
    number = chosen(reading, source, options.command)
    name = recipe_name(stem)
    imported, text = import_command(commands[number - 1], name, source, stated, installed)
    _require_sound(imported, text, f"{name}.yaml", source, force=options.force, what="the recipe")
    write_exact(text)
    return _conclude([imported], reading)


def _stated(engine: str | None) -> str | None:
    """Return the known release of `--engine`, else its text; None without the option."""
    if engine is None:
        return None
    found = named(engine)
    return found.held if is_of_its_line(found) else found.requested


def _require_sound(
    imported: Imported, text: str, path: str, source: str, *, force: bool, what: str | None = None
) -> None:
    """Raise OutputRefusedError for errors in the recipe that the command does not have."""
    command = imported.command
    options = configured(path, (imported.version,), command.hardware if command else None)
    linted = LintedFile(source, invocations=(command,) if command else ())
    before = check_source(linted, options)
    after = check_text(path, filled_in(text), options)
    check = against(before, after)
    with reads.overlay({os.path.realpath(path): text.encode()}):
        show_findings(err(), check.inherited_warnings)
        require_sound(check, what or path, force=force)


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = Problem(f"cannot create --to-dir {directory}: {error.strerror}")
        raise InputError(problem) from error


def read(words: Sequence[str]) -> tuple[Reading, str, str]:
    """Read a file, standard input or a command; return it with its source and file stem."""
    if len(words) > 1:
        found = followed(read_words(words), None)
        if not found.invocations:
            found = vllm.servers_in_words(words) or found
        return found, "the command line", "imported"
    if words[0] == STDIN:
        data = read_stdin()
        found = followed(read_text(data, "<stdin>"), None)
        if not found.invocations:
            found = vllm.servers_in(data, "<stdin>") or found
        return found, "standard input", "imported"
    path = Path(words[0])
    found = read_file(path, words[0])
    if not found.invocations:
        found = vllm.servers_in(read_regular(path), words[0], path.suffix) or found
    return found, words[0], path.stem


def _conclude(imported: Sequence[Imported], reading: Reading) -> ExitCode:
    """Report assumptions and losses of the recipes, and unread parts of the file.

    Return exit code 1 if a recipe is not the same deployment, 2 if part of the file was not read.
    """
    for result in imported:
        if result.note:
            err().print(f"note: {result.note}", markup=False)
    show_problems(
        err(), [assumption for result in imported for assumption in result.assumed], "warning"
    )
    problems = [problem for result in imported for problem in result.problems]
    show_problems(err(), [*problems, *reading.misread, *reading.unread])
    if reading.unread:
        return ExitCode.USAGE
    return ExitCode.FAILED if problems or reading.misread else ExitCode.CLEAN
