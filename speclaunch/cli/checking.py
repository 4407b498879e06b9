"""Options and look-ups of the verbs that check: lint, doctor, launch, plan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from speclaunch.errors import COMMAND_LINE, InputError, Place, Problem
from speclaunch.facts.declared import declare
from speclaunch.facts.engines import named as named_engine
from speclaunch.lint.notices import NOTICES
from speclaunch.recipe.names import suggest
from speclaunch.report.console import err
from speclaunch.rules.examine import Lookup
from speclaunch.rules.interface import Rule
from speclaunch.rules.registry import all_rules, selected

EngineVersions = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="VERSION[,VERSION…]",
        help="SGLang versions to check for; `installed`, or the path of a package, checkout or "
        "wheel for an engine that is no release. Default: the recipe's, else the installed "
        "engine's, else the newest known.",
    ),
]
ModelDirs = Annotated[
    list[Path] | None,
    typer.Option(
        "--models",
        help="Where checkpoints are: DIR/organisation/name/config.json, or a hub cache. "
        "Repeatable.",
    ),
]
Online = Annotated[
    bool, typer.Option("--online", help="Fetch missing model configurations from the hub.")
]
Select = Annotated[
    list[str] | None,
    typer.Option("--select", metavar="CODE,…", help="Only rules whose code begins so."),
]
Ignore = Annotated[
    list[str] | None,
    typer.Option("--ignore", metavar="CODE,…", help="No rule whose code begins so."),
]


def engine_versions(text: str | None) -> tuple[str, ...]:
    """The versions of `--engine`, as the catalogue holds them, each once."""
    named = [part.strip() for part in (text or "").split(",") if part.strip()]
    if text is not None and not named:
        raise InputError(Problem("--engine: no version was given"))
    resolved = [named_engine(version) for version in named]
    for version in resolved:
        if version.note:
            err().print(f"note: {version.note}", markup=False)
    return tuple(dict.fromkeys(version.held for version in resolved))


def chosen_rules(select: list[str] | None, ignore: list[str] | None) -> tuple[Rule, ...]:
    """The rules of `--select` and `--ignore`. Raises InputError for a code that no rule has."""
    return selected(_codes("--select", select), _codes("--ignore", ignore))


def lookup(models: list[Path] | None, hardware: str | None, *, online: bool = False) -> Lookup:
    """Where facts come from. Raises InputError for a directory or a GPU that does not exist."""
    for directory in models or ():
        if not directory.is_dir():
            raise InputError(Problem(f"--models {directory}: no such directory"))
    declared = declare(hardware) if hardware is not None else None
    return Lookup(tuple(models or ()), online, declared)


def _codes(option: str, given: list[str] | None) -> tuple[str, ...]:
    codes = [code.strip().upper() for text in given or () for code in text.split(",")]
    known = [*(rule.code for rule in all_rules()), *(notice.code for notice in NOTICES)]
    for code in codes:
        if not code or not any(one.startswith(code) for one in known):
            raise InputError(
                Problem(
                    f"no rule has the code {code!r}",
                    Place(COMMAND_LINE, text=f"{option} {','.join(given or ())}"),
                    suggest(code, known) or "`speclaunch rules` lists them",
                )
            )
    return tuple(codes)
