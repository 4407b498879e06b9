"""`speclaunch rules` and `speclaunch explain CODE`: what is checked, and why."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from speclaunch.cli.explaining import explain_code, listed
from speclaunch.cli.formats import OutputFormat
from speclaunch.report.console import err, out


def rules(
    output_format: Annotated[
        OutputFormat, typer.Option("--output-format", help="Output format.")
    ] = OutputFormat.TEXT,
) -> None:
    """List every rule with its code, severity and engine versions."""
    if output_format is OutputFormat.JSON:
        typer.echo(json.dumps({"version": 1, "rules": listed()}, indent=2, ensure_ascii=False))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for rule in listed():
        table.add_row(
            Text(rule["code"], "bold"),
            Text(", ".join((rule["severity"], *rule["also"]))),
            Text(rule["versions"] or "all", "dim"),
            Text(rule["summary"]),
        )
    out().print(table)
    err().print("\nspeclaunch explain CODE explains a rule.", style="dim")


def explain(
    code: Annotated[str, typer.Argument(metavar="CODE", help="A rule's code or name.")],
) -> None:
    """Explain a rule: what it finds, why it matters, what to do, and its sources."""
    explain_code(code)
