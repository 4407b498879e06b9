"""`speclaunch models`: what is known of the checkpoints, and what is in their files."""

from __future__ import annotations

import json
import os
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated

import typer

from speclaunch.cli.formats import OutputFormat
from speclaunch.cli.models_inspect import inspect
from speclaunch.cli.options import Assume, ConfigDirs, ModelDirs, Online
from speclaunch.cli.own_title import hide_secrets
from speclaunch.errors import ExitCode, InputError, Problem, SpeclaunchError, from_here
from speclaunch.report.console import err, out

app = typer.Typer(
    help="Checkpoints: the facts that a repository keeps of them, and what is in their files.",
    no_args_is_help=True,
)
app.command("inspect")(inspect)

From = Annotated[
    Path,
    typer.Argument(
        metavar="[PATH]",
        help="A file or directory: `.speclaunch/models` counts from there upward.",
    ),
]
Format = Annotated[OutputFormat, typer.Option("--output-format", help="Output format.")]


class NothingKeptError(SpeclaunchError):
    """No `.speclaunch/models` with facts in it (exit 3)."""

    exit_code = ExitCode.NOTHING


@app.command()
def pull(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE|NAME|DIR…",
            help="A recipe (its target and its draft; overrides may follow), a model on the hub, "
            "or with --as a directory.",
        ),
    ],
    called: Annotated[
        str | None,
        typer.Option("--as", metavar="ORG/NAME", help="The name of the directory's checkpoint."),
    ] = None,
    revision: Annotated[
        str | None,
        typer.Option("--revision", help="A branch, a tag or a commit on the hub. Default: main."),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(
            "--into",
            metavar="DIR",
            help="Where to write. Default: the nearest `.speclaunch/models` from the recipe "
            "(else the working directory) upward, else a new one beside it.",
        ),
    ] = None,
    config_dir: ConfigDirs = None,
) -> None:
    """Fetch the facts of checkpoints, never their weights, into files to be committed."""
    from speclaunch.facts.hub_client import RefusedError
    from speclaunch.facts.write_checkpoint_file import keep
    from speclaunch.planning.kept_facts import pulled, wanted
    from speclaunch.reads.safe_json import UnreadableFileError
    from speclaunch.report.problems import show_problems

    hide_secrets("models pull", words)
    asked, problems = wanted(words, config_dir or (), called=called, revision=revision, into=into)
    for one in asked:
        try:
            path, new = keep(one.folder, pulled(one, _today()))
        except RefusedError as error:
            problems.append(Problem(f"{one.name}: {error}", help=error.help))
        except UnreadableFileError as error:
            problems.append(Problem(f"{one.name}: {error}"))
        except OSError as error:
            problems.append(Problem(f"cannot write {one.folder}: {error.strerror}"))
        else:
            out().print(f"{from_here(path)}: {'written' if new else 'unchanged'}", markup=False)
    show_problems(err(), problems)
    if problems:
        raise typer.Exit(ExitCode.FAILED)


@app.command()
def ls(
    start: From = Path(),
    index: Annotated[
        bool, typer.Option("--index", help="List the index that ships with speclaunch, too.")
    ] = False,
    output_format: Format = OutputFormat.TEXT,
) -> None:
    """List the checkpoints whose facts the repository keeps."""
    from speclaunch.facts.checkpoint_file import CheckpointFile
    from speclaunch.facts.repository_facts import kept_names
    from speclaunch.planning.kept_facts import read_kept
    from speclaunch.reads.safe_json import UnreadableFileError
    from speclaunch.report.models import kept_json, show_kept
    from speclaunch.resources import models_dir

    def read(folder: Path, name: str) -> CheckpointFile | str:
        try:
            return read_kept(folder, name)[1]
        except UnreadableFileError as error:
            return str(error)

    folders = _folders(start, needed=not index)
    named = {from_here(folder): folder for folder in folders}
    named |= {"index": models_dir()} if index else {}
    found = {
        title: [
            (name, read(folder, name))
            for name in kept_names(folder)
            if title != "index" or "/" in name  # that folder holds other files, too
        ]
        for title, folder in named.items()
    }
    if output_format is OutputFormat.JSON:
        rows = [
            {"model": name, "folder": title, **kept_json(file)}
            for title, files in found.items()
            for name, file in files
        ]
        typer.echo(json.dumps({"version": 1, "models": rows}, indent=2))
    else:
        for title, files in found.items():
            err().print(f"{title}: {len(files)}", style="dim", markup=False)
            show_kept(out(), files)
    if any(isinstance(file, str) for files in found.values() for _, file in files):
        raise typer.Exit(ExitCode.USAGE)


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME|PATH", help="A checkpoint.")],
    models: ModelDirs = None,
    online: Online = False,
    assume: Assume = None,
    output_format: Format = OutputFormat.TEXT,
) -> None:
    """Show everything that is known of a checkpoint, and where it comes from."""
    from speclaunch.cli.check_options import lookup
    from speclaunch.facts.facts import UnknownFact
    from speclaunch.facts.project_settings import SettingsFrom
    from speclaunch.facts.repository_facts import models_folders
    from speclaunch.facts.sources import Sources
    from speclaunch.planning.known_checkpoint import known
    from speclaunch.report.models import known_json, show_known
    from speclaunch.report.problems import show_problems
    from speclaunch.resources import models_dir

    asked = lookup(models, None, online=online, assume=assume)
    here = Path.cwd()
    project = SettingsFrom().of(here)
    folders = (*asked.model_dirs, *project.model_dirs)
    assumed = (*asked.assume, *project.assume)
    sources = Sources(folders, models_folders(here), models_dir(), online, assumed)
    found = known(name, sources)
    if output_format is OutputFormat.JSON:
        typer.echo(json.dumps(known_json(name, found), indent=2, default=list))
    elif isinstance(found.used, UnknownFact) and not found.others:
        show_problems(err(), [Problem(f"{name}: {found.used.why}", help=found.used.help)])
    else:
        show_known(out(), name, found)
    if isinstance(found.used, UnknownFact):
        raise typer.Exit(ExitCode.FAILED)


@app.command()
def check(
    start: From = Path(),
    update: Annotated[bool, typer.Option("--update", help="Write the stale files again.")] = False,
    output_format: Format = OutputFormat.TEXT,
) -> None:
    """Compare the repository's facts with the hub; exit 1 where one is stale or unknown there."""
    from speclaunch.planning.kept_facts import State
    from speclaunch.planning.kept_facts import check as compare
    from speclaunch.report.models import checked_json, show_checked

    folders = _folders(start, needed=True)
    found = (one for folder in folders for one in compare(folder, _today(), update=update))
    states = []
    rows = []
    for one in found:
        states.append(one.state)
        if output_format is OutputFormat.JSON:
            rows.append(checked_json(one))
        else:
            show_checked(out(), [one])
    if output_format is OutputFormat.JSON:
        typer.echo(json.dumps({"version": 1, "models": rows}, indent=2))
    if not states:
        raise NothingKeptError(_nothing(start))
    if {State.STALE, State.UNKNOWN}.intersection(states):
        raise typer.Exit(ExitCode.FAILED)


def _folders(start: Path, *, needed: bool) -> tuple[Path, ...]:
    from speclaunch.facts.repository_facts import models_folders

    if not start.exists():
        raise InputError(Problem(f"{start}: no such file or directory"))
    found = models_folders(start)
    if needed and not found:
        raise NothingKeptError(_nothing(start))
    return found


def _nothing(start: Path) -> Problem:
    return Problem(
        f"no .speclaunch/models with facts from {start.absolute()} upward",
        help="`speclaunch models pull RECIPE` makes one",
    )


def _today() -> date:
    """The day in UTC; SOURCE_DATE_EPOCH (seconds) sets it, as for other reproducible outputs."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    now = datetime.now(UTC)
    return (datetime.fromtimestamp(int(epoch[:11]), UTC) if epoch.isdecimal() else now).date()
