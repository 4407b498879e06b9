"""`speclaunch rules` and `speclaunch explain CODE`: what is checked, and why."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from speclaunch.cli.formats import OutputFormat
from speclaunch.engine.nearest import suggest
from speclaunch.errors import InputError, Problem
from speclaunch.lint.file_codes import FILE_CODES
from speclaunch.report.console import err, out
from speclaunch.report.rule_page import explained
from speclaunch.rules.registry import all_rules, by_code


def rules(
    output_format: Annotated[
        OutputFormat, typer.Option("--output-format", help="Output format.")
    ] = OutputFormat.TEXT,
) -> None:
    """List every rule with its code, severity and engine versions."""
    if output_format is OutputFormat.JSON:
        typer.echo(json.dumps({"version": 1, "rules": _listed()}, indent=2, ensure_ascii=False))
        return
    table = Table.grid(padding=(0, 2))
    for rule in _listed():
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
    rule = by_code(code)
    notice = next((n for n in FILE_CODES if code.strip().lower() in (n.code.lower(), n.name)), None)
    found = rule or notice
    if found is None:
        known = [one["code"] for one in _listed()] + [one["name"] for one in _listed()]
        near = suggest(code.strip().upper(), known) or suggest(code.strip().lower(), known)
        raise InputError(
            Problem(f"unknown rule {code!r}", help=near or "`speclaunch rules` lists them")
        )
    text = explained(found)
    if out().is_terminal:
        out().print(Markdown(text))
    else:
        typer.echo(text, nl=False)


def _listed() -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = [
        {
            "code": rule.code,
            "name": rule.name,
            "severity": rule.severity.value,
            "also": {severity.value: when for severity, when in rule.also.items()},
            "versions": str(rule.versions),
            "summary": rule.summary,
        }
        for rule in all_rules()
    ]
    listed += [
        {
            "code": notice.code,
            "name": notice.name,
            "severity": notice.severity.value,
            "also": {},
            "versions": "",
            "summary": notice.summary,
        }
        for notice in FILE_CODES
    ]
    return sorted(listed, key=lambda one: one["code"])
