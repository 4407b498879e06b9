"""What a launch would try if the memory were not enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from speclaunch.launch.last_good import LastGood
from speclaunch.launch.start import Rung

Forecast = tuple[Sequence[Rung], str]


def show_forecast(console: Console, forecast: Forecast, known: LastGood | None) -> None:
    """The rungs in order, with what each costs and what the budget predicts."""
    rungs, end = forecast
    if known is not None:
        changes = " ".join(f"{name}={value}" for name, value in known.changes.items())
        console.print(
            f"# starts with the last known good settings: {changes} (--fresh does not)",
            markup=False,
        )
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
    console.print(f"# {'then' if rungs else 'if memory runs out'}: {end}", markup=False)


def forecast_json(forecast: Forecast) -> dict[str, Any]:
    """The same for a program."""
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
