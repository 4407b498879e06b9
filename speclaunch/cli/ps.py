"""`speclaunch ps`: what runs now."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from speclaunch.cli.formats import OutputFormat
from speclaunch.launch.runs import list_runs
from speclaunch.report.console import err, out
from speclaunch.report.runs import show_living, summary_json


def ps(
    output_format: Annotated[
        OutputFormat, typer.Option("--output-format", help="Output format.")
    ] = OutputFormat.TEXT,
) -> None:
    """List the running engines that speclaunch supervises."""
    living = [run for run in list_runs() if run.holder is not None]
    if output_format is OutputFormat.JSON:
        document = {"version": 1, "runs": [summary_json(run) for run in living]}
        out().print_json(json.dumps(document))
        return
    if not living:
        err().print("no engine is running", style="dim")
        return
    show_living(out(), living)
