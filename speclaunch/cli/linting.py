"""What `speclaunch lint` does with its options."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from speclaunch.asking.mode import Ask, ask_mode, has_judges
from speclaunch.cli.formats import LintFormat
from speclaunch.cli.lint_output import Output, output
from speclaunch.errors import ExitCode, InputError, Problem, SpeclaunchError
from speclaunch.facts.project_settings import SettingsFrom
from speclaunch.home import distrust, judges_home, speclaunch_home
from speclaunch.lint.cache import FOLDER as CACHE
from speclaunch.lint.cache import opened
from speclaunch.lint.configuration import Configuration, FileSettings, Given
from speclaunch.lint.configuration import options as checking
from speclaunch.lint.installed import remembered_engine
from speclaunch.lint.lint_files import Files
from speclaunch.lint.paths import STDIN, STDIN_SHOWN
from speclaunch.lint.progress import following
from speclaunch.lint.report import Report
from speclaunch.record import record
from speclaunch.report.console import err_lines, out_lines
from speclaunch.report.formats.interface import Told
from speclaunch.rules.finding import Severity

if TYPE_CHECKING:
    from speclaunch.asking.asker import Asker
    from speclaunch.lint.left_out import LeftOut
    from speclaunch.lint.run import Options


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
    info: bool = False
    no_cache: bool = False
    jobs: int | None = None
    output_format: LintFormat | None = None
    """None: text, and what the service takes on which it runs."""
    output_file: tuple[str, ...] = ()
    """Each `FORMAT=FILE`."""
    exit_zero: bool | None = None
    """None: as the format has it."""
    fix: bool = False
    unsafe_fixes: bool = False
    diff: bool = False
    only_deployments: bool = False
    config: Path | None = None
    no_config: bool = False
    exclude: tuple[str, ...] = ()
    no_gitignore: bool = False
    baseline: Path | None = None
    write_baseline: Path | None = None
    ask: Ask | None = None
    """None: as the project's file has it."""
    trust_engine: bool = False


class NothingToCheckError(SpeclaunchError):
    """No deployment in any of the paths (exit 3)."""

    exit_code = ExitCode.NOTHING


def check_files(asked: LintWords) -> ExitCode:
    """Check, and print what was found. Raises NothingToCheckError, InputError."""
    if asked.trust_engine:
        from speclaunch.facts.trusted_programs import trust_all

        trust_all()
    if asked.diff and (asked.output_file or asked.output_format not in (None, LintFormat.TEXT)):
        raise InputError(
            Problem("--diff prints a patch: leave out --output-format and --output-file")
        )
    out = output(asked.output_format, asked.output_file, asked.paths)
    files = _files(asked)
    named = asked.paths or (".",)
    with following(files.outcomes(), lambda text: err_lines().print(text, style="dim")) as outcomes:
        report = _unknown(asked, files, files.report(outcomes))
    code = ExitCode.CLEAN
    if asked.fix or asked.unsafe_fixes or asked.diff:
        report, code = _fixed(asked, files, report, out)
        if asked.diff:
            return code
    else:
        out.write(_told(asked, files, report, out))
    if report.is_empty:
        if asked.only_deployments:
            return ExitCode.CLEAN
        where = ", ".join("standard input" if one == STDIN else one for one in named)
        if report.not_read:
            raise NothingToCheckError(Problem(f"no deployment in {where} can be checked"))
        raise NothingToCheckError(Problem(f"no SGLang deployment in {where}"))
    exit_zero = out.exits_zero if asked.exit_zero is None else asked.exit_zero
    found = _exit_code(report, strict=asked.strict, exit_zero=exit_zero)
    if code is ExitCode.USAGE:
        return code
    return found or (ExitCode.CLEAN if exit_zero and code is ExitCode.FAILED else code)


def _fixed(asked: LintWords, files: Files, report: Report, out: Output) -> tuple[Report, ExitCode]:
    """Apply the fixes, and show what is left afterwards; with --diff only what would change."""
    from contextlib import nullcontext, redirect_stdout

    from speclaunch.cli.fixing import code_of, fix_found, put_stdin, tell

    done = fix_found(report, files, unsafe=asked.unsafe_fixes, only_shown=asked.diff)
    code = code_of(done, only_shown=asked.diff)
    if asked.diff:
        tell(done, report, err_lines(), only_shown=True)
        return report, ExitCode.USAGE if report.unreadable else code
    if done.would_change:
        files.stdin = done.stdin or b""
        report = _unknown(asked, files, files.report(files.outcomes()))
    is_text = out.shown is LintFormat.TEXT
    if STDIN in asked.paths:
        put_stdin(done)
    with redirect_stdout(sys.stderr) if STDIN in asked.paths else nullcontext():
        tell(done, report, out_lines() if is_text else err_lines())
        out.write(_told(asked, files, report, out))
    return report, code


def _unknown(asked: LintWords, files: Files, report: Report) -> Report:
    """The report without what a baseline knows; with --write-baseline that is all of it."""

    def baseline_of(path: str) -> Path | None:
        return (
            asked.write_baseline or files.settings(STDIN if path == STDIN_SHOWN else path).baseline
        )

    paths = asked.paths or (".",)
    linted = (*(file.path for file in report.files), *(f"{path}/x" for path in paths))
    if all(baseline_of(path) is None for path in linted):
        return report
    from speclaunch.lint.baseline import Covered, all_findings, without_known, write_baseline

    covered = Covered(paths, lambda code, path: files.settings(path).asks(code))
    if asked.write_baseline is not None:
        count = write_baseline(asked.write_baseline, all_findings(report), covered)
        findings = f"{count} finding{'' if count == 1 else 's'}"
        err_lines().print(f"{asked.write_baseline}: {findings}", markup=False)
    return without_known(report, baseline_of, covered)


def _told(asked: LintWords, files: Files, report: Report, out: Output) -> Told:
    info = asked.info or bool(asked.select)  # selected rules are shown, whatever their severity
    if not out.has_edits:
        return Told(report, asked.strict, info=info)
    from speclaunch.cli.fix_edits import edits_in

    return Told(report, asked.strict, edits_in(files, report), info)


def _files(asked: LintWords) -> Files:
    """The files, with what is known of earlier lints. Raises InputError for an option."""
    configuration = _configuration(asked)

    @cache
    def options(settings: FileSettings) -> Options:
        return checking(settings, installed, asker)

    @cache
    def left_out() -> LeftOut:
        from speclaunch.lint.left_out import LeftOut

        return LeftOut(configuration.above, asked.exclude, by_git=not asked.no_gitignore)

    stdin = b""
    if STDIN in asked.paths:
        from speclaunch.cli.standard_input import read_stdin

        stdin = read_stdin()
    wanted = not (asked.online or asked.no_cache)  # the hub may say something else tomorrow
    asker, rests_on = _asker(asked)
    if wanted:
        _warn_of_distrust()
    kept, installed = opened(rests_on, remembered_engine, wanted=wanted)
    paths = asked.paths or (".",)
    return Files(
        paths,
        stdin,
        configuration.of,
        options,
        kept,
        asked.jobs,
        installed,
        left_out,
        asked.only_deployments,
        asker is not None,
    )


def _warn_of_distrust() -> None:
    """Report once, on standard error, that other users may have made the cache or the judges."""
    for what, folder in (("the cache", speclaunch_home() / CACHE), ("judges", judges_home())):
        found = distrust(folder)
        if found is not None:
            text = f"note: without {what}: {found.why} ({found.help})"
            err_lines().print(text, markup=False)
            return


def _asker(asked: LintWords) -> tuple[Asker | None, tuple[str, ...]]:
    """Who asks engines, and what that makes results rest on."""
    mode = ask_mode(asked.ask, SettingsFrom(asked.config, not asked.no_config))
    if mode is Ask.AUTO and not has_judges():
        return None, ()
    from speclaunch.asking.at_hand import asker_for, identity

    asker = asker_for(mode, keeps=not asked.no_cache)
    return asker, identity(asker)


def _configuration(asked: LintWords) -> Configuration:
    """What the command line says; it is checked before anything of a file is."""
    if asked.config is not None and asked.no_config:
        raise InputError(Problem("--config and --no-config exclude each other"))
    if asked.config is not None and not asked.config.is_file():
        raise InputError(Problem(f"--config {asked.config}: no such file"))
    if asked.select or asked.ignore:
        from speclaunch.lint.code_selection import codes

        select, ignore = codes("--select", asked.select), codes("--ignore", asked.ignore)
    else:
        select = ignore = ()
    if asked.models or asked.hardware is not None or asked.assume:
        from speclaunch.cli.check_options import lookup

        lookup(asked.models, asked.hardware, assume=asked.assume)
    versions: tuple[str, ...] = ()
    if asked.engine is not None:
        from speclaunch.cli.check_options import engine_versions

        versions = engine_versions(asked.engine)
    given = Given(
        versions,
        asked.hardware,
        asked.models,
        asked.config_dir,
        asked.assume,
        select,
        ignore,
        asked.online,
        asked.baseline,
    )
    project = SettingsFrom(asked.config, not asked.no_config)
    return Configuration(given, project, lambda note: err_lines().print(f"note: {note}"))


def _exit_code(report: Report, *, strict: bool, exit_zero: bool) -> ExitCode:
    if report.unreadable:
        return ExitCode.USAGE
    if exit_zero:
        return ExitCode.CLEAN
    failing = report.count(Severity.ERROR) + (report.count(Severity.WARNING) if strict else 0)
    return ExitCode.FAILED if failing else ExitCode.CLEAN
