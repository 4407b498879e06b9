"""What a launch would run: the command and the steps if memory runs out."""

from __future__ import annotations

import json
from dataclasses import replace

import typer

from speclaunch.engine.shell import shell_command
from speclaunch.launch.journal_header import document
from speclaunch.launch.session import Session
from speclaunch.plan.fit.price import say_all
from speclaunch.report.console import err, out
from speclaunch.report.forecast import forecast_json, show_forecast


def show_command(session: Session, *, as_json: bool) -> None:
    """What a launch would run."""
    prepared, foreseen = session.prepared, session.foreseen()
    if foreseen is not None:
        prepared = prepared.changed(foreseen.changes)
        said = f"starts with {say_all(foreseen.changes)}: as written {foreseen.why}"
        spelling = replace(prepared.spelling, notes=(*prepared.spelling.notes, said))
        prepared = replace(prepared, spelling=spelling)
    if as_json:
        found = {**document(prepared), "recovery": forecast_json(session.forecast())}
        out().print_json(json.dumps(found))
        return
    deployment = prepared.recipe.deployment
    notes = [f"{deployment.name} for SGLang {prepared.version}", *prepared.spelling.notes]
    text = shell_command(
        prepared.program, prepared.spelling.arguments, prepared.overlay, notes=notes
    )
    typer.echo(text, nl=False)
    if session.recovers:
        show_forecast(err(), session.forecast(), session.known_good())
