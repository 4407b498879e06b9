"""What speclaunch costs, beside reference commands on the same files, in one run.

    python tools/bench.py [--only GROUP,…] [--rounds 5] [--files 1000] [--cpu] [--no-goals]
                          [--before SPECLAUNCH] [--markdown docs/reference/performance.md]

Groups: start (`--version`, `--help`), one (a script, a recipe), recipes, scripts, memory, compose,
refuse and launch (these two need the CPU engine). Everything runs with an empty HOME and default
options. Exits 1 when a goal is missed. docs/reference/performance.md tells how each is measured.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import (
    composing,
    launching,
    many_files,
    one_file,
    page,
    refusing,
    start,
)
from benchmarks.ground import Ground
from benchmarks.measuring import Clock
from benchmarks.rows import Row

from speclaunch.core.files import speclaunch_home

GROUPS: dict[str, Callable[[Ground], Iterator[Row]]] = {
    "start": start.measure,
    "one": one_file.measure,
    "compose": composing.measure,
    "scripts": many_files.measure_scripts,
    "recipes": many_files.measure_recipes,
    "memory": many_files.measure_memory,
}
"""What needs no engine."""
ON_THE_ENGINE = ("refuse", "launch")


def measured(ground: Ground, only: list[str], before: str | None) -> Iterator[Row]:
    """The rows of the chosen groups, as they come."""
    if any(name in only for name in ("one", "compose", "scripts", "recipes", "memory")):
        ground.write()
    for name, measure in GROUPS.items():
        if name in only:
            yield from measure(ground)
    engine = refusing.at_hand(speclaunch_home())
    if engine is None:
        if set(only) & set(ON_THE_ENGINE):
            print("refuse and launch left out: run `speclaunch engine install cpu` first")
        return
    if "refuse" in only:
        yield from refusing.measure(ground, engine)
    if "launch" in only:
        yield from launching.measure(ground, before)


def show(rows: list[Row], about: str) -> None:
    """The table on the terminal."""
    drawn = Table("work", "beside", "speclaunch", "reference", "number", "goal", caption=about)
    for row in rows:
        style = "red" if row.missed else "" if row.goal is None else "green"
        drawn.add_row(*row.cells(), style=style)
    Console(width=None if sys.stdout.isatty() else 140).print(drawn)


def main() -> int:
    """Measure, print, and exit 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    every = [*GROUPS, *ON_THE_ENGINE]
    parser.add_argument("--only", default=",".join(every), help="groups, separated by commas")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--files", type=int, default=1000, help="how many are many")
    parser.add_argument("--cpu", action="store_true", help="compare seconds of the processor")
    parser.add_argument("--no-goals", action="store_true", help="exit 0 whatever was missed")
    parser.add_argument("--before", help="the speclaunch of an earlier installation, for `launch`")
    parser.add_argument("--markdown", type=Path, help="the page whose table is replaced")
    given = parser.parse_args()
    only = given.only.split(",")
    if unknown := set(only) - set(every):
        parser.error(f"no such group: {', '.join(sorted(unknown))}; there are {', '.join(every)}")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="speclaunch-bench-") as name:
        ground = Ground(Path(name), given.rounds, given.files, Clock(given.cpu))
        for row in measured(ground, only, given.before):
            print(f"{row.group}: {row.work}: {row.cells()[4]}", file=sys.stderr, flush=True)
            rows.append(row)
    about = page.machine(given.rounds, cpu=given.cpu)
    show(rows, about)
    if given.markdown:
        page.write(given.markdown, rows, about)
    missed = [row.work for row in rows if row.missed]
    if missed:
        print(f"missed: {'; '.join(missed)}")
    return 1 if missed and not given.no_goals else 0


if __name__ == "__main__":
    sys.exit(main())
