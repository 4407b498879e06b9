"""Which engine version each part of a file is judged for, and whether anybody said so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from speclaunch import reads
from speclaunch.engine.catalogue import held_versions
from speclaunch.engine.versions import ResolvedVersion, is_of_its_line
from speclaunch.facts.engines import declared, named
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
    asked = [Judged(version) for version in options.versions]
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


def for_version(source: LintedFile, version: str) -> LintedFile:
    """A file with those roles of its recipe that are for a version; without any, as it is."""
    if source.recipe is None or not source.recipe.parts:
        return source
    roles = [role for role in source.recipe.parts if _is_for(role, version)]
    return _with_roles(source, roles) if roles else source


def is_for(source: LintedFile, version: str) -> bool:
    """Whether a recipe is for a version at all."""
    if source.recipe is None:
        return True
    return any(_is_for(role, version) for role in source.recipe.roles)


def _is_for(recipe: Recipe, version: str) -> bool:
    wanted = recipe.deployment.engine
    if wanted.specifier.contains(version):
        return True
    return wanted.pinned is not None and named(wanted.pinned).held == version


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
