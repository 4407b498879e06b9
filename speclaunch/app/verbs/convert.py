"""`speclaunch import` and `migrate`: convert commands to recipes, and files to another release."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from msgspec.structs import replace

from speclaunch.app.output.console import err, write_exact
from speclaunch.app.output.findings import bugs_across, show_findings
from speclaunch.app.output.problems import show_problems
from speclaunch.app.verbs.change_options import ImportOptions, MigrateOptions
from speclaunch.app.verbs.shared import read_stdin, require_free, require_sound, show_patch
from speclaunch.checks import (
    STDIN_SHOWN,
    LintedFile,
    against,
    check_source,
    check_text,
    chosen,
    configured,
    file_bytes,
    import_all,
    import_command,
    installed_engine,
    shown_diff,
    write_together,
)
from speclaunch.core import COMMAND_LINE, ExitCode, InputError, Place, Problem, read_regular, reads
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
from speclaunch.engine import UnknownVersion, is_of_its_line, named

if TYPE_CHECKING:
    from speclaunch.checks import Migration

STDIN = "-"


def import_(options: ImportOptions) -> ExitCode:
    """Write recipes for server commands. Raises InputError, OutputRefusedError."""
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
            _require_sound_import(imported, text, str(path), source, force=options.force)
        _make(options.to_dir)
        write_together({path: text for _, text, path in found})
        for _, _, path in found:
            typer.echo(str(path))
        return _conclude([imported for imported, _, _ in found], reading)
    number = chosen(reading, source, options.command)
    name = recipe_name(stem)
    imported, text = import_command(commands[number - 1], name, source, stated, installed)
    _require_sound_import(
        imported, text, f"{name}.yaml", source, force=options.force, what="the recipe"
    )
    write_exact(text)
    return _conclude([imported], reading)


def _stated(engine: str | None) -> str | None:
    """Return the release named by `--engine`, or its value if unknown; None without the option."""
    if engine is None:
        return None
    found = named(engine)
    return found.held if is_of_its_line(found) else found.requested


def _require_sound_import(
    imported: Imported, text: str, path: str, source: str, *, force: bool, what: str | None = None
) -> None:
    """Raise OutputRefusedError for new errors in a recipe, unless `force`; show its findings."""
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
    """Read a file, standard input or a command; return the commands, source name and file stem."""
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
    """Report assumptions and problems of the recipes, and unread parts of the file.

    Return exit code 2 for unread parts, else 1 if a recipe may differ from its command, else 0.
    """
    for result in imported:
        if result.note:
            err().print(f"note: {result.note}")
    show_problems(
        err(), [assumption for result in imported for assumption in result.assumed], "warning"
    )
    problems = [problem for result in imported for problem in result.problems]
    show_problems(err(), [*problems, *reading.misread, *reading.unread])
    if reading.unread:
        return ExitCode.USAGE
    return ExitCode.FAILED if problems or reading.misread else ExitCode.CLEAN


def migrate(options: MigrateOptions) -> ExitCode:
    """Migrate a file to another engine version. Raises InputError, OutputRefusedError."""
    from speclaunch.checks import migrate_data

    target = _version(options.to, "--to")
    origin = _version(options.source, "--from") if options.source else None
    file = options.file
    path = Path(file)
    if file == STDIN:
        data, shown = read_stdin(), STDIN_SHOWN
    else:
        data, shown = file_bytes(file), None
    before, migration = migrate_data(
        data, file, target, origin, shown=shown, keep_images=options.force
    )
    steps = migration.steps if not migration.problems else []
    for step in (*migration.origins, *steps):
        err().print(f"{step.place}: {step.text}")
    show_problems(err(), migration.warnings, "warning")
    show_problems(err(), migration.problems)
    if migration.problems:
        err().print(f"{file} is unchanged.")
    changed = migration.text != before
    also = migration.also if not migration.problems else []
    if not migration.problems:
        _require_sound_migration(shown or file, before, migration, target, force=options.force)
    if options.diff:
        for carried in also:
            _show(carried.before, carried.text, str(carried.path), migration.hidden)
        _show(before, migration.text, file, migration.hidden)
    elif file == STDIN:
        write_exact(migration.text)
    elif changed or also:
        own = {path: migration.text} if changed else {}
        texts = {carried.path: carried.text for carried in also} | own
        write_together(texts)
        for written in texts:
            err().print(f"wrote {written}")
    if migration.problems:
        return ExitCode.FAILED
    if not changed and not also:
        err().print(f"{file} needs no change for SGLang {target}.", style="dim")
    return ExitCode.CLEAN


def _require_sound_migration(
    shown: str, before: str, migration: Migration, target: str, *, force: bool
) -> None:
    options = configured(shown, (target,))
    versions = [source.version for source in migration.versions]
    old = check_text(shown, before, replace(options, versions=()), versions=versions)
    texts = {os.path.realpath(carried.path): carried.text.encode() for carried in migration.also}
    if shown != STDIN_SHOWN:
        texts[os.path.realpath(shown)] = migration.text.encode()
    with reads.overlay(texts):
        new = check_text(shown, migration.text, options)
        require_sound(against(old, new), shown, force=force)
    bugs = bugs_across(old.findings, new.findings)
    if bugs is not None:
        err().print(bugs)


def _show(before: str, after: str, file: str, hidden: tuple[str, ...]) -> None:
    shown = shown_diff(before, after, file, hidden)
    show_patch(shown)
    if not shown.hidden and not shown.context:
        note = (
            "context lines with secrets are omitted; apply the patch with git apply --unidiff-zero"
        )
        err().print(note)


def _version(text: str, option: str) -> str:
    try:
        version = named(text)
        if version.note:
            err().print(f"{option} {text}: {version.note}")
        return version.held
    except UnknownVersion as error:
        raise InputError(str(error), Place(COMMAND_LINE, text=f"{option} {text}")) from error
