"""`speclaunch doctor`: check this machine, and a recipe on it, before a launch."""

from __future__ import annotations

import contextlib
import json

import psutil
import typer
from msgspec.structs import replace

from speclaunch.app.output.console import err_lines, out
from speclaunch.app.output.doctor import DoctorReport, diagnosis_json, show_diagnosis
from speclaunch.app.verbs.check_options import engine_versions, lookup
from speclaunch.app.verbs.options import OutputFormat
from speclaunch.app.verbs.start_options import DoctorOptions
from speclaunch.checks import ask_mode, querier_for
from speclaunch.core import ExitCode, speclaunch_home
from speclaunch.deployments import load, select_role, split_recipe
from speclaunch.engine import named, overrides_pin
from speclaunch.serving import CheckState, DoctorRequest, check_machine, gather


def doctor(options: DoctorOptions) -> ExitCode:
    """Check this machine, and a recipe on it if named. Raises InputError."""
    request = DoctorRequest(
        versions=engine_versions(options.engine),
        lookup=lookup(
            options.models, options.hardware, online=options.online, assume=options.assume
        ),
        asker=querier_for(ask_mode(options.ask)),
    )
    if options.overrides:
        request = _with_recipe(request, options)
    found, results = gather(request, speclaunch_home())
    diagnosis = DoctorReport(check_machine(found), found.target, results)
    if options.output_format is OutputFormat.JSON:
        typer.echo(json.dumps(diagnosis_json(diagnosis), indent=2))
    else:
        show_diagnosis(out(), diagnosis)
    _end_what_hangs()
    failing = diagnosis.count(CheckState.ERROR) + (
        diagnosis.count(CheckState.WARNING) if options.strict else 0
    )
    return ExitCode.FAILED if failing else ExitCode.CLEAN


def _with_recipe(request: DoctorRequest, options: DoctorOptions) -> DoctorRequest:
    """Return the request with a recipe. Separate, because only recipes need Hydra."""

    name, changes = split_recipe(options.overrides)

    loaded = load(name, changes, options.config_dir)
    recipe = select_role(loaded, options.role, "doctor checks a single role")
    if pin := recipe.deployment.engine.pinned:
        for version in request.versions:
            if named(pin).held != version:
                err_lines().print(f"note: {overrides_pin(version, pin)}")
    return replace(request, recipe=recipe, complete_recipe=loaded if loaded.parts else None)


def _end_what_hangs() -> None:
    """Kill remaining child processes, such as an interpreter that did not answer in time."""
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                child.kill()
