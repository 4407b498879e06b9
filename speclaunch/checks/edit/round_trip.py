"""Check that a translation's output, read back, equals its input except for announced changes.

Both sides of the comparison come from each version's readers and parser, never from the edits. A
failed check is a speclaunch bug: the file is unchanged, and both texts are saved for a bug report.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from speclaunch.checks.edit.edits import FixTarget, lines_of
from speclaunch.core import (
    ExitCode,
    Problem,
    Redactor,
    SpeclaunchError,
    holds_secret,
    is_secret_flag,
    is_secret_variable,
    make_private,
    masked,
    speclaunch_home,
)
from speclaunch.deployments import Invocation, Reading, Word, events, from_invocation
from speclaunch.engine import (
    ArgumentKind,
    Catalogue,
    ParsedArgument,
    canonical,
    is_secret_argument,
    parse_argv,
)
from speclaunch.engine import load as load_catalogue

_EMPTY = re.compile(
    r"(?<![-\w$])([A-Za-z_]\w*)=(?:\"\"|''|\(\s*\))?(?=[ \t]*(?:[;#\n\r]|\Z))", re.M
)
"""A definition without a value: `NAME=`, `NAME=""`, `NAME=()`; `NAME+=()` is not matched."""
_YAML = (".yaml", ".yml", ".json")
_SILENT = (ArgumentKind.IGNORED, ArgumentKind.HELP, ArgumentKind.REFUSED)


class RoundTripError(SpeclaunchError):
    """A translation changes more than announced: a bug in speclaunch (exit 4)."""

    exit_code = ExitCode.INTERNAL


class _Missing:
    def __repr__(self) -> str:
        return "(no such argument)"


MISSING = _Missing()
"""Value of a name on the side of a comparison that lacks it."""
ANYTHING = object()
"""Expected value that equals every value."""


class Difference(Struct, frozen=True):
    """Unexpected value: `after` instead of the expected `before` (`MISSING`: no value)."""

    name: Any
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.name} is {self.after!r}, not {self.before!r}"


def is_identical(first: Any, second: Any) -> bool:
    """True if two values have the same type and are equal."""
    return bool(first == second) and type(first) is type(second)


def differences(
    before: Mapping[Any, Any],
    after: Mapping[Any, Any],
    expected: Mapping[Any, Any] | None = None,
    is_same: Callable[[Any, Any], bool] = is_identical,
) -> Iterator[Difference]:
    """Yield the differences of `after` from `before`, or from `expected` for the names in it."""
    new_values = expected or {}
    unchanged = {name: before.get(name, MISSING) for name in (*before, *after)}
    for name, value in {**without(unchanged, new_values), **new_values}.items():
        found = after.get(name, MISSING)
        if value is not ANYTHING and not is_same(value, found):
            yield Difference(name, value, found)


def without(values: Mapping[Any, Any], names: Container[Any]) -> dict[Any, Any]:
    """Return the mapping without `names`."""
    return {name: value for name, value in values.items() if name not in names}


class Meaning(Struct, frozen=True):
    """Values of a command's arguments in one version, by their names in the newest engine.

    `values` has every argument of the version, defaults included; `explicit` has those that the
    command sets, with the texts of their values.
    """

    version: str
    values: Mapping[str, Any]
    explicit: Mapping[str, tuple[str, ...]]

    def differences(
        self, after: Meaning, expected: Mapping[str, Any] | None = None
    ) -> list[Difference]:
        """Return the arguments with a different value in `after`, changed defaults included.

        `expected`: new values to expect. An argument that only one version has is not a difference
        unless the command sets it.
        """
        unnamed = {
            name: ANYTHING
            for first, second in ((self, after), (after, self))
            for name in first.values.keys() - second.values.keys() - first.explicit.keys()
        }
        return list(
            differences(self.values, after.values, {**unnamed, **(expected or {})}, _is_equal)
        )


def _is_equal(first: Any, second: Any) -> bool:
    """True if the engine gets the same value: 1 equals 1.0, but not True."""
    return bool(first == second) and isinstance(first, bool) == isinstance(second, bool)


def meaning_of(
    words: Sequence[str],
    catalogue: Catalogue,
    opaque: Collection[int] = (),
    more: Sequence[ParsedArgument] = (),
) -> Meaning | None:
    """Return the meaning of a command's tokens; None if this version rejects them.

    A missing model is accepted, because a script may get it from elsewhere. `more`: arguments that
    were parsed separately.
    """
    parsed = parse_argv(words, catalogue, opaque=opaque, with_values=False)
    if any(problem.index is not None for problem in parsed.problems):
        return None
    values = defaults(catalogue)
    explicit: dict[str, tuple[str, ...]] = {}
    for item in (*parsed.parsed, *more):
        if item.argument.kind in _SILENT:
            continue
        name = canonical(item.dest)
        texts = _texts_of(item, words)
        appends = item.argument.kind is ArgumentKind.LIST and item.argument.nargs is None
        if appends and name in explicit and isinstance(values[name], list):
            added = item.stored if isinstance(item.stored, list) else [item.stored]
            values[name] = [*values[name], *added]
            explicit[name] += texts
        else:
            values[name] = item.stored
            explicit[name] = texts
    return Meaning(catalogue.version, values, explicit)


def defaults(catalogue: Catalogue) -> dict[str, Any]:
    """Return the values that a version's parser stores for a command without arguments."""
    found: dict[str, Any] = {}
    ordered = sorted(catalogue.arguments.values(), key=lambda known: known.deprecated)
    for argument in ordered:  # for a shared destination, the default of the current argument
        if argument.kind not in _SILENT:
            found.setdefault(canonical(argument.dest), argument.default)
    return found


def _texts_of(item: ParsedArgument, words: Sequence[str]) -> tuple[str, ...]:
    if item.value_indices and max(item.value_indices) < len(words):
        return tuple(words[index] for index in item.value_indices)
    _, equals, tail = words[item.index].partition("=") if item.index < len(words) else ("", "", "")
    return (tail,) if equals else ()


class ExpectedCommand(Struct, frozen=True):
    """Command after a migration: its tokens, its meaning, and its new variables."""

    words: tuple[str, ...]
    version: str
    meaning: Meaning | None
    env: Mapping[str, str] = {}
    image: str | None = None
    """New image; None: the old one."""


def migration_differences(
    before: Reading, after: Reading, expected: Sequence[ExpectedCommand]
) -> Iterator[str]:
    """Yield the differences between the commands of the new text and the expected commands."""
    old, new = before.invocations, after.invocations
    if len(old) != len(new) or len(old) != len(expected):
        yield f"{len(old)} commands became {len(new)}"
        return
    for number, (old_command, new_command, target) in enumerate(
        zip(old, new, expected, strict=True), 1
    ):
        for what in _migrated(old_command, new_command, target):
            yield f"command {number}: {what}"
    if len(after.problems) > len(before.problems):
        yield f"it can no longer be read: {after.problems[-1].message}"


def _migrated(old: Invocation, new: Invocation, expected: ExpectedCommand) -> Iterator[str]:
    words = tuple(word.text for word in new.words)
    if words != expected.words:
        yield f"its tokens are {words}, not {expected.words}"
    # a document's images may become equal, and the image of a later command certain
    yield from _program(old, new, expected.image or old.image or new.image)
    yield from _environment(old, new, expected.env, are_literal=False)
    opaque = {index for index, word in enumerate(new.words) if not word.evaluated}
    meaning = meaning_of(words, load_catalogue(expected.version), opaque)
    if expected.meaning is None or meaning is None:
        if expected.meaning is not meaning:
            yield f"SGLang {expected.version} refuses it"
    else:
        yield from map(str, expected.meaning.differences(meaning)[:1])


def _program(old: Invocation, new: Invocation, image: str | None = None) -> Iterator[str]:
    image = image or old.image
    if (old.kind, old.name, image) != (new.kind, new.name, new.image):
        yield "another program, container or image"
    dropped = (image if word.text == old.image else word.text for word in old.dropped)
    if Counter(dropped) != Counter(word.text for word in new.dropped):
        yield "its redirections and pipes"


def _environment(
    old: Invocation, new: Invocation, new_values: Mapping[str, str | None], *, are_literal: bool
) -> Iterator[str]:
    """Yield messages about differing variables and options of other programs.

    `new_values`: expected values by name (None: unset). `are_literal`: they may not refer to
    variables.
    """
    before, after = (
        {name: (word.text, word.evaluated) for name, word in sorted(command.env.items())}
        for command in (old, new)
    )
    expected: dict[str, Any] = {}
    for name, text in new_values.items():
        is_literal = are_literal or name not in new.env or new.env[name].evaluated
        expected[name] = MISSING if text is None else (text, is_literal)
    for difference in differences(before, after, expected):
        if difference.name in new_values:
            yield _not_set(difference, new_values[difference.name])
        else:
            yield f"the variable {difference.name}"
    if _texts(old.extras) != _texts(new.extras):
        yield "options of other programs"


def _texts(words: Mapping[str, Word]) -> dict[str, str]:
    return {name: word.text for name, word in words.items()}


def _not_set(found: Difference, value: Any) -> str:
    if found.before is MISSING:
        return f"{found.name} is still set"
    return f"{found.name} would not become {value}"


def fix_differences(
    before: Reading,
    after: Reading,
    changed: Mapping[int, FixTarget],
    version: str,
    others: Collection[str] = (),
) -> Iterator[str]:
    """Yield unexpected differences between the commands before and after a fix.

    `changed`: the fix target for `version` of each command to fix, by number (from 0). In the
    versions `others`, arguments that the fix does not set must be unchanged, too.
    """
    old, new = before.invocations, after.invocations
    if len(old) != len(new):
        yield f"{len(old)} commands become {len(new)}"
        return
    for kind in ("problems", "unread", "misread"):
        if messages := new_messages(getattr(before, kind), getattr(after, kind)):
            yield f"part of it could not be read afterwards: {messages[0]}"
    for number, (old_command, new_command) in enumerate(zip(old, new, strict=True)):
        target = changed.get(number)
        name = f"the command of line {old_command.place.line}"
        for what in _fixed(old_command, new_command, target, version):
            yield f"{name}: {what}" if target is not None else f"{name} would change, too: {what}"
        for version_ in others:
            for what in _fixed(old_command, new_command, target, version_, any_value=True):
                yield f"{name} in SGLang {version_}: {what}"


def new_messages(before: Iterable[Problem], after: Iterable[Problem]) -> list[str]:
    """Return the messages of problems in `after` that `before` lacks."""
    old, new = (Counter(problem.message for problem in side) for side in (before, after))
    return list(new - old)


def _fixed(
    old: Invocation,
    new: Invocation,
    fix: FixTarget | None,
    version: str,
    *,
    any_value: bool = False,
) -> Iterator[str]:
    """Yield one command's unexpected differences. `any_value`: ignore values that the fix sets."""
    yield from _program(old, new)
    catalogue = load_catalogue(version)
    parsed_old, parsed_new = (from_invocation(found, "fixed", catalogue) for found in (old, new))
    arguments = fix.arguments if fix is not None else {}
    before, after = (
        {name: (found.value, found.known) for name, found in sorted(side.values.items())}
        for side in (parsed_old, parsed_new)
    )
    expected: dict[str, Any] = {}
    for name, argument in arguments.items():
        is_off = argument.value is not None and after.get(name, (None,))[0] is False
        if any_value or (argument.is_removed and is_off):
            expected[name] = ANYTHING
        else:
            expected[name] = MISSING if argument.is_removed else (argument.stored, True)
    for found in differences(before, after, expected, _is_same_argument):
        if found.name in arguments:
            yield _not_set(found, arguments[found.name].value)
        else:
            yield found.name
    if (
        new_messages(parsed_old.problems, parsed_new.problems)
        or parsed_new.unseen != parsed_old.unseen
        or parsed_new.unread.keys() - parsed_old.unread.keys()
    ):
        yield f"SGLang {version} would refuse it"
    yield from _environment(old, new, fix.env if fix is not None else {}, are_literal=True)


def _is_same_argument(first: Any, second: Any) -> bool:
    if first is MISSING or second is MISSING:
        return first is second
    return bool(first == second) and type(first[0]) is type(second[0])


def data_differences(old: Any, new: Any, fix: FixTarget) -> Iterator[str]:
    """Yield the differences in a recipe's own data, except in values that a fix sets."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        yield "it is not a mapping"
        return
    for difference in differences(_without_fixed(old, fix), _without_fixed(new, fix)):
        yield f"{difference.name} would change, too"


def _without_fixed(data: Mapping[Any, Any], fix: FixTarget) -> dict[Any, Any]:
    """Return a recipe's data without the values that a fix sets, and without empty sections."""
    found = {key: value for key, value in data.items() if value is not None}
    args = found["args"] = found.get("args") or {}
    if isinstance(args, dict):
        found["args"] = {n: v for n, v in args.items() if canonical(str(n)) not in fix.arguments}
    if fix.env:
        engine = found["engine"] = found.get("engine") or {}
        if isinstance(engine, dict):
            env = without(engine.get("env") or {}, fix.env)
            found["engine"] = without(engine, ("env",)) | ({"env": env} if env else {})
    return found


def role_data_differences(old: Any, new: Any, fix: FixTarget) -> Iterator[str]:
    """Yield differences in a recipe's shared part and roles, except in values that a fix sets."""
    yield from data_differences(without(old, ("roles",)), without(new, ("roles",)), fix)
    roles, others = (recipe.get("roles") or {} for recipe in (old, new))
    if list(roles) != list(others):
        yield "roles would change, too"
        return
    for name in roles:
        yield from data_differences(roles[name] or {}, others[name] or {}, fix)


def composition_differences(
    old: Mapping[str, Any], new: Mapping[str, Any], fix: FixTarget
) -> Iterator[str]:
    """Yield unexpected differences in a composed recipe (with groups) before and after a fix."""
    explicit: dict[str, list[Any]] = {}
    for name, value in (new.get("args") or {}).items():
        if value is not None:
            explicit.setdefault(canonical(name), []).append(value)
    for name, argument in fix.arguments.items():
        found = explicit.get(name, [])
        value = list(argument.value) if isinstance(argument.value, tuple) else argument.value
        if value is None and found:
            yield f"{name} is still set"
        elif value is not None and found != [value] and not (argument.is_removed and not found):
            yield f"{name} does not become {value}"
    env = (new.get("engine") or {}).get("env") or {}
    for name, text in fix.env.items():
        if env.get(name) != text:
            yield f"{name} does not become {text}" if text else f"{name} is still set"
    yield from data_differences(dict(old), dict(new), fix)


def text_differences(
    before: str,
    after: str,
    shown: str,
    touched: Collection[int],
    inserted: Collection[str],
    *,
    more: int = 0,
) -> Iterator[str]:
    """Yield the differences of a file outside its edits.

    `touched` lines may differ, and `inserted` lines are new. `more`: number of additional values
    allowed in YAML.
    """
    untouched = [
        line.rstrip("\r\n")
        for number, line in enumerate(lines_of(before), 1)
        if number not in touched
    ]
    lines = iter([line.rstrip("\r\n") for line in lines_of(after)])
    for line in untouched:
        if all(line != other for other in lines):  # consumes `lines` up to the match
            yield f"an unrelated line was removed: {line.strip()[:60]}"
            return
    if len(lines_of(after)) > len(lines_of(before)) + len(inserted):
        yield "it has more new lines than announced"
    if emptied := emptied_definitions(before, after):
        yield f"the definition of {', '.join(sorted(emptied))} is empty"
    if Path(shown).suffix.lower() in _YAML:
        yield from yaml_differences(before, after, touched, more)


def yaml_differences(
    before: str, after: str, touched: Collection[int], more: int = 0
) -> Iterator[str]:
    """Yield differences between YAML texts. Scalars on untouched lines must be unchanged, in order.

    `more`: number of additional scalars allowed. A scalar over several lines is untouched if none
    of its lines is touched.
    """
    try:
        old = list(_scalars(before))
    except yaml.YAMLError:
        return  # the old text was not valid YAML
    try:
        new = list(_scalars(after))
    except yaml.YAMLError as error:
        yield f"the edited file is not valid YAML: {error}"
        return
    untouched = [scalar for lines, scalar in old if not any(line in touched for line in lines)]
    rest = iter([scalar for _, scalar in new])
    if any(all(scalar != other for other in rest) for scalar in untouched):
        yield "its structure changed"
    if len(new) > len(old) + more:
        yield "it has more values than before"


def _scalars(text: str) -> Iterator[tuple[range, tuple[int, str, str]]]:
    """Yield each scalar's lines, and its depth, tag and text.

    A block scalar has only its first line and no text, because blocks are compared by line.
    """
    depth = 0
    for event in events(text):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.ScalarEvent) and event.start_mark is not None:
            first = event.start_mark.line + 1
            block = event.style in ("|", ">")  # a script inside
            last = first if block or event.end_mark is None else event.end_mark.line + 1
            yield range(first, last + 1), (depth, event.tag or "", "" if block else event.value)


def emptied_definitions(before: str, after: str) -> Counter[str]:
    """Count the definitions of each variable that a change leaves without a value."""
    return Counter(_EMPTY.findall(after)) - Counter(_EMPTY.findall(before))


def require_no_differences(
    verb: str, found: Sequence[str], before: str, after: str, hidden: Iterable[str]
) -> None:
    """Raise RoundTripError if `found` is not empty; save both texts without `hidden` values."""
    if not found:
        return
    where = save_texts(verb, found, before, after, hidden)
    raise RoundTripError(
        f"this is a bug in speclaunch: {verb} produced a text with a different meaning: "
        + Redactor(hidden).text("; ".join(found[:3])),
        help="nothing was written" + (f"; both texts are in {where}" if where else ""),
    )


def save_texts(
    verb: str, what: Sequence[str], before: str, after: str, hidden: Iterable[str]
) -> Path | None:
    """Save both texts without `hidden` values; return the private file, or None on failure."""
    path = speclaunch_home() / f"crash-{verb}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    listed = "\n".join(f"- {line}" for line in what)
    text = f"{verb}\n{listed}\n\n--- before\n{before}\n--- after\n{after}\n"
    text = "\n".join(masked(line) for line in Redactor(hidden).text(text).split("\n"))
    try:
        make_private(path.parent)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        return None
    return path


def secrets_of(invocations: Iterable[Invocation], version: str) -> list[str]:
    """Return the API keys and passwords of commands, wherever they are set."""
    found: list[str] = []
    for invocation in invocations:
        found += [
            word.text
            for name, word in invocation.env.items()
            if (is_secret_variable(name) or holds_secret(word.text)) and word.evaluated
        ]
        words = [word.text for word in invocation.words]
        for item in parse_argv(words, load_catalogue(version), with_values=False).parsed:
            if is_secret_argument(canonical(item.dest)) and isinstance(item.stored, str):
                found.append(item.stored)
        follows = pairwise(words)
        found += [v for flag, v in follows if flag.startswith("--") and is_secret_flag(flag)]
        found += filter(holds_secret, words)
    return [value for value in found if value]
