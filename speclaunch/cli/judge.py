"""`speclaunch engine judge`: the releases whose own validation can be asked."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from speclaunch.engine.nearest import suggest
from speclaunch.errors import InputError, Problem
from speclaunch.report.console import err, out

if TYPE_CHECKING:
    from speclaunch.judge.environments import Kept

app = typer.Typer(
    help="The releases of SGLang whose own validation can be asked here.", no_args_is_help=True
)


@app.command()
def add(
    name: Annotated[
        str,
        typer.Argument(metavar="VERSION", help="A released version, or a name for a fork."),
    ],
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="WHEEL|PATH|installed",
            help="A wheel, a checkout or package folder, or the SGLang of an interpreter, instead "
            "of the released wheel.",
        ),
    ] = None,
    python: Annotated[
        str | None, typer.Option("--python", help="The interpreter of `--from installed`.")
    ] = None,
    torch: Annotated[
        bool,
        typer.Option(
            "--torch", help="Over the CPU engine's torch, even where the judge would do without."
        ),
    ] = False,
) -> None:
    """Make a release ready to be asked: its wheel, and what it pins of what validation needs."""
    from speclaunch.judge.add import add as make

    if python is not None and source != "installed":
        raise InputError(Problem("--python goes with `--from installed`"))
    began = time.monotonic()
    made = make(
        name,
        source,
        python=python,
        torch=torch,
        tell=lambda what: err().print(what, markup=False),
    )
    seconds = time.monotonic() - began
    out().print(
        f"judge {made.name}: SGLang {made.release}, {_kind(made)}, {_size(made.size)},"
        f" {seconds:.0f} s",
        markup=False,
    )


@app.command()
def ls() -> None:
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


@app.command()
def rm(
    name: Annotated[str, typer.Argument(help="The judge, as `ls` names it.")],
) -> None:
    """Remove a judge and its packages."""
    from speclaunch.home import judges_home
    from speclaunch.judge.environments import remove

    if not remove(name):
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
