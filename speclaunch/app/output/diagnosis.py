"""A diagnosis as text and as JSON."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from speclaunch.core import masked
from speclaunch.engine import held_versions
from speclaunch.serving import Diagnosis, known_bugs, meaning, proof, remedy_steps, setting_changes

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
    lines = [Text.assemble((_verdict(diagnosis), _color(diagnosis)))]
    if diagnosis.launches > 1:
        lines.append(Text(f"  last of {diagnosis.launches} starts in this log", "dim"))
    if diagnosis.milestones:
        lines += [Text(), Text("How far it got", "bold")]
        width = max(len(str(milestone.line_number)) for milestone in diagnosis.milestones)
        lines += [
            Text.assemble(
                "  ", (f"{milestone.line_number:>{width}}", "dim"), f"  {_safe(milestone.text)}"
            )
            for milestone in diagnosis.milestones
        ]
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
    """Return lines about the known bugs of the release that affect the configuration."""
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
        lines.append(
            Text.assemble(
                "    ",
                (f"{turn.direction.value:<6}", "bold cyan"),
                f"{turn.flag}   in a recipe: {turn.override}{was}",
            )
        )
    if diagnosis.rule is not None:
        lines.append(Text(f"  - `speclaunch explain {diagnosis.rule}`: the rule that detects this"))
    note = f"Flags are those of SGLang {diagnosis.version}."
    if diagnosis.version is None:
        note = (
            f"Flags are those of SGLang {held_versions()[-1]}, the newest known: the log does not "
            "state its version. Set it with --engine."
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


def _color(diagnosis: Diagnosis) -> str:
    return "bold red" if diagnosis.failed else "bold green"


def _safe(text: str | None) -> str:
    """Return shortened text without control characters and secrets."""
    shown = "".join(c if c.isprintable() else " " for c in (text or ""))
    shown = masked(shown)
    return shown if len(shown) <= _LONGEST_LINE else f"{shown[:_LONGEST_LINE]} …"
