"""`speclaunch render`: a recipe as a script for other tools."""

from __future__ import annotations

from speclaunch.cli.change_options import RenderOptions
from speclaunch.cli.check_options import lookup
from speclaunch.cli.writing import require_sound
from speclaunch.deploy import RENDERERS
from speclaunch.deploy.assemble import Assembled, assemble
from speclaunch.deploy.interface import Renderer
from speclaunch.deploy.round_trip import (
    errors_of_form,
    exposed,
    findings_of_recipe,
    require_same_commands,
    require_same_recipe,
)
from speclaunch.engine.nearest import suggest
from speclaunch.errors import InputError, Problem
from speclaunch.fix.edits import write_atomically
from speclaunch.fix.migrate import is_outdated
from speclaunch.fixing.output_check import OutputCheck, configured
from speclaunch.importer.images import image_version
from speclaunch.launch.preflight import PreflightError
from speclaunch.lint.recipe_findings import unsilenced
from speclaunch.recipe.find_recipe import split_recipe
from speclaunch.recipe.load import Recipe, load, select_role
from speclaunch.report.console import err, write_exact
from speclaunch.report.problems import show_problems
from speclaunch.rules.examine import Lookup
from speclaunch.rules.finding import Severity


def render(options: RenderOptions) -> None:
    """Write a recipe in the format of another tool. Raises InputError, PreflightError."""
    renderer = RENDERERS.get(options.to)
    if renderer is None:
        known = f"use one of {', '.join(RENDERERS)}"
        near = suggest(options.to, RENDERERS)
        raise InputError(
            Problem(
                f"unknown render target {options.to!r}", help=f"{near} {known}" if near else known
            )
        )
    name, changes = split_recipe(options.overrides)
    found = lookup(options.models, options.hardware)
    recipe = load(name, changes, options.config_dir)
    if renderer.one_server:
        select_role(recipe, options.role, f"{options.to} takes one")
    carries = renderer.carries_speclaunch
    assembled = assemble(
        recipe,
        options.engine,
        found,
        role=options.role,
        bare=options.bare,
        carries_speclaunch=carries,
    )
    for note in dict.fromkeys(one.overridden for one in assembled.prepared if one.overridden):
        err().print(f"note: {note}", markup=False)
    text = rendered(renderer(), assembled)
    _require_image(text, assembled, force=options.force)
    check = _checked(renderer(), text, assembled, recipe, found)
    require_sound(check, f"{assembled.rendering.name} as {options.to}", force=options.force)
    _warn_exposed(renderer(), assembled)
    if options.output is None:
        write_exact(text)
    else:
        write_atomically(options.output, text)


def rendered(renderer: Renderer, assembled: Assembled) -> str:
    """The text, proven. Raises PreflightError where the target cannot carry the deployment."""
    rendering = assembled.rendering
    refused = renderer.refuses(rendering)
    if refused:
        raise PreflightError(refused)
    text = renderer.render(rendering)
    if rendering.runs_speclaunch:
        require_same_recipe(renderer, text, assembled)
    else:
        require_same_commands(renderer, text, rendering, assembled.prepared[0].catalogue)
    return text


def _require_image(text: str, assembled: Assembled, *, force: bool) -> None:
    """Raise PreflightError for an image of another release than the one that is rendered for,
    unless `force`."""
    found: dict[str, Problem] = {}
    for role, prepared in zip(assembled.rendering.roles, assembled.prepared, strict=True):
        image, version = role.image, prepared.catalogue.version
        if image is None or image not in text or not is_outdated(image, version):
            continue
        held = image_version(image)
        found[image] = Problem(
            f"deploy.image {image} has SGLang {held}, and this is rendered for {version}",
            prepared.recipe.place("deploy", "image"),
            f"set deploy.image to one with SGLang {version}, or render for {held}: --engine {held}",
        )
    if found and not force:
        raise PreflightError(found.values())
    show_problems(err(), found.values(), "warning")


def _checked(
    renderer: Renderer, text: str, assembled: Assembled, recipe: Recipe, lookup: Lookup
) -> OutputCheck:
    """Findings about the recipe, and about the form that the target gives it."""
    rendering, path = assembled.rendering, recipe.path
    rules = configured(str(path), (assembled.prepared[0].catalogue.version,)).rules
    found = findings_of_recipe(assembled, recipe, lookup, rules)
    errors = [one for one in found if one.severity is Severity.ERROR]
    if not rendering.runs_speclaunch:
        of_roles = dict(zip((one.name for one in rendering.roles), assembled.prepared, strict=True))
        own = [of_roles[one.role.name].request({}) for one in renderer.commands(rendering)]
        errors += unsilenced(errors_of_form(text, renderer.suffix, own), path)
    warnings = tuple(one for one in found if one.severity is Severity.WARNING)
    return OutputCheck(tuple(errors), (), warnings)


def _warn_exposed(renderer: Renderer, assembled: Assembled) -> None:
    """Warn of servers that answer anyone who reaches their address."""
    open_to_all = exposed(renderer, assembled.rendering)
    if not open_to_all:
        return
    listen = "listens" if len(open_to_all) == 1 else "listen"
    problem = Problem(
        f"{' and '.join(open_to_all)} {listen} on all interfaces without an API key",
        help="set one: args.api_key='${oc.env:API_KEY}', or let only trusted clients reach it",
    )
    show_problems(err(), [problem], "warning")
