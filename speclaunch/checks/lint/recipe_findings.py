"""Unsuppressed findings about a recipe and all its roles, at places that users can edit.

Problems in a shipped file are reported where a recipe chooses it, because users cannot edit an
installed package.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from speclaunch.checks.lint.collect import read_elsewhere, read_ignores, unsuppressed
from speclaunch.checks.rules.examine import Lookup, check_together
from speclaunch.checks.rules.interface import Finding
from speclaunch.core import (
    COMMAND_LINE,
    Place,
    SpeclaunchError,
    conf_dir,
    from_here,
    reads,
    recipes_dir,
)
from speclaunch.deployments import SourceFile, from_recipe, read_source
from speclaunch.engine import load as load_catalogue
from speclaunch.engine import render_args, resolve

if TYPE_CHECKING:  # Hydra is slow to import
    from speclaunch.checks.rules.interface import Rule
    from speclaunch.deployments import Recipe


def findings_across(
    recipe: Recipe, version: str, lookup: Lookup, rules: Iterable[Rule]
) -> tuple[Finding, ...]:
    """Return the unsuppressed findings from comparing a recipe's roles at one engine version."""
    if not recipe.parts:
        return ()
    plans, catalogue = [], load_catalogue(version)
    for role in recipe.parts:
        deployment = role.deployment
        rendered = render_args(deployment.args, deployment.engine.env, catalogue)
        request = from_recipe(role, rendered, catalogue)
        facts = lookup.on(deployment.hardware.name).facts(request)
        plans.append(resolve(request, facts))
    found = [finding for _, finding in check_together(plans, rules)]
    return tuple(unsilenced(found, recipe.path))


def unsilenced(findings: Iterable[Finding], path: Path) -> list[Finding]:
    """Return the findings about the recipe at `path`, moved as in `at_the_choice`.

    Findings that comments in the recipe or its groups suppress are omitted.
    """
    some = list(findings)
    names = (finding.place.path for finding in some if finding.place.path != COMMAND_LINE)
    shown = next(
        (name for name in names if Path(name).resolve() == path.resolve()), from_here(path)
    )
    try:
        text = reads.read_text(path)
    except OSError:  # it was read before; without its text there are no ignores
        text = ""
    some = list(at_the_choice(some, shown))
    return unsuppressed(some, [*read_ignores(text, shown), *read_elsewhere(some, shown)])


def at_the_choice(findings: Iterable[Finding], path: str) -> Iterator[Finding]:
    """Yield the findings about the recipe at `path`, moved out of shipped files.

    A finding in a shipped file moves to the entry of `defaults` that chooses the file. Its original
    place becomes a related place. Findings about shipped recipes are unchanged.
    """
    ours: dict[str, str | None] = {}
    for finding in findings:
        name = finding.place.path
        if name not in ours:
            ours[name] = _chosen_as(name, path)
        chosen = ours[name]
        if chosen is None:
            yield finding
        else:
            place = _entry(path, chosen)
            others = tuple(dict.fromkeys((finding.place, *finding.others)))
            yield replace(finding, place=place, others=tuple(o for o in others if o != place))


def _chosen_as(name: str, recipe: str) -> str | None:
    """Return the name by which a recipe chooses a shipped file, such as `speculation/mtp`.

    None for other files, and for shipped recipes.
    """
    if name in (recipe, COMMAND_LINE):
        return None
    shipped = _real(conf_dir())
    if reads.resolve(Path(recipe)).is_relative_to(shipped.parent):
        return None
    file = reads.resolve(Path(name))
    for folder in (shipped, _real(recipes_dir())):
        if file.is_relative_to(folder):
            return file.relative_to(folder).with_suffix("").as_posix()
    return None


@cache
def _real(folder: Path) -> Path:
    return folder.resolve()


def _entry(recipe: str, chosen: str) -> Place:
    """Return the place where a recipe's `defaults` choose an option, else that of `defaults`."""
    try:
        source = read_source(reads.resolve(Path(recipe)), recipe)
    except SpeclaunchError:  # it was read before
        return Place(recipe)
    group, _, option = chosen.rpartition("/")
    for keys, place in source.positions.items():
        if keys[:1] == ("defaults",) and _names(keys[1:], source, group, option):
            return place
    return source.positions.get(("defaults",), Place(recipe))


def _names(keys: tuple[str | int, ...], source: SourceFile, group: str, option: str) -> bool:
    """True if a `defaults` item selects from `group` or, if that is empty, names `option`."""
    if not keys or not isinstance(keys[0], int):
        return False
    if group:
        name = str(keys[1]).removeprefix("override ").removeprefix("optional ") if keys[1:] else ""
        return name.strip("/ ").partition("@")[0] == group
    items = source.values.get("defaults") if isinstance(source.values, Mapping) else None
    named = items[keys[0]] if isinstance(items, list) and keys[0] < len(items) else None
    return len(keys) == 1 and isinstance(named, str) and named.strip("/ ") == option
