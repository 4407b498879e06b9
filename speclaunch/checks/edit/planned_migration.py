"""Planned arguments of a command for another engine version, before any edit."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from speclaunch.checks.edit.round_trip import MISSING, Difference, Meaning, meaning_of
from speclaunch.engine import (
    BORROWED,
    REMOVALS,
    Argument,
    ArgumentKind,
    ArgvProblem,
    Catalogue,
    ParsedArgument,
    canonical,
    conversion,
    held_versions,
    history,
    is_negation,
    name_of,
    other_names,
    parse_argv,
    precedes,
)
from speclaunch.engine import load as load_catalogue


class MigrationVerdict(Struct, frozen=True):
    """Result for an argument: unchanged, replaced by `flag`, `removed`, or `unknown` in the target.

    `why`: the reason if it is `removed` or `unknown`.
    """

    flag: str | None = None
    values: tuple[str, ...] | None = None
    """New values; None if they are unchanged."""
    why: str | None = None
    removed: bool = False
    unknown: bool = False


KEEP = MigrationVerdict()


def verdict(
    argument: Argument, token: str, source: Catalogue, target: Catalogue
) -> MigrationVerdict:
    """Return the verdict for `target` on `argument`, which `token` sets in `source`."""
    flag = source.full_flag(token)
    negated = isinstance(flag, str) and is_negation(argument, flag)
    there = target.full_flag(token)
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
        return _with_flag(current, negated)
    name = argument.name
    for old_name in dict.fromkeys((name, argument.dest)):
        if (found_ := _renamed(old_name, target, negated)) is not None:
            return found_
    became = None if negated else _converted(name, target)
    return became or absent(name, target)


def is_same(old: Argument, new: Argument) -> bool:
    """True if the arguments of two versions are the same, by name or argparse destination."""
    if canonical(old.name) == canonical(new.name):
        return True
    same = canonical(old.dest) == canonical(new.dest)
    constant = ArgumentKind.CONSTANT in (old.kind, new.kind)
    return same and not constant and old.kind.takes_value == new.kind.takes_value


def known_in(token: str) -> tuple[str, str] | None:
    """Return the first and last versions that accept a flag, full or shortened; None if none do."""
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
    """Return the message that a version lacks a flag, with the versions that have it."""
    written = token.partition("=")[0]
    spans = known_in(token)
    if spans is None:
        return f"no known SGLang version has {written}"
    first, last = spans
    when = f"from {first} to {last}" if first != last else f"in {first} only"
    return f"SGLang {version} has no {written}: it exists {when}"


def _dead(argument: Argument) -> bool:
    return argument.deprecated or argument.kind is ArgumentKind.REFUSED


def _with_flag(argument: Argument, negated: bool) -> MigrationVerdict:
    if not negated:
        return MigrationVerdict(flag=argument.flag)
    if argument.kind is ArgumentKind.BOOLEAN:
        return MigrationVerdict(flag=f"--no-{argument.flag.removeprefix('--')}")
    if argument.default is False:
        return MigrationVerdict(removed=True, why=f"{argument.flag} is off by default")
    return MigrationVerdict(unknown=True, why=f"{argument.flag} cannot be switched off")


def _renamed(name: str, target: Catalogue, negated: bool) -> MigrationVerdict | None:
    for other in other_names(name):
        current = target.by_name(other)
        if current is not None and not _dead(current):
            return _with_flag(current, negated)
    return None


def _converted(name: str, target: Catalogue) -> MigrationVerdict | None:
    became = conversion(name)
    new = target.by_name(became.new) if became else None
    if became is None or new is None or (new.choices and became.value not in new.choices):
        return None
    values = () if became.value is True else (str(became.value),)
    return MigrationVerdict(flag=new.flag, values=values)


def absent(name: str, target: Catalogue) -> MigrationVerdict:
    """Return the verdict on an argument that `target` lacks."""
    past = history(name)
    if past is not None and precedes(target.version, past.first):
        return MigrationVerdict(unknown=True, why=f"it exists from SGLang {past.first} on")
    last = f" (last in {past.last})" if past else ""
    why = REMOVALS.get(name) or f"SGLang {target.version} has no such argument{last}"
    return MigrationVerdict(removed=True, why=why)


class MigratedArgument(Struct, frozen=True):
    """Argument of a command, with its flag and the verdict for the target version."""

    item: ParsedArgument
    verdict: MigrationVerdict
    token: str
    """The flag as written in the command."""

    @property
    def name(self) -> str:
        """Flag for messages, in full even if shortened in the command."""
        written, full = self.token.partition("=")[0], self.item.argument.flag
        known = written.startswith("--no-") or written in self.item.argument.flags
        return written if known else f"{full} (written {written})"

    @property
    def indices(self) -> tuple[int, ...]:
        return (self.item.index, *self.item.value_indices)


class PlannedMigration(Struct):
    """Planned command. `words`: its new tokens, each with the index of the old token."""

    arguments: list[MigratedArgument] = []
    words: list[tuple[str, int]] = []
    problems: list[ArgvProblem] = []
    """Problems that prevent the migration, at indices of the old tokens."""
    notes: list[tuple[int, str]] = []
    """Changed defaults and changed readings of values, each at an old token's index (-1: none)."""
    before: Meaning | None = None
    after: Meaning | None = None


def plan(
    words: Sequence[str],
    opaque: Collection[int],
    source: Catalogue,
    target: Catalogue,
    *,
    mixed: bool,
    is_complete: bool = True,
) -> PlannedMigration:
    """Return the planned command for `target`.

    `mixed`: the command may mix two versions, so a flag that `source` lacks is read as in a version
    that has it. `is_complete`: False if tokens from elsewhere may follow and take precedence.
    """
    found = PlannedMigration()
    parsed = parse_argv(words, source, opaque=opaque, with_values=False)
    items = [(item, source) for item in parsed.parsed]
    for problem in parsed.problems:
        if problem.index is None:
            continue
        other = _from_another(words, problem, opaque) if mixed else None
        if other is not None:
            items.append(other)
        else:
            found.problems.append(_refusal(words, problem, source))
    covered = {index for item, _ in items for index in (item.index, *item.value_indices)}
    found.problems = [problem for problem in found.problems if problem.index not in covered]
    items.sort(key=lambda pair: pair[0].index)
    for item, version in items:
        token = words[item.index]
        becomes = verdict(item.argument, token, version, target) if token[:1] == "-" else KEEP
        if becomes.removed and is_complete:
            becomes = _borrowed(item, [entry for entry, _ in items], opaque, target) or becomes
        found.arguments.append(MigratedArgument(item, becomes, token))
        found.words += _words(found.arguments[-1], words)
        if becomes.unknown:
            name = found.arguments[-1].name if token[:1] == "-" else token
            found.problems.append(ArgvProblem(item.index, f"{name}: {becomes.why}"))
    if not found.problems:
        others = [item for item, version in items if version is not source]
        _account(found, words, opaque, source, target, others)
    return found


def _borrowed(
    item: ParsedArgument,
    items: Sequence[ParsedArgument],
    opaque: Collection[int],
    target: Catalogue,
) -> MigrationVerdict | None:
    """Return the verdict for a switch that reused another argument's value; None without it."""
    became, lender = BORROWED.get(item.argument.name, (None, None))
    lenders = [other for other in items if canonical(other.dest) == lender]
    new = target.by_name(became) if became else None
    if new is None or not lenders or {lenders[-1].index, *lenders[-1].value_indices} & set(opaque):
        return None
    if any(canonical(other.dest) == became and other.index > item.index for other in items):
        return MigrationVerdict(
            unknown=True, why=f"replaced by {became}, which the command sets later"
        )
    return MigrationVerdict(flag=new.flag, values=(str(lenders[-1].stored),))


def _words(migrated: MigratedArgument, words: Sequence[str]) -> Iterator[tuple[str, int]]:
    becomes, item = migrated.verdict, migrated.item
    if becomes.removed:
        return
    values = [(words[index], index) for index in item.value_indices]
    if becomes.flag is None:
        yield migrated.token, item.index
        yield from values
        return
    _, equals, tail = migrated.token.partition("=")
    if becomes.values is None:
        yield (f"{becomes.flag}={tail}" if equals else becomes.flag), item.index
        yield from values
    else:
        yield "=".join([becomes.flag, *becomes.values]), item.index


def _from_another(
    words: Sequence[str], problem: ArgvProblem, opaque: Collection[int]
) -> tuple[ParsedArgument, Catalogue] | None:
    """Return an unknown argument and the newest catalogue that has its full name, or None."""
    index = problem.index or 0
    if "unrecognized" not in problem.message or words[index][:2] != "--":
        return None
    for version in reversed(held_versions()):
        catalogue = load_catalogue(version)
        flag = words[index].partition("=")[0]
        argument = catalogue.by_name(flag)
        if argument is None or flag not in argument.flags:
            continue
        if argument.kind is ArgumentKind.REFUSED and conversion(argument.name) is not None:
            return ParsedArgument(argument, True, flag, index, (), True), catalogue
        flags = (at for at in range(index + 1, len(words)) if words[at].startswith("--"))
        end = next(flags, len(words))
        inside = [at - index for at in opaque if index <= at < end]
        parsed = parse_argv(words[index:end], catalogue, opaque=inside, with_values=False)
        if len(parsed.parsed) != 1 or any(p.index is not None for p in parsed.problems):
            return None
        (item,) = parsed.parsed
        values = tuple(at + index for at in item.value_indices)
        moved = ParsedArgument(item.argument, item.value, item.written, index, values, item.stored)
        return moved, catalogue
    return None


def _refusal(words: Sequence[str], problem: ArgvProblem, source: Catalogue) -> ArgvProblem:
    word = words[problem.index] if problem.index is not None else ""
    unknown = "unrecognized" in problem.message and word.startswith("--")
    if unknown and not isinstance(source.resolve_flag(word), Argument):
        return ArgvProblem(
            problem.index,
            unknown_words(word, source.version),
            "set --from to the command's SGLang version",
        )
    message = f"SGLang {source.version} refuses this: {problem.message}"
    return ArgvProblem(problem.index, message, _meant_before(word) or problem.help)


def _meant_before(token: str) -> str | None:
    """Return a remedy with the newest version that expands a shortened flag; None if none does."""
    if not token.startswith("--") or token.partition("=")[0] == "--":
        return None
    for version in reversed(held_versions()):
        found = load_catalogue(version).full_flag(token)
        if isinstance(found, str):
            written = token.partition("=")[0]
            known = f"SGLang {version} reads {written} as {found}"
            return f"set --from {version}: {known}" if found != written else None
    return None


def _account(
    found: PlannedMigration,
    words: Sequence[str],
    opaque: Collection[int],
    source: Catalogue,
    target: Catalogue,
    others: Sequence[ParsedArgument],
) -> None:
    """Add both commands' meanings to `found`, and problems or notes on unannounced differences."""
    texts = [text for text, _ in found.words]
    hidden = {at for at, (_, old) in enumerate(found.words) if old in opaque}
    parsed = parse_argv(texts, target, opaque=hidden, with_values=False)
    for problem in parsed.problems:
        if problem.index is not None:
            message = f"SGLang {target.version} refuses this: {problem.message}"
            found.problems.append(ArgvProblem(found.words[problem.index][1], message, problem.help))
    foreign = {index for item in others for index in (item.index, *item.value_indices)}
    rest = [text for index, text in enumerate(words) if index not in foreign]
    remaining = [index for index in range(len(words)) if index not in foreign]
    blind = {at for at, index in enumerate(remaining) if index in opaque}
    found.before = meaning_of(rest, source, blind, others)
    found.after = meaning_of(texts, target, hidden)
    if found.before is None or found.after is None:
        return
    changed, note = unannounced(found.before, found.after, found.arguments)
    for difference in changed:
        at = _position(found.arguments, difference.name)
        explicit = found.before.explicit.get(difference.name)
        if explicit and explicit == found.after.explicit.get(difference.name):
            found.notes.append((at, f"{difference.name} is now read as {difference.after!r}"))
        else:
            found.problems.append(ArgvProblem(at, would_change(difference, target.version)))
    found.notes += [(-1, note)] if note else []


class Announced(Struct, frozen=True):
    """Announced changes: removed names, and new values by name."""

    gone: frozenset[str]
    becomes: Mapping[str, Any]

    def allows(self, difference: Difference) -> bool:
        if difference.name in self.becomes:
            expected = self.becomes[difference.name]
            return str(difference.after) == str(expected)
        return difference.name in self.gone and difference.after is MISSING


def _announced(arguments: Sequence[MigratedArgument]) -> Announced:
    """Return the changes that the verdicts announce."""
    gone: set[str] = set()
    becomes: dict[str, Any] = {}
    for migrated in arguments:
        argument = migrated.item.argument
        names = {canonical(argument.name), canonical(argument.dest)}
        if migrated.verdict.removed:
            gone |= names
        borrowed = BORROWED.get(argument.name)
        if borrowed is not None and migrated.verdict.values:
            gone |= names
            becomes[canonical(borrowed[0])] = migrated.verdict.values[0]
        became = conversion(argument.name)
        if became is not None:
            gone |= names
            becomes[canonical(became.new)] = became.value
    return Announced(frozenset(gone), becomes)


def unannounced(
    before: Meaning, after: Meaning, arguments: Sequence[MigratedArgument]
) -> tuple[list[Difference], str | None]:
    """Return the unannounced changes of set arguments, and a note on changed defaults, if any.

    The defaults None and False, which mean off or the engine's choice, count as equal.
    """
    expected = _announced(arguments)
    found: list[Difference] = []
    defaults: list[str] = []
    for difference in before.differences(after):
        name, old, new = difference.name, difference.before, difference.after
        if expected.allows(difference):
            continue
        if name in before.explicit or name in after.explicit:
            found.append(difference)
        elif old not in (None, False) or new not in (None, False):
            defaults.append(f"{name} {_shown(old)} → {_shown(new)}")
    listed = ", ".join(defaults)
    return found, f"defaults that changed and are not set here: {listed}" if listed else None


def would_change(difference: Difference, version: str) -> str:
    """Return the message for an unannounced change."""
    before, after = _shown(difference.before), _shown(difference.after)
    return f"{difference.name} would be {after} instead of {before} in SGLang {version}"


def _shown(value: Any) -> str:
    return "(the engine's choice)" if value is None else str(value)


def _position(arguments: Sequence[MigratedArgument], name: str) -> int:
    for migrated in arguments:
        argument = migrated.item.argument
        became = conversion(argument.name)
        names = {canonical(argument.dest), canonical(argument.name)}
        if name in names or (became is not None and canonical(became.new) == name):
            return migrated.item.index
    return -1
