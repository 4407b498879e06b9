"""What `speclaunch lint` does with its options."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from speclaunch.cli.formats import OutputFormat
from speclaunch.errors import ExitCode, Problem, SpeclaunchError
from speclaunch.lint.cache import opened
from speclaunch.lint.installed import remembered_engine
from speclaunch.lint.lint_files import Files
from speclaunch.lint.paths import STDIN
from speclaunch.lint.progress import following
from speclaunch.lint.report import Report
from speclaunch.record import record
from speclaunch.report.console import err_lines, out_lines
from speclaunch.report.findings import show_left_out, show_report
from speclaunch.rules.finding import Severity

if TYPE_CHECKING:
    from speclaunch.lint.run import Options
    from speclaunch.rules.examine import Lookup
    from speclaunch.rules.interface import Rule


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
    no_cache: bool = False
    jobs: int | None = None
    output_format: OutputFormat = OutputFormat.TEXT


class NothingToCheckError(SpeclaunchError):
    """No deployment in any of the paths (exit 3)."""

    exit_code = ExitCode.NOTHING


def check_files(asked: LintWords) -> ExitCode:
    """Check, and print what was found. Raises NothingToCheckError, InputError."""
    files = _files(asked)
    named = asked.paths or (".",)
    with following(files.outcomes(), lambda text: err_lines().print(text, style="dim")) as outcomes:
        report = files.report(outcomes)
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


def _files(asked: LintWords) -> Files:
    """The files, with what is known of earlier lints. Raises InputError for an option."""

    @cache
    def rules() -> tuple[Rule, ...]:
        from speclaunch.cli.check_options import chosen_rules

        return chosen_rules(asked.select, asked.ignore)

    @cache
    def facts() -> Lookup:
        from speclaunch.cli.check_options import lookup

        return lookup(asked.models, asked.hardware, online=asked.online, assume=asked.assume)

    @cache
    def options() -> Options:
        from speclaunch.lint.run import Options

        all_asked = not (asked.select or asked.ignore)
        return Options(facts(), rules(), versions, all_asked, installed)

    # what may be wrong is told before anything is checked; all else is not needed for what is known
    if asked.select or asked.ignore:
        rules()
    if asked.models or asked.hardware is not None or asked.assume:
        facts()
    versions: tuple[str, ...] = ()
    if asked.engine is not None:
        from speclaunch.cli.check_options import engine_versions

        versions = engine_versions(asked.engine)
    stdin = sys.stdin.buffer.read() if STDIN in asked.paths else b""
    said = [versions, asked.hardware, asked.assume, asked.select, asked.ignore]
    said += [tuple(map(str, asked.models)), tuple(map(str, asked.config_dir))]
    wanted = not (asked.online or asked.no_cache)  # the hub may say something else tomorrow
    kept, installed = opened(said, remembered_engine, wanted=wanted)
    files = Files(asked.paths or (".",), stdin, asked.config_dir, options, kept, asked.jobs)
    if not versions:  # interpreters answer while the modules that check are imported
        files.before_checking = installed
    return files


def _skipped(report: Report) -> bool:
    return any(file.skipped and not file.template for file in report.files)


def _exit_code(report: Report, *, strict: bool) -> ExitCode:
    if report.unreadable:
        return ExitCode.USAGE
    failing = report.count(Severity.ERROR) + (report.count(Severity.WARNING) if strict else 0)
    return ExitCode.FAILED if failing else ExitCode.CLEAN
