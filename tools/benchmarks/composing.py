"""Composition alone, in one process, beside Hydra's own `compose()` of the same recipes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.ground import PYTHON, Ground
from benchmarks.measuring import Spent, in_turn
from benchmarks.rows import Goal, Row

GROUP = "compose"
GOAL = 15
STOCK = 100
"""So many go through Hydra's own composition, which takes about 50 ms for each."""


def measure(ground: Ground) -> Iterator[Row]:
    """Seconds for a recipe: all files in ours, a part of them in Hydra's."""
    stock = min(STOCK, ground.files)
    commands = {
        "ours": _asked(ground, "ours", ground.files),
        "stock": _asked(ground, "stock", stock),
    }
    spent = in_turn(commands, ground.rounds, first=False)
    ours = ground.clock.seconds(spent["ours"]) / ground.files
    theirs = ground.clock.seconds(spent["stock"]) / stock
    work = f"composing a recipe of {ground.files:,}"
    yield Row(GROUP, work, "Hydra's `compose()`", ours, theirs, Goal.FASTER, GOAL)


def _asked(ground: Ground, who: str, count: int) -> Callable[[], Spent]:
    """This module as a program: what the composing took, without starting and importing."""

    def run() -> Spent:
        done = subprocess.run(
            [PYTHON, __file__, who, str(count), "recipes"],
            cwd=ground.folder,
            env=ground.environment(ground.home()) | {"PYTHONPATH": ":".join(sys.path)},
            check=True,
            capture_output=True,
            text=True,
        )
        wall, cpu = map(float, done.stdout.split())
        return Spent(wall, cpu, 0)

    return run


def _ours(paths: list[Path]) -> None:
    from speclaunch.deployments.recipe.compose import compose  # noqa: PLC0415 - each program imports its own

    for path in paths:
        compose(str(path))


def _stock(paths: list[Path]) -> None:
    from hydra import compose, initialize_config_dir  # noqa: PLC0415 - each imports its own

    with initialize_config_dir(version_base="1.3", config_dir=str(_as_hydra_wants_it(paths))):
        for path in paths:
            compose(path.stem)


def _as_hydra_wants_it(paths: list[Path]) -> Path:
    """One folder with recipes and groups: a search path of several would cost Hydra more."""
    from speclaunch.core.resources import conf_dir  # noqa: PLC0415 - each imports its own

    folder = paths[0].parent.parent.absolute() / "stock"
    folder.mkdir(exist_ok=True)
    for one in [*paths, *conf_dir().iterdir()]:
        if not (folder / one.name).exists():
            (folder / one.name).symlink_to(one.absolute())
    return folder


def main() -> None:
    """Compose once for the imports, then all, and print the seconds: wall, processor."""
    who, count, folder = sys.argv[1:]
    paths = sorted(Path(folder).glob("*.yaml"))[: int(count)]
    composing = {"ours": _ours, "stock": _stock}[who]
    first = paths[:1] if who == "stock" else [_apart(paths[0])]
    composing(first)
    wall, cpu = time.perf_counter(), time.process_time()
    composing(paths)
    print(time.perf_counter() - wall, time.process_time() - cpu)


def _apart(path: Path) -> Path:
    """A recipe that shares no group with others: what is composed for it is of no use to them."""
    alone = path.parent.parent / "alone.yaml"
    alone.write_text("description: alone\nargs:\n  model_path: m\n")
    return alone


if __name__ == "__main__":
    main()
