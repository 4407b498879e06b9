"""`speclaunch render`: write a recipe in the format of another tool."""

from __future__ import annotations

from pathlib import Path

from speclaunch.app.output.console import err, write_exact
from speclaunch.app.output.problems import show_problems
from speclaunch.app.verbs.change_options import RenderOptions
from speclaunch.app.verbs.shared import lookup, require_sound
from speclaunch.checks import (
    PreflightError,
    check_rendering,
    exposed,
    is_outdated,
    plan_rendering,
    rendered,
    write_atomically,
)
from speclaunch.core import InputError, Problem
from speclaunch.deployments import (
    RENDERERS,
    Assembled,
    Baseline,
    Renderer,
    image_version,
    load,
    select_role,
    split_recipe,
)
from speclaunch.engine import suggest


def render(options: RenderOptions) -> None:
    """Write a recipe in the format of another tool. Raises InputError, PreflightError."""
    renderer = RENDERERS.get(options.to)
    if renderer is None:
        known = f"use one of {', '.join(RENDERERS)}"
        near = suggest(options.to, RENDERERS)
        raise InputError(
            f"unknown render target {options.to!r}", help=f"{near} {known}" if near else known
        )
    if options.output is not None and options.output.is_dir():
        remedy = f"name a file in it: -o {options.output / f'{options.to}{renderer.suffix}'}"
        raise InputError(f"-o {options.output} is a directory", help=remedy)
    name, changes = split_recipe(options.overrides)
    found = lookup(options.models, options.hardware)
    recipe = load(name, changes, options.config_dir)
    if renderer.single_server:
        select_role(recipe, options.role, f"{options.to} supports only one")
    carries = renderer.carries_speclaunch
    assembled = plan_rendering(
        recipe,
        options.engine,
        found,
        role=options.role,
        bare=options.bare,
        carries_speclaunch=carries,
        baseline=None if options.acceptance is None else _baseline(options.acceptance),
    )
    for note in dict.fromkeys(
        prepared.overridden for prepared in assembled.prepared if prepared.overridden
    ):
        err().print(f"note: {note}")
    text = rendered(renderer(), assembled)
    _require_image(text, assembled, force=options.force)
    check = check_rendering(renderer(), text, assembled, recipe, found)
    require_sound(check, f"{assembled.rendering.name} as {options.to}", force=options.force)
    _warn_exposed(renderer(), assembled)
    for note in renderer().notes(assembled.rendering):
        err().print(f"note: {note}")
    if options.output is None:
        write_exact(text)
        return
    write_atomically(options.output, text)
    if not options.output.is_file():  # a device has no files next to it
        return
    more = renderer().companions(assembled.rendering, options.output.name)
    for name, companion in more.items():
        path = options.output.with_name(name)
        write_atomically(path, companion)
        err().print(f"note: also wrote {path}")


def _baseline(text: str) -> Baseline:
    """Return the acceptance length that a number or certificate states. Raises InputError."""
    try:
        length, source = float(text), "--acceptance"
    except ValueError:
        from speclaunch.measure import find_certificate

        cells = find_certificate(text).cells
        known = [c.candidate.accept_length for c in cells if c.candidate.accept_length is not None]
        if not known:
            raise InputError(
                f"certificate {text} has no acceptance length",
                help="set tokens per verification, for example --acceptance 2.5",
            ) from None
        length, source = min(known), f"the lowest of certificate {Path(text).name}"
    if not 1 <= length <= _MOST_LENGTH:
        raise InputError(
            f"--acceptance {text}: not an acceptance length",
            help=f"set tokens per verification, 1 to {_MOST_LENGTH}",
        )
    return Baseline(length, source)


_MOST_LENGTH = 1024
"""Upper limit of an acceptance length: no method drafts that many tokens for one verification."""


def _require_image(text: str, assembled: Assembled, *, force: bool) -> None:
    """Raise PreflightError if an image does not contain the rendered version, unless `force`."""
    found: dict[str, Problem] = {}
    for role, prepared in zip(assembled.rendering.roles, assembled.prepared, strict=True):
        image, version = role.image, prepared.catalogue.version
        if image is None or image not in text or not is_outdated(image, version):
            continue
        held = image_version(image)
        found[image] = Problem(
            f"deploy.image {image} contains SGLang {held}, but the rendered version is {version}",
            prepared.recipe.place("deploy", "image"),
            f"set an image with SGLang {version}, or render for {held}: --engine {held}",
        )
    if found and not force:
        raise PreflightError(found.values())
    show_problems(err(), found.values(), "warning")


def _warn_exposed(renderer: Renderer, assembled: Assembled) -> None:
    open_to_all = exposed(renderer, assembled.rendering)
    if not open_to_all:
        return
    listen = "listens" if len(open_to_all) == 1 else "listen"
    problem = Problem(
        f"{' and '.join(open_to_all)} {listen} on all interfaces without an API key",
        help="set args.api_key='${oc.env:API_KEY}', or restrict access to trusted clients",
    )
    show_problems(err(), [problem], "warning")
