"""`speclaunch diagnose LOGFILE|RUN|-`: the cause of an engine's failure, and its remedy."""

from __future__ import annotations

import io
import json
import os
import shlex
import sys
from pathlib import Path
from typing import cast

import typer

from speclaunch.app.output.console import err, out
from speclaunch.app.output.diagnosis import diagnosis_json, show_diagnosis
from speclaunch.app.verbs.options import OutputFormat
from speclaunch.app.verbs.run_options import DiagnoseOptions
from speclaunch.core import ExitCode, InputError, Problem, is_endless, open_regular, reason
from speclaunch.engine import resolve_version
from speclaunch.serving import FILE as JOURNAL
from speclaunch.serving import Diagnosis, Ending, Run, find_run, lines_of, read_log
from speclaunch.serving import diagnose as diagnosed

STANDARD_INPUT = "-"
_FAILED = (Ending.FAILED, Ending.DIED, Ending.HUNG)


def diagnose(options: DiagnoseOptions) -> ExitCode:
    """Explain an engine log. Raises InputError."""
    if options.engine is not None:
        known = resolve_version(options.engine)  # reject an invalid version before reading the log
        if known.note:
            err().print(f"note: {known.note}", markup=False)
    log, found = _read(options.log, options.engine)
    if options.output_format is OutputFormat.JSON:
        typer.echo(json.dumps(diagnosis_json(found, log), indent=2, ensure_ascii=False))
    elif found.engine:
        show_diagnosis(out(), found, log)
    if not found.engine:
        err().print(f"{_shown(log)} is not an SGLang log", markup=False)
        return ExitCode.NOTHING
    return ExitCode.FAILED if found.failed else ExitCode.CLEAN


def _read(log: str, engine: str | None) -> tuple[str, Diagnosis]:
    """Return the name of the log and its diagnosis. Raises InputError."""
    if log == STANDARD_INPUT:
        if is_endless(sys.stdin.buffer):
            raise InputError(Problem("standard input is an endless device", help=_hint(log)))
        return log, diagnosed(lines_of(cast(io.BufferedReader, sys.stdin.buffer)), version=engine)
    path = Path(log)
    if (path / JOURNAL).is_file():
        return _of_run(find_run(path.resolve().name, path.resolve().parent), engine)
    if not path.exists() and "/" not in log:
        return _of_run(_run(log), engine)
    try:
        handle, found = open_regular(path, pipes=True)
        with os.fdopen(handle, "rb") as file:
            if found.st_size > _MAX_LOG_BYTES:
                help_ = f"pass its end: tail -c 1G {shlex.quote(log)} | speclaunch diagnose -"
                raise InputError(Problem(f"{log} has {found.st_size} bytes", help=help_))
            return log, diagnosed(lines_of(file), version=engine)
    except OSError as error:
        raise InputError(Problem(f"cannot read {log}: {reason(error)}", help=_hint(log))) from None


_MAX_LOG_BYTES = 4 << 30
"""Maximum bytes of a log file, which is read at about 40 MB/s."""


def _run(name: str) -> Run:
    try:
        return find_run(name)
    except InputError as error:
        helps = [problem.help for problem in error.problems]
        raise InputError(
            Problem(f"{name}: neither a file nor a recorded launch", help=helps[0])
        ) from None


def _of_run(run: Run, engine: str | None) -> tuple[str, Diagnosis]:
    """Return log and diagnosis of a launch's last engine, from its journal. Raises InputError."""
    if run.log is None or not run.log.exists():
        raise InputError(Problem(f"{run.name}: the engine's log does not exist"))
    attempt = run.attempts[-1]
    version = engine or run.header.engine.version or None
    code = attempt.get("exit_code") if attempt.get("ending") in _FAILED else None
    return str(run.log), diagnosed(read_log(run.log), version=version, exit_code=code)


def _hint(log: str) -> str | None:
    if Path(log).is_dir():
        return "it is a directory; name a log file in it"
    return "name a log file or a launch; `speclaunch runs` lists the launches"


def _shown(log: str) -> str:
    return "standard input" if log == STANDARD_INPUT else log
