"""What it takes before anything is done: `--version`, `--help`, `explain`."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.ground import PYTHON, Ground
from benchmarks.measuring import in_turn
from benchmarks.rows import Row

GROUP = "start"
GOAL = 1.2
TYPER = 'python -c "import typer"'
BARE = "python -c pass"


def measure(ground: Ground) -> Iterator[Row]:
    """Beside an import of the library that reads the command line, and beside bare Python."""
    words = {
        "`--version`": ["--version"],
        "`--help`": ["--help"],
        "`explain SPL301`": ["explain", "SPL301"],
    }
    commands = {name: ground.cold(*said) for name, said in words.items()}
    commands[TYPER] = ground.reference(PYTHON, "-c", "import typer")
    commands[BARE] = ground.reference(PYTHON, "-c", "pass")
    # these take so little that a few rounds more cost nothing and steady the median
    spent = in_turn(commands, max(ground.rounds, 15))
    took = {name: ground.clock.seconds(each) for name, each in spent.items()}
    for name in words:
        goal = None if "explain" in name else GOAL
        yield Row(GROUP, name, f"`{TYPER}`", took[name], took[TYPER], goal=goal)
        yield Row(GROUP, name, f"`{BARE}`", took[name], took[BARE])
