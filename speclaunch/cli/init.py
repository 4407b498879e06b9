"""`speclaunch init`: a recipe for a target, chosen and checked."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from speclaunch.cli.check_options import lookup
from speclaunch.cli.options import Assume, ModelDirs, Online
from speclaunch.errors import InputError, Problem
from speclaunch.facts.declared_gpus import declare
from speclaunch.facts.hardware import Vendor
from speclaunch.plan.budget import Fit
from speclaunch.planning.draft_listing import find_target
from speclaunch.planning.new_recipe import NewRecipe, Wanted, new_recipe, version_for
from speclaunch.report.console import err


def init(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", help="The model to serve: `organisation/name`, or a directory."
        ),
    ],
    hardware: Annotated[
        str | None,
        typer.Option(
            "--hardware",
            metavar="NAME[:COUNT]",
            help="The hardware to serve on: h200:8, h100-80gb:4, rtx4090, mi300x:8.",
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            metavar="VERSION",
            help="The SGLang version to write for. Default: the installed one, else the newest.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="The recipe to write. Default: print it."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    algorithm: Annotated[
        str | None,
        typer.Option(
            "--algorithm",
            metavar="NAME",
            help="Take this way: mtp, eagle3, eagle2, dflash, dspark, standalone, ngram. Default: "
            "the best-founded one that serves.",
        ),
    ] = None,
    draft: Annotated[
        str | None,
        typer.Option("--draft", metavar="NAME", help="Take this draft of `speclaunch drafts`."),
    ] = None,
    unknown_memory: Annotated[
        bool,
        typer.Option(
            "--unknown-memory",
            help="Write a recipe, too, of which it is not known whether it fits.",
        ),
    ] = False,
    context: Annotated[
        int | None,
        typer.Option(
            "--context",
            metavar="L",
            min=1,
            max=1 << 24,
            help="Tokens of the longest request, prompt and output. Default: the model's context.",
        ),
    ] = None,
    tight: Annotated[
        bool,
        typer.Option(
            "--tight",
            help="If nothing is likely to fit, write a recipe that fits only in the best case.",
        ),
    ] = False,
    interactive: Annotated[
        bool, typer.Option("--interactive", help="Ask for what was not said.")
    ] = False,
    models: ModelDirs = None,
    online: Online = False,
    assume: Assume = None,
) -> None:
    """Write a complete recipe for a target that passes every rule and fits the hardware.

    The way to speculate is the best-founded one that the version serves; the recipe says why, and
    why others were not taken. Nothing is written that is not clean (exit 1).
    """
    if interactive:
        _require_terminal()
        from speclaunch.cli.init_questions import ask

        asked = ask(
            target, hardware, engine, output, lookup(models, None, online=online, assume=assume)
        )
        hardware, engine, output, way = asked.hardware, asked.engine, asked.output, asked.way
    else:
        way = None
    if hardware is None:
        raise InputError(
            Problem("no hardware was named", help="name it, for example --hardware h200:8")
        )
    path = None if output is None else _free(output, force=force)
    if declare(hardware).vendor is Vendor.CPU:
        raise InputError(
            Problem(
                "init writes recipes for GPUs",
                help="`speclaunch recipes` lists those for the CPU engine (cpu_…)",
            )
        )
    sources = lookup(models, hardware, online=online, assume=assume)
    wanted = Wanted(
        find_target(target, sources),
        version_for(engine),
        sources,
        hardware.strip(),
        algorithm,
        draft,
        unknown_memory,
        context,
        tight,
        way,
    )
    made = new_recipe(wanted)
    if path is None:
        typer.echo(made.text, nl=False)
    else:
        _write(path, made.text)
    _conclude(made, path)


def _require_terminal() -> None:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError(
            Problem(
                "--interactive needs a terminal",
                help="say it with options: --hardware, --engine, --algorithm, --draft",
            )
        )


def _free(output: Path, *, force: bool) -> Path:
    """Where to write. Raises InputError before any work is done."""
    if output.suffix != ".yaml":
        raise InputError(Problem(f"--output {output}: the name of a recipe must end in .yaml"))
    if output.exists() and not output.is_file():
        raise InputError(Problem(f"cannot write {output}: it is not a regular file"))
    if (output.exists() or output.is_symlink()) and not force:
        raise InputError(Problem(f"{output} already exists", help="--force overwrites it"))
    if not output.parent.is_dir():
        raise InputError(Problem(f"cannot write {output}: {output.parent} is not a directory"))
    return output


def _write(path: Path, text: str) -> None:
    from speclaunch.fix.edits import write_atomically

    try:
        write_atomically(path.resolve(), text)
    except OSError as error:
        raise InputError(Problem(f"cannot write {path}: {error.strerror}")) from error


def _conclude(made: NewRecipe, path: Path | None) -> None:
    """What was chosen, on standard error: the recipe itself may go into a pipe."""
    budget = made.placed.budget
    gpus = "1 GPU" if made.placed.ranks == 1 else f"{made.placed.ranks} GPUs"
    draft = f" with {made.way.draft}" if made.way.draft else ""
    note = "it is not known whether it fits: " if budget.fit is Fit.UNKNOWN else ""
    said = f"{made.way.method}{draft} on {gpus}: {note}{budget.why}"
    err().print(said, markup=False, style="dim")
    for warning in made.placed.warnings:
        err().print(f"warning: {warning}", markup=False, style="yellow")
    if path is not None:
        err().print(f"wrote {path}", markup=False)
        err().print(f"speclaunch recipe={path} launches it.", markup=False, style="dim")
