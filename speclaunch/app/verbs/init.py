"""`speclaunch init` and `speclaunch drafts`: speculation methods for a target, and its recipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import typer
from msgspec import Struct
from msgspec.structs import replace

from speclaunch.app.output.console import err, out
from speclaunch.app.output.drafts import drafts_document, show_drafts
from speclaunch.app.verbs.change_options import DraftsOptions, InitOptions
from speclaunch.app.verbs.check_options import engine_version, engine_versions, lookup
from speclaunch.app.verbs.options import OutputFormat
from speclaunch.app.verbs.writing import require_free, require_sound
from speclaunch.checks import Lookup, against, check_text, configured, write_atomically
from speclaunch.core import ExitCode, InputError, Problem, reads
from speclaunch.engine import Fit, Vendor, ascending, declare
from speclaunch.measure import (
    DraftListing,
    ForcedRecipe,
    NewRecipe,
    NotWrittenError,
    RecipeRequest,
    Way,
    file_stem,
    find_target,
    forced_recipe,
    listing,
    new_recipe,
    version_for,
)


def init(options: InitOptions) -> None:
    """Write a recipe for a target. Raises InputError, NotWrittenError, OutputRefusedError."""
    hardware, engine, output, way = options.hardware, options.engine, options.output, None
    if options.interactive:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise InputError(
                Problem(
                    "--interactive needs a terminal",
                    help="use the options: --hardware, --engine, --algorithm, --draft",
                )
            )
        sources = lookup(options.models, None, online=options.online, assume=options.assume)
        chosen = ask(options.target, hardware, engine, output, sources)
        hardware, engine, output, way = chosen.hardware, chosen.engine, chosen.output, chosen.way
    if hardware is None:
        raise InputError(
            Problem("no hardware is set", help="set it, for example --hardware h200:8")
        )
    path = None if output is None else _free(output, overwrite=options.overwrite or options.force)
    if declare(hardware).vendor is Vendor.CPU:
        raise InputError(
            Problem(
                "init writes recipes for GPUs",
                help="`speclaunch recipes` lists recipes for the CPU engine (cpu_…)",
            )
        )
    sources = lookup(options.models, hardware, online=options.online, assume=options.assume)
    request = RecipeRequest(
        find_target(options.target, sources),
        engine_version(engine) if engine is not None else version_for(None),
        sources,
        hardware.strip(),
        options.algorithm,
        options.draft,
        options.unknown_memory,
        options.context,
        options.tight,
        way,
    )
    is_taken = path is not None and not options.overwrite and (path.exists() or path.is_symlink())
    made: NewRecipe | ForcedRecipe | None
    try:
        made = new_recipe(request)
    except NotWrittenError as refused:
        made = forced_recipe(request) if options.force else None
        if made is None:
            raise
        if is_taken:  # --force is ambiguous here: the user has to choose
            help_ = "replace it with --overwrite (--force writes a recipe despite errors)"
            raise InputError([Problem(f"{path} already exists", help=help_)]) from refused
    _require_sound(made, path, request, options.models, force=options.force)
    if path is None:
        typer.echo(made.text, nl=False)
    else:
        _write(path, made.text)
    _conclude(made, path)
    if is_taken:
        note = f"note: --force replaced {path}; use --overwrite for that, not --force"
        err().print(note, markup=False)


def _require_sound(
    made: NewRecipe | ForcedRecipe,
    path: Path | None,
    request: RecipeRequest,
    models: Sequence[Path],
    *,
    force: bool,
) -> None:
    shown = str(path) if path is not None else f"{file_stem(request.target.name)}.yaml"
    options = configured(shown, (request.version,), request.hardware, models)
    options = replace(options, lookup=replace(request.lookup, project=options.lookup.project))
    with reads.overlay({os.path.realpath(shown): made.text.encode()}):
        check = against(None, check_text(shown, made.text, options))
        require_sound(check, shown if path is not None else "the recipe", force=force)


def _free(output: Path, *, overwrite: bool) -> Path:
    """Return the validated output file. Raises InputError before any work is done."""
    if output.suffix != ".yaml":
        raise InputError(Problem(f"--output {output}: a recipe file must end in .yaml"))
    if output.exists() and not output.is_file():
        raise InputError(Problem(f"cannot write {output}: it is not a regular file"))
    require_free(output, overwrite=overwrite)
    if not output.parent.is_dir():
        raise InputError(Problem(f"cannot write {output}: {output.parent} is not a directory"))
    return output


def _write(path: Path, text: str) -> None:

    try:
        write_atomically(path, text)
    except OSError as error:
        raise InputError(Problem(f"cannot write {path}: {error.strerror}")) from error


def _conclude(made: NewRecipe | ForcedRecipe, path: Path | None) -> None:
    """Report the choice on standard error, because standard output may be piped."""
    budget = made.placed.budget
    gpus = "1 GPU" if made.placed.ranks == 1 else f"{made.placed.ranks} GPUs"
    draft = f" with {made.way.draft}" if made.way.draft else ""
    note = "memory use unknown: " if budget.fit is Fit.UNKNOWN else ""
    summary = f"{made.way.method}{draft} on {gpus}: {note}{budget.why}"
    err().print(summary, markup=False, style="dim")
    for warning in made.placed.warnings:
        err().print(f"warning: {warning}", markup=False, style="yellow")
    if path is not None:
        err().print(f"wrote {path}", markup=False)
        err().print(f"speclaunch recipe={path} launches it.", markup=False, style="dim")


class Answers(Struct, frozen=True):
    """Settings from the command line or from prompts."""

    hardware: str
    engine: str
    output: Path
    way: Way


def ask(
    target: str, hardware: str | None, engine: str | None, output: Path | None, sources: Lookup
) -> Answers:
    """Prompt for missing settings.

    Raises InputError for an unknown target, and NotWrittenError if there is no way to choose.
    """
    known = find_target(target, sources)
    if hardware is None:
        hardware = _until_right("Hardware, for example h200:8", None, declare)
    if engine is None:
        engine = _until_right("SGLang version", version_for(None), version_for)
    here = replace(sources, hardware=declare(hardware))
    found = listing(known, here, (version_for(engine),))
    way = _chosen(found)
    if output is None:
        output = Path(_until_right("File to write", f"{file_stem(target)}.yaml", lambda _: None))
    return Answers(hardware, engine, output, way)


def _chosen(found: DraftListing) -> Way:
    """Show the speculation methods, and prompt for one that this version accepts."""
    show_drafts(err(), found)
    usable = [number for number, way in enumerate(found.ways, 1) if way.newest is not None]
    if not usable:
        version = found.versions[-1]
        raise NotWrittenError(
            Problem(f"SGLang {version} supports no speculation method for {found.target.name}")
        )
    fitting = [n for n in usable if (memory := found.ways[n - 1].memory) and memory.fits]

    def right(answer: str) -> None:
        if not answer.isdecimal() or int(answer) not in usable:
            raise InputError(Problem(f"choose one of {', '.join(map(str, usable))}"))

    answer = _until_right("Number of the speculation method", str((fitting or usable)[0]), right)
    return found.ways[int(answer) - 1].way


def _until_right(question: str, default: str | None, check: Callable[[str], object]) -> str:
    while True:
        answer = str(typer.prompt(question, default=default, err=True)).strip()
        try:
            check(answer)
        except InputError as error:
            for problem in error.problems:
                err().print(problem.message, markup=False)
                if problem.help:
                    err().print(f"  {problem.help}", markup=False)
            continue
        return answer


def drafts(options: DraftsOptions) -> ExitCode:
    """List the speculation methods for a target. Raises InputError."""
    sources = lookup(options.models, options.hardware, online=options.online, assume=options.assume)
    versions = ascending(engine_versions(options.engine))
    found = listing(find_target(options.target, sources), sources, versions)
    if options.output_format is OutputFormat.JSON:
        typer.echo(drafts_document(found))
    else:
        show_drafts(out(), found, everything=options.every)
    return ExitCode.CLEAN if any(way.newest for way in found.ways) else ExitCode.FAILED
