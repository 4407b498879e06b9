"""`speclaunch lint`: check recipes, scripts, compose and Kubernetes files; start nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from speclaunch.app.output.console import err_lines, out_lines, write_commands
from speclaunch.app.output.formats import FormatInput, format_named
from speclaunch.app.verbs.options import LintFormat
from speclaunch.checks import FOLDER as CACHE
from speclaunch.checks import (
    STDIN,
    STDIN_SHOWN,
    Configuration,
    LintRun,
    LintSettings,
    Report,
    Severity,
    ask_mode,
    has_judges,
    identity,
    opened,
    querier_for,
    remembered_engine,
)
from speclaunch.checks import options as checking
from speclaunch.core import (
    ExitCode,
    InputError,
    SpeclaunchError,
    distrust,
    judges_home,
    printable,
    redact,
    speclaunch_home,
)
from speclaunch.engine import EngineCheckMode, SettingsFrom

if TYPE_CHECKING:
    from speclaunch.app.verbs.start_options import LintOptions
    from speclaunch.checks import EngineQuerier, LeftOut, Options


_WITH_EDITS = frozenset({LintFormat.SARIF, LintFormat.RDJSON})
_SUFFIXES = {".txt": LintFormat.TEXT, ".xml": LintFormat.JUNIT}


class LintOutput(Struct, frozen=True):
    """Format of standard output, and the output files with their formats."""

    shown: LintFormat
    files: tuple[tuple[Path, LintFormat], ...] = ()
    annotates: bool = False
    """True if GitHub annotations follow the text."""

    @property
    def exits_zero(self) -> bool:
        return format_named(self.shown).exits_zero

    @property
    def has_edits(self) -> bool:
        return not _WITH_EDITS.isdisjoint((self.shown, *(name for _, name in self.files)))

    def write(self, source: FormatInput) -> None:
        """Write to standard output and the output files. Raises InputError."""
        self._show(source)
        written: dict[LintFormat, str] = {}
        for path, name in self.files:
            from speclaunch.checks import write_atomically

            if name not in written:
                written[name] = printable(redact(format_named(name).text(source)))
            write_atomically(path, written[name])

    def _show(self, source: FormatInput) -> None:
        shown = format_named(self.shown)
        if not self.annotates and self.shown is not LintFormat.GITHUB:
            commands = self.shown is LintFormat.AZURE
            shown.show(source, out_lines(), write_commands if commands else sys.stdout.write)
            return
        from speclaunch.app.output.formats_services import add_summary, without_commands

        if self.annotates:
            write_commands(without_commands(shown.text(source)))
        write_commands(format_named(LintFormat.GITHUB).text(source))
        try:
            add_summary(source)
        except (OSError, ValueError) as error:  # the lint result remains valid
            reason = getattr(error, "strerror", None) or error
            err_lines().print(f"warning: cannot write the job summary: {reason}")


class NothingToCheckError(SpeclaunchError):
    """Error for paths without a deployment (exit code 3)."""

    exit_code = ExitCode.NOTHING


def lint(options: LintOptions) -> ExitCode:
    """Check the files and print the findings. Raises NothingToCheckError, InputError."""
    if options.diff and (
        options.output_file or options.output_format not in (None, LintFormat.TEXT)
    ):
        raise InputError("--diff cannot be combined with --output-format or --output-file")
    out = output(options.output_format, options.output_file, options.paths)
    run = lint_run(options)
    named = options.paths or (".",)
    report = _unknown(options, run, run.report(lambda text: err_lines().print(text, style="dim")))
    code = ExitCode.CLEAN
    if options.fix or options.unsafe_fixes or options.diff:
        report, code = _fixed(options, run, report, out)
        if options.diff:
            return code
    else:
        out.write(_format_input(options, run, report, out))
    if report.is_empty:
        if options.only_deployments:
            return ExitCode.CLEAN
        where = ", ".join("standard input" if name == STDIN else name for name in named)
        if report.not_read:
            raise NothingToCheckError(f"cannot check any deployment in {where}")
        raise NothingToCheckError(f"no SGLang deployment in {where}")
    exit_zero = out.exits_zero if options.exit_zero is None else options.exit_zero
    found = _exit_code(report, strict=options.strict, exit_zero=exit_zero)
    if code is ExitCode.USAGE:
        return code
    return found or (ExitCode.CLEAN if exit_zero and code is ExitCode.FAILED else code)


def _fixed(
    options: LintOptions, run: LintRun, report: Report, out: LintOutput
) -> tuple[Report, ExitCode]:
    """Apply the fixes, or only print the diff; return the new report and the exit code."""
    from speclaunch.app.verbs.fixing import code_of, fix_found, put_stdin, tell

    done = fix_found(report, run, unsafe=options.unsafe_fixes, only_shown=options.diff)
    code = code_of(done, only_shown=options.diff)
    if options.diff:
        tell(done, report, err_lines(), only_shown=True)
        return report, ExitCode.USAGE if report.unreadable else code
    if done.would_change:
        run.stdin = done.stdin or b""
        report = _unknown(options, run, run.report())
    is_text = out.shown is LintFormat.TEXT
    if STDIN in options.paths:
        put_stdin(done)
    with redirect_stdout(sys.stderr) if STDIN in options.paths else nullcontext():
        tell(done, report, out_lines() if is_text else err_lines())
        out.write(_format_input(options, run, report, out))
    return report, code


def _unknown(options: LintOptions, run: LintRun, report: Report) -> Report:
    """Return the report without baseline findings, after writing the baseline if requested."""

    def baseline_of(path: str) -> Path | None:
        return (
            options.write_baseline or run.settings(STDIN if path == STDIN_SHOWN else path).baseline
        )

    paths = options.paths or (".",)
    linted = (*(file.path for file in report.files), *(f"{path}/x" for path in paths))
    if all(baseline_of(path) is None for path in linted):
        return report
    from speclaunch.checks import Covered, all_findings, without_known, write_baseline

    covered = Covered(paths, lambda code, path: run.settings(path).selects(code))
    if options.write_baseline is not None:
        count = write_baseline(options.write_baseline, all_findings(report), covered)
        findings = f"{count} finding{'' if count == 1 else 's'}"
        err_lines().print(f"{options.write_baseline}: {findings}")
    return without_known(report, baseline_of, covered)


def _format_input(
    options: LintOptions, run: LintRun, report: Report, out: LintOutput
) -> FormatInput:
    info = options.info or bool(options.select)  # selected rules are shown at any severity
    if not out.has_edits:
        return FormatInput(report, options.strict, info=info)
    from speclaunch.app.verbs.fixing import edits_in

    return FormatInput(report, options.strict, edits_in(run, report), info)


def lint_run(options: LintOptions) -> LintRun:
    """Return a run over `options.paths`, with its cache. Raises InputError for invalid options."""
    configuration = _configuration(options)

    @cache
    def checking_of(settings: LintSettings) -> Options:
        return checking(settings, installed, asker)

    @cache
    def left_out() -> LeftOut:
        from speclaunch.checks import LeftOut

        return LeftOut(configuration.above, options.exclude, by_git=not options.no_gitignore)

    stdin = b""
    if STDIN in options.paths:
        from speclaunch.app.verbs.shared import read_stdin

        stdin = read_stdin()
    use_cache = not (options.online or options.no_cache)  # answers of the hub can change
    asker, rests_on = _asker(options)
    if use_cache:
        _warn_of_distrust()
    stored, installed = opened(rests_on, remembered_engine, enabled=use_cache)
    paths = options.paths or (".",)
    return LintRun(
        paths,
        stdin,
        configuration.of,
        checking_of,
        stored,
        options.jobs,
        installed,
        left_out,
        options.only_deployments,
        asker is not None,
    )


def _warn_of_distrust() -> None:
    """Warn once on standard error if other users could have modified the cache or the judges."""
    for what, folder in (("the cache", speclaunch_home() / CACHE), ("judges", judges_home())):
        found = distrust(folder)
        if found is not None:
            text = f"note: not using {what}: {found.why} ({found.help})"
            err_lines().print(text)
            return


def _asker(options: LintOptions) -> tuple[EngineQuerier | None, tuple[str, ...]]:
    """Return the querier (None without an engine check), and its identity for the cache."""
    mode = ask_mode(options.ask, SettingsFrom(options.config, not options.no_config))
    if mode is EngineCheckMode.AUTO and not has_judges():
        return None, ()

    asker = querier_for(mode, keeps=not options.no_cache)
    return asker, identity(asker)


def _configuration(options: LintOptions) -> Configuration:
    """Return the validated settings of the command line, without reading linted files."""
    if options.config is not None and options.no_config:
        raise InputError("--config cannot be combined with --no-config")
    if options.config is not None and not options.config.is_file():
        raise InputError(f"--config {options.config}: no such file")
    if options.select or options.ignore:
        from speclaunch.checks import codes

        select, ignore = codes("--select", options.select), codes("--ignore", options.ignore)
    else:
        select = ignore = ()
    if options.models or options.hardware is not None or options.assume:
        from speclaunch.app.verbs.shared import lookup

        lookup(options.models, options.hardware, assume=options.assume)
    versions: tuple[str, ...] = ()
    if options.engine is not None:
        from speclaunch.app.verbs.shared import engine_versions

        versions = engine_versions(options.engine)
    stated = LintSettings(
        versions,
        options.hardware,
        options.models,
        options.config_dir,
        options.assume,
        select,
        ignore,
        options.online,
        options.baseline,
        SettingsFrom(options.config, not options.no_config),
    )
    return Configuration(stated, lambda note: err_lines().print(f"note: {note}"))


def _exit_code(report: Report, *, strict: bool, exit_zero: bool) -> ExitCode:
    if report.unreadable:
        return ExitCode.USAGE
    if exit_zero:
        return ExitCode.CLEAN
    failing = report.count(Severity.ERROR) + (report.count(Severity.WARNING) if strict else 0)
    return ExitCode.FAILED if failing else ExitCode.CLEAN


def output(
    shown: LintFormat | None, files: Sequence[str], linted: Sequence[str] = ()
) -> LintOutput:
    """Return the requested output, with annotations on GitHub Actions unless `shown` is set.

    Raises InputError (see `output_files`).
    """
    annotates = False
    if shown is None:
        annotates = os.environ.get("GITHUB_ACTIONS") == "true"
    written: tuple[tuple[Path, LintFormat], ...] = ()
    if files:
        from speclaunch.app.verbs.shared import output_files

        written = output_files(files, LintFormat, _SUFFIXES, inputs=linted, devices=True)
    return LintOutput(shown or LintFormat.TEXT, written, annotates)
