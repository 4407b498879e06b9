"""What a command comes to: the effective value of every argument, by one name for all versions.

Two commands mean the same when these are equal. The values are those that the version's parser
stores, its defaults included, so that a default that changed is seen as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from speclaunch.engine.argv import ParsedArgument, parse_argv
from speclaunch.engine.canonical import canonical
from speclaunch.engine.catalogue import ArgumentKind, Catalogue
from speclaunch.record import record

_SILENT = (ArgumentKind.IGNORED, ArgumentKind.HELP, ArgumentKind.REFUSED)


@record
class Meaning:
    """The values of one command in one version, by the newest engine's names.

    `values` has every argument of the version, `given` those that the command names, with the
    texts of their values as written.
    """

    version: str
    values: Mapping[str, Any]
    given: Mapping[str, tuple[str, ...]]


@record
class MeaningDifference:
    """An argument that two commands give another value; MISSING where a version has none."""

    name: str
    before: Any
    after: Any


class _Missing:
    def __repr__(self) -> str:
        return "(no such argument)"


MISSING = _Missing()


def meaning_of(
    words: Sequence[str],
    catalogue: Catalogue,
    opaque: Collection[int] = (),
    more: Sequence[ParsedArgument] = (),
) -> Meaning | None:
    """The meaning of the words; None where this version refuses them.

    A missing model is nobody's mistake here: a script may get it from elsewhere. `more` are
    arguments that were parsed apart.
    """
    parsed = parse_argv(words, catalogue, opaque=opaque, whole=False)
    if any(problem.index is not None for problem in parsed.problems):
        return None
    values = defaults(catalogue)
    given: dict[str, tuple[str, ...]] = {}
    for item in (*parsed.parsed, *more):
        if item.argument.kind in _SILENT:
            continue
        name = canonical(item.dest)
        texts = _texts(item, words)
        if _appends(item) and name in given and isinstance(values[name], list):
            values[name] = [*values[name], *_listed(item.stored)]
            given[name] += texts
        else:
            values[name] = item.stored
            given[name] = texts
    return Meaning(catalogue.version, values, given)


def defaults(catalogue: Catalogue) -> dict[str, Any]:
    """What the parser of a version stores for a command without any argument."""
    found: dict[str, Any] = {}
    ordered = sorted(catalogue.arguments.values(), key=lambda one: one.deprecated)
    for argument in ordered:  # of two for one destination the current one says its default
        if argument.kind not in _SILENT:
            found.setdefault(canonical(argument.dest), argument.default)
    return found


def differences(before: Meaning, after: Meaning) -> list[MeaningDifference]:
    """What one command gives another value than the other, defaults that nobody set included.

    An argument that only one version has, and that the command leaves alone, is no difference.
    """
    found: list[MeaningDifference] = []
    for name in dict.fromkeys((*before.values, *after.values)):
        old, new = before.values.get(name, MISSING), after.values.get(name, MISSING)
        if old is MISSING and name not in after.given:
            continue
        if new is MISSING and name not in before.given:
            continue
        if not _same(old, new):
            found.append(MeaningDifference(name, old, new))
    return found


def _same(one: Any, other: Any) -> bool:
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _appends(item: ParsedArgument) -> bool:
    return item.argument.kind is ArgumentKind.LIST and item.argument.nargs is None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _texts(item: ParsedArgument, words: Sequence[str]) -> tuple[str, ...]:
    if item.value_indices and max(item.value_indices) < len(words):
        return tuple(words[index] for index in item.value_indices)
    _, equals, tail = words[item.index].partition("=") if item.index < len(words) else ("", "", "")
    return (tail,) if equals else ()
