"""`speclaunch lint`: recipes, scripts, compose and Kubernetes files, checked without starting."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from speclaunch.cli.check_options import chosen_rules, engine_versions, lookup
from speclaunch.cli.options import (
    Assume,
    ConfigDirs,
    EngineVersions,
    HardwareName,
    Ignore,
    ModelDirs,
    Online,
    OutputFormat,
    Select,
)
from speclaunch.errors import ExitCode, Problem, SpeclaunchError
from speclaunch.lint.collect import STDIN, collect
from speclaunch.lint.progress import following
from speclaunch.lint.report import Report
from speclaunch.lint.run import Options
from speclaunch.lint.run import lint as run_lint
from speclaunch.report.console import err, out
from speclaunch.report.findings import show_left_out, show_report
from speclaunch.report.findings_json import report_json
from speclaunch.rules.finding import Severity


class NothingToCheckError(SpeclaunchError):
    """No deployment in any of the paths (exit 3)."""

    exit_code = ExitCode.NOTHING


def lint(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATHS]…",
            help="Files or directories; `-` reads standard input. Default: the current directory.",
        ),
    ] = None,
    config_dir: ConfigDirs = None,
    engine: EngineVersions = None,
    hardware: HardwareName = None,
    models: ModelDirs = None,
    online: Online = False,
    assume: Assume = None,
    select: Select = None,
    ignore: Ignore = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on warnings, too.")] = False,
    output_format: Annotated[
        OutputFormat, typer.Option("--output-format", help="Output format.")
    ] = OutputFormat.TEXT,
) -> None:
    """Check deployments in files against the rules, for one or more engine versions."""
    rules = chosen_rules(select, ignore)
    options = Options(
        lookup(models, hardware, online=online, assume=assume),
        rules,
        engine_versions(engine),
        all_asked=not (select or ignore),
    )
    named = paths or ["."]
    stdin = sys.stdin.buffer.read() if STDIN in named else b""
    found = collect(named, stdin, tuple(config_dir or ()))
    with following(found, lambda text: err().print(text, style="dim", markup=False)) as sources:
        report = run_lint(sources, options)
    nothing = not (report.deployments or report.unreadable or _skipped(report))
    left_out = report.not_read or any(file.template for file in report.files)
    if output_format is OutputFormat.JSON and (left_out or not nothing):
        typer.echo(json.dumps(report_json(report), indent=2, ensure_ascii=False))
    elif nothing:
        show_left_out(out(), report)
    else:
        show_report(out(), report)
    if nothing:
        where = ", ".join("standard input" if one == STDIN else one for one in named)
        if report.not_read:
            raise NothingToCheckError(Problem(f"no deployment in {where} can be checked"))
        raise NothingToCheckError(Problem(f"no SGLang deployment in {where}"))
    raise typer.Exit(_exit_code(report, strict=strict))


def _skipped(report: Report) -> bool:
    return any(file.skipped and not file.template for file in report.files)


def _exit_code(report: Report, *, strict: bool) -> ExitCode:
    if report.unreadable:
        return ExitCode.USAGE
    failing = report.count(Severity.ERROR) + (report.count(Severity.WARNING) if strict else 0)
    return ExitCode.FAILED if failing else ExitCode.CLEAN
