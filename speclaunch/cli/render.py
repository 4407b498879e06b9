"""`speclaunch render`: a recipe as a script for other tools."""

from __future__ import annotations

from typing import Annotated

import typer

from speclaunch.cli.options import ConfigDirs, EngineVersion, Overrides
from speclaunch.deploy import RENDERERS
from speclaunch.deploy.interface import Rendering
from speclaunch.deploy.proof import prove_rendering
from speclaunch.deploy.rendered_errors import errors_of_form
from speclaunch.engine.nearest import suggest
from speclaunch.errors import InputError, Problem
from speclaunch.launch.preflight import PreflightError
from speclaunch.launch.prepare import Prepared, prepare
from speclaunch.lint.ignores import unsilenced
from speclaunch.recipe.load import load
from speclaunch.recipe.recipe_words import split_recipe
from speclaunch.report.console import err
from speclaunch.report.findings import show_findings


def render(
    overrides: Overrides,
    to: Annotated[str, typer.Option("--to", help=f"The format to write: {', '.join(RENDERERS)}.")],
    config_dir: ConfigDirs = None,
    engine: EngineVersion = None,
) -> None:
    """Write a recipe in the format of another tool, for one engine version."""
    renderer = RENDERERS.get(to)
    if renderer is None:
        known = f"use one of {', '.join(RENDERERS)}"
        near = suggest(to, RENDERERS)
        raise InputError(
            Problem(f"unknown render target {to!r}", help=f"{near} {known}" if near else known)
        )
    name, changes = split_recipe(overrides)
    prepared = prepare(load(name, changes, config_dir or ()), engine, dry_run=True)
    deployment = prepared.recipe.deployment
    rendering = Rendering(
        name=deployment.name,
        description=deployment.description,
        program=prepared.program,
        spelling=prepared.spelling,
        env=prepared.overlay,
    )
    text = renderer().render(rendering)
    prove_rendering(to, text, rendering, prepared.catalogue)
    _require_sound(text, prepared, to)
    typer.echo(text, nl=False)


def _require_sound(text: str, prepared: Prepared, target: str) -> None:
    """Show what is wrong with a deployment only in the target's form; raises PreflightError."""
    found = unsilenced(errors_of_form(text, prepared.request({})), prepared.recipe.path)
    if not found:
        return
    show_findings(err(), found)
    plural = "s" * (len(found) > 1)
    raise PreflightError(
        Problem(
            f"{prepared.recipe.deployment.name} was not rendered: {len(found)} finding{plural} of "
            f"error severity as {target}",
            help="fix the recipe, or render it to another target",
        )
    )
