"""`speclaunch diagnose LOGFILE|RUN|-`: the cause of an engine's failure, and its remedy."""

from __future__ import annotations

import io
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any, cast

import typer
from rich.console import Console
from rich.text import Text

from speclaunch.app.output.console import err, out
from speclaunch.app.verbs.options import OutputFormat
from speclaunch.app.verbs.run_options import DiagnoseOptions
from speclaunch.core import ExitCode, InputError, is_endless, masked, open_regular, reason
from speclaunch.engine import held_versions, resolve_version
from speclaunch.serving import FILE as JOURNAL
from speclaunch.serving import (
    Diagnosis,
    Ending,
    Run,
    find_run,
    known_bugs,
    lines_of,
    meaning,
    proof,
    read_log,
    remedy_steps,
    setting_changes,
)
from speclaunch.serving import diagnose as diagnosed

VERSION = 1
_LONGEST_LINE = 400


def diagnosis_json(diagnosis: Diagnosis, path: str) -> dict[str, Any]:
    """Return `{"version": 1, "path": …, "cause": …}`; see docs/reference/diagnose.md."""
    cause = diagnosis.cause
    return {
        "version": VERSION,
        "path": path,
        "engine_log": diagnosis.engine,
        "engine": diagnosis.version,
        "failed": diagnosis.failed,
        "served": diagnosis.served,
        "stopped": diagnosis.stopped,
        "phase": diagnosis.phase.value,
        "launches": diagnosis.launches,
        "line": diagnosis.line_number,
        "text": _safe(diagnosis.line),
        "rank": diagnosis.rank,
        "numbers": dict(diagnosis.numbers),
        "rule": diagnosis.rule,
        "cause": None
        if cause is None
        else {
            "name": cause.name,
            "title": cause.title,
            "meaning": meaning(diagnosis),
            "memory": cause.memory,
            "remedy": list(remedy_steps(diagnosis)),
            "versions": str(cause.versions),
            "sources": list(cause.sources),
        },
        "changes": [
            {
                "argument": turn.argument,
                "direction": turn.direction.value,
                "flag": turn.flag,
                "override": turn.override,
                "now": turn.now,
            }
            for turn in setting_changes(diagnosis)
        ],
        "milestones": [
            {
                "phase": milestone.phase.value,
                "text": milestone.text,
                "line": milestone.line_number,
                "numbers": dict(milestone.numbers),
            }
            for milestone in diagnosis.milestones
        ],
        "advisories": [advisory.id for advisory in known_bugs(diagnosis)],
        "notes": [_safe(note) for note in diagnosis.notes],
        "unclear": diagnosis.unclear,
        "candidates": [
            {
                "name": candidate.cause.name,
                "title": candidate.cause.title,
                "line": candidate.line_number,
                "text": _safe(candidate.line),
                "reason": candidate.reason,
            }
            for candidate in diagnosis.candidates
        ],
    }


def show_diagnosis(console: Console, diagnosis: Diagnosis, path: str) -> None:
    """Print the diagnosis: progress, failure, meaning, remedy, evidence."""
    for text in _story(diagnosis, path):
        console.print(text)


def _story(diagnosis: Diagnosis, path: str) -> list[Text]:
    name = "standard input" if path == "-" else path
    color = "bold red" if diagnosis.failed else "bold green"
    lines = [Text.assemble((_verdict(diagnosis), color))]
    if diagnosis.launches > 1:
        lines.append(Text(f"  last of {diagnosis.launches} starts in this log", "dim"))
    if diagnosis.milestones:
        lines += [Text(), Text("How far it got", "bold")]
        width = max(len(str(milestone.line_number)) for milestone in diagnosis.milestones)
        for milestone in diagnosis.milestones:
            number = (f"{milestone.line_number:>{width}}", "dim")
            lines.append(Text.assemble("  ", number, f"  {_safe(milestone.text)}"))
    if diagnosis.line is not None:
        lines += [Text(), Text("What stopped it", "bold")]
        where = f"{name}:{diagnosis.line_number}"
        rank = f" ({diagnosis.rank})" if diagnosis.rank else ""
        lines.append(Text.assemble(("  --> ", "bold blue"), where, rank))
        lines.append(Text(f"      {_safe(proof(diagnosis))}"))
    lines += _advice(diagnosis)
    lines += _possible(diagnosis, name)
    lines += _known_bugs(diagnosis)
    if diagnosis.notes:
        lines += [Text(), Text("The engine also warned", "bold")]
        lines += [Text(f"  {_safe(note)}") for note in diagnosis.notes]
    return lines


def _possible(diagnosis: Diagnosis, name: str) -> list[Text]:
    if not diagnosis.candidates:
        return []
    lines = [Text(), Text("Possible causes", "bold")]
    for candidate in diagnosis.candidates:
        lines.append(Text(f"  - {candidate.cause.title} [{candidate.cause.name}]"))
        lines.append(Text(f"      {name}:{candidate.line_number}: {candidate.reason}", "dim"))
    if diagnosis.unclear:
        lines += [Text(), Text("What to do", "bold")]
        lines.append(Text("  - Diagnose the log of each engine process separately."))
    return lines


def _known_bugs(diagnosis: Diagnosis) -> list[Text]:
    found = known_bugs(diagnosis)
    if not found:
        return []
    lines = [Text(), Text(f"Known bugs of SGLang {diagnosis.version} that may explain it", "bold")]
    for advisory in found:
        summary = f"{advisory.symptom.value}: {advisory.summary.removesuffix('.')}"
        lines.append(Text(f"  - {advisory.id} {summary}"))
        if advisory.remedy:
            lines.append(Text(f"      {advisory.remedy}", "dim"))
    return lines


def _advice(diagnosis: Diagnosis) -> list[Text]:
    cause = diagnosis.cause
    if cause is None:
        return []
    lines = [Text(), Text("What it means", "bold"), Text(f"  {meaning(diagnosis)}")]
    lines += [Text(), Text("What to do", "bold")]
    lines += [Text(f"  - {step}") for step in remedy_steps(diagnosis)]
    for turn in setting_changes(diagnosis):
        was = f" (was {turn.now:g})" if turn.now is not None else ""
        direction = (f"{turn.direction.value:<6}", "bold cyan")
        change = f"{turn.flag}   in a recipe: {turn.override}{was}"
        lines.append(Text.assemble("    ", direction, change))
    if diagnosis.rule is not None:
        lines.append(Text(f"  - `speclaunch explain {diagnosis.rule}`: the rule that detects this"))
    note = f"Flags are those of SGLang {diagnosis.version}."
    if diagnosis.version is None:
        note = (
            f"Flags are those of SGLang {held_versions()[-1]}, the newest known, because the log "
            "states no version. Set the version with --engine."
        )
    lines += [Text(), Text(note, "dim")]
    if cause.sources:
        lines.append(Text(f"Source: {'; '.join(cause.sources)}", "dim"))
    return lines


def _verdict(diagnosis: Diagnosis) -> str:
    if diagnosis.cause is not None:
        when = "after serving" if diagnosis.served else f"at: {diagnosis.phase.value}"
        return f"The engine failed ({when}): {diagnosis.cause.title} [{diagnosis.cause.name}]"
    if diagnosis.unclear:
        return "Unclear: this log shows a failure, but its lines contradict each other"
    if diagnosis.failed:
        when = "after serving" if diagnosis.served else f"at: {diagnosis.phase.value}"
        return f"The engine failed ({when}) with an unknown error"
    if diagnosis.stopped:
        return "The engine was stopped on request; no failure"
    if diagnosis.served:
        return "The engine serves; no failure in this log"
    return f"No failure in this log; it ends at: {diagnosis.phase.value}"


def _safe(text: str | None) -> str:
    shown = masked("".join(c if c.isprintable() else " " for c in (text or "")))
    return shown if len(shown) <= _LONGEST_LINE else f"{shown[:_LONGEST_LINE]} …"


STANDARD_INPUT = "-"
_FAILED = (Ending.FAILED, Ending.DIED, Ending.HUNG)


def diagnose(options: DiagnoseOptions) -> ExitCode:
    """Explain an engine log. Raises InputError."""
    if options.engine is not None:
        known = resolve_version(options.engine)  # reject an invalid version before reading the log
        if known.note:
            err().print(f"note: {known.note}")
    log, found = _read(options.log, options.engine)
    if options.output_format is OutputFormat.JSON:
        typer.echo(json.dumps(diagnosis_json(found, log), indent=2, ensure_ascii=False))
    elif found.engine:
        show_diagnosis(out(), found, log)
    if not found.engine:
        err().print(f"{_shown(log)} is not an SGLang log")
        return ExitCode.NOTHING
    return ExitCode.FAILED if found.failed else ExitCode.CLEAN


def _read(log: str, engine: str | None) -> tuple[str, Diagnosis]:
    """Return the name of the log and its diagnosis. Raises InputError."""
    if log == STANDARD_INPUT:
        if is_endless(sys.stdin.buffer):
            raise InputError("standard input is an endless device", help=_hint(log))
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
                raise InputError(f"{log} is too large: {found.st_size} bytes", help=help_)
            return log, diagnosed(lines_of(file), version=engine)
    except OSError as error:
        raise InputError(f"cannot read {log}: {reason(error)}", help=_hint(log)) from None


_MAX_LOG_BYTES = 4 << 30
"""Maximum size of a log file in bytes. Reading takes about 1 s per 40 MB."""


def _run(name: str) -> Run:
    try:
        return find_run(name)
    except InputError as error:
        helps = [problem.help for problem in error.problems]
        raise InputError(f"{name} is neither a file nor a recorded launch", help=helps[0]) from None


def _of_run(run: Run, engine: str | None) -> tuple[str, Diagnosis]:
    """Return the path of a launch's log and the diagnosis of its last engine. Raises InputError."""
    if run.log is None or not run.log.exists():
        raise InputError(
            f"{run.name}: the engine's log does not exist", help="pass the path of a log file"
        )
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
