"""`speclaunch init`: a recipe for a target, chosen and checked."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from speclaunch import reads
from speclaunch.cli.check_options import engine_version, lookup
from speclaunch.cli.options import Assume, ModelDirs, Online
from speclaunch.cli.writing import Force, Overwrite, require_free, require_sound
from speclaunch.errors import InputError, Problem
from speclaunch.facts.declared_gpus import declare
from speclaunch.facts.hardware import Vendor
from speclaunch.fixing.output_check import against, check_text, configured
from speclaunch.plan.budget import Fit
from speclaunch.planning.draft_listing import find_target
from speclaunch.planning.forced_recipe import ForcedRecipe, forced_recipe
from speclaunch.planning.new_recipe import (
    NewRecipe,
    NotWrittenError,
    Wanted,
    file_stem,
    new_recipe,
    version_for,
)
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
        typer.Option(
            "--output", "-o", metavar="FILE", help="The recipe to write. Default: print it."
        ),
    ] = None,
    overwrite: Overwrite = False,
    force: Force = False,
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
    why others were not taken. Nothing is written that is not clean (exit 1), except with --force.
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
    path = None if output is None else _free(output, overwrite=overwrite or force)
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
        engine_version(engine) if engine is not None else version_for(None),
        sources,
        hardware.strip(),
        algorithm,
        draft,
        unknown_memory,
        context,
        tight,
        way,
    )
    is_taken = path is not None and not overwrite and _exists(path)
    made: NewRecipe | ForcedRecipe | None
    try:
        made = new_recipe(wanted)
    except NotWrittenError as refused:
        made = forced_recipe(wanted) if force else None
        if made is None:
            raise
        if is_taken:  # which of both --force is meant for, the user has to say
            help_ = "--overwrite replaces it; --force alone writes a recipe despite errors"
            raise InputError([Problem(f"{path} already exists", help=help_)]) from refused
    _require_sound(made, path, wanted, models, force=force)
    if path is None:
        typer.echo(made.text, nl=False)
    else:
        _write(path, made.text)
    _conclude(made, path)
    if is_taken:
        note = f"note: --force replaced {path}; use --overwrite, --force writes despite errors"
        err().print(note, markup=False)


def _require_terminal() -> None:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError(
            Problem(
                "--interactive needs a terminal",
                help="say it with options: --hardware, --engine, --algorithm, --draft",
            )
        )


def _require_sound(
    made: NewRecipe | ForcedRecipe,
    path: Path | None,
    wanted: Wanted,
    models: list[Path] | None,
    *,
    force: bool,
) -> None:
    """Raise OutputRefusedError for errors that `lint` finds in the recipe."""
    shown = str(path) if path is not None else f"{file_stem(wanted.target.name)}.yaml"
    options = configured(shown, (wanted.version,), wanted.hardware, models or ())
    options = replace(options, lookup=replace(wanted.lookup, project=options.lookup.project))
    with reads.instead({os.path.realpath(shown): made.text.encode()}):
        check = against(None, check_text(shown, made.text, options))
        require_sound(check, shown if path is not None else "the recipe", force=force)


def _free(output: Path, *, overwrite: bool) -> Path:
    """Where to write. Raises InputError before any work is done."""
    if output.suffix != ".yaml":
        raise InputError(Problem(f"--output {output}: the name of a recipe must end in .yaml"))
    if output.exists() and not output.is_file():
        raise InputError(Problem(f"cannot write {output}: it is not a regular file"))
    require_free(output, overwrite=overwrite)
    if not output.parent.is_dir():
        raise InputError(Problem(f"cannot write {output}: {output.parent} is not a directory"))
    return output


def _exists(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def _write(path: Path, text: str) -> None:
    from speclaunch.fix.edits import write_atomically

    try:
        write_atomically(path.resolve(), text)
    except OSError as error:
        raise InputError(Problem(f"cannot write {path}: {error.strerror}")) from error


def _conclude(made: NewRecipe | ForcedRecipe, path: Path | None) -> None:
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
