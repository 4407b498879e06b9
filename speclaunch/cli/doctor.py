"""`speclaunch doctor`: this machine, and a recipe on it, before anything is started."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import psutil
import typer

from speclaunch.asking.at_hand import asker_for
from speclaunch.asking.mode import ask_mode
from speclaunch.cli.check_options import engine_versions, lookup
from speclaunch.cli.formats import OutputFormat
from speclaunch.cli.options import (
    AskEngine,
    Assume,
    ConfigDirs,
    EngineVersions,
    HardwareName,
    ModelDirs,
    Online,
    RoleName,
    TrustEngine,
)
from speclaunch.doctor.check_line import CheckState
from speclaunch.doctor.examine import examine_machine
from speclaunch.doctor.gather import Asked, gather
from speclaunch.errors import ExitCode
from speclaunch.facts.trusted_programs import trust_all
from speclaunch.home import speclaunch_home
from speclaunch.report.console import out
from speclaunch.report.doctor import DoctorReport, diagnosis_json, show_diagnosis


def doctor(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RECIPE [key=value]…",
            help="A recipe (`recipe=NAME`, `NAME` or a path to a YAML file) and Hydra overrides: "
            "all rules check it as well.",
        ),
    ] = None,
    config_dir: ConfigDirs = None,
    role: RoleName = None,
    engine: EngineVersions = None,
    hardware: HardwareName = None,
    models: ModelDirs = None,
    online: Online = False,
    assume: Assume = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on warnings, too.")] = False,
    output_format: Annotated[
        OutputFormat, typer.Option("--output-format", help="Output format.")
    ] = OutputFormat.TEXT,
    ask: AskEngine = None,
    trust_engine: TrustEngine = False,
) -> None:
    """Check this machine: engine, GPUs, memory, disk, ports, leftovers; and a recipe, if given."""
    if trust_engine:
        trust_all()
    asked = Asked(
        versions=engine_versions(engine),
        lookup=lookup(models, hardware, online=online, assume=assume),
        asker=asker_for(ask_mode(ask)),
    )
    if overrides:
        asked = _with_recipe(asked, overrides, config_dir or [], role)
    found, judged = gather(asked, speclaunch_home())
    diagnosis = DoctorReport(examine_machine(found), found.target, judged)
    if output_format is OutputFormat.JSON:
        typer.echo(json.dumps(diagnosis_json(diagnosis), indent=2))
    else:
        show_diagnosis(out(), diagnosis)
    _end_what_hangs()
    failing = diagnosis.count(CheckState.ERROR) + (
        diagnosis.count(CheckState.WARNING) if strict else 0
    )
    raise typer.Exit(ExitCode.FAILED if failing else ExitCode.CLEAN)


def _with_recipe(
    asked: Asked, overrides: list[str], config_dirs: list[Path], role: str | None
) -> Asked:
    """A recipe brings Hydra, which a look at the machine alone needs not load."""
    from speclaunch.recipe.load import load
    from speclaunch.recipe.recipe_words import split_recipe

    name, changes = split_recipe(overrides)
    from speclaunch.recipe.select_role import select_role

    whole = load(name, changes, config_dirs)
    recipe = select_role(whole, role, "a machine serves one")
    return replace(asked, recipe=recipe, whole=whole if whole.parts else None)


def _end_what_hangs() -> None:
    """An interpreter that did not answer in time is not left behind."""
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                child.kill()
