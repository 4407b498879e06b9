"""A text that starts speclaunch itself proves itself: its recipe is the one that was asked for."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from speclaunch.deploy.assemble import Assembled, chosen
from speclaunch.deploy.interface import Renderer, Role
from speclaunch.deploy.launching import launch_words
from speclaunch.deploy.own_recipe import settings_of
from speclaunch.deploy.proof import secrets_of
from speclaunch.errors import SpeclaunchError
from speclaunch.fix import proof
from speclaunch.launch.prepare import Prepared, prepare
from speclaunch.recipe.load import Recipe, load


def prove_launches(renderer: Renderer, text: str, assembled: Assembled) -> None:
    """Raise UnprovenError where the text's own recipe is another one, or where a command does not
    start it as the platform needs it."""
    rendering = assembled.rendering
    hidden = [value for role in rendering.roles for value in secrets_of(role)]
    found = list(_unlike(renderer, text, assembled))
    proof.refuse(f"render-{renderer.target}", found, rendering.recipe or "", text, hidden)


def _unlike(renderer: Renderer, text: str, assembled: Assembled) -> Iterator[str]:
    rendering = assembled.rendering
    for role in rendering.roles:
        if any(len(value) > 3 and value in text for value in secrets_of(role)):
            yield f"it shows a secret of {role.name}"
    wanted = Counter(
        tuple(launch_words(rendering, one.role, one.given)) for one in renderer.commands(rendering)
    )
    if Counter(renderer.launches(text)) != wanted:
        yield f"it starts {renderer.launches(text)}, not {list(wanted)}"
    own = renderer.recipe_in(text)
    if own is None:
        yield "it brings no recipe"
        return
    with tempfile.TemporaryDirectory(prefix="speclaunch-") as folder:
        path = Path(folder) / f"{rendering.name}.yaml"
        path.write_text(own, encoding="utf-8")
        try:
            recipe = load(str(path))
            for role, prepared in zip(rendering.roles, assembled.prepared, strict=True):
                yield from _role(recipe, role, prepared, has_roles=rendering.has_roles)
        except SpeclaunchError as error:
            yield f"its recipe is refused: {error}"


def _role(recipe: Recipe, role: Role, asked: Prepared, *, has_roles: bool) -> Iterator[str]:
    (one,) = chosen(recipe, role.name if has_roles else None)
    found = prepare(one, asked.version, dry_run=True)
    hidden = {argument.name for argument in asked.spelling.arguments if argument.secret}
    got = {argument.name: argument.tokens for argument in found.spelling.arguments}
    for argument in asked.spelling.arguments:
        tokens = got.pop(argument.name, None)
        unknown = argument.unset or argument.name in hidden
        if tokens is None or (tokens != argument.tokens and not unknown):
            yield f"{role.name}: {argument.name} is {tokens}, not {argument.tokens}"
    for name in got:
        yield f"{role.name}: {name} is new"
    if set(found.spelling.env) != set(asked.spelling.env):
        yield f"{role.name}: its variables are {sorted(found.spelling.env)}"
    if settings_of(found) != settings_of(asked):
        yield f"{role.name}: its launch or recovery changed"
