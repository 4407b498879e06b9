"""What `speclaunch init --interactive` asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import typer

from speclaunch.errors import InputError, Problem
from speclaunch.facts.declared_gpus import declare
from speclaunch.planning.draft_listing import DraftListing, find_target, listing
from speclaunch.planning.new_recipe import NotWrittenError, file_stem, version_for
from speclaunch.planning.ways import Way
from speclaunch.record import record
from speclaunch.report.console import err
from speclaunch.report.drafts import show_drafts
from speclaunch.rules.examine import Lookup


@record
class Answers:
    """What was said, on the command line or just now."""

    hardware: str
    engine: str
    output: Path
    way: Way


def ask(
    target: str, hardware: str | None, engine: str | None, output: Path | None, sources: Lookup
) -> Answers:
    """Ask for what was not said. Raises InputError for a target that nobody knows, and
    NotWrittenError where there is no way to choose."""
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
    """The number of a way that this version takes."""
    show_drafts(err(), found)
    usable = [number for number, one in enumerate(found.ways, 1) if one.newest is not None]
    if not usable:
        version = found.versions[-1]
        raise NotWrittenError(
            Problem(f"SGLang {version} takes no way to speculate for {found.target.name}")
        )
    fitting = [n for n in usable if (memory := found.ways[n - 1].memory) and memory.fits]

    def right(said: str) -> None:
        if not said.isdecimal() or int(said) not in usable:
            raise InputError(Problem(f"choose one of {', '.join(map(str, usable))}"))

    said = _until_right("Way to speculate, by its number", str((fitting or usable)[0]), right)
    return found.ways[int(said) - 1].way


def _until_right(question: str, default: str | None, check: Callable[[str], object]) -> str:
    """Ask until the answer is one."""
    while True:
        said = str(typer.prompt(question, default=default, err=True)).strip()
        try:
            check(said)
        except InputError as error:
            for problem in error.problems:
                err().print(problem.message, markup=False)
                if problem.help:
                    err().print(f"  {problem.help}", markup=False)
            continue
        return said
