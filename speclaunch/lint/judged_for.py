"""Which engine version each part of a file is judged for, and whether anybody said so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from speclaunch import reads
from speclaunch.engine.catalogue import held_versions
from speclaunch.engine.versions import ResolvedVersion, is_of_its_line
from speclaunch.facts.engines import declared, named, overrides_pin
from speclaunch.importer.images import image_release
from speclaunch.importer.interface import Invocation
from speclaunch.lint.collect import LintedFile
from speclaunch.record import record

if TYPE_CHECKING:
    from speclaunch.lint.run import Options
    from speclaunch.recipe.load import Recipe


@record
class Judged:
    """A version to judge for. `others`: the releases that it may as well be, because nobody named
    one; empty where somebody did. `note`: why it is another one than was named."""

    version: str
    others: tuple[str, ...] = ()
    note: str | None = None


@record
class Part:
    """What of a file is judged for one version."""

    source: LintedFile
    judged: Judged = field(default_factory=lambda: Judged(held_versions()[-1]))


def parts(source: LintedFile, options: Options) -> list[Part]:
    """What a file holds by the version that it is judged for: those asked for, else the file's own.

    Commands in a container are judged for the release of their image, so that one file can have
    several. Raises SpeclaunchError for an engine of a recipe that cannot be read.
    """
    asked = [Judged(one, note=_overridden(source, one, options)) for one in options.versions]
    if source.template is not None:  # told once
        return [Part(source, asked[0] if asked else _of_file(source, options))]
    if asked:
        first, *others = asked
        if not (source.recipe or source.invocations):
            return [Part(source, first)]
        told = _told(source)
        return [Part(source, first), *(Part(told, other) for other in others)]
    if source.recipe is not None:
        by_engine: dict[Judged, list[Recipe]] = {}
        for role in source.recipe.roles:
            by_engine.setdefault(_of_recipe(role, options), []).append(role)
        own = [Part(_with_roles(source, some), judged) for judged, some in by_engine.items()]
        return own[:1] + [Part(_told(part.source), part.judged) for part in own[1:]]
    if not source.invocations:
        return [Part(source, _of_file(source, options))]
    by_version: dict[Judged, list[Invocation]] = {}
    for invocation in source.invocations:
        tagged = image_release(invocation.image)
        judged = _known(tagged) if tagged is not None else _of_file(source, options)
        by_version.setdefault(judged, []).append(invocation)
    found = [
        Part(replace(source, invocations=tuple(some)), judged)
        for judged, some in by_version.items()
    ]
    return found[:1] + [Part(_told(part.source), part.judged) for part in found[1:]]


def for_version(source: LintedFile, version: str, options: Options) -> LintedFile:
    """A file with those roles of its recipe that are for a version; without any, as it is."""
    if source.recipe is None or not source.recipe.parts:
        return source
    roles = [role for role in source.recipe.parts if _is_for(role, version, options)]
    return _with_roles(source, roles) if roles else source


def excluding(source: LintedFile, version: str, options: Options) -> str | None:
    """The versions that a recipe is for, if a version is none of them."""
    if source.recipe is None:
        return None
    if any(_is_for(role, version, options) for role in source.recipe.roles):
        return None
    wanted = source.recipe.deployment.engine
    pin = () if options.overrides_pins or wanted.pinned is None else (wanted.pinned,)
    return " and ".join(dict.fromkeys((*pin, *wanted.needs)))


def _is_for(recipe: Recipe, version: str, options: Options) -> bool:
    wanted = recipe.deployment.engine
    counts = wanted.bounds if options.overrides_pins else wanted.specifier
    return counts.contains(version) or _answers(wanted.pinned, version)


def _answers(pinned: str | None, version: str) -> bool:
    """True if a held version answers for the version that a recipe is pinned to."""
    return pinned is not None and named(pinned).held == version


def _overridden(source: LintedFile, version: str, options: Options) -> str | None:
    """That the pin of a recipe does not count; None if it does, or there is none."""
    pinned = source.recipe.deployment.engine.pinned if source.recipe is not None else None
    if pinned is None or not options.overrides_pins or _answers(pinned, version):
        return None
    return None if excluding(source, version, options) else overrides_pin(version, pinned)


def _with_roles(source: LintedFile, roles: Sequence[Recipe]) -> LintedFile:
    recipe = source.recipe
    if recipe is None or not recipe.parts:
        return source
    return replace(source, recipe=replace(recipe, parts=tuple(roles)))


def _told(source: LintedFile) -> LintedFile:
    """Without what could not be read: whatever the version, it is told once."""
    return replace(source, problems=(), remarks=(), misread=())


def _of_file(source: LintedFile, options: Options) -> Judged:
    """The installed engine, the newest release; of a recipe its own."""
    if source.recipe is not None:
        return _of_recipe(source.recipe, options)
    installed = reads.engine(options.installed())
    return Judged(installed) if installed is not None else _newest(held_versions())


def _of_recipe(recipe: Recipe, options: Options) -> Judged:
    """The recipe's pin, the installed engine where it fits, the newest release that fits."""
    wanted = recipe.deployment.engine
    if wanted.catalogue is not None:
        near = recipe.path.parent
        return Judged(declared(wanted.catalogue, wanted.python, wanted.pinned, near))
    if wanted.pinned is not None:
        return _known(named(wanted.pinned))
    installed = reads.engine(options.installed())
    if installed is not None and wanted.specifier.contains(installed):
        return Judged(installed)
    return _newest(tuple(wanted.specifier.filter(held_versions())) or held_versions()[-1:])


def _newest(fitting: tuple[str, ...]) -> Judged:
    return Judged(fitting[-1], fitting[:-1])


def _known(found: ResolvedVersion) -> Judged:
    """That a post-release answers for its release needs no word."""
    return Judged(found.held, note=None if is_of_its_line(found) else found.note)
