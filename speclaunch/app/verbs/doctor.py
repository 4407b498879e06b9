"""`speclaunch doctor`: check this machine, and a recipe on it, before a launch."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

import psutil
import typer
from msgspec import Struct
from msgspec.structs import replace
from rich.console import Console
from rich.text import Text

from speclaunch.app.output.console import err_lines, many, out
from speclaunch.app.output.findings import origins, show_findings
from speclaunch.app.output.findings import render as render_finding
from speclaunch.app.output.formats_services import checkpoint_json, finding_json
from speclaunch.app.output.terminal import LineWriter, wrapped
from speclaunch.app.verbs.options import OutputFormat
from speclaunch.app.verbs.shared import engine_versions, lookup
from speclaunch.app.verbs.start_options import DoctorOptions
from speclaunch.checks import Finding, Severity, ask_mode, querier_for
from speclaunch.core import ExitCode, speclaunch_home
from speclaunch.deployments import load, select_role, split_recipe
from speclaunch.engine import UnknownFact, named, overrides_pin
from speclaunch.serving import (
    CheckLine,
    CheckSection,
    CheckState,
    DoctorRequest,
    RecipeNeeds,
    RecipeResults,
    check_machine,
    count,
    gather,
    worst,
)

VERSION = 1
_MARKS = {
    CheckState.OK: ("✓", "+", "green"),
    CheckState.NOTE: ("•", "-", "cyan"),
    CheckState.UNKNOWN: ("?", "?", "magenta"),
    CheckState.WARNING: ("!", "!", "bold yellow"),
    CheckState.ERROR: ("✗", "x", "bold red"),
}
"""Mark, ASCII substitute and color of each state."""
_STATES = {
    Severity.ERROR: CheckState.ERROR,
    Severity.WARNING: CheckState.WARNING,
    Severity.INFO: CheckState.NOTE,
}
_NARROWEST = 30
"""Minimum columns for text next to its label; with fewer, it is printed below the label."""


class DoctorReport(Struct, frozen=True):
    """Results of `doctor` for the machine, and for a recipe on it."""

    sections: tuple[CheckSection, ...]
    target: RecipeNeeds | None = None
    recipe_results: RecipeResults | UnknownFact | None = None

    @property
    def lines(self) -> tuple[CheckLine, ...]:
        return tuple(line for section in self.sections for line in section.lines)

    @property
    def findings(self) -> tuple[Finding, ...]:
        results = self.recipe_results
        return results.findings if isinstance(results, RecipeResults) else ()

    @property
    def state(self) -> CheckState:
        found = [CheckLine(f.code, _STATES[f.severity], f.message) for f in self.findings]
        return worst((*self.lines, *found))

    def count(self, state: CheckState) -> int:
        return count(self.lines, state) + sum(
            _STATES[finding.severity] is state for finding in self.findings
        )


def diagnosis_json(diagnosis: DoctorReport) -> dict[str, Any]:
    """Return `{"version": 1, "state": …, "checks": […]}`; see docs/reference/doctor.md."""
    document: dict[str, Any] = {
        "version": VERSION,
        "state": diagnosis.state.value,
        "checks": [
            {
                "check": line.check,
                "state": line.state.value,
                "found": line.found,
                "why": line.why,
                "fix": line.fix,
            }
            for line in diagnosis.lines
        ],
    }
    results = diagnosis.recipe_results
    if diagnosis.target is not None:
        document |= {"recipe": diagnosis.target.name, "engine": diagnosis.target.version}
    if isinstance(results, RecipeResults):
        document["findings"] = [
            {**finding_json(finding), "engine": finding.engine} for finding in results.findings
        ]
        document["unjudged"] = [
            {"code": rule.code, "rule": rule.rule, "reason": rule.reason}
            for rule in results.skipped
        ]
        document["checkpoints"] = [
            checkpoint_json(checkpoint) for checkpoint in results.plan.facts.checkpoints
        ]
    return document


def show_diagnosis(console: Console, diagnosis: DoctorReport) -> None:
    """Print the report as text that fits the terminal's width and encoding."""
    paper = LineWriter(console)
    for text in render(diagnosis.sections, paper.width, unicode=paper.can("✓•✗")):
        paper.text(text)
    if diagnosis.target is not None:
        _show_findings(paper, diagnosis)
    console.print()
    paper.text(_summary(diagnosis))


def render(
    sections: Iterable[CheckSection], width: int | None, *, unicode: bool = True
) -> Iterator[Text]:
    """Yield the lines of every section. Commands are not wrapped, so they can be copied."""
    sections = [section for section in sections if section.lines]
    label = max((len(line.check) for section in sections for line in section.lines), default=0)
    for number, section in enumerate(sections):
        if number:
            yield Text()
        yield Text(section.title, "bold")
        for line in section.lines:
            yield from _line(line, label, width, unicode=unicode)


def _line(line: CheckLine, label: int, width: int | None, *, unicode: bool) -> Iterator[Text]:
    letter, plain, color = _MARKS[line.state]
    column = label + 6  # two spaces, the mark, a space, the label, two spaces
    room = None if width is None else width - column
    head = Text.assemble("  ", (letter if unicode else plain, color), " ")
    if room is not None and room < _NARROWEST:
        yield head.append(line.check)
        column, room = 4, max(width or 0, _NARROWEST) - 4
        first = ""
    else:
        head.append(f"{line.check:<{label}}  ")
        first, *rest = wrapped(line.found, room)
        yield head.append(first)
    indent = " " * column
    for piece in rest if first else wrapped(line.found, room):
        yield Text(indent + piece)
    for piece in wrapped(line.why, room) if line.why else ():
        yield Text(indent + piece, "dim")
    if line.fix:
        yield from _fix(line, indent, room)


def _fix(line: CheckLine, indent: str, room: int | None) -> Iterator[Text]:
    remedy = f"fix: {line.fix}"
    pieces = [remedy] if line.command else wrapped(remedy, room)
    for number, piece in enumerate(pieces):
        text = Text(indent + piece)
        if not number:
            text.stylize("bold cyan", len(indent), len(indent) + 4)
        yield text


def _show_findings(paper: LineWriter, diagnosis: DoctorReport) -> None:
    target, results = diagnosis.target, diagnosis.recipe_results
    if target is None:
        return
    paper.console.print()
    if not isinstance(results, RecipeResults):
        why = results.why if results is not None else "the rules were not run"
        paper.line((f"{target.name} could not be checked: {why}", "bold"))
        return
    head = f"{target.name} on SGLang {', '.join(results.versions)}"
    head += f" and {target.hardware}" if target.hardware else ", on unknown hardware"
    if target.elsewhere:
        head += ", which is not this machine"
    paper.line((head, "bold"))
    for finding in results.findings:
        engines = (finding.engine,) if len(results.versions) > 1 else ()
        paper.text(render_finding(finding, engines=engines).drawn())
    if not results.findings:
        paper.line(("no findings", "green"))
    show_findings(paper.console, (), results.skipped)
    for origin in origins(results.plan.facts.checkpoints):
        paper.line((origin, "dim"))


def _summary(diagnosis: DoctorReport) -> Text:
    errors, warnings = diagnosis.count(CheckState.ERROR), diagnosis.count(CheckState.WARNING)
    counted = [many(errors, "error")] * bool(errors) + [many(warnings, "warning")] * bool(warnings)
    numbers = ", ".join(counted)
    target = diagnosis.target
    unresolved = count(diagnosis.lines, CheckState.UNKNOWN)
    if unresolved:
        numbers += f"{', ' if numbers else ''}{many(unresolved, 'check')} without a result"
    if target is None:
        return Text(f"{numbers or 'No problems found'}.", _color(errors, warnings))
    place = "there" if target.elsewhere else "here"
    if errors:
        return Text(f"{target.name} would not start {place}: {numbers}.", "bold red")
    outcome = f"No problem prevents {target.name} from starting {place}"
    return Text(f"{outcome}{f' ({numbers})' if numbers else ''}.", _color(errors, warnings))


def _color(errors: int, warnings: int) -> str:
    return "bold red" if errors else "bold yellow" if warnings else "bold green"


def doctor(options: DoctorOptions) -> ExitCode:
    """Check this machine, and a recipe on it if one is named. Raises InputError."""
    versions = engine_versions(options.engine)
    found = lookup(options.models, options.hardware, online=options.online, assume=options.assume)
    request = DoctorRequest(
        versions=versions, lookup=found, asker=querier_for(ask_mode(options.ask))
    )
    if options.overrides:
        request = _with_recipe(request, options)
    facts, results = gather(request, speclaunch_home())
    diagnosis = DoctorReport(check_machine(facts), facts.target, results)
    if options.output_format is OutputFormat.JSON:
        typer.echo(json.dumps(diagnosis_json(diagnosis), indent=2))
    else:
        show_diagnosis(out(), diagnosis)
    _end_what_hangs()
    failing = diagnosis.count(CheckState.ERROR) + (
        diagnosis.count(CheckState.WARNING) if options.strict else 0
    )
    return ExitCode.FAILED if failing else ExitCode.CLEAN


def _with_recipe(request: DoctorRequest, options: DoctorOptions) -> DoctorRequest:
    name, changes = split_recipe(options.overrides)
    loaded = load(name, changes, options.config_dir)
    recipe = select_role(loaded, options.role, "doctor checks a single role")
    if pin := recipe.deployment.engine.pinned:
        for version in request.versions:
            if named(pin).held != version:
                err_lines().print(f"note: {overrides_pin(version, pin)}")
    return replace(request, recipe=recipe, complete_recipe=loaded if loaded.parts else None)


def _end_what_hangs() -> None:
    """Kill remaining child processes, such as an interpreter that did not answer in time."""
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                child.kill()
