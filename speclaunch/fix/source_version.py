"""Which engine version somebody's command was written for."""

from __future__ import annotations

from collections.abc import Callable

from speclaunch.engine.argv import ParsedArguments
from speclaunch.engine.catalogue import Catalogue, held_versions
from speclaunch.engine.catalogue import load as load_catalogue
from speclaunch.record import record

Parse = Callable[[Catalogue], ParsedArguments]
"""A command read as one of the version of a catalogue."""


@record
class SourceVersion:
    """The version that a command is read for, and why that one.

    `said`: somebody named it. `whole`: it takes the command as it is.
    """

    version: str
    why: str
    said: bool
    whole: bool


def origin(parse: Parse, to: str, source: str | None, image: str | None) -> SourceVersion:
    """The version asked for, else that of the image, else one that takes the whole command.

    Where several take it, `to` itself comes first (nothing needs to change then) and the newest
    next. Where none does, it is the newest of those that refuse the least of it.  What the version
    of the image refuses stays refused, as after --from: it does not start.
    """
    if source is not None:
        return SourceVersion(
            source, "--from names it", True, not refused(parse(load_catalogue(source)))
        )
    if image is not None:
        whole = not refused(parse(load_catalogue(image)))
        if whole or image != to:  # an image of `to` may have been changed before the words
            return SourceVersion(image, "its image has this version", True, whole)
    best: tuple[int, str] | None = None
    for version in dict.fromkeys((to, *reversed(held_versions()))):
        count = refused(parse(load_catalogue(version)))
        if not count:
            why = (
                "it accepts the command as it is"
                if version == to
                else "the newest that accepts all of it"
            )
            return SourceVersion(version, why, False, True)
        if best is None or count < best[0]:
            best = (count, version)
    if best is None:
        raise LookupError("no catalogue is held")
    return SourceVersion(
        best[1], "no version accepts all of it; this one refuses the least", False, False
    )


def refused(parsed: ParsedArguments) -> int:
    """How many words a version refuses; a model that is missing may come from elsewhere."""
    return sum(problem.index is not None for problem in parsed.problems)
