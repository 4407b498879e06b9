"""`speclaunch engine judge`: the releases whose own validation can be asked."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from speclaunch.cli.change_options import JudgeAddOptions, JudgeRemoveOptions
from speclaunch.cli.options import Options
from speclaunch.engine.nearest import suggest
from speclaunch.errors import InputError, Problem
from speclaunch.report.console import err, out

if TYPE_CHECKING:
    from speclaunch.judge.environments import Kept


def add(options: JudgeAddOptions) -> None:
    """Install a judge. Raises InputError, LaunchError."""
    from speclaunch.judge.add import add as make

    if options.python is not None and options.source != "installed":
        raise InputError(Problem("--python goes with `--from installed`"))
    began = time.monotonic()
    made = make(
        options.name,
        options.source,
        python=options.python,
        torch=options.torch,
        tell=lambda what: err().print(what, markup=False),
    )
    seconds = time.monotonic() - began
    out().print(
        f"judge {made.name}: SGLang {made.release}, {_kind(made)}, {_size(made.size)},"
        f" {seconds:.0f} s",
        markup=False,
    )


def list_judges(_options: Options) -> None:
    """List the releases that can be asked, with what they take on disk."""
    from speclaunch.judge.environments import kept
    from speclaunch.judge.find import cpu_judge

    table = Table.grid(padding=(0, 2))
    for one in kept():
        size = _size(one.size) if one.site else "-"
        row = (f"SGLang {one.release}", size, f"from {one.source}", _kind(one), one.python)
        table.add_row(Text(one.name, "bold"), *row)
    if (engine := cpu_judge()) is not None:
        row = (f"SGLang {engine.release}", "-", "the CPU engine", "its torch", str(engine.python))
        table.add_row(Text("cpu", "bold"), *row)
    if not table.row_count:
        out().print("no judge: add one with `speclaunch engine judge add VERSION`", markup=False)
        return
    out().print(table)


def remove(options: JudgeRemoveOptions) -> None:
    """Remove a judge and its packages. Raises InputError."""
    name = options.name
    from speclaunch.home import judges_home
    from speclaunch.judge.environments import remove as remove_judge

    if not remove_judge(name):
        names = [path.name for path in judges_home().glob("[!.]*")]
        hint = suggest(name, names) or "`speclaunch engine judge ls` lists them"
        raise InputError(Problem(f"there is no judge {name!r}", help=hint))
    out().print(f"judge {name} is removed", markup=False)


def _kind(one: Kept) -> str:
    if one.light:
        return "without torch"
    return "over the CPU engine's torch" if one.site else "its own torch"


def _size(bytes_: int) -> str:
    return f"{bytes_ / 2**20:.0f} MiB"
