"""What becomes of one argument in another engine version."""

from __future__ import annotations

from speclaunch.engine.argument import is_negation
from speclaunch.engine.canonical import canonical
from speclaunch.engine.catalogue import (
    Argument,
    ArgumentKind,
    Catalogue,
    held_versions,
    history,
    name_of,
)
from speclaunch.engine.catalogue import load as load_catalogue
from speclaunch.engine.renames import REMOVALS, conversion, other_names
from speclaunch.engine.versions import precedes
from speclaunch.record import record


@record
class MigrationVerdict:
    """What becomes of an argument: kept, said otherwise (`flag`), removed, or unknown there."""

    flag: str | None = None
    values: tuple[str, ...] | None = None
    """None keeps the values that stand there."""
    why: str | None = None
    removed: bool = False
    unknown: bool = False


KEEP = MigrationVerdict()


def verdict(
    argument: Argument, token: str, source: Catalogue, target: Catalogue
) -> MigrationVerdict:
    """What becomes of `argument`, which `source` reads the flag `token` as, in `target`."""
    flag = source.spelling(token)
    negated = isinstance(flag, str) and is_negation(argument, flag)
    there = target.spelling(token)
    found = target.resolve_flag(token)
    if (
        isinstance(found, Argument)
        and isinstance(there, str)
        and is_same(argument, found)
        and is_negation(found, there) == negated
        and found.kind is not ArgumentKind.REFUSED
    ):
        return (_renamed(found.name, target, negated) if found.deprecated else None) or KEEP
    current = target.by_name(argument.flag)
    if current is not None and is_same(argument, current) and not _dead(current):
        return _spelled(current, negated)
    name = argument.name
    for one in dict.fromkeys((name, argument.dest)):
        if (found_ := _renamed(one, target, negated)) is not None:
            return found_
    became = None if negated else _converted(name, target)
    return became or _gone(name, target)


def is_same(one: Argument, other: Argument) -> bool:
    """Whether two versions' arguments are one and the same, by name or by what they store."""
    if canonical(one.name) == canonical(other.name):
        return True
    same = canonical(one.dest) == canonical(other.dest)
    constant = ArgumentKind.CONSTANT in (one.kind, other.kind)
    return same and not constant and one.kind.takes_value == other.kind.takes_value


def known_in(token: str) -> tuple[str, str] | None:
    """The first and last held version that take a flag, shortened or not, for one argument."""
    past = history(name_of(token.partition("=")[0]))
    if past is not None:
        return past.first, past.last
    found = [
        version
        for version in held_versions()
        if isinstance(load_catalogue(version).resolve_flag(token), Argument)
    ]
    return (found[0], found[-1]) if found else None


def unknown_words(token: str, version: str) -> str:
    """That a version does not have a flag, and which ones do."""
    written = token.partition("=")[0]
    spans = known_in(token)
    if spans is None:
        return f"no known SGLang version has {written}"
    first, last = spans
    when = f"from {first} to {last}" if first != last else f"in {first} only"
    return f"SGLang {version} has no {written}: it exists {when}"


def _dead(argument: Argument) -> bool:
    return argument.deprecated or argument.kind is ArgumentKind.REFUSED


def _spelled(argument: Argument, negated: bool) -> MigrationVerdict:
    if not negated:
        return MigrationVerdict(flag=argument.flag)
    if argument.kind is ArgumentKind.BOOLEAN:
        return MigrationVerdict(flag=f"--no-{argument.flag.removeprefix('--')}")
    if argument.default is False:
        return MigrationVerdict(removed=True, why=f"{argument.flag} is off by default")
    return MigrationVerdict(unknown=True, why=f"{argument.flag} cannot be switched off there")


def _renamed(name: str, target: Catalogue, negated: bool) -> MigrationVerdict | None:
    for other in other_names(name):
        current = target.by_name(other)
        if current is not None and not _dead(current):
            return _spelled(current, negated)
    return None


def _converted(name: str, target: Catalogue) -> MigrationVerdict | None:
    became = conversion(name)
    new = target.by_name(became.new) if became else None
    if became is None or new is None or (new.choices and became.value not in new.choices):
        return None
    return MigrationVerdict(
        flag=new.flag, values=() if became.value is True else (str(became.value),)
    )


def _gone(name: str, target: Catalogue) -> MigrationVerdict:
    past = history(name)
    if past is not None and precedes(target.version, past.first):
        return MigrationVerdict(unknown=True, why=f"it exists from SGLang {past.first} on")
    last = f" (last in {past.last})" if past else ""
    why = REMOVALS.get(name) or f"SGLang {target.version} has no such argument{last}"
    return MigrationVerdict(removed=True, why=why)
