"""`speclaunch runs`: the journals of launches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from speclaunch.cli.formats import OutputFormat
from speclaunch.errors import InputError, Problem
from speclaunch.launch.runs import default_directory, find_run, list_runs, prune
from speclaunch.report.console import err, out
from speclaunch.report.runs import run_json, show_run, show_runs, summary_json

app = typer.Typer(help="List launches, or show one in detail.", invoke_without_command=True)

Directory = Annotated[
    Path | None,
    typer.Option("--dir", help="The directory of the runs, if `launch.log_dir` sets another."),
]
Format = Annotated[OutputFormat, typer.Option("--output-format", help="Output format.")]


@app.callback()
def runs(ctx: typer.Context, directory: Directory = None) -> None:
    """List the launches if no verb is given."""
    ctx.obj = directory
    if ctx.invoked_subcommand is None:
        ls(ctx, directory)


@app.command()
def ls(
    ctx: typer.Context, directory: Directory = None, output_format: Format = OutputFormat.TEXT
) -> None:
    """List the launches, newest last."""
    directory = directory or ctx.obj
    found = [run for run in list_runs(_checked(directory)) if run.document or run.holder]
    if output_format is OutputFormat.JSON:
        document = {"version": 1, "runs": [summary_json(run) for run in found]}
        out().print_json(json.dumps(document))
        return
    if not found:
        err().print(f"no launch is recorded in {directory or default_directory()}", markup=False)
        return
    show_runs(out(), found)


@app.command()
def show(
    ctx: typer.Context,
    name: Annotated[
        str, typer.Argument(help="A run, its recipe's name (the newest), or `last`.")
    ] = "last",
    directory: Directory = None,
    output_format: Format = OutputFormat.TEXT,
) -> None:
    """Show what happened in a launch: attempts, milestones, causes, rungs, the end."""
    run = find_run(name, _checked(directory or ctx.obj))
    if output_format is OutputFormat.JSON:
        out().print_json(json.dumps(run_json(run)))
        return
    show_run(out(), run)


@app.command("prune")
def prune_(
    ctx: typer.Context,
    keep: Annotated[int, typer.Option("--keep", min=0, help="Number of launches to keep.")] = 20,
    directory: Directory = None,
) -> None:
    """Remove the logs and journals of all but the last ended launches."""
    removed = prune(keep, _checked(directory or ctx.obj))
    for run in removed:
        out().print(run.name, markup=False)
    err().print(f"{len(removed)} removed", style="dim")


def _checked(directory: Path | None) -> Path | None:
    if directory is None:
        return None
    if not directory.is_dir():
        raise InputError(Problem(f"--dir {directory}: no such directory"))
    return directory.absolute()
