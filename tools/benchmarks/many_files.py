"""Many files, as CI checks a repository: how long it takes, and how much memory."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.ground import FOUND, YAMLLINT, Ground
from benchmarks.measuring import in_turn
from benchmarks.rows import Goal, Row

COLD_GOAL = 1.5
WARM_GOAL = 0.3
SCRIPTS_GOAL = 1
MEMORY_GOAL_MIB = 120


def measure_recipes(ground: Ground) -> Iterator[Row]:
    """Recipes composed through groups: all without errors, and a quarter of them rejected.

    A rejected recipe costs more: lint looks for releases that accept it.
    """
    commands = {
        "cold": ground.cold("lint", "recipes"),
        "mixed": ground.cold("lint", "mixed"),
        "warm": ground.warm("lint", "recipes"),
        "yamllint": ground.reference(*YAMLLINT, "recipes", ends=FOUND),
    }
    spent = in_turn(commands, ground.rounds, first=False)
    took = {name: ground.clock.seconds(each) for name, each in spent.items()}
    work, reference = f"{ground.files:,} recipes through groups", "yamllint over them"
    yield Row("recipes", work, reference, took["cold"], took["yamllint"], goal=COLD_GOAL)
    mixed = f"{work}, a quarter rejected"
    yield Row("recipes", mixed, reference, took["mixed"], took["yamllint"])
    warm = f"{work}, warm cache"
    yield Row("recipes", warm, reference, took["warm"], took["yamllint"], goal=WARM_GOAL)


def measure_scripts(ground: Ground) -> Iterator[Row]:
    """Scripts of 1 to 2 KB."""
    commands = {
        "cold": ground.cold("lint", "scripts"),
        "warm": ground.warm("lint", "scripts"),
        "yamllint": ground.reference(*YAMLLINT, "manifests", ends=FOUND),
    }
    spent = in_turn(commands, ground.rounds, first=False)
    took = {name: ground.clock.seconds(each) for name, each in spent.items()}
    work = f"{ground.files:,} scripts"
    reference = f"yamllint over {ground.files:,} manifests of their sizes"
    yield Row("scripts", work, reference, took["cold"], took["yamllint"], goal=SCRIPTS_GOAL)
    yield Row("scripts", f"{work}, warm cache", reference, took["warm"], took["yamllint"])


def measure_memory(ground: Ground) -> Iterator[Row]:
    """The most that a lint of all files has, cold and at once."""
    for name in ("recipes", "scripts"):
        run = ground.cold("lint", name, sample_memory=True)
        peak = max(run().peak_mib for _ in range(min(ground.rounds, 2)))
        work = f"peak memory, {ground.files:,} {name}"
        what = "all its processes"
        yield Row("memory", work, what, peak, None, Goal.SIZE, MEMORY_GOAL_MIB)
    warm = ground.warm("lint", "recipes")
    yield Row("memory", f"peak memory, {ground.files:,} recipes, warm cache", "the process",
              warm().peak_mib, None, Goal.SIZE, MEMORY_GOAL_MIB)  # fmt: skip
