"""Our recovery ladder against the advice of SGLang's documents, on simulated engines.

    python -m campaigns simulate [CASES] [--first N]

Prints restarts until serving and the KV tokens that are kept, over random deployments that fail at
first. The model of the engine's memory is in tests/support/serving/simulator.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table

from speclaunch.deployments.recipe.schema import Recovery
from tests.support.serving.simulator.compare import Result, Summary, compare, explained, summary
from tests.support.serving.simulator.quick import kept_weights

ROOT = Path(__file__).resolve().parent.parent

LADDERS = {
    "recovery=default": lambda result: result.ours,
    "the documents, word for word": lambda result: result.documents,
    "the documents, fraction by 0.1": lambda result: result.gentle,
}


def main() -> int:
    """Run the cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="?", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="number of the first random case")
    asked = parser.parse_args()
    text = (ROOT / "conf" / "recovery" / "default.yaml").read_text(encoding="utf-8")
    settings = Recovery(**yaml.safe_load(text))
    with kept_weights():
        results = compare(asked.cases, settings, asked.first)
    console = Console(width=110)
    console.print(_table([summary(name, results, of) for name, of in LADDERS.items()]))
    _rest(console, results)
    return 0


def _table(rows: list[Summary]) -> Table:
    table = Table(title=f"{rows[0].feasible} feasible deployments that fail at first")
    for name in ("ladder", "median", "95 %", "worst", "never served", "KV kept", "least 5 %"):
        table.add_column(name, justify="left" if name == "ladder" else "right")
    for row in rows:
        table.add_row(
            row.name,
            _number(row.median),
            _number(row.high),
            _number(row.worst),
            f"{row.never} ({100 * row.never / row.feasible:.0f} %)",
            f"{100 * row.kept:.0f} %",
            f"{100 * row.kept_low:.0f} %",
        )
    return table


def _number(value: float) -> str:
    return "never" if value == float("inf") else f"{value:g}"


def _rest(console: Console, results: list[Result]) -> None:
    restarts = Counter(result.ours.restarts for result in results if result.feasible)
    spread = ", ".join(f"{number}: {restarts[number]}" for number in sorted(restarts))
    console.print(f"restarts of ours: {spread}")
    infeasible = sum(not result.feasible for result in results)
    starts = Counter(explained(results))
    told = ", ".join(f"{number} after {count} start(s)" for count, number in sorted(starts.items()))
    console.print(f"infeasible: {infeasible}; explained: {told or 'none'}")
    phases = Counter(result.first.phase for result in results)
    console.print("first failures: " + ", ".join(f"{p} {n}" for p, n in phases.most_common()))
