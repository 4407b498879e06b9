"""`speclaunch init` and `drafts`: write a recipe for a target, or list its speculation methods."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer
from msgspec import Struct
from msgspec.structs import replace
from rich.console import Console
from rich.text import Text

from speclaunch.app.output.console import err, out
from speclaunch.app.output.terminal import label_line
from speclaunch.app.verbs.change_options import DraftsOptions, InitOptions
from speclaunch.app.verbs.options import OutputFormat
from speclaunch.app.verbs.shared import (
    engine_version,
    engine_versions,
    lookup,
    require_recipe_file,
    require_sound,
)
from speclaunch.checks import Lookup, against, check_text, configured, write_atomically
from speclaunch.core import ExitCode, InputError, Problem, reads
from speclaunch.engine import Fit, Hardware, PublishedAcceptance, Vendor, ascending, declare
from speclaunch.measure import (
    DraftListing,
    ForcedRecipe,
    ListedWay,
    NewRecipe,
    NotWrittenError,
    RecipeRequest,
    Way,
    WayMemory,
    file_stem,
    find_target,
    forced_recipe,
    in_gib,
    listing,
    new_recipe,
    version_for,
)

VERSION = 1
"""Format version of the JSON document of `drafts`."""


def show_drafts(console: Console, found: DraftListing, *, everything: bool = False) -> None:
    """Print each method with its releases, published acceptance, memory and sources.

    `everything`: also print methods that no release accepts, and each published number. If
    no release accepts any method, all methods are printed.
    """
    target = found.target
    architecture = ", ".join(target.field_or_none("architectures") or ()) or "unknown architecture"
    shown = [way for way in found.ways if everything or way.newest] or found.ways
    ways = "1 method" if len(shown) == 1 else f"{len(shown)} methods"
    console.print(Text(f"{target.name} ({architecture})", "bold"))
    _line(console, "facts", str(target.origin))
    _line(console, "speculation", f"{ways}, by published acceptance, then by confidence")
    for number, way in enumerate(shown, 1):
        console.print()
        console.print(Text(f"{number}. {heading(way)}", "bold" if way.newest else "dim"))
        _line(console, "engine", releases(way, found))
        for doubt in way.doubts:
            _line(console, "but", doubt)
        if way.changes:
            _line(console, "also set", ", ".join(way.changes))
        if summary := way.way.published_at(way.way.arguments):
            _line(console, "published", summary)
        if everything:
            _show_published(console, way.way.published, target.name)
        _line(console, "based on", f"{way.way.why}; confidence {way.way.confidence}")
        if way.memory is not None and found.hardware is not None:
            _line(console, "memory", memory(way.memory, found.hardware))
        if way.skipped:
            _line(console, "skipped", ", ".join(dict.fromkeys(way.skipped)))
        for source in way.way.sources:
            _line(console, "source", source)
    hidden = len(found.ways) - len(shown)
    if hidden:
        console.print()
        console.print(Text(f"no release accepts {hidden} more (--all shows them)", "dim"))


def _show_published(console: Console, found: Sequence[PublishedAcceptance], target: str) -> None:
    for source in dict.fromkeys(each.source for each in found):
        _line(console, "", str(source))
        for each in found:
            if each.source == source:
                _line(console, "", f"  {measured(each, target)}")


def measured(found: PublishedAcceptance, target: str) -> str:
    """Return a measurement as text: `2.50 tokens a step, 1.65 times as fast: mtbench, …`.

    The measured target is named if it is not `target`.
    """
    values = [] if found.length is None else [f"{found.length:.2f} tokens a step"]
    values += [] if found.speedup is None else [f"{found.speedup:.2f} times as fast"]
    other = "" if found.target == target else f", target {found.target}"
    return f"{', '.join(values)}: {found.conditions}{other}"


def heading(way: ListedWay) -> str:
    """Return the name of a method and its draft, if any: `EAGLE-3 with ORG/DRAFT`."""
    return f"{way.way.method} with {way.way.draft}" if way.way.draft else str(way.way.method)


def releases(way: ListedWay, found: DraftListing) -> str:
    """Return the releases that accept a method: `SGLang 0.5.12 and later`."""
    if not way.spans:
        return f"not accepted by any release: {way.refused}"
    newest = found.versions[-1]
    parts = []
    for first, last in way.spans:
        if last == newest and len(found.versions) > 1:
            parts.append(f"{first} and later" if first != last else first)
        else:
            parts.append(first if first == last else f"{first} to {last}")
    text = "SGLang " + ", ".join(parts)
    return f"{text}; {newest}: {way.refused}" if way.refused else text


def memory(found: WayMemory, hardware: Hardware) -> str:
    """Return the memory cost of a method per GPU as text."""
    where = f"{hardware.name}" if not found.ranks else f"{found.ranks} x {hardware.name}"
    if found.draft_weights is None and found.draft_kv is None:
        return f"on {where}: {found.note or 'unknown'}"
    parts = []
    at = "" if found.fraction is None else f" at mem_fraction_static {found.fraction:g}"
    if found.draft_weights is not None:
        parts.append(f"{in_gib(found.draft_weights)} of draft weights per GPU")
    if found.draft_kv is not None:
        parts.append(f"{found.draft_kv:,} bytes of draft KV cache per token")
    if found.tokens is not None:
        parts.append(f"leaves {found.tokens:,} tokens of KV cache{at}")
    if found.draft_weights == 0 and found.draft_kv == 0:
        parts = [f"no draft; leaves {found.tokens or 0:,} tokens of KV cache{at}"]
    text = f"{found.verdict.text} on {where}: {', '.join(parts)}"
    return f"{text}; {found.note}" if found.note else text


def _line(console: Console, label: str, text: str) -> None:
    console.print(label_line(label, Text(text, "default"), 12, indent=3))


def drafts_document(found: DraftListing) -> str:
    """Return the listing as JSON; see docs/reference/drafts.md."""
    hardware = found.hardware
    document = {
        "version": VERSION,
        "target": found.target.name,
        "architectures": list(found.target.field_or_none("architectures") or ()),
        "facts": str(found.target.origin),
        "releases": list(found.versions),
        "hardware": None if hardware is None else hardware.name,
        "ways": [_way(way) for way in found.ways],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def _way(listed: ListedWay) -> dict[str, Any]:
    way, cost = listed.way, listed.memory
    return {
        "method": str(way.method),
        "algorithm": way.algorithm,
        "draft": way.draft,
        "arguments": dict(way.arguments),
        "releases": [{"first": first, "last": last} for first, last in listed.spans],
        "refused": listed.refused or None,
        "warnings": list(listed.doubts),
        "changes": list(listed.changes),
        "not_judged": list(dict.fromkeys(listed.skipped)),
        "confidence": way.confidence,
        "founded_on": way.why,
        "sources": list(way.sources),
        "setting_why": way.setting_why or None,
        "comparable_accept_length": None if way.score is None else round(way.score, 3),
        "published": [_published(found) for found in way.published],
        "memory": None
        if cost is None
        else {
            "gpus": cost.ranks or None,
            "fits": cost.fits,
            "verdict": cost.verdict.value,
            "mem_fraction_static": cost.fraction,
            "draft_weight_bytes": cost.draft_weights,
            "draft_kv_bytes_per_token": cost.draft_kv,
            "tokens": cost.tokens,
            "note": cost.note or None,
        },
    }


def _published(found: PublishedAcceptance) -> dict[str, Any]:
    steps, topk, tokens = found.setting
    return {
        "target": found.target,
        "benchmark": found.benchmark,
        "accept_length": found.length,
        "speed_up": found.speedup,
        "num_steps": steps,
        "eagle_topk": topk,
        "num_draft_tokens": tokens,
        "temperature": found.temperature,
        "batch_size": found.batch_size,
        "mode": found.mode,
        "engine": found.engine,
        "release": found.release,
        "hardware": found.hardware,
        "note": found.note,
        "source": found.source.title,
        "place": found.source.place,
        "date": found.source.date,
        "url": found.source.url,
    }


def init(options: InitOptions) -> None:
    """Write a recipe for a target. Raises InputError, NotWrittenError, OutputRefusedError."""
    hardware, engine, output, way = options.hardware, options.engine, options.output, None
    if options.interactive:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise InputError(
                "--interactive needs a terminal",
                help="use the options: --hardware, --engine, --algorithm, --draft",
            )
        sources = lookup(options.models, None, online=options.online, assume=options.assume)
        chosen = ask(options.target, hardware, engine, output, sources)
        hardware, engine, output, way = chosen.hardware, chosen.engine, chosen.output, chosen.way
    if hardware is None:
        raise InputError("no hardware is set", help="set it, for example --hardware h200:8")
    if output is not None:
        require_recipe_file(output, overwrite=options.overwrite or options.force)
    if declare(hardware).vendor is Vendor.CPU:
        raise InputError(
            "init writes recipes for GPUs only",
            help="list the recipes for the CPU engine (cpu_…): speclaunch recipes",
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
    is_taken = (
        output is not None and not options.overwrite and (output.exists() or output.is_symlink())
    )
    made: NewRecipe | ForcedRecipe | None
    try:
        made = new_recipe(request)
    except NotWrittenError as refused:
        made = forced_recipe(request) if options.force else None
        if made is None:
            raise
        if is_taken:  # --force is ambiguous here: the user has to choose
            help_ = "use --overwrite to replace it (--force writes a recipe despite errors)"
            raise InputError([Problem(f"{output} already exists", help=help_)]) from refused
    _require_sound(made, output, request, options.models, force=options.force)
    if output is None:
        typer.echo(made.text, nl=False)
    else:
        write_atomically(output, made.text)
    _conclude(made, output)
    if is_taken:
        note = f"note: --force replaced {output}; to replace a file, use --overwrite"
        err().print(note)


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


def _conclude(made: NewRecipe | ForcedRecipe, path: Path | None) -> None:
    """Report the chosen method on standard error; standard output may be piped."""
    budget = made.placed.budget
    gpus = "1 GPU" if made.placed.ranks == 1 else f"{made.placed.ranks} GPUs"
    draft = f" with {made.way.draft}" if made.way.draft else ""
    note = "memory use unknown: " if budget.fit is Fit.UNKNOWN else ""
    summary = f"{made.way.method}{draft} on {gpus}: {note}{budget.why}"
    err().print(summary, style="dim")
    for warning in made.placed.warnings:
        err().print(f"warning: {warning}", style="yellow")
    if path is not None:
        err().print(f"wrote {path}")
        err().print(f"Launch it: speclaunch recipe={path}", style="dim")


class Answers(Struct, frozen=True):
    """Settings from the command line or from prompts."""

    hardware: str
    engine: str
    output: Path
    way: Way


def ask(
    target: str, hardware: str | None, engine: str | None, output: Path | None, sources: Lookup
) -> Answers:
    """Return the settings, and prompt for missing values.

    Raises InputError for an unknown target, and NotWrittenError if no method is available.
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
    """Return the method that the user chooses. Raises NotWrittenError if none is supported."""
    show_drafts(err(), found)
    usable = [number for number, way in enumerate(found.ways, 1) if way.newest is not None]
    if not usable:
        version = found.versions[-1]
        raise NotWrittenError(
            f"SGLang {version} supports no speculation method for {found.target.name}"
        )
    fitting = [n for n in usable if (memory := found.ways[n - 1].memory) and memory.fits]

    def right(answer: str) -> None:
        if not answer.isdecimal() or int(answer) not in usable:
            raise InputError(f"choose one of {', '.join(map(str, usable))}")

    answer = _until_right("Number of the speculation method", str((fitting or usable)[0]), right)
    return found.ways[int(answer) - 1].way


def _until_right(question: str, default: str | None, check: Callable[[str], object]) -> str:
    while True:
        answer = str(typer.prompt(question, default=default, err=True)).strip()
        try:
            check(answer)
        except InputError as error:
            for problem in error.problems:
                err().print(problem.message)
                if problem.help:
                    err().print(f"  {problem.help}")
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
