"""`speclaunch migrate`: migrate a script, manifest or recipe to another engine version."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec.structs import replace

from speclaunch.app.output.console import err, write_exact
from speclaunch.app.output.findings import bugs_across
from speclaunch.app.output.problems import show_problems
from speclaunch.app.verbs.change_options import MigrateOptions
from speclaunch.app.verbs.import_ import STDIN
from speclaunch.app.verbs.standard_input import read_stdin
from speclaunch.app.verbs.writing import require_sound, show_patch
from speclaunch.checks import (
    STDIN_SHOWN,
    Migration,
    against,
    check_text,
    configured,
    file_bytes,
    migrate_data,
    shown_diff,
    write_together,
)
from speclaunch.core import COMMAND_LINE, ExitCode, InputError, Place, Problem, reads
from speclaunch.engine import UnknownVersion, named


def migrate(options: MigrateOptions) -> ExitCode:
    """Migrate a file to another engine version. Raises InputError, OutputRefusedError."""
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
        err().print(f"{step.place}: {step.text}", markup=False)
    show_problems(err(), migration.warnings, "warning")
    show_problems(err(), migration.problems)
    if migration.problems:
        err().print(f"{file} is unchanged.")
    changed = migration.text != before
    also = migration.also if not migration.problems else []
    if not migration.problems:
        _require_sound(shown or file, before, migration, target, force=options.force)
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
            err().print(f"wrote {written}", markup=False)
    if migration.problems:
        return ExitCode.FAILED
    if not changed and not also:
        err().print(f"{file} needs no change for SGLang {target}.", style="dim")
    return ExitCode.CLEAN


def _require_sound(
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
        err().print(bugs, markup=False)


def _show(before: str, after: str, file: str, hidden: tuple[str, ...]) -> None:
    shown = shown_diff(before, after, file, hidden)
    show_patch(shown)
    if not shown.hidden and not shown.context:
        note = "context lines with secrets are omitted: apply with git apply --unidiff-zero"
        err().print(note, markup=False)


def _version(text: str, option: str) -> str:
    try:
        version = named(text)
        if version.note:
            err().print(f"{option} {text}: {version.note}", markup=False)
        return version.held
    except UnknownVersion as error:
        raise InputError(
            Problem(str(error), Place(COMMAND_LINE, text=f"{option} {text}"))
        ) from error
