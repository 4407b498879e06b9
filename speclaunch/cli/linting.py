"""What `speclaunch lint` does with its options."""

from __future__ import annotations

import sys
from pathlib import Path

from speclaunch.cli.check_options import chosen_rules, engine_versions, lookup
from speclaunch.cli.formats import OutputFormat
from speclaunch.errors import ExitCode, Problem, SpeclaunchError
from speclaunch.lint.collect import STDIN, collect
from speclaunch.lint.progress import following
from speclaunch.lint.report import Report
from speclaunch.lint.run import Options
from speclaunch.lint.run import lint as run_lint
from speclaunch.record import record
from speclaunch.report.console import err_lines, out_lines
from speclaunch.report.findings import show_left_out, show_report
from speclaunch.rules.finding import Severity


@record
class LintWords:
    """A command line of `speclaunch lint`: see its help."""

    paths: tuple[str, ...] = ()
    config_dir: tuple[Path, ...] = ()
    engine: str | None = None
    hardware: str | None = None
    models: tuple[Path, ...] = ()
    online: bool = False
    assume: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    strict: bool = False
    output_format: OutputFormat = OutputFormat.TEXT


class NothingToCheckError(SpeclaunchError):
    """No deployment in any of the paths (exit 3)."""

    exit_code = ExitCode.NOTHING


def check_files(asked: LintWords) -> ExitCode:
    """Check, and print what was found. Raises NothingToCheckError, InputError."""
    rules = chosen_rules(asked.select, asked.ignore)
    options = Options(
        lookup(asked.models, asked.hardware, online=asked.online, assume=asked.assume),
        rules,
        engine_versions(asked.engine),
        all_asked=not (asked.select or asked.ignore),
    )
    named = asked.paths or (".",)
    stdin = sys.stdin.buffer.read() if STDIN in named else b""
    found = collect(named, stdin, asked.config_dir)
    with following(found, lambda text: err_lines().print(text, style="dim")) as sources:
        report = run_lint(sources, options)
    nothing = not (report.deployments or report.unreadable or _skipped(report))
    left_out = report.not_read or any(file.template for file in report.files)
    if asked.output_format is OutputFormat.JSON and (left_out or not nothing):
        import json

        from speclaunch.report.findings_json import report_json

        print(json.dumps(report_json(report), indent=2, ensure_ascii=False))  # noqa: T201
    elif nothing:
        show_left_out(out_lines(), report)
    else:
        show_report(out_lines(), report)
    if nothing:
        where = ", ".join("standard input" if one == STDIN else one for one in named)
        if report.not_read:
            raise NothingToCheckError(Problem(f"no deployment in {where} can be checked"))
        raise NothingToCheckError(Problem(f"no SGLang deployment in {where}"))
    return _exit_code(report, strict=asked.strict)


def _skipped(report: Report) -> bool:
    return any(file.skipped and not file.template for file in report.files)


def _exit_code(report: Report, *, strict: bool) -> ExitCode:
    if report.unreadable:
        return ExitCode.USAGE
    failing = report.count(Severity.ERROR) + (report.count(Severity.WARNING) if strict else 0)
    return ExitCode.FAILED if failing else ExitCode.CLEAN
