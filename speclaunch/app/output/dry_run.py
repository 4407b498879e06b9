"""Dry-run output: the command, and recovery steps if memory runs out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import typer
from msgspec.structs import replace
from rich.console import Console
from rich.text import Text

from speclaunch.app.output.console import err, out
from speclaunch.engine import format_settings, shell_command
from speclaunch.serving import LastGood, Rung, Session, document

Forecast = tuple[Sequence[Rung], str]


def show_forecast(
    console: Console, forecast: Forecast, known: LastGood | None, *, ladder: bool
) -> None:
    """Print the last known good settings and the recovery steps.

    With `ladder`, print each step with its cost and predicted memory fit; otherwise only the count.
    """
    rungs, end = forecast
    if known is not None:
        changes = " ".join(f"{name}={value}" for name, value in known.changes.items())
        console.print(
            f"# starts from the last known good settings: {changes} (--fresh ignores them)",
        )
    if rungs and not ladder:
        steps = "1 recovery step" if len(rungs) == 1 else f"{len(rungs)} recovery steps"
        console.print(f"# if memory runs out: {steps} (--ladder shows them)")
        return
    if rungs:
        console.print("# recovery steps if memory runs out, in order:")
    for number, rung in enumerate(rungs, 2):
        changes = " ".join(f"{name}={value}" for name, value in rung.changes.items())
        console.print(Text(f"#   {number}. {changes}"))
        details = [f"costs: {rung.cost}"] if rung.cost else []
        if rung.predicted is not None:
            details.append(f"predicted: {rung.predicted.fit.value}, {rung.predicted.why}")
        for detail in details:
            console.print(Text(f"#      {detail}", "dim"))
    console.print(f"# {'then' if rungs else 'if memory runs out'}: {end}")


def forecast_json(forecast: Forecast) -> dict[str, Any]:
    """Return the recovery steps and outcome as JSON."""
    rungs, end = forecast
    return {
        "rungs": [
            {
                "name": rung.name,
                "changes": dict(rung.changes),
                "why": rung.why,
                "cost": rung.cost,
                "predicted": rung.predicted.fit.value if rung.predicted else None,
            }
            for rung in rungs
        ],
        "end": end,
    }


def show_command(session: Session, *, ladder: bool, as_json: bool) -> None:
    """Print the command of a launch, with the recovery steps if `ladder` or `as_json` is set."""
    prepared, predicted = session.prepared, session.predicted_rung()
    if predicted is not None:
        prepared = prepared.changed(predicted.changes)
        note = f"starts with {format_settings(predicted.changes)}; otherwise {predicted.why}"
        rendered = replace(prepared.rendered_args, notes=(*prepared.rendered_args.notes, note))
        prepared = replace(prepared, rendered_args=rendered)
    if as_json:
        found = {**document(prepared), "recovery": forecast_json(session.forecast())}
        out().print_json(json.dumps(found))
        return
    deployment = prepared.recipe.deployment
    notes = [f"{deployment.name} for SGLang {prepared.version}", *prepared.rendered_args.notes]
    text = shell_command(
        prepared.program, prepared.rendered_args.arguments, prepared.overlay, notes=notes
    )
    typer.echo(text, nl=False)
    if session.recovers:
        show_forecast(err(), session.forecast(), session.known_good(), ladder=ladder)
