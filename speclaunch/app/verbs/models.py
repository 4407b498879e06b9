"""`speclaunch models`: checkpoint facts, and the contents of checkpoint files."""

from __future__ import annotations

import json
import os
from datetime import UTC, date, datetime
from pathlib import Path

import typer

from speclaunch.app.output.console import err, out
from speclaunch.app.verbs.change_options import (
    InspectOptions,
    ModelsCheckOptions,
    ModelsListOptions,
    ModelsShowOptions,
    PullOptions,
)
from speclaunch.app.verbs.options import OutputFormat
from speclaunch.app.verbs.own_title import hide_secrets
from speclaunch.core import ExitCode, InputError, Problem, SpeclaunchError, from_here


class NoFactsError(SpeclaunchError):
    """Error if no `.speclaunch/models` has facts (exit code 3)."""

    exit_code = ExitCode.NOTHING


def inspect(options: InspectOptions) -> ExitCode:
    """Compare a checkpoint's tensors with those that the engine loads. Raises InputError."""
    from speclaunch.app.output.models import inspection_json, show_inspection
    from speclaunch.app.verbs.check_options import engine_versions
    from speclaunch.checks import Severity
    from speclaunch.engine import held_versions
    from speclaunch.measure import inspect_checkpoint

    versions = engine_versions(options.engine)
    if len(versions) > 1:
        raise InputError(
            Problem(f"--engine {options.engine} has several versions", help="name one")
        )
    found = inspect_checkpoint(
        options.checkpoint, options.target, versions[0] if versions else held_versions()[-1]
    )
    if options.output_format is OutputFormat.JSON:
        typer.echo(json.dumps(inspection_json(found), indent=2, ensure_ascii=False))
    else:
        show_inspection(out(), found)
    failing = any(finding.severity is Severity.ERROR for finding in found.findings)
    return ExitCode.FAILED if failing else ExitCode.CLEAN


def pull(options: PullOptions) -> ExitCode:
    """Fetch the facts of checkpoints into files. Raises InputError."""
    from speclaunch.app.output.problems import show_problems
    from speclaunch.core import UnreadableFileError
    from speclaunch.engine import HubRefusedError, store_facts
    from speclaunch.measure import checkpoints_to_pull, pulled

    hide_secrets("models pull", options.words)
    checkpoints, problems = checkpoints_to_pull(
        options.words,
        options.config_dir,
        called=options.called,
        revision=options.revision,
        into=options.into,
    )
    for checkpoint in checkpoints:
        try:
            path, new = store_facts(checkpoint.folder, pulled(checkpoint, _today()))
        except HubRefusedError as error:
            problems.append(Problem(f"{checkpoint.name}: {error}", help=error.help))
        except UnreadableFileError as error:
            problems.append(Problem(f"{checkpoint.name}: {error}"))
        except OSError as error:
            problems.append(Problem(f"cannot write {checkpoint.folder}: {error.strerror}"))
        else:
            out().print(f"{from_here(path)}: {'written' if new else 'unchanged'}", markup=False)
    show_problems(err(), problems)
    return ExitCode.FAILED if problems else ExitCode.CLEAN


def list_models(options: ModelsListOptions) -> ExitCode:
    """List the checkpoints whose facts are in the repository. Raises InputError."""
    from speclaunch.app.output.models import show_stored, stored_json
    from speclaunch.core import UnreadableFileError, models_dir
    from speclaunch.engine import CheckpointFile, stored_names
    from speclaunch.measure import read_stored

    def read(folder: Path, name: str) -> CheckpointFile | str:
        try:
            return read_stored(folder, name)[1]
        except UnreadableFileError as error:
            return str(error)

    folders = _folders(options.start, needed=not options.index)
    named = {from_here(folder): folder for folder in folders}
    named |= {"index": models_dir()} if options.index else {}
    found = {
        title: [
            (name, read(folder, name))
            for name in stored_names(folder)
            if title != "index" or "/" in name  # that folder has other files, too
        ]
        for title, folder in named.items()
    }
    if options.output_format is OutputFormat.JSON:
        rows = [
            {"model": name, "folder": title, **stored_json(file)}
            for title, files in found.items()
            for name, file in files
        ]
        typer.echo(json.dumps({"version": 1, "models": rows}, indent=2))
    else:
        for title, files in found.items():
            err().print(f"{title}: {len(files)}", style="dim", markup=False)
            show_stored(out(), files)
    return (
        ExitCode.USAGE
        if any(isinstance(file, str) for files in found.values() for _, file in files)
        else ExitCode.CLEAN
    )


def show(options: ModelsShowOptions) -> ExitCode:
    """Show all facts of a checkpoint and their sources. Raises InputError."""
    from speclaunch.app.output.models import known_json, show_known
    from speclaunch.app.output.problems import show_problems
    from speclaunch.app.verbs.check_options import lookup
    from speclaunch.core import models_dir
    from speclaunch.engine import SettingsFrom, Sources, UnknownFact, models_folders
    from speclaunch.measure import sources_of

    name = options.name
    requested = lookup(options.models, None, online=options.online, assume=options.assume)
    here = Path.cwd()
    project = SettingsFrom().of(here)
    folders = (*requested.model_dirs, *project.model_dirs)
    assumed = (*requested.assume, *project.assume)
    sources = Sources(folders, models_folders(here), models_dir(), options.online, assumed)
    found = sources_of(name, sources)
    if options.output_format is OutputFormat.JSON:
        typer.echo(json.dumps(known_json(name, found), indent=2, default=list))
    elif isinstance(found.used, UnknownFact) and not found.others:
        show_problems(err(), [Problem(f"{name}: {found.used.why}", help=found.used.help)])
    else:
        show_known(out(), name, found)
    return ExitCode.FAILED if isinstance(found.used, UnknownFact) else ExitCode.CLEAN


def check(options: ModelsCheckOptions) -> ExitCode:
    """Compare the repository's facts with the hub. Raises InputError, NoFactsError."""
    from speclaunch.app.output.models import checked_json, show_checked
    from speclaunch.measure import FactsState
    from speclaunch.measure import check as compare

    folders = _folders(options.start, needed=True)
    found = (
        facts for folder in folders for facts in compare(folder, _today(), update=options.update)
    )
    states = []
    rows = []
    for facts in found:
        states.append(facts.state)
        if options.output_format is OutputFormat.JSON:
            rows.append(checked_json(facts))
        else:
            show_checked(out(), [facts])
    if options.output_format is OutputFormat.JSON:
        typer.echo(json.dumps({"version": 1, "models": rows}, indent=2))
    if not states:
        raise NoFactsError(_nothing(options.start))
    return (
        ExitCode.FAILED
        if {FactsState.STALE, FactsState.UNKNOWN}.intersection(states)
        else ExitCode.CLEAN
    )


def _folders(start: Path, *, needed: bool) -> tuple[Path, ...]:
    from speclaunch.engine import models_folders

    if not start.exists():
        raise InputError(Problem(f"{start}: no such file or directory"))
    found = models_folders(start)
    if needed and not found:
        raise NoFactsError(_nothing(start))
    return found


def _nothing(start: Path) -> Problem:
    return Problem(
        f"no .speclaunch/models with facts at or above {start.absolute()}",
        help="create it with `speclaunch models pull RECIPE`",
    )


def _today() -> date:
    """Return the date in UTC; SOURCE_DATE_EPOCH (seconds) sets it, for reproducible output."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    now = datetime.now(UTC)
    return (datetime.fromtimestamp(int(epoch[:11]), UTC) if epoch.isdecimal() else now).date()
