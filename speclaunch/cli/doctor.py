"""`speclaunch doctor`: this machine, and a recipe on it, before anything is started."""

from __future__ import annotations

import contextlib
import json

import psutil
import typer
from msgspec.structs import replace

from speclaunch.asking.mode import ask_mode, asker_for
from speclaunch.cli.check_options import engine_versions, lookup
from speclaunch.cli.options import OutputFormat
from speclaunch.cli.start_options import DoctorOptions
from speclaunch.doctor.check_line import CheckState
from speclaunch.doctor.examine import examine_machine
from speclaunch.doctor.gather import DoctorRequest, gather
from speclaunch.errors import ExitCode
from speclaunch.home import speclaunch_home
from speclaunch.report.console import out
from speclaunch.report.doctor import DoctorReport, diagnosis_json, show_diagnosis


def doctor(options: DoctorOptions) -> ExitCode:
    """Check this machine, and a recipe on it. Raises InputError."""
    asked = DoctorRequest(
        versions=engine_versions(options.engine),
        lookup=lookup(
            options.models, options.hardware, online=options.online, assume=options.assume
        ),
        asker=asker_for(ask_mode(options.ask)),
    )
    if options.overrides:
        asked = _with_recipe(asked, options)
    found, judged = gather(asked, speclaunch_home())
    diagnosis = DoctorReport(examine_machine(found), found.target, judged)
    if options.output_format is OutputFormat.JSON:
        typer.echo(json.dumps(diagnosis_json(diagnosis), indent=2))
    else:
        show_diagnosis(out(), diagnosis)
    _end_what_hangs()
    failing = diagnosis.count(CheckState.ERROR) + (
        diagnosis.count(CheckState.WARNING) if options.strict else 0
    )
    return ExitCode.FAILED if failing else ExitCode.CLEAN


def _with_recipe(asked: DoctorRequest, options: DoctorOptions) -> DoctorRequest:
    """A recipe brings Hydra, which a look at the machine alone needs not load."""
    from speclaunch.recipe.find_recipe import split_recipe
    from speclaunch.recipe.load import load

    name, changes = split_recipe(options.overrides)
    from speclaunch.recipe.load import select_role

    whole = load(name, changes, options.config_dir)
    recipe = select_role(whole, options.role, "a machine serves one")
    return replace(asked, recipe=recipe, whole=whole if whole.parts else None)


def _end_what_hangs() -> None:
    """An interpreter that did not answer in time is not left behind."""
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                child.kill()
